/* cumsum_args.h - arguments of the kernels of cumsum.cu. */
#ifndef GM_CUDA_CUMSUM_ARGS_H
#define GM_CUDA_CUMSUM_ARGS_H

#include "../../common/map.h"

#define GM_CUMSUM_THREADS 256 /* of a block, which has a line at a time */

typedef struct gm_cumsum_args {
    gm_map      lines; /* operands: y, x */
    const void *x;
    void       *y;
    int64_t     n, x_step, y_step;
    int32_t     inverse;
} gm_cumsum_args;

#endif
