/* signals.h - turns SIGINT, SIGTERM, SIGHUP, SIGUSR1 and a deadline into requests to stop or interrupt.
 *
 * Handlers set flags and call one async-signal-safe function of the owner. SIGINT interrupts; SIGTERM asks for a stop
 * at the next step once somebody has asked gm_signals_stop_requested(), and interrupts before that and the second
 * time; SIGHUP, of a terminal that is gone, does what SIGTERM does; SIGUSR1, which mpirun passes on and schedulers send
 * as a warning, does what the first SIGTERM does, and nothing after one; the deadline interrupts, and ends the process
 * with status 7 if nothing came of it in 10 seconds. A process has one set of handlers, hence the one static record
 * of this file. The trap: a signal may land on any thread; it is passed on to the thread that called gm_signals_open,
 * on which notify runs. */
#ifndef GM_SIGNALS_H
#define GM_SIGNALS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include "../../kernels/status.h"

/* The real-time signals of this program. Each has one handler and so one use: a second one would replace the first. */
#define GM_SIGNAL_WHERE  (SIGRTMIN + 3) /* show where this process is (where.c) */
#define GM_SIGNAL_OUTPUT (SIGRTMIN + 4) /* look whether somebody reads the output (output.c) */
#define GM_SIGNAL_LINE   (SIGRTMIN + 5) /* the time of a line is over (signals.c) */

typedef enum gm_stop {
    GM_STOP_NONE,
    GM_STOP_INTERRUPT,
    GM_STOP_TERMINATE,
    GM_STOP_DEADLINE,
    GM_STOP_PEER, /* another rank has failed (link.h) */
    GM_STOP_LINE, /* a line that runs in a job has used up its time; gives way to any other stop */
} gm_stop;

/* Installs the handlers. notify(context) runs in the signal handler, while armed. With `patient`, no number of SIGINTs
 * ends the process. Without it, a SIGINT that comes while another one still waits ends the process, as it does by
 * default. GM_EINVAL: the handlers are installed already. */
gm_status gm_signals_open(void (*notify)(void *context), void *context, bool patient);
void      gm_signals_close(void); /* restores the old handlers */

/* Interrupts call notify only while armed. Arming keeps an interrupt that waits, and the caller must handle it.
 * Disarming forgets it. */
void    gm_signals_arm(bool on);
gm_stop gm_signals_pending(void); /* the stop that waits */
/* The stop that waits, and forgets it. With `patient`, the second interrupt since it was armed and all later ones stay
 * until it is disarmed: code that catches errors in a loop catches the first stop. */
gm_stop gm_signals_take(void);
/* Tells whether to give up a wait: a stop waits and is meant for what runs now (armed), or the job is over. */
bool gm_signals_urgent(void);
/* For handlers that must run on `thread`. On any other thread it sends the signal to `thread` and returns true. */
bool gm_signals_pass_on(pthread_t thread, int signal_number);
/* Tells whether SIGTERM came. A caller that asks says by this that it will stop the program itself. */
bool gm_signals_stop_requested(void);
/* From now on SIGTERMs after the first change nothing. Slurm sends several, and SIGKILL when the time is over. */
void gm_signals_terminate_once(void);
/* Does what the signal would do, for stops that arrive in other ways; safe in a handler. False: nobody handles stops.
 */
bool gm_signals_raise(gm_stop reason);
/* Sets the deadline: an interrupt after so many seconds; 0: none. GM_EINVAL: negative, or more than a year. */
gm_status gm_signals_deadline(double seconds);

/* Interrupts a line (GM_STOP_LINE) after so many seconds; 0: the line has ended, and a stop of this kind that waits is
 * forgotten. GM_EINVAL: negative, or more than a day; the system has no timer. */
gm_status gm_signals_limit_line(double seconds);

/* Sleeps until fd is readable. Returns 1: it is; 0: an interrupt is pending; -1: it failed. */
int gm_signals_wait_readable(int fd);
/* poll(2) that a pending interrupt also ends. milliseconds -1: no limit. Returns the number of ready files, 0 or -1. */
int gm_signals_poll(struct pollfd *files, int n, int milliseconds);

#endif
