/* norm.h - norms of many tensors at once, whatever their layouts: for clipping and for layer-wise optimizers. */
#ifndef GM_NORM_H
#define GM_NORM_H

#include "../../kernels/step_control.h"
#include "../autograd/value.h"

typedef struct gm_norm_item {
    gm_tensor *block; /* f32 or f64 */
    gm_layout  layout;
    bool       rows; /* a sparse gradient's: its places say nothing, so that terms of a sum cannot be added up */
} gm_norm_item;

/* Lists the gradients that these parameters have as items; returns their number. items has room for n. */
int gm_norm_gradients(gm_value *const *parameters, int n, gm_norm_item *items);

/* *norm: the p-norm of all elements of the items together, p in (0, inf), or inf for the largest |x|; the same bits on
 * every rank. Elements are summed over the axes that cut them (max for inf), replicated ones count once, and partial
 * blocks are reduced first (the items are not changed). One collective for each set of axes, in f64. Padding is zero
 * and so does not count. A NaN gives NaN; no items give 0. Collective over all axes that items are cut by or partial
 * over; every rank passes the same items in the same order. */
gm_status gm_layout_norm(gm_rank *r, const gm_norm_item *items, int n, double p, double *norm);

/* The same for p = 2 without the root, on the device and without waiting. out has one tensor for each set of axes that
 * cut items, f64 () or (ranks). The sum of all their elements is the sum of squares; added up in order, tensor by
 * tensor (as op step_control does), it has the same bits on every rank. The caller releases out. GM_EINVAL: more sets
 * of axes than GM_CONTROL_TERMS. */
typedef struct gm_norm_terms {
    int        n;
    gm_tensor *term[GM_CONTROL_TERMS];
} gm_norm_terms;
gm_status gm_layout_squares(gm_rank *r, const gm_norm_item *items, int n, gm_norm_terms *out);
void      gm_norm_terms_release(gm_norm_terms *t);

#endif
