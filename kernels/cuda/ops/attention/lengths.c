/* lengths.c - see lengths.h. */
#include "lengths.h"

#include "../../../memory.h"
#include "lengths_args.h"

gm_status gm_key_lengths_of(gm_device *dev, const gm_call *call, gm_key_lengths *out)
{
    const gm_tensor *mask = call->in[3];
    void            *data;
    gm_lengths_args  a = {.op = (int32_t)call->op};
    *out = (gm_key_lengths){.there = false};
    if (!mask || !call->attrs->prefix_mask || !mask->shape[0]) return GM_OK;
    int64_t each = (mask->shape[0] + 3) & ~(int64_t)3; /* cuDNN wants addresses that are multiples of 16 */
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    GM_TRY(gm_cuda_scratch(dev, 3 * sizeof(int32_t) * (size_t)each, &data, &out->block));
    a.lengths = data;
    a.all = a.lengths + each;
    a.none = a.all + each;
    a.mask = gm_tensor_data(mask);
    a.mask_stride[0] = mask->stride[0];
    a.mask_stride[1] = mask->stride[1];
    a.keys = mask->shape[1];
    a.queries = call->in[0]->shape[1];
    out->there = true;
    out->each = (gm_dnn_lengths){a.lengths, a.all};
    out->none = a.none;
    gm_status st = GM_LAUNCH(dev, "gm_attention_lengths",
                             ((gm_cuda_grid){.x = mask->shape[0],
                                             .block = GM_LENGTHS_THREADS,
                                             .shared = 2 * GM_LENGTHS_THREADS * sizeof(int32_t)}),
                             a);
    if (st != GM_OK) gm_pool_release(dev->pool, out->block);
    return st;
}

gm_status gm_key_lengths_blank(gm_device *dev, const gm_call *call, const gm_key_lengths *k)
{
    const bool    forward = call->op == GM_OP_attention;
    gm_blank_args a = {.none = k->none, .size = (int32_t)call->in[0]->shape[3]};
    for (int i = 0; i < (forward ? 1 : GM_LENGTHS_BLANKS); i++) {
        const gm_tensor *t = call->out[i];
        a.x[i] = (gm_attention_view){gm_tensor_data(t), {t->stride[0], t->stride[1], t->stride[2], t->stride[3]}};
        a.rows[i] = t->shape[1];
        a.heads[i] = t->shape[2];
    }
    if (forward) {
        a.lse = gm_tensor_data(call->out[1]);
        a.lse_each = call->out[1]->shape[1] * call->out[1]->shape[2];
    }
    return GM_LAUNCH(dev, "gm_attention_blank",
                     ((gm_cuda_grid){.x = call->in[0]->shape[0], .block = GM_LENGTHS_THREADS}), a);
}
