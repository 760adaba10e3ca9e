/* owned.h - which part of a parameter a rank owns, where sums of gradients are shared out (ZeRO). */
#ifndef GM_OWNED_H
#define GM_OWNED_H

#include "../autograd/value.h"

/* The rows of a leaf's block that a rank owns: `length` from `start` on, of dimension `dim`. `owned`: the layout of the
 * parts, which cuts one dimension further than the leaf's. length is 0 where the part lies behind the tensor's end. */
typedef struct gm_owned_rows {
    int     dim;
    int64_t start, length;
} gm_owned_rows;

gm_owned_rows gm_owned_rows_of(const gm_value *leaf, const gm_layout *owned, int rank);

#endif
