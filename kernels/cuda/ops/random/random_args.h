/* random_args.h - arguments of the kernels of random.cu. */
#ifndef GM_CUDA_RANDOM_ARGS_H
#define GM_CUDA_RANDOM_ARGS_H

#include "../../../drop.h"
#include "../../common/map.h"

/* The operands of the map: y, x (of dropout), and the index in the global tensor, which is no memory. */
typedef struct gm_random_args {
    gm_map          map;
    const void     *x;
    void           *y;
    uint64_t        first; /* global index of the block's first element */
    uint64_t        key, step;
    const uint64_t *step_at; /* not NULL: where the step stands when the kernel runs */
    double          low, high, mean, std;
    gm_truncated    cut;
    gm_drop         drop; /* of dropout, and what it multiplies with */
    double          keep;
} gm_random_args;

#endif
