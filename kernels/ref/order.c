/* order.c - sort along the last dimension, and what undoes it. */
#include "loops.h"

/* Does i of a line stand before k? NaN counts as the largest number; equals go by place. */
static bool stands_before(const ref_line *x, int64_t i, int64_t k, bool descending)
{
    double a = ref_line_get(x, i), b = ref_line_get(x, k);
    if (isnan(a) && isnan(b)) return i < k;
    if (isnan(a) || isnan(b)) return descending ? isnan(a) : isnan(b);
    if (a == b) return i < k;
    return descending ? a > b : a < b;
}

gm_status gm_ref_sort(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    int              last = x->ndim - 1;
    (void)dev;
    for (int64_t line = 0, lines = ref_lines(x, last); line < lines; line++) {
        ref_line from = ref_line_of(x, last, line);
        for (int64_t i = 0; i < from.n; i++) {
            int64_t rank = 0;
            for (int64_t k = 0; k < from.n; k++) rank += k != i && stands_before(&from, k, i, call->attrs->descending);
            ref_set(call->out[0], line * from.n + rank, ref_line_get(&from, i));
            ref_set(call->out[1], line * from.n + rank, (double)i);
        }
    }
    return GM_OK;
}

gm_status gm_ref_unsort(gm_device *dev, const gm_call *call)
{
    const gm_tensor *index = call->in[0], *g = call->in[1];
    int64_t          n = g->shape[g->ndim - 1];
    (void)dev;
    for (int64_t i = 0, all = gm_tensor_numel(g); i < all; i++)
        ref_set(call->out[0], i / n * n + (int64_t)ref_get(index, i), ref_get(g, i));
    return GM_OK;
}
