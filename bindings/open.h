/* open.h - what bindings/ shows to host/embed.c. */
#ifndef GM_OPEN_H
#define GM_OPEN_H

struct lua_State;
struct gm_rank;

/* Makes module "ganymede.core" available in L, working on the given rank (borrowed; outlives L). */
void gm_preload(struct lua_State *L, struct gm_rank *rank);

#endif
