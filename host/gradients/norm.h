/* norm.h - norms of many tensors at once, whatever their layouts: for clipping and for layer-wise optimizers. */
#ifndef GM_NORM_H
#define GM_NORM_H

#include "../../kernels/step_control.h"
#include "../autograd/value.h"

typedef struct gm_norm_item {
    gm_tensor *block; /* f32 or f64 */
    gm_layout  layout;
} gm_norm_item;

/* The gradients that these parameters have, as items; returns how many. items has room for n. */
int gm_norm_gradients(gm_value *const *parameters, int n, gm_norm_item *items);

/* sum over all elements of |x|^p, of many blocks at once: p in (0, inf), or inf for the largest |x|. Cut axes are
 * summed (max for inf), copies counted once, partial blocks reduced first (the items keep theirs); one collective
 * for each set of axes, in f64. The p-th root is taken: *norm is the p-norm, the same bits on every rank. Padding
 * counts nothing (it is zero). A NaN anywhere gives NaN. Collective over all axes that items are cut by or partial
 * over; every rank passes the same items in the same order. No items: 0. */
gm_status gm_layout_norm(gm_rank *r, const gm_norm_item *items, int n, double p, double *norm);

/* The same for p = 2 up to the root, left on the device: nobody waits for it. The squares of all elements are the sum
 * of these tensors' elements, f64 () or (ranks), one tensor for each set of axes that cut items; added up in order,
 * tensor by tensor (op step_control does), they are the same bits on every rank. GM_EINVAL: more sets of axes than
 * GM_CONTROL_TERMS. */
typedef struct gm_norm_terms {
    int        n;
    gm_tensor *term[GM_CONTROL_TERMS];
} gm_norm_terms;
gm_status gm_layout_squares(gm_rank *r, const gm_norm_item *items, int n, gm_norm_terms *out);
void      gm_norm_terms_release(gm_norm_terms *t);

#endif
