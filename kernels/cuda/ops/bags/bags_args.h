/* bags_args.h - arguments of the kernels of bags.cu. */
#ifndef GM_CUDA_BAGS_ARGS_H
#define GM_CUDA_BAGS_ARGS_H

#include "../sort/sort.h"

#define GM_NO_ROW (INT32_MAX - 1) /* the key of places without a row; rows of a table are fewer */

typedef struct gm_bag_args {
    gm_row_view    w, index, weight, y, row; /* index, weight, row: an element each; weight, row: may be none */
    const int64_t *bounds;
    gm_refusal    *refusal;
    int64_t        bounds_step, bags, tables, each, rows, width, first; /* rows: of w */
    int32_t        team, narrow, op;
} gm_bag_args;

typedef struct gm_bag_weight_args {
    gm_row_view w, row, g, dweight;
    int64_t     places, each, width;
    int32_t     team;
} gm_bag_weight_args;

typedef struct gm_touched_args {
    gm_row_view row, g, weight, sum;
    int64_t    *kept;
    int32_t    *key, *position, *start; /* start (n + 1): where the places of each kept row begin, then n' */
    int64_t     kept_step, n, each, width, padding;
    int32_t     team;
} gm_touched_args;

typedef struct gm_move_args {
    gm_row_view x, y, row;
    gm_refusal *refusal;
    int64_t     n, rows, width;
    int32_t     team, put, op;
} gm_move_args;

#endif
