/* pages.c - keys and values in pages (pages.cu). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "../../runtime/cuda.h"
#include "pages_args.h"

static gm_status view_of(gm_device *dev, gm_op op, const gm_tensor *pool, const gm_tensor *index,
                         const gm_tensor *count, gm_pages_view *p)
{
    *p = (gm_pages_view){.index = gm_tensor_data(index),
                         .count = gm_tensor_data(count),
                         .index_stride = {index->stride[0], index->stride[1]},
                         .count_stride = count->stride[0],
                         .each = index->shape[1],
                         .pages = pool->shape[0],
                         .page = pool->shape[2],
                         .narrow = index->dtype == GM_I32,
                         .op = op};
    return gm_cuda_refusal(dev, &p->refusal);
}

static void strides(int64_t *to, const gm_tensor *t)
{
    for (int d = 0; d < 3; d++) to[d] = t->stride[d];
}

gm_status cuda_pages_write(gm_device *dev, const gm_call *call)
{
    char                name[GM_CUDA_NAME];
    const gm_tensor    *x = call->in[0], *pool = call->out[0];
    gm_pages_write_args a = {.x = gm_tensor_data(x),
                             .pool = gm_tensor_data(pool),
                             .positions = x->shape[1],
                             .heads = x->shape[2],
                             .size = x->shape[3],
                             .n = gm_tensor_numel(x)};
    if (a.n == 0) return GM_OK;
    GM_TRY(view_of(dev, call->op, pool, call->in[1], call->in[2], &a.p));
    strides(a.x_stride, x);
    strides(a.pool_stride, pool);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_pages_write", x->dtype), gm_cuda_over(dev, a.n, 1, GM_PAGES_WRITE), a);
}

gm_status cuda_attention_paged(gm_device *dev, const gm_call *call)
{
    char             base[GM_CUDA_NAME], name[GM_CUDA_NAME];
    const gm_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *o = call->out[0];
    double           scale = call->attrs->scale;
    gm_pages_args    a = {.q = gm_tensor_data(q),
                          .k = gm_tensor_data(k),
                          .v = gm_tensor_data(v),
                          .o = gm_tensor_data(o),
                          .queries = q->shape[1],
                          .heads = q->shape[2],
                          .group = k->shape[1] ? q->shape[2] / k->shape[1] : 1,
                          .size = q->shape[3],
                          .window = call->attrs->window,
                          .scale = scale > 0 ? scale : 1 / sqrt((double)q->shape[3]),
                          .softcap = call->attrs->softcap};
    if (gm_tensor_numel(q) == 0) return GM_OK;
    if (a.size > GM_PAGES_WIDE)
        return GM_FAIL(GM_EINVAL, "attention_paged: heads of %" PRId64 " numbers; the CUDA kernel takes up to %d",
                       a.size, GM_PAGES_WIDE);
    GM_TRY(view_of(dev, call->op, k, call->in[3], call->in[4], &a.p));
    strides(a.q_stride, q);
    strides(a.k_stride, k);
    strides(a.v_stride, v);
    for (int d = 0; d < 4; d++) a.o_stride[d] = o->stride[d];
    size_t real = gm_dtype_size(gm_dtype_wide(q->dtype));
    snprintf(base, sizeof base, "gm_attention_paged_%s", a.size <= GM_PAGES_NARROW ? "narrow" : "wide");
    gm_cuda_grid grid = {.x = q->shape[0] * a.queries * a.heads,
                         .block = 32 * GM_PAGES_WARPS,
                         .shared = real * (size_t)(GM_PAGES_WARPS * (a.size + 2))};
    return GM_LAUNCH(dev, gm_cuda_name(name, base, q->dtype), grid, a);
}
