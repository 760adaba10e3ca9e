/* experts_args.h - arguments of the kernels of experts.cu. Numbers (i64, indices also i32) are rows of one element. */
#ifndef GM_CUDA_EXPERTS_ARGS_H
#define GM_CUDA_EXPERTS_ARGS_H

#include "../sort/sort.h"

#define GM_EXPERTS_PACKS   2   /* of 16 bytes of a row that a thread has under way */
#define GM_EXPERTS_THREADS 256 /* of the block that adds up an expert's runs */

/* Entries of the sort from the n elements of index: each `span` of them has experts keys of its own (0: all the same),
 * experts as gm_expert_key has them. */
typedef struct gm_expert_keys_args {
    gm_row_view index;
    gm_refusal *refusal;
    int32_t    *key, *position;
    int64_t     n, span, none, experts, first, ahead; /* none: the key of what names no expert */
    int32_t     narrow, op;
} gm_expert_keys_args;

/* What a sort found, and what is made of it; count, and choice and row or kept. */
typedef struct gm_expert_lists_args {
    gm_row_view count, before, kept, choice, row;
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

/* way: the choice of each row of `to`, or the row of each choice; n: of them that are written. */
typedef struct gm_expert_rows_args {
    gm_row_view from, way, weight, g, to;
    gm_refusal *refusal;
    int64_t     n, k, limit, width; /* limit: what way may name */
    int32_t     team, accumulate, op;
} gm_expert_rows_args;

#endif
