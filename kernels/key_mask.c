/* key_mask.c - see key_mask.h. */
#include "key_mask.h"

#include <inttypes.h>

/* The ones of row b, and the place behind the last of them. */
static void count_row(const gm_tensor *mask, int64_t b, int64_t *count, int64_t *end)
{
    const uint8_t *row = (const uint8_t *)gm_tensor_data(mask) + b * mask->stride[0];
    *count = *end = 0;
    for (int64_t j = 0; j < mask->shape[1]; j++)
        if (row[j * mask->stride[1]]) {
            ++*count;
            *end = j + 1;
        }
}

gm_status gm_key_mask_check(const gm_call *call)
{
    const gm_tensor *mask = call->in[3];
    int64_t          count, end;
    for (int64_t b = 0; mask && call->attrs->prefix_mask && b < mask->shape[0]; b++) {
        count_row(mask, b, &count, &end);
        if (count != end)
            return GM_FAIL(GM_EINVAL,
                           "%s: key_mask has a zero before a one in row %" PRId64 " (from 0): %" PRId64
                           " of its first %" PRId64
                           " keys are hidden; prefix_mask takes rows of ones and then zeros, leave it out for others",
                           gm_op_called(call->op, call->attrs), b, end - count, end);
    }
    return GM_OK;
}
