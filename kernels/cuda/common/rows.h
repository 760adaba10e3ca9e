/* rows.h - how kernels that work along a dimension see a tensor of any strides: as numbered rows. C for both sides;
 * rows.cuh is for kernels.
 *
 * Row r is the r-th of the other dimensions in row-major order, whatever the strides; a team of threads (one or more
 * whole warps) works on each. Where elements of a row are neighbours and all rows start at multiples of 16 bytes, it is
 * read and written 16 bytes at a time (`vectors`), else element by element, by the same code. */
#ifndef GM_CUDA_ROWS_H
#define GM_CUDA_ROWS_H

#include "../../tensor.h"

typedef struct gm_row_view {
    void   *data; /* NULL: the tensor is not given */
    int64_t step; /* between the elements of a row */
    int32_t ndim; /* of the other dimensions, those that join made one; 0: every row is the same */
    int32_t vectors;
    int64_t shape[GM_MAX_DIMS], stride[GM_MAX_DIMS]; /* in elements */
} gm_row_view;

#define GM_TEAM_MOST 512 /* threads of a row */
#define GM_TEAM_ROWS 4   /* rows of a block, where a warp is enough for a row */

#ifndef GM_KERNEL
#include "../runtime/cuda.h"

/* NULL gives rows without data. dim: the one worked along; -1: each element is a row of its own. */
gm_row_view gm_rows_of(const gm_tensor *t, int dim);
gm_row_view gm_rows_last(const gm_tensor *t);   /* along the last dimension */
gm_row_view gm_rows_single(const gm_tensor *t); /* of one dimension: the same row each time, such as a weight */
int64_t     gm_rows_count(const gm_tensor *t, int dim);

/* Blocks of whole teams, one for each of `rows` rows of n elements of dtype t; a thread has `packs` pieces of 16 bytes
 * of its row at a time. *team: threads of a row. */
gm_cuda_grid gm_rows_grid(int64_t rows, int64_t n, gm_dtype t, int packs, int32_t *team);
#endif

#endif
