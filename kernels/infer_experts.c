/* infer_experts.c - inference rules (infer.h) of the ops of mixtures of experts. They do not see the values of indices,
 * choices, rows and bounds. The kernels check these: a value out of range is GM_EINVAL. */
#include <inttypes.h>

#include "infer.h"

static gm_status expect_experts(const gm_call *call)
{
    if (call->attrs->experts > 0 && call->attrs->experts < INT32_MAX) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: there are %" PRId64 " experts", gm_op_called(call->op, call->attrs),
                   call->attrs->experts);
}

static gm_status expect_capacity(const gm_call *call)
{
    if (call->attrs->capacity >= 0) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: a capacity of %" PRId64, gm_op_called(call->op, call->attrs), call->attrs->capacity);
}

/* index (runs, n, k) -> (runs, k, experts) */
static gm_status expect_runs(const gm_call *call, gm_spec *count)
{
    const gm_tensor *index = call->in[0];
    GM_TRY(expect_experts(call));
    if (index->ndim != 3)
        return GM_FAIL(GM_ESHAPE, "%s: index is %s, should be (runs, tokens, choices)",
                       gm_op_called(call->op, call->attrs), GM_SHOW(index));
    *count = gm_spec_of(GM_I64, 3, (int64_t[]){index->shape[0], index->shape[2], call->attrs->experts});
    return GM_OK;
}

gm_status gm_infer_experts_count(const gm_call *call, gm_spec *spec) { return expect_runs(call, spec); }

/* count (runs, k, experts), order (runs) */
gm_status gm_infer_experts_before(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *count = call->in[0];
    if (count->ndim != 3)
        return GM_FAIL(GM_ESHAPE, "experts_before: count is %s, should be (runs, choices, experts)", GM_SHOW(count));
    GM_TRY(gm_expect_shape(call, "order", call->in[1], 1, count->shape));
    spec[0] = gm_spec_like(count);
    return GM_OK;
}

gm_status gm_infer_experts_limit(const gm_call *call, gm_spec *spec)
{
    gm_spec count;
    GM_TRY(expect_runs(call, &count));
    GM_TRY(expect_capacity(call));
    GM_TRY(gm_expect_shape(call, "before", call->in[1], 3, count.shape));
    spec[0] = gm_spec_like(call->in[0]);
    return GM_OK;
}

/* index (tokens, k) -> choice (rows), row (tokens, k), count (experts), bounds (ahead + 1) */
gm_status gm_infer_experts_order(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *index = call->in[0];
    const gm_attrs  *at = call->attrs;
    GM_TRY(expect_experts(call));
    GM_TRY(expect_capacity(call));
    if (index->ndim != 2)
        return GM_FAIL(GM_ESHAPE, "experts_order: index is %s, should be (tokens, choices)", GM_SHOW(index));
    if (at->first < 0 || at->ahead < 0 || at->first > at->experts - at->ahead)
        return GM_FAIL(GM_EINVAL, "experts_order: %" PRId64 " experts from %" PRId64 " on are not among %" PRId64,
                       at->ahead, at->first, at->experts);
    int64_t rows = at->capacity ? at->experts * at->capacity : gm_tensor_numel(index);
    spec[0] = gm_spec_of(GM_I64, 1, &rows);
    spec[1] = gm_spec_of(GM_I64, 2, index->shape);
    spec[2] = gm_spec_of(GM_I64, 1, &at->experts);
    spec[3] = gm_spec_of(GM_I64, 1, (int64_t[]){at->ahead + 1});
    return GM_OK;
}

static gm_status expect_matrix(const gm_call *call, const char *name, const gm_tensor *t)
{
    if (t->ndim == 2) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should have two dimensions", gm_op_called(call->op, call->attrs), name,
                   GM_SHOW(t));
}

/* x (tokens, h), choice (rows), weight (tokens, k) -> (rows, h) */
gm_status gm_infer_experts_gather(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *choice = call->in[1];
    GM_TRY(expect_matrix(call, "x", x));
    if (choice->ndim != 1 || call->attrs->k < 1)
        return GM_FAIL(GM_ESHAPE, "experts_gather: choice is %s, should be (rows), of k = %" PRId64 " for each token",
                       GM_SHOW(choice), call->attrs->k);
    GM_TRY(gm_expect_shape(call, "weight", call->in[2], 2, (int64_t[]){x->shape[0], call->attrs->k}));
    spec[0] = gm_spec_of(x->dtype, 2, (int64_t[]){choice->shape[0], x->shape[1]});
    return GM_OK;
}

/* y (rows, h), row (tokens, k), weight (tokens, k) -> (tokens, h) */
gm_status gm_infer_experts_combine(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *y = call->in[0], *row = call->in[1];
    GM_TRY(expect_matrix(call, "y", y));
    GM_TRY(expect_matrix(call, "row", row));
    GM_TRY(gm_expect_like(call, "weight", call->in[2], row));
    spec[0] = gm_spec_of(y->dtype, 2, (int64_t[]){row->shape[0], y->shape[1]});
    return GM_OK;
}

/* y (rows, h), row (tokens, k), g (tokens, h) -> (tokens, k) */
gm_status gm_infer_experts_combine_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *y = call->in[0], *row = call->in[1];
    GM_TRY(expect_matrix(call, "y", y));
    GM_TRY(expect_matrix(call, "row", row));
    GM_TRY(gm_expect_shape(call, "g", call->in[2], 2, (int64_t[]){row->shape[0], y->shape[1]}));
    spec[0] = gm_spec_of(y->dtype, 2, row->shape);
    return GM_OK;
}

/* x (rows, k), w (groups, k, n), or (groups, n, k) if it is transposed, bounds (groups + 1), b (groups, n) -> y (rows,
 * n) */
gm_status gm_infer_grouped_matmul(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *w = call->in[1];
    bool             tb = call->attrs->transpose_b;
    GM_TRY(expect_matrix(call, "x", x));
    if (w->ndim != 3 || w->shape[tb ? 2 : 1] != x->shape[1])
        return GM_FAIL(GM_ESHAPE, "grouped_matmul: w is %s, should be (groups, %s) for x %s", GM_SHOW(w),
                       tb ? "n, k" : "k, n", GM_SHOW(x));
    if (call->attrs->accumulate && call->in[3])
        return GM_FAIL(GM_EINVAL,
                       "grouped_matmul: a bias, and a product that is added to what is there: leave one out");
    int64_t n = w->shape[tb ? 1 : 2];
    GM_TRY(gm_expect_shape(call, "bounds", call->in[2], 1, (int64_t[]){w->shape[0] + 1}));
    GM_TRY(gm_expect_shape(call, "b", call->in[3], 2, (int64_t[]){w->shape[0], n}));
    spec[0] = gm_spec_of(x->dtype, 2, (int64_t[]){x->shape[0], n});
    return GM_OK;
}

/* g (rows, out), x (rows, in), bounds (groups + 1) -> dw (groups, out, in), db (groups, out) */
gm_status gm_infer_grouped_weight_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *g = call->in[0], *x = call->in[1], *bounds = call->in[2];
    GM_TRY(expect_matrix(call, "g", g));
    if (x->ndim != 2 || x->shape[0] != g->shape[0])
        return GM_FAIL(GM_ESHAPE, "grouped_weight_grad: x is %s, should be a matrix of %" PRId64 " rows", GM_SHOW(x),
                       g->shape[0]);
    if (bounds->ndim != 1 || bounds->shape[0] < 1)
        return GM_FAIL(GM_ESHAPE, "grouped_weight_grad: bounds is %s, should be (groups + 1)", GM_SHOW(bounds));
    int64_t groups = bounds->shape[0] - 1;
    spec[0] = gm_spec_of(g->dtype, 3, (int64_t[]){groups, g->shape[1], x->shape[1]});
    spec[1] = gm_spec_of(g->dtype, 2, (int64_t[]){groups, g->shape[1]});
    return GM_OK;
}
