/* convolution.c - convolutions of 1, 2 and 3 dimensions, one result at a time. ops.def has the formulas. */
#include "loops.h"

/* The places of a kernel, in row-major order. */
static int64_t places(int space, const int64_t *kernel)
{
    int64_t n = 1;
    for (int d = 0; d < space; d++) n *= kernel[d];
    return n;
}

static double element(const gm_tensor *t, int64_t i, int64_t channel, const int64_t *at)
{
    int64_t offset = i * t->stride[0] + channel * t->stride[1];
    for (int d = 2; d < t->ndim; d++) offset += at[d - 2] * t->stride[d];
    return gm_element(t->dtype, gm_elements(t), offset);
}

/* What the kernel's place k reads of x for the result at t; false: it is padding. */
static bool read_at(const gm_attrs *a, const gm_tensor *x, const int64_t *t, const int64_t *k, int64_t *at)
{
    for (int d = 0; d < x->ndim - 2; d++) {
        at[d] = t[d] * a->stride.at[d] + k[d] * a->dilation.at[d] - a->pad_low.at[d];
        if (at[d] < 0 || at[d] >= x->shape[d + 2]) return false;
    }
    return true;
}

/* The element of x that adds to the result at s by the kernel's place k; false: none does. */
static bool came_from(const gm_attrs *a, const gm_tensor *x, const int64_t *s, const int64_t *k, int64_t *at)
{
    for (int d = 0; d < x->ndim - 2; d++) {
        int64_t along = s[d] + a->pad_low.at[d] - k[d] * a->dilation.at[d];
        at[d] = along / a->stride.at[d];
        if (along < 0 || along % a->stride.at[d] || at[d] >= x->shape[d + 2]) return false;
    }
    return true;
}

static void finish(const gm_call *call, int64_t i, double sum)
{
    if (call->out[1]) ref_set(call->out[1], i, sum);
    ref_set(call->out[0], i, ref_unary(call->attrs->function, sum, 0));
}

gm_status gm_ref_convolution(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2], *y = call->out[0];
    int              space = x->ndim - 2;
    int64_t          of_group = w->shape[0] / call->attrs->groups, p[GM_MAX_DIMS], k[GM_SPACE], at[GM_SPACE];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        ref_coordinates(y->ndim, y->shape, i, p);
        int64_t o = p[1], first = o / of_group * w->shape[1];
        double  sum = b ? ref_get(b, o) : 0;
        for (int64_t j = 0; j < places(space, w->shape + 2); j++) {
            ref_coordinates(space, w->shape + 2, j, k);
            if (!read_at(call->attrs, x, p + 2, k, at)) continue;
            for (int64_t c = 0; c < w->shape[1]; c++) sum += element(x, p[0], first + c, at) * element(w, o, c, k);
        }
        finish(call, i, sum);
    }
    return GM_OK;
}

gm_status gm_ref_transposed_convolution(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2], *y = call->out[0];
    int              space = x->ndim - 2;
    int64_t          of_group = w->shape[0] / call->attrs->groups, p[GM_MAX_DIMS], k[GM_SPACE], at[GM_SPACE];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        ref_coordinates(y->ndim, y->shape, i, p);
        int64_t o = p[1], first = o / w->shape[1] * of_group;
        double  sum = b ? ref_get(b, o) : 0;
        for (int64_t j = 0; j < places(space, w->shape + 2); j++) {
            ref_coordinates(space, w->shape + 2, j, k);
            if (!came_from(call->attrs, x, p + 2, k, at)) continue;
            for (int64_t c = first; c < first + of_group; c++)
                sum += element(x, p[0], c, at) * element(w, c, o % w->shape[1], k);
        }
        finish(call, i, sum);
    }
    return GM_OK;
}

/* The sum over all samples and places of g times what the kernel's place k read of a channel. */
static double of_place(const gm_call *call, int64_t o, int64_t channel, const int64_t *k)
{
    const gm_tensor *g = call->in[0], *x = call->in[1];
    int              space = x->ndim - 2;
    int64_t          t[GM_SPACE], at[GM_SPACE];
    double           sum = 0;
    for (int64_t j = 0, n = places(space, g->shape + 2); j < n; j++) {
        ref_coordinates(space, g->shape + 2, j, t);
        if (!read_at(call->attrs, x, t, k, at)) continue;
        for (int64_t i = 0; i < g->shape[0]; i++) sum += element(g, i, o, t) * element(x, i, channel, at);
    }
    return sum;
}

gm_status gm_ref_convolution_weight_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *g = call->in[0], *dw = call->out[0], *db = call->out[1];
    int64_t          of_group = g->shape[1] / call->attrs->groups, p[GM_MAX_DIMS];
    for (int64_t i = 0, n = gm_tensor_numel(dw); i < n; i++) {
        ref_coordinates(dw->ndim, dw->shape, i, p);
        double sum = of_place(call, p[0], p[0] / of_group * dw->shape[1] + p[1], p + 2);
        ref_put(dw, i, sum, call->attrs->accumulate);
    }
    for (int64_t o = 0; db && o < g->shape[1]; o++) {
        double  sum = 0;
        int64_t t[GM_SPACE];
        for (int64_t j = 0; j < places(g->ndim - 2, g->shape + 2) * g->shape[0]; j++) {
            ref_coordinates(g->ndim - 2, g->shape + 2, j / g->shape[0], t);
            sum += element(g, j % g->shape[0], o, t);
        }
        ref_put(db, o, sum, call->attrs->accumulate);
    }
    return GM_OK;
}
