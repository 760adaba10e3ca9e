/* float8.c - scales and codes of floats of 8 bits: one scale for a tensor (float8.cu), and scales of blocks
 * (float8_blocks.cu). */
#include "../../../float8.h"
#include "../../runtime/cuda.h"
#include "dense.h"
#include "float8_args.h"

static gm_float8_args args_of(const gm_call *call, const gm_tensor *x)
{
    int last = x->ndim - 1;
    return (gm_float8_args){.x = x->ndim ? gm_rows_last(x) : gm_rows_of(x, -1),
                            .rows = x->ndim ? gm_rows_count(x, last) : 1,
                            .k = x->ndim ? x->shape[last] : 1,
                            .format = (int32_t)call->attrs->format};
}

/* Raises *a.needed to the scale of x, from whole pieces of 16 bytes where x is one run of them. */
static gm_status raise_needed(gm_device *dev, const gm_tensor *x, gm_float8_args a)
{
    char         name[GM_CUDA_NAME];
    int64_t      n = gm_tensor_numel(x), size = (int64_t)gm_dtype_size(x->dtype);
    int64_t      each = GM_FLOAT8_HELD * GM_FLOAT8_THREADS * (16 / size);
    int64_t      most = (int64_t)gm_cuda_multiprocessors(dev) * GM_FLOAT8_BLOCKS;
    bool         flat = gm_tensor_is_contiguous(x) && (uintptr_t)a.x.data % 16 == 0 && n * size % 16 == 0;
    gm_cuda_grid grid = gm_rows_grid(a.rows, a.k, x->dtype, 1, &a.team);
    if (flat) grid = (gm_cuda_grid){.x = (n + each - 1) / each, .block = GM_FLOAT8_THREADS, .shared = grid.shared};
    if (grid.x > most) grid.x = most;
    if (grid.x < 1) grid.x = 1; /* no elements have a scale, too */
    return GM_LAUNCH(dev, gm_cuda_name(name, flat ? "gm_float8_largest_flat" : "gm_float8_largest", x->dtype), grid, a);
}

gm_status cuda_float8_scale(gm_device *dev, const gm_call *call)
{
    gm_float8_args a = args_of(call, call->in[0]);
    a.needed = gm_tensor_data(call->out[0]);
    GM_TRY(gm_cuda_fill(dev, a.needed, 0, gm_dtype_size(call->out[0]->dtype)));
    return raise_needed(dev, call->in[0], a);
}

static bool is_whole(const gm_float8_args *a, gm_dtype dtype)
{
    return gm_rows_even(&a->x, a->k, dtype) && a->k % GM_FLOAT8_TILE == 0 && a->rows % GM_FLOAT8_TILE == 0;
}

gm_status cuda_float8_encode(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0];
    gm_tensor       *codes = NULL, *turned = NULL;
    gm_tensor       *needed = call->n_out > 2 ? call->out[2] : NULL;
    gm_float8_args   a = args_of(call, x);
    int64_t   high = (a.rows + GM_FLOAT8_TILE - 1) / GM_FLOAT8_TILE, wide = (a.k + GM_FLOAT8_TILE - 1) / GM_FLOAT8_TILE;
    gm_status st;
    if (needed && !call->attrs->accumulate)
        GM_TRY(gm_cuda_fill(dev, gm_tensor_data(needed), 0, gm_dtype_size(needed->dtype)));
    a.needed = needed ? gm_tensor_data(needed) : NULL;
    if (!high || !wide) return needed ? raise_needed(dev, x, a) : GM_OK;
    GM_TRY_OR(gm_dense_like(dev, call->out[0], &codes), st, done);
    GM_TRY_OR(gm_dense_like(dev, call->out[1], &turned), st, done);
    a.scale = gm_tensor_data(call->in[1]);
    a.codes = codes ? gm_tensor_data(codes) : NULL;
    a.turned = turned ? gm_tensor_data(turned) : NULL;
    st = GM_LAUNCH(dev,
                   gm_cuda_name(name, is_whole(&a, x->dtype) ? "gm_float8_encode_whole" : "gm_float8_encode", x->dtype),
                   ((gm_cuda_grid){.x = high * wide, .block = GM_FLOAT8_THREADS, .shared = GM_FLOAT8_SHARED}), a);
done:
    st = gm_dense_home(dev, codes, call->out[0], st);
    return gm_dense_home(dev, turned, call->out[1], st);
}

gm_status cuda_float8_block_encode(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0];
    gm_tensor       *out[4] = {NULL, NULL, NULL, NULL};
    void            *to[4] = {NULL, NULL, NULL, NULL};
    gm_float8_args   a = args_of(call, x);
    int64_t          tiles = gm_float8_blocks(a.rows) * gm_float8_blocks(a.k);
    gm_status        st = GM_OK;
    if (!tiles) return GM_OK;
    for (int i = 0; i < 4; i++) {
        GM_TRY_OR(gm_dense_like(dev, call->out[i], &out[i]), st, done);
        to[i] = out[i] ? gm_tensor_data(out[i]) : NULL;
    }
    a.codes = to[0];
    a.scales = to[1];
    a.turned = to[2];
    a.turned_scales = to[3];
    a.square = call->attrs->square;
    st = GM_LAUNCH(dev,
                   gm_cuda_name(name,
                                is_whole(&a, x->dtype) ? "gm_float8_block_encode_whole" : "gm_float8_block_encode",
                                x->dtype),
                   ((gm_cuda_grid){.x = tiles, .block = GM_FLOAT8_THREADS, .shared = GM_FLOAT8_BLOCKS_SHARED}), a);
done:
    for (int i = 0; i < 4; i++) st = gm_dense_home(dev, out[i], call->out[i], st);
    return st;
}
