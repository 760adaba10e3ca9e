/* lua_sharded.c - settings of host/parallel/sharded; its ops are those of lua_ops.c. */
#include "gm_lua.h"

/* keep_gathered(on) -> what it was: products keep what they gathered for backward, instead of gathering again */
static int keep_gathered(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    lua_pushboolean(L, r->keep_gathered);
    r->keep_gathered = lua_toboolean(L, 1);
    return 1;
}

/* poison_padding(on): from now on NaN lies wherever host/autograd/padding.h promises no zeros; for specs */
static int poison_padding(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    gm_lua_rank(L)->poison_padding = lua_toboolean(L, 1);
    return 0;
}

int gm_open_sharded(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("keep_gathered", keep_gathered, "on boolean"),
                                               GM_FUNCTION("poison_padding", poison_padding, "on boolean"),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
