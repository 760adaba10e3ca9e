/* softmax_args.h - arguments of the kernels of softmax.cu. */
#ifndef GM_CUDA_SOFTMAX_ARGS_H
#define GM_CUDA_SOFTMAX_ARGS_H

#include "../../common/rows.h"

/* Packs of 16 bytes of a row that a thread holds, HELD: in the forward op, by the bytes of a number, as many as let a
 * warp have rows of up to 1,024 numbers; in gradients of each of two rows. */
#define GM_SOFTMAX_PACKS(bytes) ((bytes) == 2 ? 4 : 8)
#define GM_SOFTMAX_GRAD_PACKS   2

typedef struct gm_softmax_args {
    gm_row_view x, g, y; /* in, in (gradients only), out */
    int64_t     rows, width;
    int32_t     team, logarithm;
} gm_softmax_args;

#endif
