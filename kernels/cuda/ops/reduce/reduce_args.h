/* reduce_args.h - arguments of the kernels of reduce.cu, reduce_pick.cu and reduce_pick_even.cu. A map (map.h) goes
 * over the dimensions that are kept. Another map, or a single dimension, goes over those that are reduced. */
#ifndef GM_CUDA_REDUCE_ARGS_H
#define GM_CUDA_REDUCE_ARGS_H

#include "../../common/map.h"
#include "../../runtime/refusal.h"

#define GM_REDUCE_THREADS 256
#define GM_REDUCE_LINES   8 /* lines of 32 threads of a block that goes down columns */

/* Threads of a block in which each warp computes one output; there are no more warps than outputs. */
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
    int32_t     vectors; /* 1: items of `reduced` have 16 bytes */
    int32_t     whole;   /* for sums across: 1: a block computes an output; 0: a warp does */
} gm_sum_args;

/* Of max, min, argmax and top_k, which work on lines of n elements. */
typedef struct gm_pick_args {
    gm_map      lines; /* operands: index, x, y */
    const void *x;
    void       *y; /* NULL: not wanted */
    int64_t    *index;
    int64_t     n, step;               /* of x */
    int64_t     k, y_step, index_step; /* top_k */
    int32_t     sign;                  /* 1: the largest, -1: the smallest */
    int32_t     whole;                 /* 1: a block works on a line; 0: a warp does */
    void       *partial;               /* of lines side by side in packs: NULL, or values of chunks: [line][chunk] */
    int32_t    *partial_place;         /* and their places */
    int64_t     chunk;                 /* places of a chunk */
    int32_t     chunks;
} gm_pick_args;

typedef struct gm_scatter_args {
    gm_map      lines; /* operands: dx, index, g, and the place in index, which is a number and not memory */
    const void *index, *g;
    void       *dx;
    int64_t     n, step; /* of dx, along dim */
    gm_refusal *refusal;
    int32_t     wide; /* 1: indices are i64; 0: they are i32 */
    int32_t     op;
} gm_scatter_args;

#endif
