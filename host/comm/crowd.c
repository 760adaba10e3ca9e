/* crowd.c - see crowd.h. */
#include "crowd.h"

#include <sched.h>
#include <time.h>
#include "../../kernels/clock.h"

#define LONG_SECONDS  250e-6 /* ranks that wait give a core back in a hundredth of that */
#define JUDGE_SECONDS 10e-3
#define OURS          0.75
#define LONGEST_PAUSE 256u

static double cpu_seconds_of_all(const gm_crowd *c)
{
    double    sum = gm_clock(CLOCK_PROCESS_CPUTIME_ID);
    clockid_t clock;
    for (int i = 0; i < c->ranks; i++)
        if (c->pid[i] > 0 && clock_getcpuclockid(c->pid[i], &clock) == 0) sum += gm_clock(clock);
    return sum;
}

static bool is_due(const gm_crowd *c, double now) { return now - c->judged >= JUDGE_SECONDS; }

void gm_crowd_judge(gm_crowd *c, double now, double worked)
{
    if (!is_due(c, now)) return;
    c->ours = worked - c->worked > OURS * c->cores * (now - c->judged);
    c->judged = now;
    c->worked = worked;
}

void gm_crowd_was_long(gm_crowd *c)
{
    unsigned next = c->last ? 2 * c->last : 2;
    c->last = c->ours ? 0 : next < LONGEST_PAUSE ? next : LONGEST_PAUSE;
    c->pause = c->last;
}

/* Yields once, at *now, which becomes the time after it. */
static void yield_at(gm_crowd *c, double *now)
{
    double before = *now;
    sched_yield();
    *now = gm_now();
    if (*now - before < LONG_SECONDS) {
        c->yielded += *now - before;
        return;
    }
    if (is_due(c, *now)) gm_crowd_judge(c, *now, cpu_seconds_of_all(c));
    gm_crowd_was_long(c);
}

bool gm_crowd_yield(gm_crowd *c, gm_window *own, uint32_t seen)
{
    if (c->ranks <= c->cores) return false;
    if (c->pause) {
        c->pause--;
        return false;
    }
    double now = gm_now(), end = c->tired ? now : now + GM_CROWD_SECONDS;
    bool   rung = false;
    c->tired = false;
    while (!rung && now < end) {
        yield_at(c, &now);
        rung = gm_window_rung(own) != seen;
    }
    return rung;
}

bool gm_crowd_give_way(gm_crowd *c, double *end)
{
    if (c->ranks <= c->cores || c->pause) return false;
    double now = *end ? c->now : gm_now();
    if (!*end) *end = now + GM_CROWD_SECONDS;
    c->tired = now >= *end;
    if (c->tired) return false;
    yield_at(c, &now);
    c->now = now;
    return true;
}
