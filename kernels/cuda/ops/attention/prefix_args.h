/* prefix_args.h - arguments of the kernel of prefix.cu. C for host and kernels. */
#ifndef GM_CUDA_PREFIX_ARGS_H
#define GM_CUDA_PREFIX_ARGS_H

#include <stdint.h>

#include "../../runtime/refusal.h"

#define GM_PREFIX_THREADS 256 /* of a block, which has a sample */

typedef struct gm_prefix_args {
    const uint8_t *mask; /* (samples, keys) */
    int64_t        mask_stride[2], keys;
    gm_refusal    *refusal;
    int32_t        op; /* gm_op, for the refusal */
} gm_prefix_args;

#endif
