/* month.h - a long run with failures and checkpoints.
 *
 * Nodes fail independently, and the time to the next failure has an exponential distribution with the mean `mtbf` (of
 * all nodes together). A run works for `work` seconds, stops for `block` seconds to copy its state, and goes on while
 * the state is written, which takes `write` seconds; a copy waits until the write before it is over. A failure takes
 * the run back to the newest state that is whole. It then needs `restart` seconds, in which it may fail again. */
#ifndef GM_MONTH_H
#define GM_MONTH_H

#include <stdint.h>

typedef struct gm_month {
    double   mtbf, work, block, write, restart; /* seconds; mtbf and work above 0 */
    double   seconds;                           /* how long the run is */
    uint64_t seed;
} gm_month;

typedef struct gm_month_found {
    double useful;   /* seconds of work that were not lost */
    double lost;     /* of work that was done again or is lost */
    int    failures; /* in restarts, too */
} gm_month_found;

/* Plays a run. Random numbers are a function of the seed and the number of the failure. */
gm_month_found gm_month_play(const gm_month *m);
/* The part of a long run that is useful:
 *     work / mtbf * exp(-(work + block + write + restart) / mtbf) / (1 - exp(-period / mtbf)),
 * period = max(work, write) + block. The sum of the chances that a run lives until state 1, 2, ... is kept is
 * geometric, and restarts take mtbf (exp(restart / mtbf) - 1) on average. With write = 0 it is Daly's (2006). */
double gm_month_expected(const gm_month *m);

#endif
