/* block.h - parts of tensors that are boxes of arrays in files: reads them into blocks that are cut over ranks, where
 * each rank reads the bytes of its own block. The pieces of a tensor may come from several places and arrays: queries,
 * keys and values of three arrays become one matrix. The same pieces say how a tensor is written (write.h). */
#ifndef GM_ARRAYS_BLOCK_H
#define GM_ARRAYS_BLOCK_H

#include "../mesh/layout.h"
#include "arrays.h"

/* A part of a tensor, and the box of an array that has its numbers. */
typedef struct gm_array_piece {
    gm_array  array;               /* as the file has it, or in another shape (gm_array_as); its name is borrowed */
    gm_extent part;                /* of the tensor */
    int       order[GM_MAX_DIMS];  /* order[d]: the dimension of the array that dimension d of the tensor is */
    int64_t   offset[GM_MAX_DIMS]; /* where the part begins in the array, by the array's dimensions */
    bool      all;                 /* the part must be all of the array */
} gm_array_piece;

/* The tensor that is filled: `block` is this rank's part of a tensor of this global shape. */
typedef struct gm_array_target {
    const gm_mesh   *mesh;
    int              rank;
    const gm_layout *layout;
    int              ndim;
    const int64_t   *shape;
    gm_tensor       *block;
} gm_array_target;

/* The array as one of this shape, with as many elements in the same order. GM_ESHAPE: it cannot be; so it is with an
 * array whose first dimension is the innermost. */
gm_status gm_array_as(const gm_array *a, int ndim, const int64_t *shape, gm_array *out);

/* Is the part inside of the tensor, its box inside of the array? GM_ESHAPE. */
gm_status gm_array_piece_check(const gm_array_piece *p, int ndim, const int64_t *shape);

/* Fills what the block has of the pieces, and its padding with zeros; numbers are converted to its dtype. No
 * communication. GM_ESHAPE: shapes do not fit. GM_EINVAL: the tensor has no data on this device. Otherwise as
 * gm_arrays_read. */
gm_status gm_arrays_read_block(const gm_arrays *s, const gm_array_piece *pieces, int n, const gm_array_target *to);

#endif
