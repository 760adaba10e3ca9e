/* prefix.c - see prefix.h. */
#include "prefix.h"

#include "prefix_args.h"

gm_status gm_key_prefix_check(gm_device *dev, const gm_call *call)
{
    const gm_tensor *mask = call->in[3];
    gm_prefix_args   a = {.op = (int32_t)call->op};
    if (!mask || !call->attrs->prefix_mask || !mask->shape[0]) return GM_OK;
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    a.mask = gm_tensor_data(mask);
    a.mask_stride[0] = mask->stride[0];
    a.mask_stride[1] = mask->stride[1];
    a.keys = mask->shape[1];
    return GM_LAUNCH(dev, "gm_attention_prefix",
                     ((gm_cuda_grid){.x = mask->shape[0],
                                     .block = GM_PREFIX_THREADS,
                                     .shared = 2 * GM_PREFIX_THREADS * sizeof(int32_t)}),
                     a);
}
