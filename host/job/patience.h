/* patience.h - how much time a process has had: the time in which it had a core, or wanted none.
 *
 * A process that is to end within some seconds may get no core in them, because others use all cores. This time is not
 * its own. The kernel counts it (/proc/PID/task/TID/schedstat), but only when a wait for a core is over; until then the
 * thread is runnable and its CPU time stands still.
 *
 * The trap: whoever looks may have had no core either, or was stopped. So one look adds at most GM_PATIENCE_MOST. */
#ifndef GM_PATIENCE_H
#define GM_PATIENCE_H

#include <stdbool.h>
#include <sys/types.h>

#define GM_PATIENCE_MOST 1.0 /* seconds */

/* What the kernel says of all threads of a process. */
typedef struct gm_core_use {
    double ran, waited; /* seconds on a core, and for one: waits that are over */
    bool   wants;       /* a thread has a core or waits for one now */
} gm_core_use;

typedef struct gm_patience {
    bool        begun;
    double      looked; /* when */
    gm_core_use use;    /* what it was then */
    double      lent;   /* seconds of a wait for a core that the kernel has not counted yet */
    double      had;    /* seconds, since the first look */
} gm_patience;

/* false: the process is gone, or the kernel does not tell. */
bool gm_core_use_of(pid_t pid, gm_core_use *out);
/* The same, added to sum. Where it is false, nothing is added. */
bool gm_core_use_add(pid_t pid, gm_core_use *sum);

/* Adds the time since the last look. The first look adds nothing. use NULL: not known; then all time is its own. */
void gm_patience_add(gm_patience *p, double now, const gm_core_use *use);

#endif
