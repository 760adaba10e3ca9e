/* grouped.c - products of groups of rows, each with a matrix of its own. */
#include <inttypes.h>

#include "loops.h"

static int64_t bound(const gm_tensor *bounds, int64_t e) { return (int64_t)ref_get(bounds, e); }

/* GM_EINVAL unless they divide so many rows, or the first of them, into groups. */
static gm_status check_bounds(const gm_call *call, const gm_tensor *bounds, int64_t rows)
{
    for (int64_t e = 0, least = 0; e < bounds->shape[0]; least = bound(bounds, e++))
        if (bound(bounds, e) < least || bound(bounds, e) > rows)
            return GM_FAIL(GM_EINVAL,
                           "%s: bound %" PRId64 " at position %" PRId64 " (from 0) is not from %" PRId64
                           ", the one before it, to %" PRId64 ", the number of rows",
                           gm_op_name(call->op), bound(bounds, e), e, least, rows);
    return GM_OK;
}

/* The group of row r, or -1. */
static int64_t group_of(const gm_tensor *bounds, int64_t r)
{
    for (int64_t e = 0; e + 1 < bounds->shape[0]; e++)
        if (r >= bound(bounds, e) && r < bound(bounds, e + 1)) return e;
    return -1;
}

gm_status gm_ref_grouped_matmul(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *w = call->in[1], *bounds = call->in[2], *b = call->in[3], *y = call->out[0];
    int64_t          n = y->shape[1], k = x->shape[1];
    GM_TRY(check_bounds(call, bounds, x->shape[0]));
    for (int64_t i = 0, all = gm_tensor_numel(y); i < all; i++) {
        int64_t e = group_of(bounds, i / n), j = i % n;
        double  sum = e >= 0 && b ? ref_get(b, e * n + j) : 0;
        for (int64_t p = 0; e >= 0 && p < k; p++)
            sum += ref_get(x, i / n * k + p) *
                   ref_get(w, e * k * n + (call->attrs->transpose_b ? j * k + p : p * n + j));
        ref_put(y, i, sum, call->attrs->accumulate);
    }
    return GM_OK;
}

gm_status gm_ref_grouped_weight_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *g = call->in[0], *x = call->in[1], *bounds = call->in[2], *dw = call->out[0], *db = call->out[1];
    int64_t          outputs = g->shape[1], inputs = x->shape[1];
    GM_TRY(check_bounds(call, bounds, g->shape[0]));
    for (int64_t i = 0, all = (bounds->shape[0] - 1) * outputs; i < all; i++) {
        int64_t first = bound(bounds, i / outputs), end = bound(bounds, i / outputs + 1), o = i % outputs;
        double  sum = 0;
        for (int64_t r = first; r < end; r++) sum += ref_get(g, r * outputs + o);
        if (db) ref_put(db, i, sum, call->attrs->accumulate);
        for (int64_t c = 0; dw && c < inputs; c++) {
            sum = 0;
            for (int64_t r = first; r < end; r++) sum += ref_get(g, r * outputs + o) * ref_get(x, r * inputs + c);
            ref_put(dw, i * inputs + c, sum, call->attrs->accumulate);
        }
    }
    return GM_OK;
}
