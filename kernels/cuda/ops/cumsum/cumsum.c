/* cumsum.c - sums of the elements up to each along one dimension (cumsum.cu). */
#include "../../runtime/cuda.h"
#include "cumsum_args.h"

#define LONG 64 /* elements from which on a block has a line; shorter ones have a thread each */

gm_status cuda_cumsum(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    int64_t          stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}}, shape[GM_MAX_DIMS];
    const gm_tensor *x = call->in[0], *y = call->out[0];
    int              dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + x->ndim : call->attrs->dim), k = 0;
    gm_cumsum_args   a = {.x = gm_tensor_data(x),
                          .y = gm_tensor_data(y),
                          .n = x->shape[dim],
                          .x_step = x->stride[dim],
                          .y_step = y->stride[dim],
                          .inverse = call->attrs->inverse};
    for (int d = 0; d < x->ndim; d++) {
        if (d == dim) continue;
        shape[k] = x->shape[d];
        stride[0][k] = y->stride[d];
        stride[1][k++] = x->stride[d];
    }
    gm_map_of(&a.lines, k, shape, 2, stride);
    if (!a.n || !a.lines.n) return GM_OK;
    if (a.n < LONG)
        return GM_LAUNCH(dev, gm_cuda_name(name, "gm_cumsum_short", x->dtype),
                         gm_cuda_over(dev, a.lines.n, 1, GM_CUMSUM_THREADS), a);
    gm_cuda_grid grid = {.x = a.lines.n, .block = GM_CUMSUM_THREADS, .shared = GM_CUMSUM_THREADS * sizeof(double)};
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_cumsum_long", x->dtype), grid, a);
}
