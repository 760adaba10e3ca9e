/* infer_elementwise.c - inference rules (infer.h) of the elementwise and random ops, the reductions and scatter. */
#include <inttypes.h>

#include "infer.h"
#include "sample.h"

/* Outputs as the first input, at most four of them. */
static gm_status like_first(const gm_call *call, gm_spec *spec)
{
    spec[0] = gm_spec_like(call->in[0]);
    return GM_OK;
}

gm_status gm_infer_fill(const gm_call *call, gm_spec *spec)
{
    spec[0] = gm_spec_like(call->out[0]);
    return GM_OK;
}

gm_status gm_infer_copy(const gm_call *call, gm_spec *spec)
{
    gm_dtype t = call->attrs->dtype;
    if (t < GM_DTYPE_NONE || t >= GM_DTYPE_COUNT) return GM_FAIL(GM_EINVAL, "copy: there is no dtype %d", (int)t);
    spec[0] = gm_spec_like(call->in[0]);
    if (t != GM_DTYPE_NONE) spec[0].dtype = t;
    return GM_OK;
}

gm_status gm_infer_axpy(const gm_call *call, gm_spec *spec) { return like_first(call, spec); }
gm_status gm_infer_affine(const gm_call *call, gm_spec *spec) { return like_first(call, spec); }

/* s () -> y as x, in x's dtype or, of f32, in one of 16 bits */
gm_status gm_infer_scale(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    gm_dtype         to = call->attrs->dtype == GM_DTYPE_NONE ? x->dtype : call->attrs->dtype;
    GM_TRY(gm_expect_shape(call, "s", call->in[1], 0, NULL));
    if (to != x->dtype && (x->dtype != GM_F32 || !gm_dtype_is_narrow(to)))
        return GM_FAIL(GM_EINVAL, "scale: y is of %s, or of 16 bits where x is f32", gm_dtype_name(x->dtype));
    spec[0] = gm_spec_like(x);
    spec[0].dtype = to;
    return GM_OK;
}

static gm_status expect_function(const gm_call *call, gm_function first, gm_function last, const char *kind)
{
    gm_function f = call->attrs->function;
    if (f >= first && f <= last) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: '%s' is no %s function", gm_op_name(call->op),
                   f >= 0 && f < GM_FN_COUNT ? gm_function_name(f) : "?", kind);
}

gm_status gm_infer_unary(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_function(call, GM_FN_relu, GM_FN_power, "unary"));
    return like_first(call, spec);
}

gm_status gm_infer_unary_grad(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_function(call, GM_FN_relu, GM_FN_power, "unary"));
    GM_TRY(gm_expect_like(call, "g", call->in[1], call->in[0]));
    return like_first(call, spec);
}

/* The common shape of the inputs from `first` on, in the dtype of the last. */
static gm_status broadcast_all(const gm_call *call, gm_spec *spec)
{
    int     ndim = 0;
    int64_t shape[GM_MAX_DIMS];
    for (int i = 0; i < call->n_in; i++) GM_TRY(gm_broadcast(call, call->in[i], &ndim, shape));
    spec[0] = gm_spec_of(call->in[call->n_in - 1]->dtype, ndim, shape);
    return GM_OK;
}

gm_status gm_infer_binary(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_function(call, GM_FN_add, GM_FN_pow, "binary"));
    return broadcast_all(call, spec);
}

gm_status gm_infer_gate_grad(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_function(call, GM_FN_reglu, GM_FN_swiglu, "gating"));
    GM_TRY(gm_expect_like(call, "a", call->in[1], call->in[0]));
    GM_TRY(gm_expect_like(call, "b", call->in[2], call->in[0]));
    spec[0] = spec[1] = gm_spec_like(call->in[0]);
    return GM_OK;
}

gm_status gm_infer_compare(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_function(call, GM_FN_eq, GM_FN_ge, "comparing"));
    GM_TRY(broadcast_all(call, spec));
    spec[0].dtype = GM_U8;
    return GM_OK;
}

gm_status gm_infer_where(const gm_call *call, gm_spec *spec) { return broadcast_all(call, spec); }

static gm_status expect_random_output(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *y = call->out[0];
    if (!gm_dtype_is_float(y->dtype))
        return GM_FAIL(GM_ESHAPE, "%s: y is %s, should be f32, f64, bf16 or f16", gm_op_called(call->op, call->attrs),
                       gm_dtype_name(y->dtype));
    GM_TRY(gm_expect_box(call, y->ndim, y->shape, false));
    spec[0] = gm_spec_like(y);
    return GM_OK;
}

gm_status gm_infer_uniform(const gm_call *call, gm_spec *spec)
{
    const gm_attrs *at = call->attrs;
    if (!(at->low <= at->high)) return GM_FAIL(GM_EINVAL, "uniform: low %g is above high %g", at->low, at->high);
    return expect_random_output(call, spec);
}

gm_status gm_infer_normal(const gm_call *call, gm_spec *spec)
{
    const gm_attrs *at = call->attrs;
    if (!(at->std >= 0)) return GM_FAIL(GM_EINVAL, "normal: std is %g, should not be negative", at->std);
    if (at->truncated && !(at->std > 0 && at->low < at->high))
        return GM_FAIL(GM_EINVAL, "normal: truncated to [%g, %g] with std %g; needs low < high and std > 0", at->low,
                       at->high, at->std);
    if (at->truncated && !(gm_truncated_of(at->mean, at->std, at->low, at->high).width > 0))
        return GM_FAIL(GM_EINVAL, "normal: [%g, %g] is so far from mean %g, std %g that it has no probability", at->low,
                       at->high, at->mean, at->std);
    return expect_random_output(call, spec);
}

gm_status gm_infer_dropout(const gm_call *call, gm_spec *spec)
{
    GM_TRY(gm_expect_range(call, "p", call->attrs->p, 0, 1));
    GM_TRY(gm_expect_box(call, call->in[0]->ndim, call->in[0]->shape, true));
    return like_first(call, spec);
}

gm_status gm_infer_sum(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    uint32_t         dims = call->attrs->dims;
    if (dims >> x->ndim)
        return GM_FAIL(GM_EINVAL, "%s: there are dimensions above %d in %s", gm_op_called(call->op, call->attrs),
                       x->ndim, GM_SHOW(x));
    spec[0] = (gm_spec){.dtype = x->dtype};
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = !dims || dims >> d & 1;
        if (!reduced) spec[0].shape[spec[0].ndim++] = x->shape[d];
        else if (call->attrs->keepdim) spec[0].shape[spec[0].ndim++] = 1;
    }
    return GM_OK;
}

/* max, min, argmax: one dimension, which must not be empty. */
static gm_status reduce_one(const gm_call *call, gm_spec *spec)
{
    int dim;
    GM_TRY(gm_expect_dim(call, call->in[0], &dim));
    if (call->in[0]->shape[dim] == 0)
        return GM_FAIL(GM_ESHAPE, "%s: dimension %d of %s is empty", gm_op_called(call->op, call->attrs), dim + 1,
                       GM_SHOW(call->in[0]));
    spec[0] = gm_spec_without(call->in[0], dim, call->attrs->keepdim);
    return GM_OK;
}

gm_status gm_infer_max(const gm_call *call, gm_spec *spec)
{
    GM_TRY(reduce_one(call, spec));
    spec[1] = spec[0];
    spec[1].dtype = GM_I64;
    return GM_OK;
}

gm_status gm_infer_min(const gm_call *call, gm_spec *spec) { return gm_infer_max(call, spec); }

gm_status gm_infer_argmax(const gm_call *call, gm_spec *spec)
{
    GM_TRY(reduce_one(call, spec));
    spec[0].dtype = GM_I64;
    return GM_OK;
}

/* x (..., n) -> values and indices (..., k), 1 <= k <= n */
gm_status gm_infer_top_k(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    int64_t n = x->shape[x->ndim - 1], k = call->attrs->k;
    if (k < 1 || k > n)
        return GM_FAIL(GM_EINVAL,
                       "top_k: k is %" PRId64 ", should be from 1 to the %" PRId64 " elements of a row of %s", k, n,
                       GM_SHOW(x));
    spec[0] = gm_spec_like(x);
    spec[0].shape[x->ndim - 1] = k;
    spec[1] = spec[0];
    spec[1].dtype = GM_I64;
    return GM_OK;
}

gm_status gm_infer_sort(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    spec[0] = spec[1] = gm_spec_like(x);
    spec[1].dtype = GM_I64;
    return GM_OK;
}

gm_status gm_infer_unsort(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *index = call->in[0], *g = call->in[1];
    GM_TRY(gm_expect_ndim(call, "g", g, 1));
    GM_TRY(gm_expect_like(call, "index", index, g));
    spec[0] = gm_spec_like(g);
    return GM_OK;
}

/* index and g: as dx without dim, or with size 1 there. */
gm_status gm_infer_scatter(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *index = call->in[0], *dx = call->out[0];
    int              dim;
    GM_TRY(gm_expect_dim(call, dx, &dim));
    gm_spec want = gm_spec_without(dx, dim, index->ndim == dx->ndim);
    GM_TRY(gm_expect_shape(call, "index", index, want.ndim, want.shape));
    GM_TRY(gm_expect_like(call, "g", call->in[1], index));
    spec[0] = gm_spec_like(dx);
    spec[0].dtype = call->in[1]->dtype;
    return GM_OK;
}
