/* infer_pooling.c - the inference rules of pooling, and of batch norm in steps: x is (n, c, ...). */
#include "infer.h"

#include <inttypes.h>

/* ---- pooling ---- */

static gm_status expect_images(const gm_call *call, const char *name, int ndim, const int64_t *shape)
{
    if (ndim >= 3 && ndim <= 2 + GM_SPACE) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be (batch, channels, ...) with one to three dimensions behind them",
                   gm_op_called(call->op, call->attrs), name, GM_SHOW_SHAPE(ndim, shape));
}

static gm_status expect_size(const gm_call *call, const char *what, int64_t have, int64_t least)
{
    if (have >= least) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: %s is %" PRId64 ", should be %" PRId64 " or more",
                   gm_op_called(call->op, call->attrs), what, have, least);
}

/* How many windows an axis of n places has. */
static gm_status windows_of(const gm_call *call, int d, int64_t n, int64_t *out)
{
    const gm_attrs *at = call->attrs;
    const char     *op = gm_op_called(call->op, at);
    int64_t         kernel = at->kernel.at[d], stride = at->stride.at[d];
    int64_t         before = at->pad_low.at[d], after = at->pad_high.at[d];
    int64_t         reach = (kernel - 1) * at->dilation.at[d] + 1, room = n + before + after - reach;
    GM_TRY(expect_size(call, "the window", kernel, 1));
    GM_TRY(expect_size(call, "the stride", stride, 1));
    GM_TRY(expect_size(call, "the dilation", at->dilation.at[d], 1));
    GM_TRY(expect_size(call, "the padding", before < after ? before : after, 0));
    if (2 * before > kernel || 2 * after > kernel)
        return GM_FAIL(GM_EINVAL, "%s: the padding is %" PRId64 ", should be at most half of the window, %" PRId64, op,
                       before > after ? before : after, kernel);
    if (room < 0)
        return GM_FAIL(GM_ESHAPE,
                       "%s: a window of %" PRId64 " places does not fit into dimension %d, which has %" PRId64
                       " and %" PRId64 " of padding",
                       op, reach, d + 3, n, before + after);
    *out = (at->ceil_mode ? room + stride - 1 : room) / stride + 1;
    if (at->ceil_mode && (*out - 1) * stride >= n + before) --*out;
    return GM_OK;
}

static gm_status pooled(const gm_call *call, gm_dtype dtype, int ndim, const int64_t *shape, gm_spec *y)
{
    GM_TRY(expect_images(call, "x", ndim, shape));
    *y = gm_spec_of(dtype, ndim, shape);
    for (int d = 0; d + 2 < ndim; d++) {
        int64_t n = shape[d + 2], size = call->attrs->output.at[d];
        if (n == 0)
            return GM_FAIL(GM_ESHAPE, "%s: dimension %d of x %s has no place for a window",
                           gm_op_called(call->op, call->attrs), d + 3, GM_SHOW_SHAPE(ndim, shape));
        if (size) GM_TRY(expect_size(call, "the size of the result", size, 1));
        if (size) y->shape[d + 2] = size;
        else GM_TRY(windows_of(call, d, n, &y->shape[d + 2]));
    }
    return GM_OK;
}

gm_status gm_infer_max_pool(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(pooled(call, x->dtype, x->ndim, x->shape, &spec[0]));
    spec[1] = gm_spec_of(GM_I64, spec[0].ndim, spec[0].shape);
    return GM_OK;
}

gm_status gm_infer_avg_pool(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_size(call, "the divisor", call->attrs->divisor, 0));
    return pooled(call, x->dtype, x->ndim, x->shape, &spec[0]);
}

/* g as the result of dx's shape -> dx, which says what that is */
static gm_status pool_grad(const gm_call *call, const gm_tensor *g, gm_spec *spec)
{
    const gm_tensor *dx = call->out ? call->out[0] : NULL;
    gm_spec          y;
    if (!dx)
        return GM_FAIL(GM_EINVAL, "%s: dx must be given; it says how large the images were",
                       gm_op_called(call->op, call->attrs));
    GM_TRY(pooled(call, g->dtype, dx->ndim, dx->shape, &y));
    GM_TRY(gm_expect_shape(call, "g", g, y.ndim, y.shape));
    spec[0] = gm_spec_of(g->dtype, dx->ndim, dx->shape);
    return GM_OK;
}

gm_status gm_infer_max_pool_grad(const gm_call *call, gm_spec *spec)
{
    GM_TRY(gm_expect_like(call, "index", call->in[0], call->in[1]));
    return pool_grad(call, call->in[1], spec);
}

gm_status gm_infer_avg_pool_grad(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_size(call, "the divisor", call->attrs->divisor, 0));
    return pool_grad(call, call->in[0], spec);
}

/* ---- batch norm ---- */

/* x (n, c, ...); inputs from `first` on have a number a channel. */
static gm_status expect_channels(const gm_call *call, const gm_tensor *x, int first)
{
    const gm_slots *slots = gm_op_takes(call->op);
    GM_TRY(gm_expect_ndim(call, "x", x, 2));
    for (int i = first; i < call->n_in; i++)
        GM_TRY(gm_expect_shape(call, slots->slot[i].name, call->in[i], 1, &x->shape[1]));
    return GM_OK;
}

gm_status gm_infer_batch_norm_sums(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_channels(call, x, 1));
    spec[0] = spec[1] = gm_spec_of(x->dtype, 1, &x->shape[1]);
    return GM_OK;
}

gm_status gm_infer_batch_norm_apply(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_channels(call, call->in[0], 1));
    spec[0] = gm_spec_like(call->in[0]);
    return GM_OK;
}

gm_status gm_infer_batch_norm_grad_sums(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[1];
    GM_TRY(expect_channels(call, x, 2));
    GM_TRY(gm_expect_like(call, "g", call->in[0], x));
    spec[0] = spec[1] = gm_spec_of(x->dtype, 1, &x->shape[1]);
    return GM_OK;
}

gm_status gm_infer_batch_norm_grad_apply(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[1];
    GM_TRY(expect_channels(call, x, 2));
    GM_TRY(gm_expect_like(call, "g", call->in[0], x));
    if (!call->in[5] != !call->in[6])
        return GM_FAIL(GM_EINVAL, "batch_norm_grad_apply: mean_h and mean_h_hat are given together, or neither is");
    spec[0] = gm_spec_like(x);
    return GM_OK;
}
