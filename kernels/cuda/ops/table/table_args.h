/* table_args.h - arguments of the kernels of table.cu. */
#ifndef GM_CUDA_TABLE_ARGS_H
#define GM_CUDA_TABLE_ARGS_H

#include "../sort/sort.h"

#define GM_TABLE_PACKS 2  /* of 16 bytes of a row that a thread has under way */
#define GM_TABLE_WARPS 4  /* of a block that sums up as many rows of the table */
#define GM_TABLE_ALONE 32 /* positions of a row that a warp sums up by itself */

typedef struct gm_lookup_args {
    gm_row_view w, index, y;
    gm_refusal *refusal;
    int64_t     rows, width, positions; /* rows: of the table */
    int32_t     team, narrow, part, op;
} gm_lookup_args;

typedef struct gm_table_grad_args {
    gm_row_view g, dw;
    int32_t    *position, *start;
    int64_t     rows, width;
    int32_t     accumulate;
} gm_table_grad_args;

#endif
