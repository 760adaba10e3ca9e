/* columns.c - sums over rows in two passes (columns_args.h), and bias_activation_grad. */
#include "../../runtime/cuda.h"
#include "columns_args.h"
#include "pass.h"

#define COLUMNS_ROWS 64 /* a set of rows is not smaller, so that the second pass stays small beside the first */

static size_t wide_size(const gm_tensor *t) { return gm_dtype_size(gm_dtype_wide(t->dtype)); }

gm_status gm_columns_scratch(gm_device *dev, int64_t tiles, const gm_tensor *dw, const gm_tensor *db, void **dw_part,
                             void **db_part, gm_block **block)
{
    size_t bytes_w = dw ? (size_t)(tiles * dw->shape[0]) * wide_size(dw) : 0;
    size_t bytes_b = db ? (size_t)(tiles * db->shape[0]) * wide_size(db) : 0;
    void  *data;
    GM_TRY(gm_cuda_scratch(dev, bytes_w + bytes_b + 16, &data, block));
    *dw_part = dw ? data : NULL;
    *db_part = db ? (char *)data + bytes_w : NULL;
    return GM_OK;
}

gm_status gm_columns_sum(gm_device *dev, int64_t tiles, const gm_tensor *dw, const gm_tensor *db, const void *dw_part,
                         const void *db_part, bool accumulate)
{
    char                name[GM_CUDA_NAME];
    const gm_tensor    *one = dw ? dw : db;
    int                 block = 32 * GM_COLUMNS_SUM_WARPS;
    gm_columns_sum_args a = {.part = {dw_part, db_part},
                             .out = {gm_rows_single(dw), gm_rows_single(db)},
                             .tiles = tiles,
                             .width = one->shape[0],
                             .accumulate = accumulate};
    gm_cuda_grid grid = {.x = (a.width + 31) / 32, .y = 2, .block = block, .shared = (size_t)block * wide_size(one)};
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_columns_sum", one->dtype), grid, a);
}

/* Enough sets to fill the device, each of COLUMNS_ROWS rows or more. */
static int64_t count_tiles(const gm_device *dev, int64_t rows, int64_t blocks_x)
{
    int64_t most = (rows + COLUMNS_ROWS - 1) / COLUMNS_ROWS;
    int64_t want = (4 * (int64_t)gm_cuda_multiprocessors(dev) + blocks_x - 1) / blocks_x;
    return most < want ? most : want;
}

gm_status gm_columns(gm_device *dev, const char *kernel, gm_dtype t, gm_columns_args *a, const gm_tensor *dw,
                     const gm_tensor *db, bool accumulate)
{
    char         name[GM_CUDA_NAME];
    gm_status    st;
    gm_block    *block = NULL;
    int64_t      lanes = 16 / (int64_t)gm_dtype_size(t), x = (a->width + 32 * lanes - 1) / (32 * lanes);
    int64_t      tiles = x ? count_tiles(dev, a->rows, x) : 0;
    int          threads = 32 * GM_COLUMNS_WARPS;
    gm_cuda_grid grid = {.x = tiles ? x : 0,
                         .y = (int)tiles,
                         .block = threads,
                         .shared = (size_t)(threads * lanes) * gm_dtype_size(gm_dtype_wide(t))};
    a->tile = tiles ? (a->rows + tiles - 1) / tiles : 0;
    if (dw || db) GM_TRY(gm_columns_scratch(dev, tiles, dw, db, &a->dw, &a->db, &block));
    GM_TRY_OR(GM_LAUNCH(dev, gm_cuda_name(name, kernel, t), grid, *a), st, done);
    if (dw || db) st = gm_columns_sum(dev, tiles, dw, db, a->dw, a->db, accumulate);
done:
    if (block) gm_pool_release(dev->pool, block);
    return st;
}

static gm_status go_back(gm_device *dev, gm_dtype t, gm_columns_args *a, const gm_tensor *db, bool accumulate)
{
    bool even = gm_rows_even(&a->g, a->width, t) && gm_rows_even(&a->pre, a->width, t) &&
                gm_rows_even(&a->dpre, a->width, t);
    return gm_columns(dev, even ? "gm_columns_even" : "gm_columns_activation", t, a, NULL, db, accumulate);
}

/* dpre = g f'(pre), db (+)= the sum of dpre over rows */
gm_status cuda_bias_activation_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0];
    gm_columns_args  a = {.g = gm_rows_last(g),
                          .pre = gm_rows_last(call->in[1]),
                          .dpre = gm_rows_last(call->out[0]),
                          .rows = gm_rows_count(g, g->ndim - 1),
                          .width = g->shape[g->ndim - 1],
                          .function = call->attrs->function};
    if (!call->out[0] && !call->out[1]) return GM_OK;
    return go_back(dev, g->dtype, &a, call->out[1], call->attrs->accumulate);
}

static gm_row_view rows_of_matrix(const gm_columns_matrix *m, int64_t rows, gm_dtype t)
{
    gm_row_view r = {.data = m->data, .step = m->column};
    if (!m->data) return (gm_row_view){0};
    if (rows != 1) {
        r.shape[0] = rows;
        r.stride[0] = m->row;
        r.ndim = 1;
    }
    r.vectors = m->column == 1 && (uintptr_t)m->data % 16 == 0 &&
                (rows == 1 || m->row * (int64_t)gm_dtype_size(t) % 16 == 0);
    return r;
}

gm_status gm_columns_pass_run(gm_device *dev, gm_dtype t, const gm_columns_pass *pass)
{
    gm_columns_args a = {.g = rows_of_matrix(&pass->g, pass->rows, t),
                         .pre = rows_of_matrix(&pass->pre, pass->rows, t),
                         .dpre = rows_of_matrix(&pass->dpre, pass->rows, t),
                         .rows = pass->rows,
                         .width = pass->width,
                         .function = pass->function};
    return go_back(dev, t, &a, pass->db, pass->accumulate);
}
