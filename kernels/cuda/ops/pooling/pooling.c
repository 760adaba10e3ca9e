/* pooling.c - pooling and its gradients (pooling_plane.cu if it can, else pooling.cu). */
#include <stdio.h>
#include "../../runtime/cuda.h"
#include "pooling_args.h"

#define THREADS 256

static gm_pool_view view_of(const gm_tensor *t)
{
    gm_pool_view v = {.data = t ? gm_tensor_data(t) : NULL};
    if (!t) return v;
    v.stride[0] = t->stride[0];
    v.stride[1] = t->stride[1];
    for (int d = 2; d < t->ndim; d++) v.stride[5 - t->ndim + d] = t->stride[d];
    return v;
}

static gm_divider divider_of(int64_t d)
{
    gm_map  m;
    int64_t stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}};
    gm_map_of(&m, 1, &d, 1, stride);
    return m.by[0];
}

/* Planes (n, c) of h x w elements without gaps, *step apart? */
static bool is_planes(const gm_tensor *t, const gm_pool_view *v, int32_t *step)
{
    int64_t h = t->shape[t->ndim - 2], w = t->shape[t->ndim - 1];
    int64_t between = t->shape[1] > 1 ? v->stride[1] : v->stride[0];
    if ((w > 1 && v->stride[4] != 1) || (h > 1 && v->stride[3] != w)) return false;
    if (t->shape[0] > 1 && v->stride[0] != t->shape[1] * between) return false;
    *step = (int32_t)between;
    return between >= 0 && between <= INT32_MAX && h * w <= INT32_MAX / 4;
}

/* Windows of two or three places, two apart, each of which has a place of the image. */
static bool is_small(const gm_pool_axis *a)
{
    return !a->adaptive && a->dilation == 1 && a->stride == GM_POOL_STRIDE && (a->kernel == 2 || a->kernel == 3) &&
           a->before < a->kernel && (a->out - 1) * a->stride - a->before < a->n;
}

static double share_of(const gm_pool_args *a, const gm_pool_axis *axis, int64_t window)
{
    gm_pool_window w = gm_pool_window_of(axis, window);
    if (a->divisor) return axis == &a->axis[1] ? 1.0 / (double)a->divisor : 1;
    return 1.0 / (double)(a->with_padding ? w.padded : w.end - w.begin);
}

/* Windows of two or three places, of which the image has one: only the first and the last may reach past it. */
static gm_pool_share shares_of(const gm_pool_args *a, const gm_pool_axis *axis)
{
    double first = share_of(a, axis, 0), last = share_of(a, axis, axis->out - 1), other = first;
    if (axis->out > 2) other = share_of(a, axis, 1);
    return (gm_pool_share){first, last, other, (float)first, (float)last, (float)other};
}

/* Fills in a->plane, if pooling_plane.cu has kernels for this. gradient: items are packs of x; else windows. */
static bool in_planes(gm_pool_args *a, const gm_tensor *x, const gm_tensor *y, const gm_tensor *index, bool gradient)
{
    gm_pool_plane *p = &a->plane;
    int64_t        lanes = 16 / (int64_t)gm_dtype_size(x->dtype), w = x->shape[x->ndim - 1], planes;
    if (x->ndim != 4 || !is_small(&a->axis[1]) || !is_small(&a->axis[2])) return false;
    if (a->axis[1].kernel != a->axis[2].kernel) return false;
    if (!is_planes(x, &a->x, &p->x_image) || !is_planes(y, &a->y, &p->y_image)) return false;
    if (index && !is_planes(index, &a->index, &p->index_image)) return false;
    if (gradient && (w % lanes || p->x_image % lanes || (uintptr_t)a->x.data % 16)) return false;
    planes = x->shape[0] * x->shape[1];
    p->rows = (int32_t)a->axis[1].out;
    p->items = (int32_t)((a->axis[2].out + GM_POOL_PAIR - 1) / GM_POOL_PAIR);
    if (gradient) {
        p->rows = (int32_t)a->axis[1].n;
        p->items = (int32_t)(w / lanes);
    }
    p->n = planes * p->rows * p->items;
    p->by_items = divider_of(p->items);
    p->by_rows = divider_of(p->rows);
    for (int d = 0; d < 2; d++) p->share[d] = shares_of(a, &a->axis[d + 1]);
    return p->n <= INT32_MAX;
}

/* large: x or dx; small: y or g; over: which of them has a thread for each element. */
static gm_status run(gm_device *dev, const gm_call *call, const char *kernel, const gm_tensor *large,
                     const gm_tensor *small, const gm_tensor *index, const gm_tensor *over)
{
    char         name[GM_CUDA_NAME], plane[GM_CUDA_NAME];
    gm_pool_args a = {.x = view_of(large),
                      .y = view_of(small),
                      .index = view_of(index),
                      .channels = large->shape[1],
                      .elements = gm_tensor_numel(over),
                      .divisor = call->attrs->divisor,
                      .with_padding = call->attrs->count_include_pad,
                      .accumulate = call->attrs->accumulate,
                      .wide = index && index->dtype == GM_I64};
    gm_pool_axes(call->attrs, large->ndim - 2, large->shape + 2, small->shape + 2, a.axis);
    if (in_planes(&a, large, small, index, over == large)) {
        const int64_t each = THREADS * GM_POOL_TURNS;
        gm_cuda_grid  grid = {.x = (a.plane.n + each - 1) / each, .block = THREADS};
        snprintf(plane, sizeof plane, "%s_plane", kernel);
        return GM_LAUNCH(dev, gm_cuda_name(name, plane, large->dtype), grid, a);
    }
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, large->dtype), gm_cuda_over(dev, a.elements, 1, THREADS), a);
}

gm_status cuda_max_pool(gm_device *dev, const gm_call *call)
{
    return run(dev, call, "gm_max_pool", call->in[0], call->out[0], call->out[1], call->out[0]);
}

gm_status cuda_avg_pool(gm_device *dev, const gm_call *call)
{
    return run(dev, call, "gm_avg_pool", call->in[0], call->out[0], NULL, call->out[0]);
}

gm_status cuda_max_pool_grad(gm_device *dev, const gm_call *call)
{
    return run(dev, call, "gm_max_pool_grad", call->out[0], call->in[1], call->in[0], call->out[0]);
}

gm_status cuda_avg_pool_grad(gm_device *dev, const gm_call *call)
{
    return run(dev, call, "gm_avg_pool_grad", call->out[0], call->in[0], NULL, call->out[0]);
}
