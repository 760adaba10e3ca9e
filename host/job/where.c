/* where.c - see where.h. The handler calls nothing that allocates. It unwinds frame by frame and ends at one of no
 * library: that is code that LuaJIT compiled, whose frames cannot be left (libgcc aborts). */
#define _GNU_SOURCE
#include "where.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>
#include "signals.h"

#define DEPTH 64

static struct {
    pthread_t thread;
    char      words[80];
} self;

int gm_where_signal(void) { return GM_SIGNAL_WHERE; }

static void say(const char *words)
{
    ssize_t ignored = write(STDERR_FILENO, words, strlen(words));
    (void)ignored;
}

bool gm_where_is_silent(const char *failure, int rank)
{
    char words[64];
    snprintf(words, sizeof words, "rank %d does not answer", rank);
    if (strstr(failure, words)) return true;
    snprintf(words, sizeof words, "rank %d has not come: it computes", rank);
    return strstr(failure, words) != NULL;
}

bool gm_where_is_compiled(const void *address)
{
    Dl_info info;
    return !dladdr(address, &info);
}

static _Unwind_Reason_Code show_frame(struct _Unwind_Context *context, void *depth)
{
    void *at = (void *)_Unwind_GetIP(context);
    int   n = ++*(int *)depth;
    if (!at || n > DEPTH) return _URC_END_OF_STACK;
    if (n <= 2) return _URC_NO_REASON; /* the handler, and the frame that the kernel made for it */
    if (gm_where_is_compiled(at)) {
        say("compiled Lua\n");
        return _URC_END_OF_STACK;
    }
    backtrace_symbols_fd(&at, 1, STDERR_FILENO);
    return _URC_NO_REASON;
}

static void on_signal(int signal_number)
{
    int error = errno, depth = 0;
    if (!gm_signals_pass_on(self.thread, signal_number)) {
        say(self.words);
        _Unwind_Backtrace(show_frame, &depth);
    }
    errno = error;
}

void gm_where_open(int rank)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    self.thread = pthread_self();
    snprintf(self.words, sizeof self.words, "ganymede: rank %d is in, the innermost first:\n", rank);
    sigemptyset(&action.sa_mask);
    sigaction(gm_where_signal(), &action, NULL);
}

/* A small file of /proc as one line; "" where it cannot be read. */
static void read_line(pid_t pid, const char *file, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(buf, (int)size, f)) buf[0] = 0;
    if (f) fclose(f);
    buf[strcspn(buf, "\n")] = 0;
}

static const char *state_words(char state)
{
    switch (state) {
    case 'R': return "runs";
    case 'S': return "sleeps";
    case 'D': return "waits for a disk or device, and cannot be interrupted,";
    case 'T':
    case 't': return "is stopped";
    case 'Z': return "has ended";
    default: return "is there";
    }
}

char *gm_where_is(pid_t pid, char *buf, size_t size)
{
    char          stat[512], wchan[64], state = '?';
    unsigned long user = 0, kernel = 0;
    read_line(pid, "stat", stat, sizeof stat);
    read_line(pid, "wchan", wchan, sizeof wchan);
    const char *after = strrchr(stat, ')'); /* the name before may hold anything */
    if (!after ||
        sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user, &kernel) != 3) {
        snprintf(buf, size, "process %d is gone", (int)pid);
        return buf;
    }
    bool named = wchan[0] && strcmp(wchan, "0") != 0;
    snprintf(buf, size, "process %d %s%s%s, after %.2f s of CPU time", (int)pid, state_words(state),
             named ? " in " : "", named ? wchan : "", (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK));
    return buf;
}
