/* bags.c - bags of rows of tables, gradients of tables as lists of rows, and rows that a list names (bags.cu). */
#include "bags_args.h"

#define STARTS_THREADS 1024

gm_status cuda_embedding_bag(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *w = call->in[0], *index = call->in[1], *bounds = call->in[2], *y = call->out[0];
    gm_bag_args      a = {.w = gm_rows_last(w),
                          .index = gm_rows_of(index, -1),
                          .weight = gm_rows_of(call->in[3], -1),
                          .y = gm_rows_last(y),
                          .row = gm_rows_of(call->out[1], -1),
                          .bounds = gm_tensor_data(bounds),
                          .bounds_step = bounds->stride[0],
                          .bags = y->shape[0] * y->shape[1],
                          .tables = y->shape[1],
                          .each = index->shape[2],
                          .rows = w->shape[0],
                          .width = w->shape[1],
                          .first = call->attrs->first,
                          .narrow = index->dtype == GM_I32,
                          .op = GM_OP_embedding_bag};
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_bag", w->dtype), gm_rows_grid(a.bags, a.width, w->dtype, 1, &a.team),
                     a);
}

/* Places for each row of g. */
static int64_t places_each(int64_t places, const gm_tensor *g)
{
    int64_t runs = gm_rows_count(g, g->ndim - 1);
    return runs && places ? places / runs : 1;
}

gm_status cuda_embedding_bag_weight_grad(gm_device *dev, const gm_call *call)
{
    char               name[GM_CUDA_NAME];
    const gm_tensor   *w = call->in[0], *row = call->in[1], *g = call->in[2];
    gm_bag_weight_args a = {.w = gm_rows_last(w),
                            .row = gm_rows_of(row, -1),
                            .g = gm_rows_last(g),
                            .dweight = gm_rows_of(call->out[0], -1),
                            .places = gm_tensor_numel(row),
                            .width = w->shape[1]};
    a.each = places_each(a.places, g);
    gm_cuda_grid grid = gm_rows_grid(a.places, a.width, w->dtype, 1, &a.team);
    grid.shared = 32 * sizeof(double);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_bag_weight", w->dtype), grid, a);
}

gm_status cuda_embedding_rows(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    gm_status        st;
    gm_block        *block;
    const gm_tensor *row = call->in[0], *g = call->in[1], *kept = call->out[0];
    gm_sort_args     s = {.n = gm_tensor_numel(row), .rows = gm_tensor_numel(row)};
    gm_touched_args  a = {.row = gm_rows_of(row, -1),
                          .g = gm_rows_last(g),
                          .weight = gm_rows_of(call->in[2], -1),
                          .sum = gm_rows_last(call->out[1]),
                          .kept = gm_tensor_data(kept),
                          .kept_step = kept->stride[0],
                          .n = s.n,
                          .each = places_each(s.n, g),
                          .width = g->shape[g->ndim - 1],
                          .padding = call->attrs->padding_index};
    if (!a.n) return GM_OK;
    GM_TRY(gm_sort_begin(dev, "embedding_rows", &s, &block));
    s.rows = GM_NO_ROW;
    a.key = s.key;
    a.position = s.position;
    a.start = s.start;
    GM_TRY_OR(GM_LAUNCH(dev, "gm_touched_keys", gm_cuda_over(dev, a.n, 1, 256), a), st, done);
    GM_TRY_OR(gm_sort_entries(dev, &s), st, done);
    a.key = s.key;
    a.position = s.position;
    gm_cuda_grid one = {.x = 1, .block = STARTS_THREADS, .shared = 2 * STARTS_THREADS * sizeof(int32_t)};
    GM_TRY_OR(GM_LAUNCH(dev, "gm_touched_starts", one, a), st, done);
    gm_cuda_grid grid = gm_rows_grid(a.n, a.width, g->dtype, 1, &a.team);
    st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_touched_sum", g->dtype), grid, a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

static gm_status move_rows(gm_device *dev, const gm_call *call, const gm_tensor *x, const gm_tensor *y, bool put)
{
    char         name[GM_CUDA_NAME];
    gm_move_args a = {.x = gm_rows_last(x),
                      .y = gm_rows_last(y),
                      .row = gm_rows_of(call->in[1], -1),
                      .n = call->in[1]->shape[0],
                      .rows = x->shape[0],
                      .width = x->shape[1],
                      .put = put,
                      .op = (int32_t)call->op};
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_move_row", x->dtype), gm_rows_grid(a.n, a.width, x->dtype, 1, &a.team),
                     a);
}

gm_status cuda_rows_take(gm_device *dev, const gm_call *call)
{
    return move_rows(dev, call, call->in[0], call->out[0], false);
}

gm_status cuda_rows_put(gm_device *dev, const gm_call *call)
{
    return move_rows(dev, call, call->out[0], call->in[0], true);
}
