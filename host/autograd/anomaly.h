/* anomaly.h - finds the first op, or the first backward rule, that makes a number that is not finite.
 *
 * With rank->detect_anomaly, gm_apply looks at the results of every op, and backward at the gradients that every rule
 * gives. The first bad one fails with GM_ENOTFINITE. The message names the op, the module path, the element, and the
 * ranges of what the op was given, or which of it was bad before: then it came from the data, a parameter, another rank
 * or code that writes bytes in place.
 *
 * NaN is an anomaly wherever it is. An infinity is one if all that the op was given is finite, and the op is no fill:
 * masks of -inf are wanted and pass through other ops. Of statistics (`^` in ops.def) only NaN counts. Gradients in f16
 * are left out: a loss scale that is too large makes infinite ones, and the scaler finds them. The padding of blocks is
 * never looked at before it is cleared.
 *
 * The host looks at every number, so a step takes several times as long. On a GPU it waits for each op. */
#ifndef GM_ANOMALY_H
#define GM_ANOMALY_H

#include "value.h"

typedef struct gm_anomaly_part {
    const char      *name;
    const gm_tensor *t;        /* NULL: there is none */
    bool             nan_only; /* an infinity is none */
} gm_anomaly_part;

/* GM_ENOTFINITE: `made` holds a bad number. what: "exp", "the backward pass of exp"; path: of the module. GM_ENOMEM, or
 * what reading from the device gave. */
gm_status gm_anomaly_check(gm_rank *r, const char *what, const char *path, int n_given, const gm_anomaly_part *given,
                           int n_made, const gm_anomaly_part *made);

#endif
