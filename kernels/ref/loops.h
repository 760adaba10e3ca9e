/* loops.h - what the reference kernels share: access to elements by their row-major index, through double.
 *
 * The i-th element of a tensor is the i-th in row-major order of its shape, whatever its strides are. This costs a few
 * divisions for each element; the reference is slow so that it is easy to read. */
#ifndef GM_REF_LOOPS_H
#define GM_REF_LOOPS_H

#include <math.h>
#include <stdlib.h>

#include "../device.h"
#include "../element.h"

#define GM_OP(name, rule, in, out, attrs) gm_status gm_ref_##name(gm_device *dev, const gm_call *call);
#include "../ops.def"
#undef GM_OP

/* The unary functions of functions.def and their derivatives. value: attrs.value, the exponent of `power`. */
double      ref_unary(gm_function f, double x, double value);
double      ref_unary_slope(gm_function f, double x, double value);
gm_function ref_gate(gm_function f); /* the activation of a gate: silu of swiglu */

/* Coordinates of the i-th element of a shape. */
static inline void ref_coordinates(int ndim, const int64_t *shape, int64_t i, int64_t *at)
{
    for (int d = ndim - 1; d > 0; d--) {
        at[d] = i % shape[d];
        i /= shape[d];
    }
    if (ndim > 0) at[0] = i;
}

/* Offset of the element at these coordinates of a tensor broadcast to ndim dimensions. */
static inline int64_t ref_broadcast_offset(const gm_tensor *t, int ndim, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] != 1) offset += at[ndim - t->ndim + d] * t->stride[d];
    return offset;
}

static inline int64_t ref_offset(const gm_tensor *t, int64_t i)
{
    int64_t at[GM_MAX_DIMS];
    ref_coordinates(t->ndim, t->shape, i, at);
    return ref_broadcast_offset(t, t->ndim, at);
}

/* Goes through the elements of a tensor in row-major order, without divisions: offset is that of the present one. */
typedef struct ref_walk {
    const gm_tensor *t;
    int64_t          at[GM_MAX_DIMS], offset;
} ref_walk;

static inline void ref_next(ref_walk *w)
{
    for (int d = w->t->ndim - 1; d >= 0; d--) {
        w->offset += w->t->stride[d];
        if (++w->at[d] < w->t->shape[d]) return;
        w->offset -= w->t->shape[d] * w->t->stride[d];
        w->at[d] = 0;
    }
}

static inline double ref_get(const gm_tensor *t, int64_t i)
{
    return gm_element(t->dtype, gm_elements(t), ref_offset(t, i));
}

static inline void ref_set(const gm_tensor *t, int64_t i, double v)
{
    gm_store(t->dtype, gm_elements(t), ref_offset(t, i), v);
}

/* Sets an element to v, or adds v to it: for gradients of parameters. */
static inline void ref_put(const gm_tensor *t, int64_t i, double v, bool accumulate)
{
    ref_set(t, i, accumulate ? ref_get(t, i) + v : v);
}

/* v, rounded to the dtype. */
static inline double ref_rounded(gm_dtype t, double v)
{
    double room;
    gm_store(t, &room, 0, v);
    return gm_element(t, &room, 0);
}

/* The elements along one dimension, at fixed places of the others. */
typedef struct ref_line {
    gm_dtype dtype;
    void    *data;
    int64_t  n, stride;
} ref_line;

static inline int64_t ref_lines(const gm_tensor *t, int dim)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (d != dim) n *= t->shape[d];
    return n;
}

/* Line i of the ref_lines(t, dim) lines, which are in row-major order of the other dimensions. */
static inline ref_line ref_line_of(const gm_tensor *t, int dim, int64_t i)
{
    int64_t offset = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (d == dim) continue;
        offset += i % t->shape[d] * t->stride[d];
        i /= t->shape[d];
    }
    char *data = (char *)gm_elements(t) + (size_t)offset * gm_element_size(t->dtype);
    return (ref_line){t->dtype, data, t->shape[dim], t->stride[dim]};
}

static inline double ref_line_get(const ref_line *l, int64_t k) { return gm_element(l->dtype, l->data, k * l->stride); }
static inline void   ref_line_set(const ref_line *l, int64_t k, double v)
{
    gm_store(l->dtype, l->data, k * l->stride, v);
}

/* attrs.dim counted from 0, for a tensor of ndim dimensions. */
static inline int ref_dim(const gm_call *call, int ndim)
{
    return (int)(call->attrs->dim < 0 ? call->attrs->dim + ndim : call->attrs->dim);
}

static inline uint64_t ref_stream_step(const gm_device *dev, const gm_stream *stream)
{
    return stream->step < 0 ? dev->step.rng_step : (uint64_t)stream->step;
}

/* Allocates n doubles, all zero; the caller frees them. */
static inline gm_status ref_scratch(int64_t n, double **out)
{
    *out = calloc((size_t)(n > 0 ? n : 1), sizeof **out);
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for %lld numbers of scratch", (long long)n);
}

#endif
