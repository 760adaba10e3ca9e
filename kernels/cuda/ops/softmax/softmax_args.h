/* softmax_args.h - arguments of the kernels of softmax.cu. */
#ifndef GM_CUDA_SOFTMAX_ARGS_H
#define GM_CUDA_SOFTMAX_ARGS_H

#include "../../common/rows.h"

#define GM_SOFTMAX_PACKS 2 /* of 16 bytes of a row that a thread holds: HELD */

typedef struct gm_softmax_args {
    gm_row_view x, g, y; /* in, in (gradients only), out */
    int64_t     rows, width;
    int32_t     team, logarithm;
} gm_softmax_args;

#endif
