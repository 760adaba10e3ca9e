/* lua_launch.c - the Lua face of host/job: supervise.h (userdata "gm.job") and link.h (in a rank). */
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../host/job/supervise.h"
#include "../host/job/link.h"
#include "gm_lua.h"

#define JOB "gm.job"

typedef struct box {
    gm_supervisor *job;
    char         **words; /* one block: argv, NULL, environment, NULL, then the strings; lives as long as the job */
} box;

/* ---- the supervisor ---- */

static size_t count_words(lua_State *L, const char *field, size_t *bytes)
{
    size_t n, length;
    lua_getfield(L, 1, field);
    luaL_checktype(L, -1, LUA_TTABLE);
    n = lua_objlen(L, -1);
    for (size_t i = 1; i <= n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, -1, (int)i);
        luaL_checklstring(L, -1, &length);
        *bytes += length + 1;
    }
    lua_pop(L, 1);
    return n;
}

static char *copy_words(lua_State *L, const char *field, char **list, char *room)
{
    lua_getfield(L, 1, field);
    for (int i = 1, n = (int)lua_objlen(L, -1); i <= n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, -1, i);
        *list++ = room;
        room = stpcpy(room, lua_tostring(L, -1)) + 1;
    }
    lua_pop(L, 1);
    return room;
}

/* job_start{ ranks =, argv = {}, environment = {}, folders = {}, cpus = 0, timeout = 0, spent = 0,
 * interactive = false } -> job */
static int job_start(lua_State *L)
{
    size_t bytes = 0, argv, environment, folders;
    luaL_checktype(L, 1, LUA_TTABLE);
    argv = count_words(L, "argv", &bytes);
    environment = count_words(L, "environment", &bytes);
    folders = count_words(L, "folders", &bytes);
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, JOB);
    lua_setmetatable(L, -2);
    b->words = calloc(1, (argv + environment + folders + 3) * sizeof *b->words + bytes);
    if (!b->words) return luaL_error(L, "no memory for a command");
    char **second = b->words + argv + 1, **third = second + environment + 1;
    char  *room = copy_words(L, "argv", b->words, (char *)(third + folders + 1));
    room = copy_words(L, "environment", second, room);
    copy_words(L, "folders", third, room);
    gm_supervisor_options o = {.ranks = (int)gm_field_number(L, 1, "ranks", 1),
                               .argv = b->words,
                               .environment = second,
                               .folders = third,
                               .cpus = (int)gm_field_number(L, 1, "cpus", 0),
                               .timeout = gm_field_number(L, 1, "timeout", 0),
                               .spent = gm_field_number(L, 1, "spent", 0),
                               .interactive = gm_field_flag(L, 1, "interactive")};
    L_TRY(L, gm_supervisor_start(&o, &b->job));
    return 1;
}

static int job_gc(lua_State *L)
{
    box *b = gm_check_object(L, 1, JOB);
    gm_supervisor_free(b->job);
    free(b->words);
    *b = (box){0};
    return 0;
}

gm_supervisor *gm_lua_supervisor(lua_State *L, int arg)
{
    box *b = gm_check_object(L, arg, JOB);
    if (!b->job) gm_bad_argument(L, arg, "this job was closed");
    return b->job;
}

static gm_supervisor *check_job(lua_State *L) { return gm_lua_supervisor(L, 1); }

/* job:wait([seconds]) -> "failed" | "idle" | "stopped" | "ended" | "quiet": none of these within so many seconds */
static int job_wait(lua_State *L)
{
    static const char *const names[] = {"failed", "idle", "readable", "stopped", "ended", "quiet"};
    gm_supervisor_event      event = GM_RANKS_ENDED;
    L_TRY(L, gm_supervisor_wait(check_job(L), -1, luaL_optnumber(L, 2, -1), &event));
    lua_pushstring(L, names[event]);
    return 1;
}

/* job:first() -> { rank (nil: the job), code, text } or nil */
static int job_first(lua_State *L)
{
    const gm_supervisor_failure *f = gm_supervisor_first(check_job(L));
    if (!f) return 0;
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, f->code);
    lua_setfield(L, -2, "code");
    lua_pushstring(L, f->text);
    lua_setfield(L, -2, "text");
    if (f->rank < 0) return 1;
    lua_pushinteger(L, f->rank);
    lua_setfield(L, -2, "rank");
    return 1;
}

/* job:asked() -> "interrupt" | "terminate" | "deadline" | nil: the stop that was asked for */
static int job_asked(lua_State *L)
{
    static const char *const names[] = {NULL, "interrupt", "terminate", "deadline", NULL};
    lua_pushstring(L, names[gm_supervisor_asked(check_job(L))]);
    return 1;
}

/* job:status() -> exit status, when it has ended */
static int job_status(lua_State *L)
{
    lua_pushinteger(L, gm_supervisor_status(check_job(L)));
    return 1;
}

/* job:send(rank or nil for all, kind, text) */
static int job_send(lua_State *L)
{
    size_t      n;
    int         rank = (int)luaL_optinteger(L, 2, -1), kind = (int)luaL_checkinteger(L, 3);
    const char *text = luaL_checklstring(L, 4, &n);
    L_TRY(L, gm_supervisor_send(check_job(L), rank, kind, text, n));
    return 0;
}

/* job:answer(rank) -> kind, text; nil: none */
static int job_answer(lua_State *L)
{
    size_t      n = 0;
    int         kind = 0;
    const char *text = gm_supervisor_answer(check_job(L), (int)luaL_checkinteger(L, 2), &kind, &n);
    if (!text) return 0;
    lua_pushinteger(L, kind);
    lua_pushlstring(L, text, n);
    return 2;
}

/* job:leaving() -> exit status or nil */
static int job_leaving(lua_State *L)
{
    int code = gm_supervisor_leaving(check_job(L));
    if (code < 0) return 0;
    lua_pushinteger(L, code);
    return 1;
}

/* job:output_error() -> why not all that ranks printed could be written, or nil */
static int job_output_error(lua_State *L)
{
    int error = gm_supervisor_output_error(check_job(L));
    if (!error) return 0;
    lua_pushstring(L, strerror(error));
    return 1;
}

/* job:terminate(): as SIGTERM does */
static int job_terminate(lua_State *L)
{
    gm_supervisor_stop(check_job(L), GM_STOP_TERMINATE);
    return 0;
}

/* job:hear(stops): whether this job takes the stops that come to this process */
static int job_hear(lua_State *L)
{
    gm_supervisor_hear(check_job(L), lua_toboolean(L, 2));
    return 0;
}

/* job:folder() -> its private folder */
static int job_folder_path(lua_State *L)
{
    lua_pushstring(L, gm_supervisor_folder(check_job(L)));
    return 1;
}

/* job:kill(): all its ranks, of a job that has failed */
static int job_kill(lua_State *L)
{
    gm_supervisor_kill(check_job(L));
    return 0;
}

/* ---- the rank ---- */

/* link_rank() -> this process's rank in the job of the supervisor that started it, or nil */
static int link_rank(lua_State *L)
{
    if (gm_link_rank() < 0) return 0;
    lua_pushinteger(L, gm_link_rank());
    return 1;
}

/* link_joined(): tells the supervisor, if there is one, that this rank has joined the others */
static int link_joined(lua_State *L)
{
    (void)L;
    gm_link_joined();
    return 0;
}

/* link_fail(code, text[, agreed]) -> does a supervisor know, and will it tell the user? */
static int link_fail(lua_State *L)
{
    size_t      n;
    int         code = (int)luaL_checkinteger(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    lua_pushboolean(L, gm_link_fail(code, text, n, lua_toboolean(L, 3)));
    return 1;
}

static int link_fail_of_peer(lua_State *L)
{
    lua_pushboolean(L, gm_link_fail_of_peer((int)luaL_checkinteger(L, 1)));
    return 1;
}

/* link_done(exit status) */
static int link_done(lua_State *L)
{
    lua_pushboolean(L, gm_link_done((int)luaL_checkinteger(L, 1)));
    return 1;
}

/* forget_launcher(): what this process starts from now on is no rank of this job */
static int forget_launcher(lua_State *L)
{
    (void)L;
    gm_link_forget_launcher();
    return 0;
}

/* link_ready(exit status or nil): a line is awaited */
static int link_ready(lua_State *L)
{
    lua_pushboolean(L, gm_link_ready((int)luaL_optinteger(L, 1, -1)));
    return 1;
}

/* link_read() -> kind, text; nil, true: a stop is pending; nil, false: the supervisor is gone */
static int link_read(lua_State *L)
{
    luaL_Buffer b;
    gm_packet  *p = lua_newuserdata(L, sizeof *p);
    int         got;
    luaL_buffinit(L, &b);
    do {
        got = gm_link_read(p);
        if (got <= 0) break;
        luaL_addlstring(&b, p->text, p->n);
    } while (p->more);
    luaL_pushresult(&b);
    if (got <= 0) {
        lua_pushnil(L);
        lua_pushboolean(L, got == 0);
        return 2;
    }
    lua_pushinteger(L, p->code);
    lua_insert(L, -2);
    return 2;
}

/* link_waiting() -> has the supervisor sent a line that was not read? */
static int link_waiting(lua_State *L)
{
    lua_pushboolean(L, gm_link_has_line());
    return 1;
}

/* link_answer(kind, text) */
static int link_answer(lua_State *L)
{
    size_t      n;
    const char *text = luaL_checklstring(L, 2, &n);
    lua_pushboolean(L, gm_link_answer((int)luaL_checkinteger(L, 1), text, n));
    return 1;
}

/* The file of this program. Where it was replaced while it ran, the kernel calls it "PATH (deleted)": that is the one
 * which lies there now. */
static int executable(lua_State *L)
{
    static const char gone[] = " (deleted)";
    char              path[PATH_MAX + 1];
    ssize_t           n = readlink("/proc/self/exe", path, PATH_MAX);
    if (n < 0) return luaL_error(L, "cannot read /proc/self/exe");
    path[n] = 0;
    char *end = path + n - (sizeof gone - 1);
    if (end > path && !strcmp(end, gone) && access(path, F_OK)) *end = 0;
    lua_pushstring(L, path);
    return 1;
}

int gm_open_launch(lua_State *L)
{
    static const gm_declaration methods[] = {
        GM_FUNCTION("wait", job_wait, "job object, seconds number?"),
        GM_FUNCTION("first", job_first, "job object"),
        GM_FUNCTION("asked", job_asked, "job object"),
        GM_FUNCTION("status", job_status, "job object"),
        GM_FUNCTION("send", job_send, "job object, rank integer?, kind integer, text string"),
        GM_FUNCTION("answer", job_answer, "job object, rank integer"),
        GM_FUNCTION("leaving", job_leaving, "job object"),
        GM_FUNCTION("output_error", job_output_error, "job object"),
        GM_FUNCTION("close", job_gc, "job object"),
        GM_FUNCTION("terminate", job_terminate, "job object"),
        GM_FUNCTION("hear", job_hear, "job object, stops boolean"),
        GM_FUNCTION("folder", job_folder_path, "job object"),
        GM_FUNCTION("kill", job_kill, "job object"),
        GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("job_start", job_start, "about table"),
        GM_FUNCTION("link_rank", link_rank, ""),
        GM_FUNCTION("link_joined", link_joined, ""),
        GM_FUNCTION("link_fail", link_fail, "code integer, text string, agreed boolean?"),
        GM_FUNCTION("link_fail_of_peer", link_fail_of_peer, "code integer"),
        GM_FUNCTION("link_done", link_done, "status integer"),
        GM_FUNCTION("forget_launcher", forget_launcher, ""),
        GM_FUNCTION("link_ready", link_ready, "status integer?"),
        GM_FUNCTION("link_read", link_read, ""),
        GM_FUNCTION("link_waiting", link_waiting, ""),
        GM_FUNCTION("link_answer", link_answer, "kind integer, text string"),
        GM_FUNCTION("executable", executable, ""),
        GM_LAST_FUNCTION};
    gm_new_class(L, JOB, methods, job_gc);
    gm_declare(L, functions);
    return 0;
}
