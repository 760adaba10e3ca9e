/* infer_convolution.c - inference rules (infer.h) of the convolutions. ops.def has the formulas of the sizes. */
#include <inttypes.h>

#include "infer.h"

#define MOST ((int64_t)1 << 31) /* of an attribute: products of two do not overflow */

static const char *called(const gm_call *call) { return gm_op_called(call->op, call->attrs); }

/* One attribute: from `least` on in the dimensions that there are, `least` in the others. */
static gm_status expect_sizes(const gm_call *call, const char *name, const gm_sizes *s, int space, int64_t least)
{
    for (int d = 0; d < GM_SPACE; d++) {
        if (d >= space && s->at[d] != least)
            return GM_FAIL(GM_EINVAL, "%s: %s has a number for dimension %d, and there are %d", called(call), name,
                           d + 1, space);
        if (s->at[d] < least || s->at[d] >= MOST)
            return GM_FAIL(GM_EINVAL, "%s: %s is %" PRId64 ", should be at least %" PRId64, called(call), name,
                           s->at[d], least);
    }
    return GM_OK;
}

/* x (n, c, sizes...): of 1, 2 or 3 sizes. Gives their number. */
static gm_status expect_space(const gm_call *call, const gm_tensor *x, int *space)
{
    const gm_attrs *at = call->attrs;
    int             n = *space = x->ndim - 2;
    if (n < 1 || n > GM_SPACE)
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be (batch, channels, ...) with 1, 2 or 3 sizes", called(call),
                       gm_op_takes(call->op)->slot[0].name, GM_SHOW(x));
    GM_TRY(expect_sizes(call, "stride", &at->stride, n, 1));
    GM_TRY(expect_sizes(call, "dilation", &at->dilation, n, 1));
    GM_TRY(expect_sizes(call, "padding in front", &at->pad_low, n, 0));
    GM_TRY(expect_sizes(call, "padding behind", &at->pad_high, n, 0));
    GM_TRY(expect_sizes(call, "output_padding", &at->output_padding, n, 0));
    if (at->groups < 1)
        return GM_FAIL(GM_EINVAL, "%s: groups is %" PRId64 ", should be at least 1", called(call), at->groups);
    return GM_OK;
}

/* Channels are whole groups; there is at least one in each. */
static gm_status expect_groups(const gm_call *call, const char *what, int64_t channels)
{
    if (channels >= call->attrs->groups && channels % call->attrs->groups == 0) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %" PRId64 " %s cannot be divided into %" PRId64 " group%s", called(call), channels,
                   what, call->attrs->groups, call->attrs->groups == 1 ? "" : "s");
}

/* w (first, second, kernel...) */
static gm_status expect_weight(const gm_call *call, const gm_tensor *x, const gm_tensor *w, int64_t first,
                               int64_t second)
{
    int64_t want[GM_MAX_DIMS] = {first < 0 ? (w->ndim ? w->shape[0] : 0) : first, second};
    bool    fits = w->ndim == x->ndim;
    for (int d = 2; d < x->ndim; d++) want[d] = fits ? w->shape[d] : 1;
    if (second < 0) want[1] = fits ? w->shape[1] : 1;
    for (int d = 0; d < 2 && fits; d++) fits = w->shape[d] == want[d];
    for (int d = 1; d < w->ndim && fits; d++)
        if (w->shape[d] < 1) return GM_FAIL(GM_ESHAPE, "%s: w %s has no elements", called(call), GM_SHOW(w));
    if (fits) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: w is %s beside x %s and groups = %" PRId64 "; should be %s with the kernel's sizes",
                   called(call), GM_SHOW(w), GM_SHOW(x), call->attrs->groups,
                   call->op == GM_OP_convolution ? "(outputs, channels / groups, ...)"
                                                 : "(channels, outputs / groups, ...)");
}

/* How far the kernel reaches along a dimension. */
static int64_t reach(const gm_attrs *at, int d, int64_t kernel) { return at->dilation.at[d] * (kernel - 1) + 1; }

/* The size along dimension d of what a convolution makes of `size` elements. */
static gm_status size_after(const gm_call *call, int d, int64_t size, int64_t kernel, int64_t *out)
{
    const gm_attrs *at = call->attrs;
    int64_t         padded = size + at->pad_low.at[d] + at->pad_high.at[d], need = reach(at, d, kernel);
    if (padded < need)
        return GM_FAIL(GM_ESHAPE,
                       "%s: the kernel reaches over %" PRId64 " elements of dimension %d, which has %" PRId64
                       " with its padding",
                       called(call), need, d + 3, padded);
    *out = (padded - need) / at->stride.at[d] + 1;
    return GM_OK;
}

gm_status gm_infer_convolution(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *w = call->in[1];
    int              space;
    GM_TRY(gm_expect_activation(call));
    GM_TRY(expect_space(call, x, &space));
    GM_TRY(expect_groups(call, "channels", x->shape[1]));
    GM_TRY(expect_weight(call, x, w, -1, x->shape[1] / call->attrs->groups));
    GM_TRY(expect_groups(call, "outputs", w->shape[0]));
    GM_TRY(gm_expect_shape(call, "b", call->in[2], 1, w->shape));
    spec[0] = gm_spec_like(x);
    spec[0].shape[1] = w->shape[0];
    for (int d = 0; d < space; d++)
        GM_TRY(size_after(call, d, x->shape[d + 2], w->shape[d + 2], &spec[0].shape[d + 2]));
    spec[1] = spec[0];
    return GM_OK;
}

gm_status gm_infer_transposed_convolution(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *w = call->in[1];
    const gm_attrs  *at = call->attrs;
    int              space;
    GM_TRY(gm_expect_activation(call));
    GM_TRY(expect_space(call, x, &space));
    GM_TRY(expect_groups(call, "channels", x->shape[1]));
    GM_TRY(expect_weight(call, x, w, x->shape[1], -1));
    spec[0] = gm_spec_like(x);
    spec[0].shape[1] = w->shape[1] * at->groups;
    GM_TRY(gm_expect_shape(call, "b", call->in[2], 1, &spec[0].shape[1]));
    for (int d = 0; d < space; d++) {
        int64_t size = (x->shape[d + 2] - 1) * at->stride.at[d] - at->pad_low.at[d] - at->pad_high.at[d] +
                       reach(at, d, w->shape[d + 2]) + at->output_padding.at[d];
        if (at->output_padding.at[d] >= at->stride.at[d])
            return GM_FAIL(GM_EINVAL, "%s: output_padding is %" PRId64 ", should be less than the stride, %" PRId64,
                           called(call), at->output_padding.at[d], at->stride.at[d]);
        if (size < 1 && !(size == 0 && x->shape[d + 2] > 0))
            return GM_FAIL(GM_ESHAPE, "%s: dimension %d of the result would have %" PRId64 " elements; pad less",
                           called(call), d + 3, size);
        spec[0].shape[d + 2] = size;
    }
    spec[1] = spec[0];
    return GM_OK;
}

gm_status gm_infer_convolution_weight_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *g = call->in[0], *x = call->in[1];
    const gm_attrs  *at = call->attrs;
    int              space;
    int64_t          shape[GM_MAX_DIMS] = {x->shape[0], g->ndim > 1 ? g->shape[1] : 0};
    GM_TRY(expect_space(call, g, &space));
    GM_TRY(expect_sizes(call, "kernel", &at->kernel, space, 0));
    if (x->ndim != g->ndim) return GM_FAIL(GM_ESHAPE, "%s: x is %s beside g %s", called(call), GM_SHOW(x), GM_SHOW(g));
    GM_TRY(expect_groups(call, "channels", x->shape[1]));
    GM_TRY(expect_groups(call, "outputs", g->shape[1]));
    for (int d = 0; d < space; d++) {
        if (at->kernel.at[d] < 1)
            return GM_FAIL(GM_EINVAL, "%s: kernel is %" PRId64 ", should be at least 1", called(call),
                           at->kernel.at[d]);
        GM_TRY(size_after(call, d, x->shape[d + 2], at->kernel.at[d], &shape[d + 2]));
    }
    GM_TRY(gm_expect_shape(call, "g", g, x->ndim, shape));
    shape[0] = g->shape[1];
    shape[1] = x->shape[1] / at->groups;
    for (int d = 0; d < space; d++) shape[d + 2] = at->kernel.at[d];
    spec[0] = gm_spec_of(g->dtype, g->ndim, shape);
    spec[1] = gm_spec_of(g->dtype, 1, shape);
    return GM_OK;
}
