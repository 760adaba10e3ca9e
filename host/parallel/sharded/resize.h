/* resize.h - rows of x by their places along a dimension: what interpolation is made of where ranks share images. */
#ifndef GM_RESIZE_H
#define GM_RESIZE_H

#include "../../autograd/apply.h"
#include "halo.h"

/* *y has axis->out rows along dimension dim, cut as those of x: row o is row gm_halo_source(axis, o) of x. Each rank
 * fetches the rows that its own read (halo.h). x may be partial; axis->n is the size of the dimension. The gradient is
 * that of x. Collective over the axes that cut dim, forward and backward; nothing is sent where none does. */
gm_status gm_resized_rows(gm_rank *r, gm_value *x, int dim, const gm_halo_axis *axis, gm_value **y);

#endif
