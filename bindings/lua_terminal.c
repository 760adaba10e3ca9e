/* lua_terminal.c - the Lua face of host/job/terminal.h: userdata "gm.terminal".
 *
 *     local terminal = core.terminal_open(history_file, complete)
 *     local line, interrupted, terminated = terminal:read "> "
 *
 * line is nil at the end of input, and when Ctrl-C or SIGTERM came; the other two tell which.
 *
 * complete(text before the cursor) -> text to insert or nil, lines to show or nil. It may raise; then
 * nothing is completed. */
#define _GNU_SOURCE
#include <string.h>

#include "../host/job/signals.h"
#include "../host/job/supervise.h"
#include "../host/job/terminal.h"
#include "gm_lua.h"

#define TERMINAL "gm.terminal"

typedef struct box {
    gm_terminal          *terminal;
    lua_State            *L;        /* the state that reads, while it reads */
    int                   function; /* reference of `complete`, or LUA_NOREF */
    struct gm_supervisor *ranks;    /* to be seen to while waiting; NULL: none */
} box;

static char *copied(lua_State *L, int at) { return lua_isstring(L, at) ? strdup(lua_tostring(L, at)) : NULL; }

static void complete(void *context, const char *line, char **insert, char **list)
{
    box       *b = context;
    lua_State *L = b->L;
    int        top = lua_gettop(L);
    if (b->function == LUA_NOREF || !lua_checkstack(L, 8)) return;
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->function);
    lua_pushstring(L, line);
    if (!lua_pcall(L, 1, 2, 0)) {
        *insert = copied(L, -2);
        *list = copied(L, -1);
    }
    lua_settop(L, top);
}

static int terminal_gc(lua_State *L)
{
    box *b = gm_check_object(L, 1, TERMINAL);
    gm_terminal_close(b->terminal);
    b->terminal = NULL;
    luaL_unref(L, LUA_REGISTRYINDEX, b->function);
    b->function = LUA_NOREF;
    return 0;
}

static box *check_open(lua_State *L)
{
    box *b = gm_check_object(L, 1, TERMINAL);
    if (!b->terminal) gm_bad_argument(L, 1, "this terminal was closed");
    return b;
}

/* While a line is awaited, so are the ranks; the failure of one ends the wait. */
static int wait_with_ranks(void *context, int fd)
{
    gm_supervisor_event event;
    box                *b = context;
    for (;;) {
        if (gm_supervisor_wait(b->ranks, fd, -1, &event) != GM_OK) return -1;
        if (event == GM_RANKS_READABLE) return 1;
        if (event == GM_RANKS_FAILED || event == GM_RANKS_ENDED || event == GM_RANKS_STOPPED) return 0;
    }
}

/* terminal:watch(job or nil): see to the ranks of a job while waiting; it must live as long */
static int terminal_watch(lua_State *L)
{
    box *b = check_open(L);
    b->ranks = lua_isnoneornil(L, 2) ? NULL : gm_lua_supervisor(L, 2);
    gm_terminal_set_wait(b->terminal, b->ranks ? wait_with_ranks : NULL, b);
    return 0;
}

/* terminal_open(history file or nil, complete or nil) -> terminal */
static int terminal_open(lua_State *L)
{
    const char *history = luaL_optstring(L, 1, NULL);
    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){.L = L, .function = LUA_NOREF};
    luaL_getmetatable(L, TERMINAL);
    lua_setmetatable(L, -2);
    if (!lua_isnil(L, 2)) {
        lua_pushvalue(L, 2);
        b->function = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    L_TRY(L, gm_terminal_open(history, complete, b, &b->terminal));
    return 1;
}

static int terminal_read(lua_State *L)
{
    box        *b = check_open(L);
    const char *line = NULL;
    gm_input    what = GM_INPUT_END;
    b->L = L;
    L_TRY(L, gm_terminal_read(b->terminal, luaL_optstring(L, 2, ""), &what, &line));
    if (line) lua_pushstring(L, line);
    else lua_pushnil(L);
    lua_pushboolean(L, what == GM_INPUT_INTERRUPTED);
    lua_pushboolean(L, what == GM_INPUT_INTERRUPTED && gm_signals_take() == GM_STOP_TERMINATE);
    return 3;
}

static int terminal_remember(lua_State *L)
{
    box *b = check_open(L);
    L_TRY(L, gm_terminal_remember(b->terminal, luaL_checkstring(L, 2)));
    return 0;
}

static int terminal_interactive(lua_State *L)
{
    lua_pushboolean(L, gm_terminal_is_interactive(check_open(L)->terminal));
    return 1;
}

int gm_open_terminal(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("read", terminal_read, "terminal object, prompt string?"),
                                             GM_FUNCTION("remember", terminal_remember, "terminal object, line string"),
                                             GM_FUNCTION("is_interactive", terminal_interactive, "terminal object"),
                                             GM_FUNCTION("watch", terminal_watch, "terminal object, job object?"),
                                             GM_FUNCTION("close", terminal_gc, "terminal object"),
                                             GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("terminal_open", terminal_open, "history string?, complete function?"), GM_LAST_FUNCTION};
    gm_new_class(L, TERMINAL, methods, terminal_gc);
    gm_declare(L, functions);
    return 0;
}
