/* batch_norm.c - batch norm in steps (batch_norm.cu). */
#include "../../runtime/cuda.h"
#include "batch_norm_args.h"

#define BLOCKS_EACH 4    /* a multiprocessor should get, before chunks are not worth a second pass */
#define CHUNK_LEAST 1024 /* items that a chunk has at least */

static int64_t divide_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

static gm_channel_view channel_view(const gm_tensor *t)
{
    if (!t) return (gm_channel_view){NULL, 0};
    return (gm_channel_view){gm_tensor_data(t), t->stride[0]};
}

/* 16 bytes at once where an item has one channel and none are left over. */
static bool in_vectors(gm_batch_norm_args *a, gm_dtype t)
{
    size_t size = gm_dtype_size(t);
    int    lanes = (int)(16 / size), inner = a->map.ndim - 1;
    if (a->map.stride[3][inner] || a->map.shape[inner] % lanes) return false;
    for (int o = 0; o < 3; o++)
        if (a->map.stride[o][inner] != 1) return false;
    return gm_map_vectors(&a->map, 4, lanes, (const void *[]){a->y, a->x, a->g, NULL}, (size_t[]){size, size, size, 0});
}

/* 16 bytes at once where planes do not end with an item: the channel may change within it. */
static void in_packs(gm_batch_norm_args *a, const gm_tensor *y, const gm_tensor *x, const gm_tensor *g)
{
    int64_t lanes = 16 / (int64_t)gm_dtype_size(x->dtype), n = gm_tensor_numel(x), planes = x->shape[0] * x->shape[1];
    bool    aligned = ((uintptr_t)a->y | (uintptr_t)a->x | (uintptr_t)a->g) % 16 == 0;
    if (a->vectors || !aligned || n > INT32_MAX / 2 || n % lanes || !n || n / planes < lanes) return;
    if (!gm_tensor_is_contiguous(y) || !gm_tensor_is_contiguous(x) || !gm_tensor_is_contiguous(g)) return;
    a->packs = (int32_t)(n / lanes);
    a->inner = (int32_t)(n / planes);
    a->channels = (int32_t)x->shape[1];
}

static gm_status apply(gm_device *dev, const char *kernel, const gm_tensor *y, const gm_tensor *x, const gm_tensor *g,
                       gm_batch_norm_args *a)
{
    char    name[GM_CUDA_NAME];
    int64_t stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}};
    for (int d = 0; d < x->ndim; d++) {
        stride[0][d] = y->stride[d];
        stride[1][d] = x->stride[d];
        stride[2][d] = g->stride[d];
        stride[3][d] = d == 1;
    }
    gm_map_of(&a->map, x->ndim, x->shape, 4, stride);
    a->y = gm_tensor_data(y);
    a->x = gm_tensor_data(x);
    a->g = gm_tensor_data(g);
    a->vectors = in_vectors(a, x->dtype);
    in_packs(a, y, x, g);
    if (a->packs) return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), gm_cuda_over(dev, a->packs, 1, 256), *a);
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), gm_map_grid(dev, &a->map), *a);
}

gm_status cuda_batch_norm_apply(gm_device *dev, const gm_call *call)
{
    gm_tensor *const  *in = call->in;
    gm_batch_norm_args a = {
        .w = channel_view(in[1]), .b = channel_view(in[2]), .mean = channel_view(in[3]), .rstd = channel_view(in[4])};
    return apply(dev, "gm_batch_norm_apply", call->out[0], in[0], in[0], &a);
}

gm_status cuda_batch_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    gm_tensor *const  *in = call->in;
    gm_batch_norm_args a = {.w = channel_view(in[2]),
                            .mean = channel_view(in[3]),
                            .rstd = channel_view(in[4]),
                            .mean_h = channel_view(in[5]),
                            .mean_h_hat = channel_view(in[6])};
    return apply(dev, "gm_batch_norm_grad_apply", call->out[0], in[1], in[0], &a);
}

/* Elements of an item: those of 16 or 8 bytes if each channel of x and g consists of such items; else 1. */
static int sums_in_items(gm_batch_norm_sums_args *a, gm_dtype t)
{
    size_t size = gm_dtype_size(t);
    for (int lanes = (int)(16 / size), inner = a->rest.ndim - 1; lanes > 1 && lanes >= (int)(8 / size); lanes /= 2) {
        if (a->rest.stride[0][inner] != 1 || a->rest.stride[1][inner] != 1 || a->rest.shape[inner] % lanes) continue;
        if (a->channels > 1 && (a->x_step % lanes || a->g_step % lanes)) continue;
        if (gm_map_vectors(&a->rest, 2, lanes, (const void *[]){a->x, a->g}, (size_t[]){size, size})) return lanes;
    }
    return 1;
}

/* The places as images and items in them. False: there are more dimensions, or larger numbers. */
static bool sums_in_images(gm_batch_norm_sums_args *a)
{
    const gm_map *m = &a->rest;
    int           inner = m->ndim - 1;
    if (inner > 1 || m->wide || m->shape[inner] > INT32_MAX) return false;
    a->by = m->by[inner];
    a->items = (int32_t)m->shape[inner];
    for (int o = 0; o < 2; o++) {
        int64_t step = inner ? m->stride[o][0] : 0;
        if (step > INT32_MAX || m->stride[o][inner] > INT32_MAX) return false;
        a->image_step[o] = (int32_t)step;
        a->item_step[o] = (int32_t)m->stride[o][inner];
    }
    return true;
}

static gm_status sums(gm_device *dev, const char *kernel, const gm_tensor *x, const gm_tensor *g,
                      gm_batch_norm_sums_args *a)
{
    char         name[GM_CUDA_NAME];
    int64_t      shape[GM_MAX_DIMS], stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}};
    int          n = 0;
    gm_block    *block = NULL;
    gm_status    st;
    gm_cuda_grid grid = {.x = x->shape[1], .block = GM_BATCH_NORM_THREADS, .shared = 32 * sizeof(double)};
    for (int d = 0; d < x->ndim; d++) {
        if (d == 1) continue;
        shape[n] = x->shape[d];
        stride[0][n] = x->stride[d];
        stride[1][n++] = g->stride[d];
    }
    gm_map_of(&a->rest, n, shape, 2, stride);
    a->x = gm_tensor_data(x);
    a->g = gm_tensor_data(g);
    a->x_step = x->stride[1];
    a->g_step = g->stride[1];
    a->channels = x->shape[1];
    if (!a->channels) return GM_OK;
    a->lanes = sums_in_images(a) ? sums_in_items(a, x->dtype) : 0;
    if (a->lanes > 1) sums_in_images(a);
    int64_t wanted = gm_cuda_multiprocessors(dev) * BLOCKS_EACH / a->channels, most = divide_up(a->rest.n, CHUNK_LEAST);
    int64_t chunks = wanted < most ? wanted : most;
    if (chunks < 1) chunks = 1;
    a->chunk = divide_up(a->rest.n, chunks);
    chunks = a->rest.n ? divide_up(a->rest.n, a->chunk) : 1;
    a->chunks = grid.y = (int)chunks;
    if (chunks == 1) return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), grid, *a);
    size_t bytes = (size_t)(a->channels * chunks) * 2 * gm_dtype_size(gm_dtype_wide(x->dtype));
    GM_TRY(gm_cuda_scratch(dev, bytes, &a->partial, &block));
    GM_TRY_OR(GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), grid, *a), st, done);
    grid = (gm_cuda_grid){.x = a->channels, .block = 32};
    st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_batch_norm_join", x->dtype), grid, *a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

gm_status cuda_batch_norm_sums(gm_device *dev, const gm_call *call)
{
    gm_batch_norm_sums_args a = {.first = channel_view(call->out[0]), .second = channel_view(call->out[1])};
    return sums(dev, "gm_batch_norm_sums", call->in[0], call->in[0], &a);
}

gm_status cuda_batch_norm_grad_sums(gm_device *dev, const gm_call *call)
{
    gm_batch_norm_sums_args a = {.mean = channel_view(call->in[2]),
                                 .rstd = channel_view(call->in[3]),
                                 .first = channel_view(call->out[0]),
                                 .second = channel_view(call->out[1]),
                                 .gradient = 1};
    return sums(dev, "gm_batch_norm_grad_sums", call->in[1], call->in[0], &a);
}
