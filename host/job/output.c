/* output.c - see output.h. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "signals.h"

#define LOOK_NANOSECONDS 500000000 /* from one look at a full pipe to the next; the second one decides */
#define ENOUGH           (1 << 20) /* bytes held */

static struct {
    bool                  open;
    volatile sig_atomic_t limited;
    pthread_t             thread;
    timer_t               timer;
    int                   nothing; /* /dev/null */
    volatile sig_atomic_t full[STDERR_FILENO + 1];
    volatile sig_atomic_t kept[STDERR_FILENO + 1]; /* the file that /dev/null has replaced; 0: none */
} self;

/* Not SIG_IGN, which programs that are started would keep. */
static void nobody_reads(int signal_number) { (void)signal_number; }

bool gm_output_prepare(void)
{
    struct sigaction before, action = {.sa_handler = nobody_reads, .sa_flags = SA_RESTART};
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false; /* the lowest free */
    sigemptyset(&action.sa_mask);
    if (!sigaction(SIGPIPE, NULL, &before) && before.sa_handler == SIG_DFL) sigaction(SIGPIPE, &action, NULL);
    return true;
}

static bool is_ready(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) != 0; /* also a file that fails: the write will say so */
}

static void give_up(int fd)
{
    if (!self.kept[fd]) self.kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    dup2(self.nothing, fd);
}

static void look(int signal_number)
{
    int error = errno;
    if (!gm_signals_pass_on(self.thread, signal_number))
        for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
            bool full = !is_ready(fd);
            if (full && self.full[fd]) give_up(fd);
            self.full[fd] = full;
        }
    errno = error;
}

static void set_timer(long nanoseconds)
{
    struct itimerspec t = {.it_interval.tv_nsec = nanoseconds, .it_value.tv_nsec = nanoseconds};
    timer_settime(self.timer, 0, &t, NULL);
}

void gm_output_open(void)
{
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
    struct sigevent  event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = GM_SIGNAL_OUTPUT};
    if (self.open) return;
    self.thread = pthread_self();
    self.nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (self.nothing < 0) return;
    sigemptyset(&action.sa_mask);
    sigaction(GM_SIGNAL_OUTPUT, &action, NULL);
    self.open = timer_create(CLOCK_MONOTONIC, &event, &self.timer) == 0;
    if (!self.open) close(self.nothing);
}

void gm_output_limit(void)
{
    if (!self.open || self.limited) return;
    self.limited = 1;
    set_timer(LOOK_NANOSECONDS);
}

static void forget(int fd, bool put_back)
{
    int kept = self.kept[fd];
    self.full[fd] = self.kept[fd] = 0;
    if (kept <= 0) return;
    if (put_back) dup2(kept, fd);
    close(kept);
}

void gm_output_unlimit(void)
{
    if (!self.open || !self.limited) return;
    set_timer(0);
    self.limited = 0;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) forget(fd, true);
}

void gm_output_close(void)
{
    if (!self.open) return;
    self.open = false;
    self.limited = 0;
    timer_delete(self.timer);
    close(self.nothing);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) forget(fd, false);
}

/* ---- outlets ---- */

void gm_outlet_put(gm_outlet *o, const char *text, size_t n)
{
    if (!n) return;
    if (o->n + n > o->room) {
        size_t room = 2 * (o->n + n);
        char  *grown = realloc(o->held, room);
        if (!grown) return;
        o->held = grown;
        o->room = room;
    }
    memcpy(o->held + o->n, text, n);
    o->n += n;
}

/* A pipe that is ready takes PIPE_BUF bytes at once. */
void gm_outlet_flush(gm_outlet *o)
{
    size_t at = 0;
    while (at < o->n && is_ready(o->fd)) {
        size_t  left = o->n - at;
        ssize_t done = write(o->fd, o->held + at, left < PIPE_BUF ? left : PIPE_BUF);
        if (done < 0 && errno == EAGAIN) break;
        if (done < 0 && errno != EINTR) {
            if (!o->error && errno != EPIPE) o->error = errno;
            at = o->n;
        }
        if (done > 0) at += (size_t)done;
    }
    if (at) memmove(o->held, o->held + at, o->n - at);
    o->n -= at;
}

bool gm_outlet_is_full(const gm_outlet *o) { return o->n > ENOUGH; }

void gm_outlet_free(gm_outlet *o)
{
    gm_outlet_flush(o);
    free(o->held);
    *o = (gm_outlet){.fd = o->fd};
}
