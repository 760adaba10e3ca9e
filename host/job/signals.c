/* signals.c - see signals.h. Handlers touch nothing but sig_atomic_t flags and call only functions that
 * POSIX lists as safe there. */
#define _GNU_SOURCE
#include "signals.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include "output.h"

#define GRACE_SECONDS 10 /* that the process has had since the time limit */

static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM};
#define N_HANDLED (int)(sizeof handled / sizeof *handled)

static struct {
    bool      open, patient, once;
    pthread_t thread;
    void (*notify)(void *context);
    void                 *context;
    struct sigaction      before[N_HANDLED];
    volatile sig_atomic_t armed, pending, terminate, asked, late, in_line;
    volatile sig_atomic_t interrupts; /* since it was armed */
    bool                  timed;      /* line_timer is there */
    timer_t               line_timer;
} self;

static void interrupt(gm_stop reason)
{
    self.pending = (sig_atomic_t)reason;
    gm_output_limit();
    if (!self.armed) return;
    if (reason == GM_STOP_INTERRUPT && self.interrupts < 2) self.interrupts++;
    self.notify(self.context);
}

static void die_by(int signal_number)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t         set;
    sigaction(signal_number, &standard, NULL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void on_interrupt(void)
{
    if (!self.patient && self.pending == GM_STOP_INTERRUPT) die_by(SIGINT);
    interrupt(GM_STOP_INTERRUPT);
}

static void on_terminate(bool once)
{
    bool first = !self.terminate;
    if (once && !first) return;
    self.terminate = 1;
    gm_output_limit();
    if (first && self.asked) return;
    if (self.pending == GM_STOP_TERMINATE) die_by(SIGTERM);
    interrupt(GM_STOP_TERMINATE);
}

static void on_deadline(void)
{
    static const char text[] = "ganymede: the time limit passed and the run did not stop; ended\n";
    if (self.late > GRACE_SECONDS) {
        ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
        (void)ignored;
        _exit(7);
    }
    self.late++;
    alarm(1); /* each second by itself: one in which the process was stopped or had no core counts once */
    if (self.late == 1) interrupt(GM_STOP_DEADLINE);
}

bool gm_signals_pass_on(pthread_t thread, int signal_number)
{
    bool elsewhere = !pthread_equal(pthread_self(), thread);
    if (elsewhere) pthread_kill(thread, signal_number);
    return elsewhere;
}

static void on_line_limit(void)
{
    if (!self.in_line || self.pending) return;
    self.pending = GM_STOP_LINE;
    if (self.armed) self.notify(self.context);
}

static void take(int signal_number)
{
    if (signal_number == GM_SIGNAL_LINE) on_line_limit();
    else if (signal_number == SIGINT) on_interrupt();
    else if (signal_number == SIGTERM || signal_number == SIGHUP) on_terminate(self.once);
    else if (signal_number == SIGUSR1) on_terminate(true);
    else on_deadline();
}

static void handler(int signal_number)
{
    int error = errno;
    if (!gm_signals_pass_on(self.thread, signal_number)) take(signal_number);
    errno = error;
}

/* By nohup, and by a shell that starts something in the background. */
static bool stays_ignored(int signal_number, const struct sigaction *before)
{
    if (before->sa_handler != SIG_IGN) return false;
    return signal_number == SIGHUP || (signal_number == SIGINT && !self.patient);
}

gm_status gm_signals_open(void (*notify)(void *context), void *context, bool patient)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (self.open) return GM_FAIL(GM_EINVAL, "signals are handled already");
    memset(&self, 0, sizeof self);
    self.thread = pthread_self();
    self.notify = notify;
    self.context = context;
    self.patient = patient;
    self.open = true;
    for (int i = 0; i < N_HANDLED; i++) sigaddset(&action.sa_mask, handled[i]);
    for (int i = 0; i < N_HANDLED; i++) {
        sigaction(handled[i], NULL, &self.before[i]);
        if (!stays_ignored(handled[i], &self.before[i])) sigaction(handled[i], &action, NULL);
    }
    gm_output_open();
    return GM_OK;
}

void gm_signals_close(void)
{
    if (!self.open) return;
    gm_signals_deadline(0);
    if (self.timed) timer_delete(self.line_timer);
    self.timed = false;
    for (int i = 0; i < N_HANDLED; i++) sigaction(handled[i], &self.before[i], NULL);
    gm_output_close();
    self.open = false;
    self.armed = self.pending = 0;
}

void gm_signals_arm(bool on)
{
    self.armed = on;
    self.interrupts = 0;
    if (!on) self.pending = GM_STOP_NONE;
}

gm_stop gm_signals_pending(void) { return (gm_stop)self.pending; }

gm_stop gm_signals_take(void)
{
    gm_stop reason = (gm_stop)self.pending;
    bool    stays = self.patient && self.armed && self.interrupts > 1 && reason == GM_STOP_INTERRUPT;
    if (!stays) self.pending = GM_STOP_NONE;
    return reason;
}

bool gm_signals_urgent(void) { return self.pending == GM_STOP_PEER || (self.armed && self.pending); }

bool gm_signals_stop_requested(void)
{
    self.asked = 1;
    return self.terminate;
}

void gm_signals_terminate_once(void) { self.once = true; }

bool gm_signals_raise(gm_stop reason)
{
    if (!self.open) return false;
    bool first = !self.terminate;
    if (reason == GM_STOP_TERMINATE) {
        self.terminate = 1;
        gm_output_limit();
        if (first && self.asked) return true;
    }
    bool keeps = self.pending && self.pending != GM_STOP_LINE;
    interrupt(keeps ? (gm_stop)self.pending : reason);
    return true;
}

/* The timer of this process is made once. An old expiry that comes late finds another line, or none. */
gm_status gm_signals_limit_line(double seconds)
{
    struct sigaction  action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct sigevent   event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = GM_SIGNAL_LINE};
    struct itimerspec limit = {.it_value.tv_sec = (time_t)seconds,
                               .it_value.tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    if (!(seconds >= 0 && seconds <= 86400))
        return GM_FAIL(GM_EINVAL, "a limit of %g seconds for a line: give 0 to a day", seconds);
    self.in_line = 0;
    if (self.pending == GM_STOP_LINE) self.pending = GM_STOP_NONE;
    if (!self.timed) {
        sigemptyset(&action.sa_mask);
        sigaction(GM_SIGNAL_LINE, &action, NULL);
        self.timed = timer_create(CLOCK_MONOTONIC, &event, &self.line_timer) == 0;
    }
    if (!self.timed || timer_settime(self.line_timer, 0, &limit, NULL))
        return GM_FAIL(GM_EINVAL, "cannot limit the time of a line: %s", strerror(errno));
    self.in_line = seconds > 0;
    return GM_OK;
}

gm_status gm_signals_deadline(double seconds)
{
    struct itimerval t = {0};
    if (!(seconds >= 0 && seconds <= 366 * 86400.0))
        return GM_FAIL(GM_EINVAL, "a time limit of %g seconds: give 0 to a year", seconds);
    t.it_value.tv_sec = (time_t)seconds;
    t.it_value.tv_usec = (suseconds_t)((seconds - floor(seconds)) * 1e6);
    if (seconds > 0 && !t.it_value.tv_sec && !t.it_value.tv_usec) t.it_value.tv_usec = 1;
    self.late = 0;
    if (setitimer(ITIMER_REAL, &t, NULL)) return GM_FAIL(GM_EINVAL, "cannot set a time limit: %s", strerror(errno));
    return GM_OK;
}

int gm_signals_poll(struct pollfd *files, int n, int milliseconds)
{
    sigset_t        block, old;
    struct timespec limit = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    int             ready;
    sigemptyset(&block);
    for (int i = 0; i < N_HANDLED; i++) sigaddset(&block, handled[i]);
    sigaddset(&block, GM_SIGNAL_LINE);
    sigaddset(&block, SIGIO);                 /* link.c */
    pthread_sigmask(SIG_BLOCK, &block, &old); /* none can slip in between the question and the sleep */
    do ready = self.pending ? 0 : ppoll(files, (nfds_t)n, milliseconds < 0 ? NULL : &limit, &old);
    while (ready < 0 && errno == EINTR && !self.pending);
    if (ready < 0 && errno == EINTR) ready = 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ready;
}

int gm_signals_wait_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return gm_signals_poll(&p, 1, -1);
}
