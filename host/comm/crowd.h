/* crowd.h - how a rank waits where its machine has fewer cores than ranks.
 *
 * To fall asleep and to be woken costs 10 to 70 us, because a core that has nothing to do is put to rest, too. To
 * yield to another rank that waits costs about 1 us. So a rank yields for a while before it sleeps: a wait for ranks
 * that come at once ends in that time, and a longer one costs little more than before. Short messages are looked for
 * between two yields (round.c): a rank to which all have come by then takes one turn on its core for a call.
 *
 * The trap: a yield gives the core to whoever wants it. Where other programs compute, it comes back after a slice of
 * the scheduler, some milliseconds, while a sleeper that is woken is run soon. So a rank looks who uses the cores:
 * when a yield took long, it compares the CPU time of the ranks of its machine with the time of all their cores. If the
 * ranks had less than three quarters of it, the next waits sleep at once: 2, then 4, up to 256, before one yields
 * again. */
#ifndef GM_CROWD_H
#define GM_CROWD_H

#include <stdbool.h>
#include <stdint.h>
#include "window.h"

#define GM_CROWD_SECONDS 50e-6 /* of yields before a rank sleeps */

typedef struct gm_crowd {
    int        ranks, cores; /* of this machine; ranks <= cores: nobody yields */
    const int *pid;          /* of the other ranks, by place; 0: this one, or not known, and then it counts as idle */
    double     judged;       /* when the ranks' share of the cores was looked at */
    double     worked;       /* CPU seconds of the ranks then, all together */
    bool       ours;         /* the ranks had most of the cores in the time before */
    unsigned   pause, last;  /* waits that will not yield; the pause before */
    double     yielded;      /* seconds of yields for which nobody else took the core, all together */
    double     now;          /* after the last yield of gm_crowd_give_way */
    bool       tired;        /* a wait has given way for GM_CROWD_SECONDS, and will sleep */
} gm_crowd;

/* Yields until the bell of this rank has been rung more than `seen` times (true), for GM_CROWD_SECONDS at most, or not
 * at all. */
bool gm_crowd_yield(gm_crowd *c, gm_window *own, uint32_t seen);

/* Yields once, for a wait that looks by itself whether its end has come. *end: when it is to give up, 0 at first.
 * False: not now, or no longer; gm_crowd_yield, which comes next, then does not yield either. */
bool gm_crowd_give_way(gm_crowd *c, double *end);

/* The parts of it. Judges by the CPU seconds of all ranks until now, at most every 10 ms. */
void gm_crowd_judge(gm_crowd *c, double now, double worked);
/* A yield was long: pauses, unless the cores are ours. */
void gm_crowd_was_long(gm_crowd *c);

#endif
