/* next.c - pairs and next for all Lua code of this process, which LuaJIT does not compile.
 *
 * LuaJIT compiles `next`, and loops over `pairs` and `next`, since September 2021, and wrongly in several ways:
 *   - nested loops end early without an error (its issues 827 and 1510);
 *   - an exit leads back into the loop (issue 1000);
 *   - until April 2022, the two results of `next` are swapped with half of their bits: an address of a table loses
 *     its upper half, and the process ends with a segmentation fault (issue 829). Whether this happens depends on
 *     addresses: one run in a hundred of a spec that copies many tables, with Debian 12's libluajit-5.1-2.
 * All three need the built-in `next`: instructions for loops check for it, and the compiler knows it by a number. What
 * is around a call of these functions is still compiled. */
#include "open.h"

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>

/* next(table, key): key, value; nil at the end. */
static int next_of_table(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

/* pairs(table): next, table, nil. Upvalue 1: next_of_table. */
static int pairs_of_table(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

void gm_replace_next(lua_State *L)
{
    lua_pushcfunction(L, next_of_table);
    lua_pushvalue(L, -1);
    lua_setglobal(L, "next");
    lua_pushcclosure(L, pairs_of_table, 1);
    lua_setglobal(L, "pairs");
    lua_getglobal(L, "table"); /* table.foreach is Lua code with such a loop */
    lua_getfield(L, -1, "foreach");
    luaJIT_setmode(L, -1, LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);
    lua_pop(L, 2);
}
