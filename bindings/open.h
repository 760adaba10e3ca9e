/* open.h - what bindings/ shows to host/embed.c. */
#ifndef GM_OPEN_H
#define GM_OPEN_H

struct lua_State;
struct gm_rank;

/* Makes module "ganymede.core" available in L, working on the given rank (borrowed; outlives L). */
void gm_preload(struct lua_State *L, struct gm_rank *rank);

/* Adds a searcher of modules "ganymede..." before that of package.path: it takes them from the archive of files that
 * were compiled with the program (modules.c), if there is one of this LuaJIT beside it. root: the folder that holds
 * lua/; borrowed for as long as L lives. */
void gm_add_module_searcher(struct lua_State *L, const char *root);

#endif
