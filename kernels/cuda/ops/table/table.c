/* table.c - embedding and its gradient (table.cu). */
#include "../../runtime/cuda.h"
#include "table_args.h"

gm_status cuda_embedding(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *w = call->in[0], *index = call->in[1], *y = call->out[0];
    gm_lookup_args   a = {.w = gm_rows_last(w),
                          .index = gm_rows_of(index, -1),
                          .y = gm_rows_last(y),
                          .rows = w->shape[0],
                          .width = w->shape[1],
                          .positions = gm_tensor_numel(index),
                          .narrow = index->dtype == GM_I32,
                          .part = call->attrs->part,
                          .op = GM_OP_embedding};
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    gm_cuda_grid grid = gm_rows_grid(a.positions, a.width, w->dtype, GM_TABLE_PACKS, &a.team);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_lookup", w->dtype), grid, a);
}

static gm_status sum_rows(gm_device *dev, const gm_call *call, const gm_sort_args *s)
{
    char               name[GM_CUDA_NAME];
    const gm_tensor   *dw = call->out[0];
    int64_t            lanes = 16 / (int64_t)gm_dtype_size(dw->dtype), width = dw->shape[1];
    int                threads = 32 * GM_TABLE_WARPS;
    gm_table_grad_args a = {.g = gm_rows_last(call->in[1]),
                            .dw = gm_rows_last(dw),
                            .position = s->position,
                            .start = s->start,
                            .rows = s->rows,
                            .width = width,
                            .accumulate = call->attrs->accumulate};
    bool even = gm_rows_even(&a.g, width, dw->dtype) && gm_rows_even(&a.dw, width, dw->dtype) && s->n < INT32_MAX / 2;
    int64_t      packs = (width + lanes - 1) / lanes, of_lane = even && packs > 32 ? 3 : 1;
    gm_cuda_grid grid = {.x = width ? (s->rows + GM_TABLE_WARPS - 1) / GM_TABLE_WARPS : 0,
                         .y = (int)((packs + 32 * of_lane - 1) / (32 * of_lane)),
                         .block = threads,
                         .shared = (size_t)(threads * lanes * of_lane) * gm_dtype_size(gm_dtype_wide(dw->dtype))};
    const char  *kernel = !even ? "gm_table_grad" : of_lane == 3 ? "gm_table_grad_even3" : "gm_table_grad_even1";
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, dw->dtype), grid, a);
}

gm_status cuda_embedding_grad(gm_device *dev, const gm_call *call)
{
    gm_status        st;
    gm_block        *block;
    const gm_tensor *index = call->in[0];
    int64_t          n = gm_tensor_numel(index);
    gm_sort_args     a = {.index = gm_rows_of(index, -1),
                          .n = n,
                          .rows = call->out[0]->shape[0],
                          .padding = call->attrs->padding_index,
                          .narrow = index->dtype == GM_I32,
                          .part = call->attrs->part,
                          .op = GM_OP_embedding_grad};
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    GM_TRY(gm_sort_begin(dev, "embedding_grad", &a, &block));
    GM_TRY_OR(GM_LAUNCH(dev, "gm_sort_keys", gm_cuda_over(dev, a.n, 1, 256), a), st, done);
    GM_TRY_OR(gm_sort(dev, &a), st, done);
    st = sum_rows(dev, call, &a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}
