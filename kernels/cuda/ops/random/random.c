/* random.c - uniform, normal and dropout. The random word of an element depends on its index in the global tensor. So
 * the map has this index as an operand of its own, with the strides of the global tensor. */
#include "random_args.h"

#include <stddef.h>
#include <string.h>

/* Operands: y, x (y again, where there is none), index. */
static void map_of(gm_random_args *a, const gm_tensor *y, const gm_tensor *x, const gm_box *box)
{
    int64_t stride[GM_MAP_OPERANDS][GM_MAX_DIMS], whole[GM_MAX_DIMS];
    gm_shape_strides(y->ndim, box->ndim ? box->shape : y->shape, whole);
    for (int d = 0; d < y->ndim; d++) {
        stride[0][d] = y->stride[d];
        stride[1][d] = x->stride[d];
        stride[2][d] = whole[d];
        if (box->ndim) a->first += (uint64_t)box->offset[d] * (uint64_t)whole[d];
    }
    gm_map_of(&a->map, y->ndim, y->shape, 3, stride);
}

static gm_status begin(gm_device *dev, const gm_call *call, const gm_tensor *x, gm_random_args *a)
{
    const gm_stream     *stream = &call->attrs->stream;
    const gm_tensor     *y = call->out[0];
    const gm_step_block *block;
    map_of(a, y, x, &call->attrs->box);
    a->x = gm_tensor_data(x);
    a->y = gm_tensor_data(y);
    a->key = stream->key;
    a->step = (uint64_t)stream->step;
    if (stream->step >= 0) return GM_OK;
    GM_TRY(gm_cuda_step(dev, &block));
    a->step_at = (const uint64_t *)(const void *)((const char *)block + offsetof(gm_step_block, rng_step));
    return GM_OK;
}

gm_status cuda_uniform(gm_device *dev, const gm_call *call)
{
    char           name[GM_CUDA_NAME];
    gm_random_args a = {.low = call->attrs->low, .high = call->attrs->high};
    GM_TRY(begin(dev, call, call->out[0], &a));
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_uniform", call->out[0]->dtype), gm_map_grid(dev, &a.map), a);
}

gm_status cuda_normal(gm_device *dev, const gm_call *call)
{
    char            name[GM_CUDA_NAME];
    const gm_attrs *at = call->attrs;
    gm_random_args  a = {.mean = at->mean, .std = at->std};
    if (at->truncated) a.cut = gm_truncated_of(at->mean, at->std, at->low, at->high);
    GM_TRY(begin(dev, call, call->out[0], &a));
    gm_cuda_name(name, at->truncated ? "gm_truncated" : "gm_normal", call->out[0]->dtype);
    return GM_LAUNCH(dev, name, gm_map_grid(dev, &a.map), a);
}

gm_status cuda_dropout(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0], *y = call->out[0];
    gm_random_args   a = {.drop = gm_drop_of(call->attrs->stream.key, call->attrs->p)};
    a.keep = gm_drop_keep(a.drop.threshold);
    GM_TRY(begin(dev, call, x, &a));
    size_t      size = gm_dtype_size(y->dtype);
    const void *address[] = {a.y, a.x, NULL};
    size_t      sizes[] = {size, size, 0};
    bool        items = gm_map_vectors(&a.map, 3, (int)(16 / size), address, sizes);
    gm_cuda_name(name, items ? "gm_dropout" : "gm_dropout_any", y->dtype);
    return GM_LAUNCH(dev, name, gm_map_grid(dev, &a.map), a);
}
