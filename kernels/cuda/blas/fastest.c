/* fastest.c - see fastest.h. */
#include "fastest.h"

#include "../runtime/driver.h"
#include "../runtime/profile.h"
#include "../runtime/transfer.h"

#define TURNS 3

static gm_status time_way(gm_device *dev, gm_status (*queue)(void *context, int i), void *context, int i, void **stamps,
                          double *seconds)
{
    GM_TRY(queue(context, i));
    GM_TRY(gm_cuda_stamp(dev, &stamps[0]));
    for (int turn = 0; turn < TURNS; turn++) GM_TRY(queue(context, i));
    GM_TRY(gm_cuda_stamp(dev, &stamps[1]));
    return gm_cuda_elapsed(dev, stamps[0], stamps[1], seconds);
}

gm_status gm_cuda_fastest(gm_device *dev, int n, gm_status (*queue)(void *context, int i), void *context, int *best)
{
    void     *stamps[2] = {NULL, NULL};
    double    least = 0, seconds = 0;
    gm_status st = GM_OK;
    *best = 0;
    for (int i = 0; i < n && st == GM_OK; i++) {
        st = time_way(dev, queue, context, i, stamps, &seconds);
        if (st != GM_OK || (i && seconds >= least)) continue;
        least = seconds;
        *best = i;
    }
    gm_cuda_unmark(dev, stamps[0]);
    gm_cuda_unmark(dev, stamps[1]);
    return st;
}
