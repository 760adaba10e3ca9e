/* lengths.cu - what cuDNN's attention needs of a key mask whose rows are ones and then zeros (prefix_mask): the number
 * of ones of each sample. A mask of another form is refused. cuDNN has no meaning for a sample without keys: it is
 * given one key, and its results are replaced by those that such a sample has. */
#include "../../common/kernel.cuh"
#include "lengths_args.h"

/* A block has a sample. */
GM_KERNEL(gm_attention_lengths, gm_lengths_args)
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
    a.lengths[gm_block_x] = end > 0 ? end : 1;
    a.all[gm_block_x] = (int32_t)a.queries;
    a.none[gm_block_x] = end == 0;
}

/* A block has a sample. */
GM_KERNEL(gm_attention_blank, gm_blank_args)
{
    if (!a.none[gm_block_x]) return;
    for (int t = 0; t < GM_LENGTHS_BLANKS; t++) {
        const gm_attention_view v = a.x[t];
        for (int64_t i = gm_thread; i < a.rows[t] * a.heads[t] * a.size; i += gm_block_size) {
            const int64_t d = i % a.size, head = i / a.size % a.heads[t], r = i / a.size / a.heads[t];
            ((uint16_t *)v.data)[gm_block_x * v.stride[0] + r * v.stride[1] + head * v.stride[2] + d * v.stride[3]] = 0;
        }
    }
    for (int64_t i = gm_thread; a.lse && i < a.lse_each; i += gm_block_size)
        a.lse[gm_block_x * a.lse_each + i] = -INFINITY;
}
