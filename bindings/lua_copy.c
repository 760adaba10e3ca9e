/* lua_copy.c - a Lua function in a copy of this process: what it changes, breaks or never ends is the copy's alone.
 *
 * The copy has this thread and no other, so nothing that has started threads may call it (a device, a job of ranks).
 * It stays in the group of processes, so that Ctrl-C reaches it, and ends with this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../host/comm/comm.h"
#include "../host/job/signals.h"
#include "../kernels/clock.h"
#include "gm_lua.h"

static bool put_file(const char *path, int flags, int as)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    return fd >= 0 && dup2(fd, as) == as && !close(fd);
}

/* What the copy does: never returns. Its function is on the top of the stack. */
static void run_copy(lua_State *L, pid_t parent, const char *out, const char *err)
{
    const int changed = O_WRONLY | O_CREAT | O_TRUNC;
    int       code = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (!put_file("/dev/null", O_RDONLY, 0) || !put_file(out, changed, 1) || !put_file(err, changed, 2)) _exit(1);
    if (!lua_pcall(L, 0, 1, 0)) {
        code = (int)lua_tointeger(L, -1);
    } else {
        fprintf(stderr, "ganymede: %s\n", lua_isstring(L, -1) ? lua_tostring(L, -1) : "an error that is no text");
    }
    fflush(NULL);
    _exit(code); /* the memory goes with the process, and the files of the first one are not ours to close */
}

/* Waits for the copy, whose end of the pipe closes with it. False: it has not ended by then, or a stop is pending. */
static bool wait_until(int fd, double end)
{
    struct pollfd file = {.fd = fd, .events = POLLIN};
    for (;;) {
        double left = end - gm_now();
        if (left <= 0) return false;
        int ready = gm_signals_poll(&file, 1, (int)fmin(1e3 * left + 1, 1e9));
        if (ready > 0) return true;
        if (ready < 0 || gm_signals_urgent()) return false;
    }
}

static int collect(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* run_in_copy(fn, seconds, out, err) -> "ended", exit status (what fn returns; 1: it raised) | "killed", signal |
 * "late". out and err: files for what the copy prints. */
static int run_in_copy(lua_State *L)
{
    double      seconds = luaL_checknumber(L, 2);
    const char *out = luaL_checkstring(L, 3), *err = luaL_checkstring(L, 4);
    int         ends[2];
    if (!(seconds > 0)) return gm_bad_argument(L, 2, "a copy needs more than 0 seconds");
    if (pipe2(ends, O_CLOEXEC)) return luaL_error(L, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t self = getpid(), pid = fork();
    if (!pid) {
        close(ends[0]);
        lua_pushvalue(L, 1);
        run_copy(L, self, out, err);
    }
    close(ends[1]);
    if (pid < 0) {
        int why = errno;
        close(ends[0]);
        return luaL_error(L, "cannot start a process: %s", strerror(why));
    }
    bool ended = wait_until(ends[0], gm_now() + seconds);
    if (!ended) kill(pid, SIGKILL);
    close(ends[0]);
    int status = collect(pid);
    if (!ended) {
        lua_pushliteral(L, "late");
        return 1;
    }
    lua_pushstring(L, WIFEXITED(status) ? "ended" : "killed");
    lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return 2;
}

int gm_open_copy(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("run_in_copy", run_in_copy, "fn function, seconds number, out string, err string"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
