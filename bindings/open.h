/* open.h - what bindings/ shows to host/embed.c. */
#ifndef GM_OPEN_H
#define GM_OPEN_H

struct lua_State;
struct gm_rank;

/* Makes the module "ganymede.core" available in L. It works on the given rank, which is borrowed and must outlive L. */
void gm_preload(struct lua_State *L, struct gm_rank *rank);

/* Replaces pairs and next, which LuaJIT compiles wrongly, by functions that it does not compile (next.c). To be called
 * after the standard libraries are open and before any Lua code runs. */
void gm_replace_next(struct lua_State *L);

/* Adds a searcher for modules "ganymede...", in front of that of package.path. It takes them from the archive of files
 * that were compiled with the program (modules.c), if the archive lies beside the program and is of this LuaJIT. root:
 * the folder that holds lua/; borrowed for as long as L lives. */
void gm_add_module_searcher(struct lua_State *L, const char *root);

#endif
