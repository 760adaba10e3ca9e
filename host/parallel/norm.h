/* norm.h - norms of many tensors at once, whatever their layouts: for clipping and for layer-wise optimizers. */
#ifndef GM_NORM_H
#define GM_NORM_H

#include "../autograd/value.h"

typedef struct gm_norm_item {
    gm_tensor *block; /* f32 or f64 */
    gm_layout  layout;
} gm_norm_item;

/* sum over all elements of |x|^p, of many blocks at once: p in (0, inf), or inf for the largest |x|. Cut axes are
 * summed (max for inf), copies counted once, partial blocks reduced first (the items keep theirs); one collective
 * for each set of axes, in f64. The p-th root is taken: *norm is the p-norm, the same bits on every rank. Padding
 * counts nothing (it is zero). A NaN anywhere gives NaN. Collective over all axes that items are cut by or partial
 * over; every rank passes the same items in the same order. No items: 0. */
gm_status gm_layout_norm(gm_rank *r, const gm_norm_item *items, int n, double p, double *norm);

#endif
