/* columns_args.h - sums over rows, in two passes of one fixed order: some kernel leaves a sum for each of `tiles` sets
 * of rows, (tiles, width) in the type of arithmetic, and gm_columns_sum adds them up. C for both sides. */
#ifndef GM_CUDA_COLUMNS_ARGS_H
#define GM_CUDA_COLUMNS_ARGS_H

#include "../../common/rows.h"

#define GM_COLUMNS_WARPS 8 /* of a block of the first pass; its rows are every eighth */

typedef struct gm_columns_args {
    gm_row_view g, x, mean, rstd;  /* of norms: dw of g (x - mean) rstd, db of g */
    gm_row_view pre, dpre;         /* of an activation: db of dpre = g f'(pre) */
    void       *dw, *db;           /* NULL: not wanted */
    int64_t     rows, width, tile; /* tile: rows of one set */
    int32_t     function;
} gm_columns_args;

typedef struct gm_columns_sum_args {
    const void *part[2];
    gm_row_view out[2]; /* set, or added to; by gm_block_y */
    int64_t     tiles, width;
    int32_t     accumulate;
} gm_columns_sum_args;

#define GM_COLUMNS_SUM_WARPS 16

#ifndef GM_KERNEL
/* The first pass by a kernel of columns.cu: "gm_columns_norm" or "gm_columns_activation". Sets a->tile; needs a->dw,
 * a->db not NULL where wanted, and replaces them by scratch. Then the second pass into dw and db (NULL: not wanted). */
gm_status gm_columns(gm_device *dev, const char *kernel, gm_dtype t, gm_columns_args *a, const gm_tensor *dw,
                     const gm_tensor *db, bool accumulate);
/* Scratch for `tiles` sums of dw and db; a pointer each, NULL where the tensor is. */
gm_status gm_columns_scratch(gm_device *dev, int64_t tiles, const gm_tensor *dw, const gm_tensor *db, void **dw_part,
                             void **db_part, gm_block **block);
/* The second pass. */
gm_status gm_columns_sum(gm_device *dev, int64_t tiles, const gm_tensor *dw, const gm_tensor *db, const void *dw_part,
                         const void *db_part, bool accumulate);
#endif

#endif
