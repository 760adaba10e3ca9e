/* reduce_args.h - arguments of the kernels of reduce.cu and reduce_pick.cu. A map (map.h) goes over what is
 * kept, another one, or one dimension, over what is reduced. */
#ifndef GM_CUDA_REDUCE_ARGS_H
#define GM_CUDA_REDUCE_ARGS_H

#include "../../common/map.h"
#include "../../runtime/refusal.h"

#define GM_REDUCE_THREADS 256
#define GM_REDUCE_LINES   8 /* of 32 threads: blocks that go down columns */

/* Threads of a block of warps that take an output each: no more than there are outputs. */
static inline int gm_reduce_warps(int64_t outputs)
{
    return outputs < GM_REDUCE_THREADS / 32 ? (int)outputs * 32 : GM_REDUCE_THREADS;
}

typedef struct gm_sum_args {
    gm_map      kept;    /* operands: y, x */
    gm_map      reduced; /* operands: x */
    const void *x;
    void       *y;
    void       *partial; /* NULL, or sums of chunks, in the type of arithmetic: [output][chunk] */
    int64_t     chunk;   /* items of `reduced` in a chunk */
    int32_t     chunks;  /* blocks along y */
    int32_t     vectors; /* items of `reduced` are of 16 bytes */
    int32_t     whole;   /* across: a block for each output, else a warp */
} gm_sum_args;

/* max, min, argmax, top_k: lines of n elements. */
typedef struct gm_pick_args {
    gm_map      lines; /* operands: index, x, y */
    const void *x;
    void       *y; /* NULL: not wanted */
    int64_t    *index;
    int64_t     n, step;               /* of x */
    int64_t     k, y_step, index_step; /* top_k */
    int32_t     sign;                  /* 1: the largest, -1: the smallest */
    int32_t     whole;                 /* across: a block for each line, else a warp */
} gm_pick_args;

typedef struct gm_scatter_args {
    gm_map      lines; /* operands: dx, index, g, and the place in index, which is no memory */
    const void *index, *g;
    void       *dx;
    int64_t     n, step; /* of dx, along dim */
    gm_refusal *refusal;
    int32_t     wide; /* indices are i64, else i32 */
    int32_t     op;
} gm_scatter_args;

#endif
