/* embed.c - the one file of host/ that includes Lua. It opens a state, adds our modules to its path,
 * and hands argv to ganymede.cli.main, which catches its own errors and returns an exit status. */
#include "embed.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdlib.h>
#include "../bindings/open.h"
#include "autograd/tape.h"

static int traceback(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TSTRING) return 1; /* error objects pass unchanged */
    lua_getglobal(L, "debug");
    lua_getfield(L, -1, "traceback");
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 2);
    lua_call(L, 2, 1);
    return 1;
}

/* Adds what a variable of the environment lists to the path on the top of the stack, behind it; pops it. */
static void set_field_and_own(lua_State *L, const char *field, const char *variable)
{
    const char *own = getenv(variable);
    if (own && *own) {
        lua_pushfstring(L, "%s;%s", lua_tostring(L, -1), own);
        lua_remove(L, -2);
        luaL_gsub(L, lua_tostring(L, -1), ";;", ";"); /* where LuaJIT would put its own path */
        lua_remove(L, -2);
    }
    lua_setfield(L, -2, field);
}

/* <root>/lua first, then Debian's folders, then LUA_PATH and LUA_CPATH: they add modules and shadow none of ours. The
 * current folder is searched only if they name it. */
static void set_path(lua_State *L, const char *root)
{
    lua_getglobal(L, "package");
    lua_pushfstring(L,
                    "%s/lua/?.lua;%s/lua/?/init.lua;/usr/local/share/lua/5.1/?.lua;/usr/local/share/lua/5.1/?/init.lua;"
                    "/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua",
                    root, root);
    set_field_and_own(L, "path", "LUA_PATH");
    lua_getfield(L, -1, "cpath");
    luaL_gsub(L, lua_tostring(L, -1), "./?.so;", "");
    lua_remove(L, -2);
    set_field_and_own(L, "cpath", "LUA_CPATH");
    lua_pop(L, 1);
    lua_pushstring(L, root);
    lua_setglobal(L, "GANYMEDE_ROOT");
}

/* main(argv) under a traceback; everything that may raise happens in here. argument 1: the frame. */
typedef struct frame {
    const char *root;
    int         argc;
    char      **argv;
    gm_rank    *rank;
} frame;

static int protected_main(lua_State *L)
{
    frame *f = lua_touserdata(L, 1);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV"); /* set_path reads the environment */
    luaL_openlibs(L);
    gm_replace_next(L);
    gm_preload(L, f->rank);
    set_path(L, f->root);
    gm_add_module_searcher(L, f->root);
    lua_getglobal(L, "require");
    lua_pushstring(L, "ganymede.cli");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "main");
    lua_createtable(L, f->argc, 0);
    for (int i = 1; i < f->argc; i++) {
        lua_pushstring(L, f->argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_call(L, 1, 1);
    return 1;
}

gm_status gm_embed_run(gm_rank *rank, const char *root, int argc, char **argv, int *exit_code)
{
    gm_status  st = GM_OK;
    frame      f = {root, argc, argv, rank};
    lua_State *L = luaL_newstate();
    if (!L) return GM_FAIL(GM_ENOMEM, "cannot open a Lua state");
    lua_pushcfunction(L, traceback);
    lua_pushcfunction(L, protected_main);
    lua_pushlightuserdata(L, &f);
    if (lua_pcall(L, 1, 1, 1)) {
        const char *text = lua_tostring(L, -1);
        st = gm_fail_again(GM_ELUA, text ? text : "an error object that is not a string reached the host");
    } else {
        *exit_code = (int)lua_tointeger(L, -1);
    }
    /* A rank that failed ends now, with whatever was under way: there is nothing left to close in good order. */
    if (rank->world > 1 && (st != GM_OK || *exit_code)) return st;
    gm_tape_drop(rank); /* its callbacks live in the state */
    lua_close(L);
    return st;
}
