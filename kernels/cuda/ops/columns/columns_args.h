/* columns_args.h - sums over rows in two passes, in one fixed order. In the first pass a kernel writes a sum for each
 * of `tiles` sets of rows, as (tiles, width) in the type of arithmetic. In the second pass gm_columns_sum adds these
 * up. C for host and kernels. */
#ifndef GM_CUDA_COLUMNS_ARGS_H
#define GM_CUDA_COLUMNS_ARGS_H

#include "../../common/rows.h"

#define GM_COLUMNS_WARPS 8 /* warps of a block of the first pass; each takes every eighth row of a set */

typedef struct gm_columns_args {
    gm_row_view g, x, mean, rstd;  /* of norms: dw of g (x - mean) rstd, db of g */
    gm_row_view pre, dpre;         /* of an activation: db of dpre = g f'(pre) */
    void       *dw, *db;           /* NULL: not wanted */
    int64_t     rows, width, tile; /* tile: rows of one set */
    int32_t     function;
} gm_columns_args;

typedef struct gm_columns_sum_args {
    const void *part[2];
    gm_row_view out[2]; /* set, or added to; blocks with y = i write out[i] */
    int64_t     tiles, width;
    int32_t     accumulate;
} gm_columns_sum_args;

#define GM_COLUMNS_SUM_WARPS 16

#ifndef GM_KERNEL
/* Both passes. The kernel of the first one is "gm_columns_norm", "gm_columns_activation" or "gm_columns_even" of
 * columns.cu. The function sets a->tile. a->dw and a->db must not be NULL for wanted sums; it replaces them by scratch.
 * The results go into dw and db (NULL: not wanted). */
gm_status gm_columns(gm_device *dev, const char *kernel, gm_dtype t, gm_columns_args *a, const gm_tensor *dw,
                     const gm_tensor *db, bool accumulate);
/* Gives scratch for `tiles` sums of dw and of db; a pointer is NULL if its tensor is. The caller releases *block. */
gm_status gm_columns_scratch(gm_device *dev, int64_t tiles, const gm_tensor *dw, const gm_tensor *db, void **dw_part,
                             void **db_part, gm_block **block);
/* The second pass. */
gm_status gm_columns_sum(gm_device *dev, int64_t tiles, const gm_tensor *dw, const gm_tensor *db, const void *dw_part,
                         const void *db_part, bool accumulate);
#endif

#endif
