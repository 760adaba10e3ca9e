/* reduce.c - sum and scatter: which kernel of reduce.cu, in how many chunks. */
#include "reduce_args.h"

#define BLOCKS_EACH 8    /* a multiprocessor should get, before chunks are not worth a second pass */
#define CHUNK_LEAST 1024 /* items that a chunk has at least */
#define FEW_TERMS   16   /* fewer are added by one line of threads, wherever they lie */
#define WARP_TERMS  1024 /* items up to which a warp adds what else a block does */

static int64_t divide_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

/* x's dimensions in two maps. */
static void split(gm_sum_args *a, const gm_tensor *x, const gm_tensor *y, const gm_attrs *attrs)
{
    int64_t kept_shape[GM_MAX_DIMS], shape[GM_MAX_DIMS];
    int64_t kept[2][GM_MAX_DIMS], reduced[1][GM_MAX_DIMS];
    int     n_kept = 0, n = 0, at = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (!attrs->dims || attrs->dims >> d & 1) {
            shape[n] = x->shape[d];
            reduced[0][n++] = x->stride[d];
            at += attrs->keepdim;
        } else {
            kept_shape[n_kept] = x->shape[d];
            kept[0][n_kept] = y->stride[at++];
            kept[1][n_kept++] = x->stride[d];
        }
    }
    gm_map_of(&a->kept, n_kept, kept_shape, 2, kept);
    gm_map_of(&a->reduced, n, shape, 1, reduced);
}

/* 16 bytes at once along what is reduced, wherever an output's share begins. */
static bool in_vectors(gm_sum_args *a, gm_dtype t)
{
    int lanes = (int)(16 / gm_dtype_size(t));
    for (int d = 0; d < a->kept.ndim; d++)
        if (a->kept.stride[1][d] % lanes && a->kept.n > 1) return false;
    return a->reduced.n > 0 &&
           gm_map_vectors(&a->reduced, 1, lanes, (const void *[]){a->x}, (size_t[]){gm_dtype_size(t)});
}

/* Are the outputs whole packs of neighbours in x, each of which begins at 16 bytes wherever its sum goes? */
static bool beside_packs(const gm_sum_args *a, gm_dtype t)
{
    const gm_map *kept = &a->kept;
    int64_t       lanes = 16 / (int64_t)gm_dtype_size(t);
    int           inner = kept->ndim - 1;
    if (kept->stride[1][inner] != 1 || kept->shape[inner] % lanes || (uintptr_t)a->x % 16) return false;
    for (int d = 0; d < inner; d++)
        if (kept->stride[1][d] % lanes) return false;
    for (int d = 0; d < a->reduced.ndim; d++)
        if (a->reduced.n > 1 && a->reduced.stride[0][d] % lanes) return false;
    return true;
}

/* Blocks of so many threads, each for so many outputs, and of chunks as many as fill the GPU. */
static gm_status launch(gm_device *dev, gm_sum_args *a, const char *kernel, gm_dtype t, int threads,
                        int64_t outputs_a_block)
{
    char         name[GM_CUDA_NAME];
    gm_block    *block = NULL;
    gm_status    st;
    int64_t      blocks = divide_up(a->kept.n, outputs_a_block), wanted = gm_cuda_multiprocessors(dev) * BLOCKS_EACH;
    int64_t      chunks = blocks < wanted ? wanted / (blocks ? blocks : 1) : 1;
    gm_cuda_grid g = {.x = blocks, .block = threads, .shared = GM_REDUCE_THREADS * sizeof(double)};
    if (chunks > divide_up(a->reduced.n, CHUNK_LEAST)) chunks = divide_up(a->reduced.n, CHUNK_LEAST);
    if (chunks < 1) chunks = 1;
    a->chunk = divide_up(a->reduced.n, chunks);
    a->chunks = g.y = (int)chunks;
    if (chunks == 1) return GM_LAUNCH(dev, gm_cuda_name(name, kernel, t), g, *a);
    size_t bytes = (size_t)(a->kept.n * chunks) * gm_dtype_size(gm_dtype_wide(t));
    GM_TRY(gm_cuda_scratch(dev, bytes, &a->partial, &block));
    GM_TRY_OR(GM_LAUNCH(dev, gm_cuda_name(name, kernel, t), g, *a), st, done);
    threads = gm_reduce_warps(a->kept.n);
    g = (gm_cuda_grid){.x = divide_up(a->kept.n, threads / 32), .block = threads};
    st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_sum_finish", t), g, *a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

gm_status cuda_sum(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0];
    gm_sum_args      a = {.x = gm_tensor_data(x), .y = gm_tensor_data(y)};
    split(&a, x, y, call->attrs);
    if (a.kept.n == 0) return GM_OK;
    int64_t near = a.reduced.stride[0][a.reduced.ndim - 1], beside = a.kept.stride[1][a.kept.ndim - 1];
    if (a.kept.n > 1 && (a.reduced.n < FEW_TERMS || beside < near))
        return beside_packs(&a, x->dtype) ? launch(dev, &a, "gm_sum_beside", x->dtype, GM_REDUCE_THREADS,
                                                   32 * (16 / (int64_t)gm_dtype_size(x->dtype)))
                                          : launch(dev, &a, "gm_sum_down", x->dtype, GM_REDUCE_THREADS, 32);
    a.vectors = in_vectors(&a, x->dtype);
    a.whole = a.reduced.n > WARP_TERMS;
    int threads = a.whole ? GM_REDUCE_THREADS : gm_reduce_warps(a.kept.n);
    return launch(dev, &a, "gm_sum_across", x->dtype, threads, a.whole ? 1 : threads / 32);
}

gm_status cuda_scatter(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *index = call->in[0], *g = call->in[1], *dx = call->out[0];
    int              dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + dx->ndim : call->attrs->dim), n = 0;
    int64_t          shape[GM_MAX_DIMS], stride[GM_MAP_OPERANDS][GM_MAX_DIMS], place[GM_MAX_DIMS];
    gm_scatter_args  a = {.index = gm_tensor_data(index),
                          .g = gm_tensor_data(g),
                          .dx = gm_tensor_data(dx),
                          .n = dx->shape[dim],
                          .step = dx->stride[dim],
                          .wide = index->dtype == GM_I64,
                          .op = GM_OP_scatter};
    gm_shape_strides(index->ndim, index->shape, place);
    for (int d = 0, i = 0; d < dx->ndim; d++) {
        if (d == dim) {
            i += index->ndim == dx->ndim;
            continue;
        }
        shape[n] = dx->shape[d];
        stride[0][n] = dx->stride[d];
        stride[1][n] = index->stride[i];
        stride[2][n] = g->stride[i];
        stride[3][n++] = place[i++];
    }
    gm_map_of(&a.lines, n, shape, 4, stride);
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_scatter", dx->dtype), gm_map_grid(dev, &a.lines), a);
}
