/* rows.h - a tensor of any strides as numbered rows, for kernels that work along one dimension. The file is C for host
 * and kernels; rows.cuh is for kernels.
 *
 * Row r is the r-th place of the other dimensions in row-major order, whatever the strides are. A team of threads, one
 * or more whole warps, works on a row. If the elements of a row are neighbours and all rows start at multiples of 16
 * bytes, threads read and write 16 bytes at a time (`vectors`). Otherwise the same code reads and writes element by
 * element. */
#ifndef GM_CUDA_ROWS_H
#define GM_CUDA_ROWS_H

#include "../../tensor.h"

typedef struct gm_row_view {
    void   *data; /* NULL: the tensor is not given */
    int64_t step; /* between the elements of a row */
    int32_t ndim; /* the number of other dimensions, after neighbours were joined; 0: every row is the same */
    int32_t vectors;
    int64_t shape[GM_MAX_DIMS], stride[GM_MAX_DIMS]; /* in elements */
} gm_row_view;

#define GM_TEAM_MOST 512 /* the most threads of a row */
#define GM_TEAM_ROWS 4   /* rows of a block if a warp is enough for a row */

#ifndef GM_KERNEL
#include "../runtime/cuda.h"

/* The rows of t along dim; -1: each element is a row of its own. If t is NULL, the rows have no data. */
gm_row_view gm_rows_of(const gm_tensor *t, int dim);
gm_row_view gm_rows_last(const gm_tensor *t);   /* along the last dimension */
gm_row_view gm_rows_single(const gm_tensor *t); /* t has one dimension, such as a weight; every row is this one */
int64_t     gm_rows_count(const gm_tensor *t, int dim);

/* Rows of n elements of dtype t are whole packs of 16 bytes, and all of them lie one distance apart; or there are none.
 * Such rows are called even. Rows of one number (gm_rows_of with dim -1) need only the distance: n is 0. */
bool gm_rows_even(const gm_row_view *r, int64_t n, gm_dtype t);

/* A grid with a team for each of `rows` rows of n elements of dtype t. A thread works on `packs` pieces of 16 bytes of
 * its row at a time. *team: the number of threads of a row. */
gm_cuda_grid gm_rows_grid(int64_t rows, int64_t n, gm_dtype t, int packs, int32_t *team);
#endif

#endif
