/* signals.h - turns SIGINT, SIGTERM, SIGHUP and a deadline into requests to stop or interrupt.
 *
 * Handlers set flags and call one async-signal-safe function of the owner. SIGINT interrupts; SIGTERM asks for a stop
 * at the next step once somebody has asked gm_signals_stop_requested(), and interrupts before that and the second
 * time; SIGHUP, of a terminal that is gone, does what SIGTERM does; the deadline interrupts, and ends the process
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

typedef enum gm_stop {
    GM_STOP_NONE,
    GM_STOP_INTERRUPT,
    GM_STOP_TERMINATE,
    GM_STOP_DEADLINE,
    GM_STOP_PEER, /* another rank has failed (link.h) */
} gm_stop;

/* notify(context) runs in the signal handler, while armed. Opening twice is GM_EINVAL. With `patient` no number
 * of SIGINTs ends the process; else one that comes while another still waits does, the default way. */
gm_status gm_signals_open(void (*notify)(void *context), void *context, bool patient);
void      gm_signals_close(void); /* the old handlers are back */

/* Interrupts call notify only while armed. Arming keeps one that waits, which the caller sees to; disarming forgets
 * it. */
void    gm_signals_arm(bool on);
gm_stop gm_signals_pending(void); /* what waits */
gm_stop gm_signals_take(void);    /* what waits; it waits no longer */
/* Something waits, and is meant for what runs now (armed), or the job is over: reason enough to give up a wait. */
bool gm_signals_urgent(void);
/* For handlers that must run on `thread`: true on any other, which has then passed the signal on to it. */
bool gm_signals_pass_on(pthread_t thread, int signal_number);
/* SIGTERM came. Asking says that the caller will see to it. */
bool gm_signals_stop_requested(void);
/* As if the signal had come, for stops that arrive by other ways; safe in a handler. False: nobody handles stops. */
bool gm_signals_raise(gm_stop reason);
/* An interrupt after so many seconds; 0: none. GM_EINVAL: negative or over a year. */
gm_status gm_signals_deadline(double seconds);

/* Sleeps until fd is readable (1), an interrupt is pending (0), or fails (-1). */
int gm_signals_wait_readable(int fd);
/* poll(2) that a pending interrupt ends too; milliseconds -1: no limit. How many are ready, 0, or -1. */
int gm_signals_poll(struct pollfd *files, int n, int milliseconds);

#endif
