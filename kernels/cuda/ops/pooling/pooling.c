/* pooling.c - pooling and its gradients (pooling.cu). */
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

/* large: x or dx; small: y or g; over: which of them has a thread for each element. */
static gm_status run(gm_device *dev, const gm_call *call, const char *kernel, const gm_tensor *large,
                     const gm_tensor *small, const gm_tensor *index, const gm_tensor *over)
{
    char         name[GM_CUDA_NAME];
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
