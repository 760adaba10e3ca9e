/* prefix.cu - looks whether a key mask is what the attribute prefix_mask says: in each row ones and then zeros. */
#include "../../common/kernel.cuh"
#include "prefix_args.h"

/* A block has a sample. */
GM_KERNEL(gm_attention_prefix, gm_prefix_args)
{
    GM_SHARED(int32_t, found); /* of each thread: how many ones it saw, and the place behind the last of them */
    const uint8_t *row = a.mask + gm_block_x * a.mask_stride[0];
    int32_t        count = 0, end = 0;
    for (int64_t j = gm_thread; j < a.keys; j += gm_block_size)
        if (row[j * a.mask_stride[1]]) {
            count++;
            end = (int32_t)j + 1;
        }
    found[2 * gm_thread] = count;
    found[2 * gm_thread + 1] = end;
    GM_SYNC();
    if (gm_thread) return;
    for (int i = 1; i < gm_block_size; i++) {
        count += found[2 * i];
        end = found[2 * i + 1] > end ? found[2 * i + 1] : end;
    }
    if (count != end) gm_refuse(a.refusal, a.op, end - count, gm_block_x, end);
}
