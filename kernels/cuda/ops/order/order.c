/* order.c - sort and unsort (order.cu). */
#include "../../runtime/cuda.h"
#include "order_args.h"

#define THREADS    256
#define MOST_PACKS 2048 /* of a line that a block puts in order: 32 KiB */

/* The lines along the last dimension. */
static gm_order_args args_of(const gm_tensor *x, const gm_tensor *index, const gm_tensor *y)
{
    int64_t       stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}};
    int           last = x->ndim - 1;
    gm_order_args a = {.x = gm_tensor_data(x),
                       .index = gm_tensor_data(index),
                       .y = gm_tensor_data(y),
                       .n = x->shape[last],
                       .x_step = x->stride[last],
                       .index_step = index->stride[last],
                       .y_step = y->stride[last],
                       .wide = index->dtype == GM_I64};
    for (int d = 0; d < last; d++) {
        stride[0][d] = x->stride[d];
        stride[1][d] = index->stride[d];
        stride[2][d] = y->stride[d];
    }
    gm_map_of(&a.lines, last, x->shape, 3, stride);
    return a;
}

static gm_status launch(gm_device *dev, const char *kernel, gm_dtype t, int64_t threads, const gm_order_args *a)
{
    char name[GM_CUDA_NAME];
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, t), gm_cuda_over(dev, threads, 1, THREADS), *a);
}

static gm_status network(gm_device *dev, gm_dtype t, gm_order_args *a)
{
    for (a->span = 2; a->span <= a->width; a->span *= 2)
        for (a->apart = a->span / 2; a->apart > 0; a->apart /= 2)
            GM_TRY(launch(dev, "gm_order_step", t, a->lines.n * (a->width / 2), a));
    return GM_OK;
}

gm_status cuda_sort(gm_device *dev, const gm_call *call)
{
    gm_dtype      t = call->in[0]->dtype;
    gm_order_args a = args_of(call->in[0], call->out[1], call->out[0]);
    gm_block     *block;
    gm_status     st;
    if (!a.n || !a.lines.n) return GM_OK;
    a.descending = call->attrs->descending;
    for (a.width = 1; a.width < a.n;) a.width *= 2;
    size_t items = (size_t)(a.lines.n * a.width);
    GM_TRY(
        gm_cuda_scratch(dev, items * (sizeof *a.place + gm_dtype_size(gm_dtype_wide(t))), (void **)&a.place, &block));
    a.value = a.place + items;
    GM_TRY_OR(launch(dev, "gm_order_load", t, (int64_t)items, &a), st, done);
    GM_TRY_OR(network(dev, t, &a), st, done);
    st = launch(dev, "gm_order_store", t, a.lines.n * a.n, &a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

/* Lines of whole packs of 16 bytes in all operands, with an index of i64; shared memory has room for one. */
static bool is_even(const gm_order_args *a, gm_dtype t)
{
    int64_t     lanes = 16 / (int64_t)gm_dtype_size(t), each[3] = {lanes, 2, lanes};
    const void *data[3] = {a->x, a->index, a->y};
    bool        dense = a->x_step == 1 && a->index_step == 1 && a->y_step == 1;
    bool        even = dense && a->wide && a->n % lanes == 0 && a->n / lanes <= MOST_PACKS;
    for (int o = 0; o < 3 && even; o++) {
        even = (uintptr_t)data[o] % 16 == 0;
        for (int d = 0; d < a->lines.ndim && even; d++)
            even = a->lines.shape[d] == 1 || a->lines.stride[o][d] % each[o] == 0;
    }
    return even;
}

gm_status cuda_unsort(gm_device *dev, const gm_call *call)
{
    char          name[GM_CUDA_NAME];
    gm_order_args a = args_of(call->in[1], call->in[0], call->out[0]);
    gm_dtype      t = call->in[1]->dtype;
    int64_t       threads = (a.n / (16 / (int64_t)gm_dtype_size(t)) + 31) / 32 * 32;
    if (a.n && a.lines.n && is_even(&a, t))
        return GM_LAUNCH(dev, gm_cuda_name(name, "gm_order_undo_even", t),
                         ((gm_cuda_grid){.x = a.lines.n,
                                         .block = threads < THREADS ? (int)threads : THREADS,
                                         .shared = (size_t)a.n * gm_dtype_size(t)}),
                         a);
    return launch(dev, "gm_order_undo", call->in[1]->dtype, a.lines.n * a.n, &a);
}
