/* reduce_pick.c - max, min, argmax and top_k: which kernel of reduce_pick.cu. */
#include "reduce_args.h"

#define FEW        16    /* elements of a line that one line of threads looks at, wherever they lie */
#define WARP_MOST  1024  /* elements of a line that a warp looks at; more are for a block */
#define BLOCK_MOST 16384 /* top_k: more are for a block of 1,024 */

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
    if (!down && !a.whole) g.block = gm_reduce_warps(a.lines.n);
    g.x = divide_up(a.lines.n, down ? 32 : a.whole ? 1 : g.block / 32);
    return GM_LAUNCH(dev, gm_cuda_name(name, down ? "gm_pick_down" : "gm_pick_across", x->dtype), g, a);
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
