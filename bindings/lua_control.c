/* lua_control.c - signals and a deadline as Lua errors, and the few file operations that Lua lacks.
 *
 * Ctrl-C must stop compiled code too, which ignores debug hooks. LuaJIT's profiler in mode "l" gives traces a check of
 * a flag, which its SIGPROF handler raises; such a trace leaves for the interpreter, where a hook that raises is seen.
 * Its timer is off, and runs only while a stop waits. For that handler rewrites the tables by which the VM dispatches,
 * and so does the VM when it begins or ends to record: a signal that lands there leaves flag and tables at odds. Then
 * the flag stays up, every trace ends at once, and a loop over LuaJIT's own pairs goes round its exit for ever (2.1 of
 * 2022-03; LuaJIT mended the loop in 2023-08, the tables only where its timer is a thread). So the flag is raised
 * where code that LuaJIT compiled was interrupted, and nowhere else; the interpreter needs the hook alone.
 * The trap: the hook fires at the next Lua instruction, so a C call in progress is finished first. */
#define _GNU_SOURCE
#include <errno.h>
#include <luajit.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "../host/comm/comm.h"
#include "../host/files/files.h"
#include "../host/job/link.h"
#include "../host/job/signals.h"
#include "../host/job/where.h"
#include "gm_lua.h"

static const char shields_key; /* registry: functions by which no stop is raised */
static const char errors_key;  /* registry: list of the error objects to raise, by gm_stop */

/* The others gave this rank up: its C functions were shown (where.h), and this is where it was in Lua. */
static void show_where(lua_State *L, const char *failure)
{
    if (!gm_where_is_silent(failure, gm_link_rank())) return;
    luaL_traceback(L, L, NULL, 0);
    fprintf(stderr, "ganymede: rank %d was here, in Lua:\n%s\n", gm_link_rank(), lua_tostring(L, -1));
    lua_pop(L, 1);
}

void gm_raise_stop(lua_State *L)
{
    gm_stop reason = gm_signals_take();
    if (!gm_signals_pending()) lua_sethook(L, NULL, 0, 0); /* a stop that stays is raised again where it is caught */
    if (reason == GM_STOP_NONE) return;
    const gm_link_peer *peer = gm_link_failure();
    if (reason == GM_STOP_PEER) {
        if (peer) show_where(L, peer->text);
        gm_push_failure_object(L, "new_peer", peer ? peer->code : 1, peer ? peer->text : "another rank has failed");
    } else if (reason == GM_STOP_LINE) {
        lua_pushstring(L, "the line was stopped: it took longer than it may (--limit)");
    } else {
        lua_pushlightuserdata(L, (void *)&errors_key);
        lua_rawget(L, LUA_REGISTRYINDEX);
        lua_rawgeti(L, -1, (int)reason);
    }
    lua_error(L);
}

enum { SHIELD_OWN = 1, SHIELD_ALL };

/* The table of what signals_shield was given. */
static void push_shields(lua_State *L)
{
    lua_pushlightuserdata(L, (void *)&shields_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushlightuserdata(L, (void *)&shields_key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Errors on their way out, and what puts things back: a stop that came between would undo what it is to end. */
static bool is_shielded(lua_State *L)
{
    lua_Debug at;
    bool      shielded = false;
    push_shields(L);
    for (int level = 0; !shielded && lua_getstack(L, level, &at); level++) {
        lua_getinfo(L, "f", &at);
        lua_rawget(L, -2);
        shielded = lua_tointeger(L, -1) >= (level ? SHIELD_ALL : SHIELD_OWN);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return shielded;
}

static void on_hook(lua_State *L, lua_Debug *where)
{
    (void)where;
    if (!is_shielded(L)) gm_raise_stop(L);
}

/* Off and on: tables that were caught half written are written again. */
static void set_hook(lua_State *L)
{
    lua_sethook(L, NULL, 0, 0);
    lua_sethook(L, on_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

#define TICK_MICROSECONDS 10000
#define PATIENT_TICKS     20

static struct {
    pthread_t  vm;
    lua_State *main;
    int        ticks;
    void (*raise_flag)(int signal_number); /* LuaJIT's handler; NULL: traces have no checks */
} compiled;

static void tick_each(long microseconds)
{
    struct itimerval t = {.it_interval.tv_usec = microseconds, .it_value.tv_usec = microseconds};
    setitimer(ITIMER_PROF, &t, NULL);
}

/* What the signal interrupted. */
static bool was_compiled(const ucontext_t *at)
{
#if defined(__x86_64__)
    return gm_where_is_compiled((void *)at->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return gm_where_is_compiled((void *)at->uc_mcontext.pc);
#else
    (void)at;
    return false;
#endif
}

/* While a stop waits. Code that is nearly always inside C functions that it calls is never seen between them: after
 * PATIENT_TICKS the flag is raised wherever it is. */
static void try_to_stop(int signal_number, const ucontext_t *at)
{
    set_hook(compiled.main);
    if (++compiled.ticks > PATIENT_TICKS || was_compiled(at)) compiled.raise_flag(signal_number);
}

/* The timer counts the time of all threads, and Linux hands its signal to whichever of them ran then; what is done
 * here changes what the VM's thread is reading. So that thread alone gets it. */
static void on_tick(int signal_number, siginfo_t *info, void *at)
{
    int error = errno;
    (void)info;
    if (!gm_signals_pass_on(compiled.vm, signal_number)) {
        if (gm_signals_pending()) try_to_stop(signal_number, at);
        else tick_each(0);
    }
    errno = error;
}

/* In the handler of a signal, on the VM's thread. */
static void stop_code(void *main)
{
    set_hook(main);
    if (!compiled.raise_flag) return;
    compiled.ticks = 0;
    tick_each(TICK_MICROSECONDS);
}

static void on_sample(void *context, lua_State *L, int samples, int state)
{
    (void)context, (void)L, (void)samples, (void)state;
}

static void too_early(int signal_number) { (void)signal_number; }

static void check_in_traces(lua_State *L, lua_State *main)
{
    struct sigaction action;
    signal(SIGPROF, too_early); /* LuaJIT starts the timer before it has a handler */
    luaJIT_profile_start(L, "li1000000000", on_sample, NULL);
    tick_each(0);
    sigaction(SIGPROF, NULL, &action);
    compiled.vm = pthread_self();
    compiled.main = main;
    compiled.raise_flag = action.sa_handler;
    action.sa_sigaction = on_tick;
    action.sa_flags |= SA_SIGINFO;
    sigaction(SIGPROF, &action, NULL);
}

/* signals_open({ interrupted, terminated, too_late }: what to raise, patient: REPL?, compiled: also stop traces). */
static int signals_open(lua_State *L)
{
    lua_State *main = gm_lua_rank(L)->main;
    luaL_checktype(L, 1, LUA_TTABLE);
    gm_check_argument(L, lua_objlen(L, 1) == GM_STOP_DEADLINE, 1, "three errors are wanted");
    lua_pushlightuserdata(L, (void *)&errors_key);
    lua_pushvalue(L, 1);
    lua_rawset(L, LUA_REGISTRYINDEX);
    L_TRY(L, gm_signals_open(stop_code, main, lua_toboolean(L, 2)));
    if (lua_toboolean(L, 3)) check_in_traces(L, main);
    return 0;
}

static int signals_close(lua_State *L)
{
    gm_signals_close();
    luaJIT_profile_stop(L);
    compiled.raise_flag = NULL;
    lua_sethook(L, NULL, 0, 0);
    return 0;
}

/* signals_arm(on): interrupts raise only while armed; arming raises one that waits */
static int signals_arm(lua_State *L)
{
    gm_signals_arm(lua_toboolean(L, 1));
    lua_sethook(L, NULL, 0, 0);
    if (!lua_toboolean(L, 1)) return 0;
    gm_link_poll();
    if (gm_signals_pending()) gm_raise_stop(L);
    return 0;
}

/* signals_shield(fn[, own]): no stop is raised in fn, nor in what it calls; own: not in its own instructions */
static int signals_shield(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 2);
    push_shields(L);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, lua_toboolean(L, 2) ? SHIELD_OWN : SHIELD_ALL);
    lua_rawset(L, -3);
    return 0;
}

static bool is_urgent(void *context)
{
    (void)context;
    return gm_signals_urgent();
}

/* signals_terminate_once(): SIGTERMs after the first change nothing */
static int signals_terminate_once(lua_State *L)
{
    (void)L;
    gm_signals_terminate_once();
    return 0;
}

/* signals_watch(): stops also end waits for other ranks; after core.connect */
static int signals_watch(lua_State *L)
{
    gm_comm *c;
    L_TRY(L, gm_rank_comm(gm_lua_rank(L), &c));
    gm_comm_set_interrupt(c, is_urgent, NULL);
    return 0;
}

/* signals_take() -> "interrupt" | "terminate" | "deadline" | "peer" | nil: what waits, which then waits no longer */
static int signals_take(lua_State *L)
{
    static const char *const names[] = {NULL, "interrupt", "terminate", "deadline", "peer", "line"};
    lua_pushstring(L, names[gm_signals_take()]);
    return 1;
}

static int signals_stop_requested(lua_State *L)
{
    lua_pushboolean(L, gm_signals_stop_requested());
    return 1;
}

static int signals_deadline(lua_State *L)
{
    L_TRY(L, gm_signals_deadline(luaL_checknumber(L, 1)));
    return 0;
}

/* signals_limit_line(seconds): a line of a running job that takes longer is stopped; 0: it has ended */
static int signals_limit_line(lua_State *L)
{
    L_TRY(L, gm_signals_limit_line(luaL_checknumber(L, 1)));
    return 0;
}

static int make_folders(lua_State *L)
{
    L_TRY(L, gm_make_folders(luaL_checkstring(L, 1)));
    return 0;
}

static int make_new_folder(lua_State *L)
{
    L_TRY(L, gm_make_new_folder(luaL_checkstring(L, 1)));
    return 0;
}

static int write_whole(lua_State *L)
{
    size_t      n;
    const char *path = luaL_checkstring(L, 1), *bytes = luaL_checklstring(L, 2, &n);
    L_TRY(L, gm_write_whole(path, bytes, n));
    return 0;
}

static int point_link(lua_State *L)
{
    L_TRY(L, gm_point_link(luaL_checkstring(L, 1), luaL_checkstring(L, 2)));
    return 0;
}

/* list_folder(path) -> list of names, in no order; empty when there is no such folder */
static int list_folder(lua_State *L)
{
    enum { LEAST = 1 << 15, MOST = 1 << 29 };
    size_t      count, room = LEAST;
    const char *path = luaL_checkstring(L, 1);
    char       *names = lua_newuserdata(L, room);
    gm_status   st;
    while ((st = gm_list_folder(path, names, room, &count)) == GM_EINVAL && room < MOST) {
        lua_pop(L, 1);
        room *= 4;
        names = lua_newuserdata(L, room);
    }
    L_TRY(L, st);
    lua_createtable(L, (int)count, 0);
    for (size_t i = 1; i <= count; i++, names += strlen(names) + 1) {
        lua_pushstring(L, names);
        lua_rawseti(L, -2, (int)i);
    }
    return 1;
}

/* is_terminal(0|1|2); what rank 0 of a supervised job writes goes where the supervisor's output goes */
static int is_terminal(lua_State *L)
{
    int         fd = (int)luaL_checkinteger(L, 1);
    const char *behind = fd == STDOUT_FILENO && gm_link_rank() == 0 ? getenv("GANYMEDE_TERMINAL") : NULL;
    lua_pushboolean(L, isatty(fd) || (behind && !strcmp(behind, "yes")));
    return 1;
}

/* terminal_columns() -> the width of the terminal that standard output goes to; nil: it is none, or hides its width */
static int terminal_columns(lua_State *L)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col) return 0;
    lua_pushinteger(L, size.ws_col);
    return 1;
}

/* environment(prefix) -> list of the names of variables that begin so */
static int environment(lua_State *L)
{
    size_t      n;
    const char *prefix = luaL_checklstring(L, 1, &n);
    lua_newtable(L);
    for (char **e = environ; *e; e++) {
        const char *end = strchr(*e, '=');
        if (!end || strncmp(*e, prefix, n)) continue;
        lua_pushlstring(L, *e, (size_t)(end - *e));
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    }
    return 1;
}

/* sleep(seconds): does nothing for so long; Ctrl-C and the like end it with their error */
static int sleep_for(lua_State *L)
{
    double          seconds = luaL_checknumber(L, 1);
    struct timespec until;
    gm_check_argument(L, seconds >= 0 && seconds < 1e6, 1, "a number of seconds was expected");
    clock_gettime(CLOCK_MONOTONIC, &until);
    long nanoseconds = until.tv_nsec + (long)(1e9 * (seconds - floor(seconds)));
    until.tv_sec += (time_t)seconds + nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        if (gm_signals_pending()) gm_raise_stop(L);
    return 0;
}

/* process() -> { pid, host, user_seconds, system_seconds, resident_peak } */
static int process(lua_State *L)
{
    char          host[256] = "", folder[PATH_MAX];
    struct rusage u;
    gethostname(host, sizeof host - 1);
    getrusage(RUSAGE_SELF, &u);
    lua_createtable(L, 0, 6);
    lua_pushinteger(L, (lua_Integer)getpid());
    lua_setfield(L, -2, "pid");
    lua_pushstring(L, host);
    lua_setfield(L, -2, "host");
    lua_pushnumber(L, (double)u.ru_utime.tv_sec + 1e-6 * (double)u.ru_utime.tv_usec);
    lua_setfield(L, -2, "user_seconds");
    lua_pushnumber(L, (double)u.ru_stime.tv_sec + 1e-6 * (double)u.ru_stime.tv_usec);
    lua_setfield(L, -2, "system_seconds");
    lua_pushnumber(L, 1024.0 * (double)u.ru_maxrss);
    lua_setfield(L, -2, "resident_peak");
    lua_pushstring(L, getcwd(folder, sizeof folder));
    lua_setfield(L, -2, "folder");
    return 1;
}

int gm_open_control(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("signals_open", signals_open, "raised table, patient boolean?, compiled boolean?"),
        GM_FUNCTION("signals_close", signals_close, ""),
        GM_FUNCTION("signals_arm", signals_arm, "on boolean"),
        GM_FUNCTION("signals_shield", signals_shield, "fn function, own boolean?"),
        GM_FUNCTION("signals_take", signals_take, ""),
        GM_FUNCTION("signals_watch", signals_watch, ""),
        GM_FUNCTION("signals_terminate_once", signals_terminate_once, ""),
        GM_FUNCTION("signals_stop_requested", signals_stop_requested, ""),
        GM_FUNCTION("signals_deadline", signals_deadline, "seconds number"),
        GM_FUNCTION("signals_limit_line", signals_limit_line, "seconds number"),
        GM_FUNCTION("make_folders", make_folders, "path string"),
        GM_FUNCTION("make_new_folder", make_new_folder, "path string"),
        GM_FUNCTION("write_whole", write_whole, "path string, text string"),
        GM_FUNCTION("point_link", point_link, "path string, target string"),
        GM_FUNCTION("list_folder", list_folder, "path string"),
        GM_FUNCTION("is_terminal", is_terminal, "fd integer"),
        GM_FUNCTION("terminal_columns", terminal_columns, ""),
        GM_FUNCTION("process", process, ""),
        GM_FUNCTION("environment", environment, "prefix string"),
        GM_FUNCTION("sleep", sleep_for, "seconds number"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
