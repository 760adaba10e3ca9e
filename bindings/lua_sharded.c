/* lua_sharded.c - the Lua face of host/parallel/sharded: ops on cut tensors that communicate inside. */
#include "gm_lua.h"

#include "../host/parallel/sharded/sharded.h"

/* sharded_linear(x, w, keep_gathered or nil): x (..., in), w (out, in) -> (..., out); collective */
static int sharded_linear(lua_State *L)
{
    gm_value  *x = gm_check_value(L, 1), *w = gm_check_value(L, 2), *y;
    gm_rank   *r = gm_lua_rank(L);
    bool       keep = lua_toboolean(L, 3);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_sharded_linear(r, x, w, keep, &y));
    gm_handle_fill(r, h, y, "linear");
    return 1;
}

int gm_open_sharded(lua_State *L)
{
    static const luaL_Reg functions[] = {{"sharded_linear", sharded_linear}, {NULL, NULL}};
    luaL_register(L, NULL, functions);
    return 0;
}
