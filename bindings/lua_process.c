/* lua_process.c - programs that run beside this one (host/job/process.h) for Lua: userdata "gm.program". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../host/job/process.h"
#include "gm_lua.h"

#define PROGRAM "gm.program"

static gm_process *check_program(lua_State *L) { return gm_check_object(L, 1, PROGRAM); }

/* program_start(argv[, path]) -> program: starts argv[1], found as sh finds it; what it prints is added to the file;
 * without one it goes where the output of this process goes */
static int program_start(lua_State *L)
{
    size_t      n = lua_objlen(L, 1);
    const char *path = luaL_optstring(L, 2, NULL);
    gm_check_argument(L, n > 0, 1, "a list of words was expected, and it is empty");
    char **argv = lua_newuserdata(L, (n + 1) * sizeof *argv); /* the words stay in their table meanwhile */
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, 1, (int)i + 1);
        gm_check_argument(L, lua_type(L, -1) == LUA_TSTRING, 1, "a list of strings was expected");
        argv[i] = (char *)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    argv[n] = NULL;
    gm_process *p = lua_newuserdata(L, sizeof *p);
    *p = (gm_process){.said = {.from = -1}};
    luaL_getmetatable(L, PROGRAM);
    lua_setmetatable(L, -2);
    int output = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (path && output < 0) return luaL_error(L, "cannot write %s: %s", path, strerror(errno));
    gm_status status = gm_process_start_into(p, argv, output);
    if (path) close(output);
    L_TRY(L, status);
    return 1;
}

/* program:ended() -> its exit status, once; 128 + n if signal n ended it; nil: it has not ended, or this was told */
static int ended(lua_State *L)
{
    int status;
    if (!gm_process_ended(check_program(L), &status)) return 0;
    lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 1;
}

/* program:signal("terminate" | "kill" | "interrupt") */
static int send_signal(lua_State *L)
{
    static const char *const names[] = {"terminate", "kill", "interrupt", NULL};
    static const int         numbers[] = {SIGTERM, SIGKILL, SIGINT};
    gm_process_signal(check_program(L), numbers[gm_check_option(L, 2, NULL, names)]);
    return 0;
}

/* program:pid() -> its number; nil: it has ended */
static int pid(lua_State *L)
{
    if (!check_program(L)->pid) return 0;
    lua_pushinteger(L, check_program(L)->pid);
    return 1;
}

static int collect(lua_State *L)
{
    gm_process_end(lua_touserdata(L, 1), 5);
    return 0;
}

int gm_open_process(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("ended", ended, "program object"),
                                             GM_FUNCTION("signal", send_signal, "program object, name string"),
                                             GM_FUNCTION("pid", pid, "program object"), GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {GM_FUNCTION("program_start", program_start, "argv table, path string?"),
                                               GM_LAST_FUNCTION};
    gm_new_class(L, PROGRAM, methods, collect);
    gm_declare(L, functions);
    return 0;
}
