/* month.c - see month.h. */
#include "month.h"

#include <math.h>

#include "../../kernels/philox.h"

static double period_of(const gm_month *m) { return (m->work > m->write ? m->work : m->write) + m->block; }

double gm_month_expected(const gm_month *m)
{
    double first = m->work + m->block + m->write; /* until something is kept */
    return m->work / m->mtbf * exp(-(first + m->restart) / m->mtbf) / -expm1(-period_of(m) / m->mtbf);
}

/* The seconds until failure number k. */
static double life(const gm_month *m, int k)
{
    gm_philox w = gm_philox_at(m->seed, (uint64_t)k, 0);
    return -m->mtbf * log(((double)w.v[0] + 1.0) / 4294967296.0);
}

/* From a restart to a failure, or to the end: what was done, and what of it was written. */
static void live(const gm_month *m, double until, double *done, double *kept)
{
    double now = 0, written = -1, pending = 0; /* written: when the write that runs is over; -1: none runs */
    *done = *kept = 0;
    for (;;) {
        if (now + m->work > until) {
            *done += until - now;
            break;
        }
        now += m->work;
        *done += m->work;
        if (written > now) now = written; /* the copy waits */
        now += m->block;
        if (now > until) break;
        if (written >= 0) *kept = pending;
        pending = *done;
        written = now + m->write;
    }
    if (written >= 0 && written <= until) *kept = pending;
}

gm_month_found gm_month_play(const gm_month *m)
{
    gm_month_found found = {0};
    double         now = 0;
    for (int k = 0; now < m->seconds; k++) {
        double rest = m->seconds - now, until = life(m, k), done, kept;
        double start = k ? m->restart : 0; /* the first start is not counted */
        if (until < start) {               /* fails while it restarts */
            now += until;
            found.failures++;
            continue;
        }
        until -= start;
        if (rest - start <= until) { /* the end: what is in memory then counts */
            if (rest > start) {
                live(m, rest - start, &done, &kept);
                found.useful += done;
            }
            break;
        }
        live(m, until, &done, &kept);
        found.useful += kept;
        found.lost += done - kept;
        found.failures++;
        now += start + until;
    }
    return found;
}
