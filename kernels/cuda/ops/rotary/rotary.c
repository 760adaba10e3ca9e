/* rotary.c - rotary position embeddings (rotary.cu). */
#include "../../runtime/cuda.h"
#include "rotary_args.h"

gm_status cuda_rotary(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0], *index = call->in[2];
    const gm_attrs  *at = call->attrs;
    int64_t          entries = x->ndim > 3 ? x->shape[x->ndim - 2] : 1;
    gm_rotary_args   a = {.x = gm_rows_last(x),
                          .y = gm_rows_last(call->out[0]),
                          .frequency = gm_rows_single(call->in[1]),
                          .index = gm_rows_of(index, -1),
                          .width = x->shape[x->ndim - 1],
                          .pairs = call->in[1]->shape[0],
                          .lines = 1,
                          .sequence = x->shape[1],
                          .first = at->first + (at->box.ndim ? at->box.offset[1] : 0),
                          .entries = entries,
                          .rotated = at->rotated ? at->rotated : entries,
                          .alpha = at->alpha,
                          .narrow = index && index->dtype == GM_I32,
                          .per_row = index && index->ndim == 2,
                          .interleaved = at->interleaved,
                          .inverse = at->inverse};
    for (int d = 2; d < x->ndim - 1; d++) a.lines *= x->shape[d];
    a.rows = a.width ? gm_tensor_numel(x) / a.width : 0;
    gm_cuda_grid grid = gm_rows_grid(a.rows, a.width, x->dtype, GM_ROTARY_PACKS, &a.team);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_rotary", x->dtype), grid, a);
}
