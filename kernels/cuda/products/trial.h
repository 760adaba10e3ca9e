/* trial.h - times the ways to make one product. */
#ifndef GM_CUDA_TRIAL_H
#define GM_CUDA_TRIAL_H

#include "product.h"

typedef struct gm_trial_result {
    const gm_way *way;
    gm_variant    variant;
    double        seconds;
} gm_trial_result;

typedef struct gm_trial_results {
    int             n, best; /* n: 0 where there was nothing to choose from */
    gm_trial_result of[GM_CHOICE_TRIED];
} gm_trial_results;

/* Makes the product in each way that is offered: once, and then a few times between two events. y, pre and db are not
 * written: the trials have memory of their own. The host waits for the device; do not call this while a graph is being
 * captured. GM_ENOMEM: there was no memory for it. */
gm_status gm_trial_run(gm_device *dev, const gm_product *p, gm_trial_results *out);

#endif
