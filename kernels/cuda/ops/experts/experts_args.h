/* experts_args.h - arguments of the kernels of experts.cu. Tensors of whole numbers (i64; indices may be i32) are given
 * as rows of one element. */
#ifndef GM_CUDA_EXPERTS_ARGS_H
#define GM_CUDA_EXPERTS_ARGS_H

#include "../sort/sort.h"

#define GM_EXPERTS_PACKS   2   /* pieces of 16 bytes of a row that a thread has under way */
#define GM_EXPERTS_THREADS 256 /* threads of the block that adds up the runs of an expert */

/* Makes the entries of the sort from the n elements of index. Each `span` elements in a row have `experts` keys of
 * their own; span 0: all elements share the keys. gm_expert_key gives the key of an expert. */
typedef struct gm_expert_keys_args {
    gm_row_view index;
    gm_refusal *refusal;
    int32_t    *key, *position;
    int64_t     n, span, none, experts, first, ahead; /* none: the key of an index that names no expert */
    int32_t     narrow, op;
} gm_expert_keys_args;

/* The result of a sort, and the tensors made from it: count, and either choice, row and bounds, or kept. */
typedef struct gm_expert_lists_args {
    gm_row_view count, before, kept, choice, row, bounds;
    gm_refusal *refusal;
    int32_t    *key, *position, *start;
    int64_t     n, keys, rows, experts, first, ahead, capacity; /* rows: of choice */
    int32_t     narrow, op;
} gm_expert_lists_args;

typedef struct gm_expert_before_args {
    gm_row_view count, order, before;
    gm_refusal *refusal;
    int64_t     runs, k, experts;
    int32_t     op;
} gm_expert_before_args;

/* way: the choice of each row of `to`, or the row of each choice; n: the number of rows that are written. */
typedef struct gm_expert_rows_args {
    gm_row_view from, way, weight, g, to;
    gm_refusal *refusal;
    int64_t     n, k, limit, width; /* limit: the numbers in `way` must be below it */
    int32_t     team, accumulate, op;
} gm_expert_rows_args;

#endif
