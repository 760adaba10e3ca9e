/* table_args.h - arguments of the kernels of table.cu. */
#ifndef GM_CUDA_TABLE_ARGS_H
#define GM_CUDA_TABLE_ARGS_H

#include "refusal.h"
#include "rows.h"

#define GM_TABLE_PACKS  2   /* of 16 bytes of a row that a thread has under way */
#define GM_SORT_THREADS 128 /* of a block of the sort; each has GM_SORT_EACH entries in a row */
#define GM_SORT_EACH    16
#define GM_SORT_DIGITS  256 /* values of the 8 bits that one pass sorts by */
#define GM_SORT_SHARED  (GM_SORT_DIGITS * GM_SORT_THREADS * 2 + GM_SORT_DIGITS * 4)
#define GM_SCAN_THREADS 1024
#define GM_TABLE_WARPS  4 /* of the block that sums up a row of the table */

typedef struct gm_lookup_args {
    gm_rows     w, index, y;
    gm_refusal *refusal;
    int64_t     rows, width, positions; /* rows: of the table */
    int32_t     team, narrow, part, op;
} gm_lookup_args;

/* An entry of the sort: a position (i32) and its key, the row of the table; `rows` for those that count for none. */
typedef struct gm_sort_args {
    gm_rows     index;
    gm_refusal *refusal;
    int32_t    *key, *position; /* in */
    int32_t    *key_out, *position_out;
    int32_t    *count;                    /* (GM_SORT_DIGITS, blocks) */
    int32_t    *start;                    /* rows + 1: where the entries of each row begin */
    int64_t     n, blocks, rows, padding; /* rows: of the table */
    int32_t     narrow, part, op, shift;
} gm_sort_args;

typedef struct gm_table_grad_args {
    gm_rows  g, dw;
    int32_t *position, *start;
    int64_t  width;
    int32_t  accumulate;
} gm_table_grad_args;

#endif
