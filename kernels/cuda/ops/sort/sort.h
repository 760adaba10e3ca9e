/* sort.h - sorts entries by key with a stable counting sort of 8 bits in each pass (kernels in sort.cu), and finds
 * where the entries of each key begin. The order does not depend on the grid; ops sum or count positions in this order.
 * C for host and kernels. */
#ifndef GM_CUDA_SORT_H
#define GM_CUDA_SORT_H

#include "../../runtime/refusal.h"
#include "../../common/rows.h"

#define GM_SORT_THREADS 128 /* threads of a block of the sort; each has GM_SORT_EACH consecutive entries */
#define GM_SORT_EACH    16
#define GM_SORT_DIGITS  256 /* values of the 8 bits that one pass sorts by */
#define GM_SORT_SHARED  (GM_SORT_DIGITS * GM_SORT_THREADS * 2 + GM_SORT_DIGITS * 4)
#define GM_SCAN_THREADS 1024

/* An entry is a position (i32) and its key (i32), which is below `rows`; the key `rows` is for entries without a row.
 */
typedef struct gm_sort_args {
    gm_row_view index; /* this, padding, narrow, part and op are for gm_sort_keys, where a key is a row of a table */
    gm_refusal *refusal;
    int32_t    *key, *position; /* (n): in */
    int32_t    *key_out, *position_out;
    int32_t    *count;                    /* (GM_SORT_DIGITS, blocks) */
    int32_t    *start;                    /* rows + 1: where the entries of each key begin */
    int64_t     n, blocks, rows, padding; /* rows: the number of keys */
    int32_t     narrow, part, op, shift;
} gm_sort_args;

#ifndef GM_KERNEL
/* Gives scratch for n entries and `rows` keys, as *block, which the caller releases. A kernel must then fill key and
 * position. */
gm_status gm_sort_begin(gm_device *dev, const char *op, gm_sort_args *a, gm_block **block);
/* Sorts key and position by key, and fills start. */
gm_status gm_sort(gm_device *dev, gm_sort_args *a);
/* Sorts key and position by key, and no more. */
gm_status gm_sort_entries(gm_device *dev, gm_sort_args *a);
#endif

#endif
