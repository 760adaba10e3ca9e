/* block.h - reads arrays into blocks of tensors that are cut over ranks: each rank reads the bytes of its own block. */
#ifndef GM_ARRAYS_BLOCK_H
#define GM_ARRAYS_BLOCK_H

#include "../mesh/layout.h"
#include "arrays.h"

/* The tensor that is filled: `block` is this rank's part of a tensor of this global shape. */
typedef struct gm_array_target {
    const gm_mesh   *mesh;
    int              rank;
    const gm_layout *layout;
    int              ndim;
    const int64_t   *shape;
    gm_tensor       *block;
    /* order[d]: the dimension of the array that dimension d of the tensor is, as numpy.transpose has it; NULL: d. */
    const int *order;
    /* Where the tensor begins in the array, by the array's dimensions; NULL: the tensor is the whole array. */
    const int64_t *offset;
} gm_array_target;

/* Fills the block, with zeros in its padding; numbers are converted to its dtype. No communication. GM_ESHAPE: the
 * shapes do not fit. GM_EINVAL: the tensor has no data on this device. Otherwise as gm_arrays_read. */
gm_status gm_arrays_read_block(const gm_arrays *s, const gm_array *a, const gm_array_target *to);

#endif
