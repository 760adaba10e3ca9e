/* loss.c - lookup tables and cross entropy. An index or target out of range is an error (GM_EINVAL), which is found
 * before anything is written. */
#include <inttypes.h>

#include "loops.h"

static bool inside(int64_t row, int64_t rows) { return row >= 0 && row < rows; }

static gm_status check_indices(const char *op, const gm_tensor *index, int64_t rows, bool part)
{
    for (int64_t i = 0, n = gm_tensor_numel(index); i < n && !part; i++) {
        int64_t v = (int64_t)ref_get(index, i);
        if (!inside(v, rows))
            return GM_FAIL(GM_EINVAL,
                           "%s: index %" PRId64 " at position %" PRId64 " (from 0) is outside a table of %" PRId64
                           " rows",
                           op, v, i, rows);
    }
    return GM_OK;
}

gm_status gm_ref_embedding(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *w = call->in[0], *index = call->in[1];
    int64_t          width = w->shape[1];
    GM_TRY(check_indices("embedding", index, w->shape[0], call->attrs->part));
    for (int64_t i = 0, n = gm_tensor_numel(call->out[0]); i < n; i++) {
        int64_t row = (int64_t)ref_get(index, i / width);
        ref_set(call->out[0], i, inside(row, w->shape[0]) ? ref_get(w, row * width + i % width) : 0);
    }
    return GM_OK;
}

gm_status gm_ref_embedding_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *index = call->in[0], *g = call->in[1], *dw = call->out[0];
    int64_t          width = dw->shape[1], n = gm_tensor_numel(dw);
    double          *sum;
    GM_TRY(check_indices("embedding_grad", index, dw->shape[0], call->attrs->part));
    GM_TRY(ref_scratch(n, &sum));
    for (int64_t i = 0, all = gm_tensor_numel(g); i < all; i++) {
        int64_t row = (int64_t)ref_get(index, i / width);
        if (row != call->attrs->padding_index && inside(row, dw->shape[0]))
            sum[row * width + i % width] += ref_get(g, i);
    }
    for (int64_t i = 0; i < n; i++) ref_put(dw, i, sum[i], call->attrs->accumulate);
    free(sum);
    return GM_OK;
}

static gm_status check_targets(const gm_call *call)
{
    const gm_tensor *logits = call->in[0], *target = call->in[1];
    int64_t          classes = logits->shape[logits->ndim - 1];
    for (int64_t r = 0, n = gm_tensor_numel(target); r < n; r++) {
        int64_t v = (int64_t)ref_get(target, r);
        if (v != call->attrs->ignore_index && (v < 0 || v >= classes))
            return GM_FAIL(GM_EINVAL,
                           "%s: target %" PRId64 " of row %" PRId64 " (from 0) is none of %" PRId64 " classes",
                           gm_op_called(call->op, call->attrs), v, r, classes);
    }
    return GM_OK;
}

/* The largest logit of a row, and the sum of exp(logit - largest): of logits of -inf alone 0. */
typedef struct row_sum {
    double largest, sum;
} row_sum;

static row_sum sum_exp(const ref_line *x)
{
    row_sum r = {-INFINITY, 0};
    for (int64_t k = 0; k < x->n; k++) r.largest = fmax(r.largest, ref_line_get(x, k));
    for (int64_t k = 0; k < x->n; k++)
        if (ref_line_get(x, k) != -INFINITY) r.sum += exp(ref_line_get(x, k) - r.largest);
    return r;
}

/* -log p[k], from differences of logits: the logits themselves may be large */
static double cost_of(const ref_line *x, int64_t k, row_sum r) { return log(r.sum) + (r.largest - ref_line_get(x, k)); }

/* (1 - e) (-log p[target]) + e mean over classes of (-log p) */
static double row_loss(const ref_line *x, int64_t target, row_sum r, double e)
{
    double smooth = 0;
    for (int64_t k = 0; k < x->n && e > 0; k++) smooth += cost_of(x, k, r) / (double)x->n;
    return (1 - e) * cost_of(x, target, r) + e * smooth;
}

gm_status gm_ref_cross_entropy(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *logits = call->in[0];
    GM_TRY(check_targets(call));
    for (int64_t r = 0, rows = gm_tensor_numel(call->in[1]); r < rows; r++) {
        ref_line x = ref_line_of(logits, logits->ndim - 1, r);
        int64_t  target = (int64_t)ref_get(call->in[1], r);
        row_sum  sum = sum_exp(&x);
        bool     ignored = target == call->attrs->ignore_index;
        ref_set(call->out[0], r, ignored ? 0 : row_loss(&x, target, sum, call->attrs->label_smoothing));
        ref_set(call->out[1], r, sum.largest);
        ref_set(call->out[2], r, sum.sum);
    }
    return GM_OK;
}

/* dx = g (softmax - (1 - e) [class is the target] - e / classes), zeros where ignored. */
static void row_gradient(const ref_line *x, int64_t target, row_sum sum, double g, const gm_attrs *attrs,
                         const ref_line *dx)
{
    double e = attrs->label_smoothing;
    bool   ignored = target == attrs->ignore_index;
    for (int64_t k = 0; k < x->n; k++) {
        double wanted = (k == target ? 1 - e : 0) + e / (double)x->n;
        double p = exp(ref_line_get(x, k) - sum.largest) / sum.sum;
        ref_line_set(dx, k, ignored ? 0 : g * (p - wanted));
    }
}

gm_status gm_ref_cross_entropy_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *logits = call->in[0];
    GM_TRY(check_targets(call));
    for (int64_t r = 0, rows = gm_tensor_numel(call->in[1]); r < rows; r++) {
        ref_line x = ref_line_of(logits, logits->ndim - 1, r), dx = ref_line_of(call->out[0], logits->ndim - 1, r);
        row_sum  sum = {ref_get(call->in[2], r), ref_get(call->in[3], r)};
        row_gradient(&x, (int64_t)ref_get(call->in[1], r), sum, ref_get(call->in[4], r), call->attrs, &dx);
    }
    return GM_OK;
}

gm_status gm_ref_cross_entropy_both(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *logits = call->in[0];
    double           g = ref_get(call->in[2], 0);
    GM_TRY(check_targets(call));
    for (int64_t r = 0, rows = gm_tensor_numel(call->in[1]); r < rows; r++) {
        ref_line x = ref_line_of(logits, logits->ndim - 1, r), dx = ref_line_of(call->out[1], logits->ndim - 1, r);
        int64_t  target = (int64_t)ref_get(call->in[1], r);
        row_sum  sum = sum_exp(&x);
        bool     ignored = target == call->attrs->ignore_index;
        ref_set(call->out[0], r, ignored ? 0 : row_loss(&x, target, sum, call->attrs->label_smoothing));
        row_gradient(&x, target, sum, g, call->attrs, &dx);
    }
    return GM_OK;
}

gm_status gm_ref_rescale_rows(gm_device *dev, const gm_call *call)
{
    (void)dev;
    gm_tensor *t = call->out[0];
    double     scale = ref_get(call->in[0], 0);
    for (int64_t r = 0, rows = gm_tensor_numel(call->in[1]); r < rows; r++) {
        ref_line x = ref_line_of(t, t->ndim - 1, r);
        double   g = ref_get(call->in[1], r);
        for (int64_t k = 0; k < x.n && g != scale; k++) {
            double v = ref_line_get(&x, k);
            bool   unknown = scale == 0 || !isfinite(scale);
            ref_line_set(&x, k, unknown ? NAN : v == 0 ? 0 : v * (g / scale));
        }
    }
    return GM_OK;
}
