/* clock.h - the clocks of this program, in seconds as a double: 1e-7 s is told apart for 30 years.
 *
 * gm_now() runs evenly from the start of the machine, and all processes of the machine read the same one: for spans of
 * time, and for moments that ranks of one machine compare. A clock that is not there, as that of a process that has
 * ended, reads 0. */
#ifndef GM_CLOCK_H
#define GM_CLOCK_H

#include <time.h>

static inline double gm_clock(clockid_t id)
{
    struct timespec t = {0};
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double gm_now(void) { return gm_clock(CLOCK_MONOTONIC); }

#endif
