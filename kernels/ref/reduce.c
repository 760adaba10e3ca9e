/* reduce.c - sums, extremes along one dimension, and scatter, which is their backward. */
#include <inttypes.h>

#include "loops.h"

/* Where element i of x goes in the row-major sum over the dimensions of `dims` (0: all). */
static int64_t sum_index(const gm_tensor *x, uint32_t dims, int64_t i)
{
    int64_t at[GM_MAX_DIMS], index = 0;
    ref_coordinates(x->ndim, x->shape, i, at);
    for (int d = 0; d < x->ndim; d++)
        if (dims && !(dims >> d & 1)) index = index * x->shape[d] + at[d];
    return index;
}

gm_status gm_ref_sum(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *y = call->out[0];
    int64_t          n = gm_tensor_numel(y);
    double          *sum;
    GM_TRY(ref_scratch(n, &sum));
    for (int64_t i = 0, all = gm_tensor_numel(x); i < all; i++)
        sum[sum_index(x, call->attrs->dims, i)] += ref_get(x, i);
    for (int64_t i = 0; i < n; i++) ref_set(y, i, sum[i]);
    free(sum);
    return GM_OK;
}

/* Index of the largest (sign 1) or smallest (-1) element; the first of equals; the first NaN wins. */
static int64_t extreme(const ref_line *x, double sign)
{
    int64_t best = 0;
    for (int64_t k = 0; k < x->n; k++) {
        double v = sign * ref_line_get(x, k);
        if (isnan(v)) return k;
        if (v > sign * ref_line_get(x, best)) best = k;
    }
    return best;
}

static gm_status reduce(const gm_call *call, double sign, const gm_tensor *value, const gm_tensor *index)
{
    const gm_tensor *x = call->in[0];
    int              dim = ref_dim(call, x->ndim);
    for (int64_t i = 0, lines = ref_lines(x, dim); i < lines; i++) {
        ref_line line = ref_line_of(x, dim, i);
        int64_t  k = extreme(&line, sign);
        if (value) ref_set(value, i, ref_line_get(&line, k));
        ref_set(index, i, (double)k);
    }
    return GM_OK;
}

gm_status gm_ref_max(gm_device *dev, const gm_call *call)
{
    return (void)dev, reduce(call, 1, call->out[0], call->out[1]);
}
gm_status gm_ref_min(gm_device *dev, const gm_call *call)
{
    return (void)dev, reduce(call, -1, call->out[0], call->out[1]);
}
gm_status gm_ref_argmax(gm_device *dev, const gm_call *call) { return (void)dev, reduce(call, 1, NULL, call->out[0]); }

/* Would i of a line stand before k? NaN before numbers, then by size, then by place. */
static bool stands_before(const ref_line *x, int64_t i, int64_t k)
{
    double a = ref_line_get(x, i), b = ref_line_get(x, k);
    if (isnan(a) || isnan(b)) return isnan(a) && (!isnan(b) || i < k);
    return a != b ? a > b : i < k;
}

gm_status gm_ref_top_k(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0];
    int64_t          k = call->attrs->k;
    for (int64_t line = 0, lines = ref_lines(x, x->ndim - 1); line < lines; line++) {
        ref_line from = ref_line_of(x, x->ndim - 1, line);
        for (int64_t i = 0; i < from.n; i++) {
            int64_t rank = 0;
            for (int64_t other = 0; other < from.n; other++) rank += stands_before(&from, other, i);
            if (rank >= k) continue;
            ref_set(call->out[0], line * k + rank, ref_line_get(&from, i));
            ref_set(call->out[1], line * k + rank, (double)i);
        }
    }
    return GM_OK;
}

gm_status gm_ref_scatter(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *index = call->in[0], *g = call->in[1], *dx = call->out[0];
    int              dim = ref_dim(call, dx->ndim);
    int64_t          lines = gm_tensor_numel(index);
    for (int64_t i = 0; i < lines; i++) {
        int64_t k = (int64_t)ref_get(index, i);
        if (k < 0 || k >= dx->shape[dim])
            return GM_FAIL(GM_EINVAL,
                           "scatter: index %" PRId64 " at position %" PRId64 " (from 0) is outside %" PRId64
                           " elements",
                           k, i, dx->shape[dim]);
    }
    for (int64_t i = 0; i < lines; i++) {
        ref_line line = ref_line_of(dx, dim, i);
        int64_t  k = (int64_t)ref_get(index, i);
        ref_line_set(&line, k, ref_line_get(&line, k) + ref_get(g, i));
    }
    return GM_OK;
}
