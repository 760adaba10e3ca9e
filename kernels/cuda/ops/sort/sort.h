/* sort.h - entries sorted by key, stable: a counting sort of 8 bits a pass (kernels in sort.cu), and where the entries
 * of each key begin. One order, whatever the grid: what positions are summed up or counted by. C for both sides. */
#ifndef GM_CUDA_SORT_H
#define GM_CUDA_SORT_H

#include "../../runtime/refusal.h"
#include "../../common/rows.h"

#define GM_SORT_THREADS 128 /* of a block of the sort; each has GM_SORT_EACH entries in a row */
#define GM_SORT_EACH    16
#define GM_SORT_DIGITS  256 /* values of the 8 bits that one pass sorts by */
#define GM_SORT_SHARED  (GM_SORT_DIGITS * GM_SORT_THREADS * 2 + GM_SORT_DIGITS * 4)
#define GM_SCAN_THREADS 1024

/* An entry: a position (i32) and its key, below `rows`; `rows` itself for those that count for none. */
typedef struct gm_sort_args {
    gm_row_view index; /* of gm_sort_keys alone, as are padding, narrow, part and op: a key is a row of a table */
    gm_refusal *refusal;
    int32_t    *key, *position; /* (n): in */
    int32_t    *key_out, *position_out;
    int32_t    *count;                    /* (GM_SORT_DIGITS, blocks) */
    int32_t    *start;                    /* rows + 1: where the entries of each key begin */
    int64_t     n, blocks, rows, padding; /* rows: keys */
    int32_t     narrow, part, op, shift;
} gm_sort_args;

#ifndef GM_KERNEL
/* Scratch for n entries and `rows` keys; key and position are then to be filled by a kernel. */
gm_status gm_sort_begin(gm_device *dev, const char *op, gm_sort_args *a, gm_block **block);
/* Sorts them: key, position (in this order now) and start. */
gm_status gm_sort(gm_device *dev, gm_sort_args *a);
#endif

#endif
