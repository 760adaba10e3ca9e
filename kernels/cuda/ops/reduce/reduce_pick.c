/* reduce_pick.c - max, min, argmax and top_k: which kernel of reduce_pick.cu or reduce_pick_even.cu. */
#include "reduce_args.h"

#define FEW         16    /* elements of a line that one line of threads looks at, wherever they lie */
#define WARP_MOST   1024  /* elements of a line that a warp looks at; more are for a block */
#define BLOCK_MOST  16384 /* top_k: more are for a block of 1,024 */
#define BLOCKS_EACH 4     /* a multiprocessor should get, of lines side by side */
#define CHUNK_LEAST 64    /* places that a chunk of such lines has at least */

static int64_t divide_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

/* All dimensions of x but dim; outputs have dim with size 1, or k, if they have it at all. */
static void lines_of(gm_pick_args *a, const gm_tensor *x, int dim, const gm_tensor *y, const gm_tensor *index)
{
    int64_t shape[GM_MAX_DIMS] = {1}, stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}};
    int     n = 0;
    for (int d = 0, i = 0; d < x->ndim; d++) {
        if (d == dim) {
            i += index->ndim == x->ndim;
            continue;
        }
        shape[n] = x->shape[d];
        stride[0][n] = index->stride[i];
        stride[1][n] = x->stride[d];
        stride[2][n++] = y ? y->stride[i] : index->stride[i];
        i++;
    }
    gm_map_of(&a->lines, n, shape, 3, stride);
    a->x = gm_tensor_data(x);
    a->y = y ? gm_tensor_data(y) : NULL;
    a->index = gm_tensor_data(index);
    a->n = x->shape[dim];
    a->step = x->stride[dim];
}

/* Lines of neighbours that begin at 16 bytes. */
static bool along_packs(const gm_pick_args *a, gm_dtype t)
{
    int64_t lanes = 16 / (int64_t)gm_dtype_size(t);
    if (a->step != 1 || a->n > INT32_MAX / 2 || (uintptr_t)a->x % 16) return false;
    for (int d = 0; d < a->lines.ndim && a->lines.n > 1; d++)
        if (a->lines.stride[1][d] % lanes) return false;
    return true;
}

/* Whole packs of lines side by side: turns a->lines into packs. */
static bool beside_packs(gm_pick_args *a, gm_dtype t)
{
    int lanes = (int)(16 / gm_dtype_size(t)), inner = a->lines.ndim - 1;
    if (a->step % lanes || a->n > INT32_MAX / 2 || a->lines.shape[inner] % lanes) return false;
    for (int o = 0; o < 3; o++)
        if (a->lines.stride[o][inner] != 1) return false;
    return gm_map_vectors(&a->lines, 3, lanes, (const void *[]){NULL, a->x, NULL}, (size_t[]){0, gm_dtype_size(t), 0});
}

static gm_status pick_beside(gm_device *dev, gm_pick_args *a, gm_dtype t)
{
    char         name[GM_CUDA_NAME];
    gm_status    st;
    gm_block    *block;
    void        *room;
    size_t       wide = gm_dtype_size(gm_dtype_wide(t));
    int64_t      lanes = 16 / (int64_t)gm_dtype_size(t), lines = a->lines.n * lanes;
    gm_cuda_grid g = {.x = divide_up(a->lines.n, 32),
                      .block = GM_REDUCE_THREADS,
                      .shared = GM_REDUCE_THREADS * (sizeof(double) + sizeof(int32_t))};
    int64_t      chunks = divide_up(gm_cuda_multiprocessors(dev) * BLOCKS_EACH, g.x);
    if (chunks > divide_up(a->n, CHUNK_LEAST)) chunks = divide_up(a->n, CHUNK_LEAST);
    a->chunk = divide_up(a->n, chunks);
    a->chunks = g.y = (int)divide_up(a->n, a->chunk);
    if (a->chunks == 1) return GM_LAUNCH(dev, gm_cuda_name(name, "gm_pick_beside", t), g, *a);
    GM_TRY(gm_cuda_scratch(dev, (size_t)(lines * a->chunks) * (wide + sizeof(int32_t)), &room, &block));
    a->partial = room;
    a->partial_place = (int32_t *)((char *)room + (size_t)(lines * a->chunks) * wide);
    GM_TRY_OR(GM_LAUNCH(dev, gm_cuda_name(name, "gm_pick_beside", t), g, *a), st, done);
    int threads = gm_reduce_warps(lines);
    g = (gm_cuda_grid){.x = divide_up(lines, threads / 32), .block = threads};
    st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_pick_join", t), g, *a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

static gm_status pick(gm_device *dev, const gm_call *call, int sign, const gm_tensor *y, const gm_tensor *index)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0];
    gm_pick_args     a = {.sign = sign};
    gm_cuda_grid     g = {.block = GM_REDUCE_THREADS, .shared = GM_REDUCE_THREADS * 2 * sizeof(int64_t)};
    lines_of(&a, x, (int)(call->attrs->dim < 0 ? call->attrs->dim + x->ndim : call->attrs->dim), y, index);
    bool down = a.lines.n > 1 && (a.n < FEW || a.lines.stride[1][a.lines.ndim - 1] < a.step);
    a.whole = !down && a.n > WARP_MOST;
    if (a.lines.n == 0) return GM_OK;
    if (down && beside_packs(&a, x->dtype)) return pick_beside(dev, &a, x->dtype);
    if (!down && !a.whole) g.block = gm_reduce_warps(a.lines.n);
    const char *kernel = down ? "gm_pick_down" : along_packs(&a, x->dtype) ? "gm_pick_along" : "gm_pick_across";
    g.x = divide_up(a.lines.n, down ? 32 : a.whole ? 1 : g.block / 32);
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), g, a);
}

gm_status cuda_max(gm_device *dev, const gm_call *call) { return pick(dev, call, 1, call->out[0], call->out[1]); }
gm_status cuda_min(gm_device *dev, const gm_call *call) { return pick(dev, call, -1, call->out[0], call->out[1]); }
gm_status cuda_argmax(gm_device *dev, const gm_call *call) { return pick(dev, call, 1, NULL, call->out[0]); }

gm_status cuda_top_k(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0], *y = call->out[0], *index = call->out[1];
    int              dim = x->ndim - 1;
    gm_pick_args     a = {.sign = 1, .k = call->attrs->k, .y_step = y->stride[dim], .index_step = index->stride[dim]};
    lines_of(&a, x, dim, y, index);
    gm_cuda_grid g = {.x = a.lines.n,
                      .block = a.n <= WARP_MOST / 8 ? 32
                               : a.n <= BLOCK_MOST  ? GM_REDUCE_THREADS
                                                    : 1024,
                      .shared = 32 * 2 * sizeof(int64_t)};
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_top_k", x->dtype), g, a);
}
