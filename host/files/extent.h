/* extent.h - boxes of a global tensor: the pieces that ranks hold and files store.
 *
 * A box is [offset, offset + shape) in each dimension. A box of a tensor without dimensions holds its one element. A
 * box with a size of 0 holds nothing and meets no other box. */
#ifndef GM_EXTENT_H
#define GM_EXTENT_H

#include "../../kernels/tensor.h"

typedef struct gm_extent {
    int     ndim;
    int64_t offset[GM_MAX_DIMS], shape[GM_MAX_DIMS];
} gm_extent;

int64_t gm_extent_numel(const gm_extent *b);
/* Tells whether b lies inside a tensor of this shape; a box whose end overflows does not. */
bool gm_extent_inside(const gm_extent *b, const int64_t *shape);
/* Gives the common part of two boxes; false: there is none. */
bool gm_extent_meet(const gm_extent *a, const gm_extent *b, gm_extent *out);
/* Tells whether n boxes cover each element of the shape exactly once. If not, *why is "overlap" or "a hole". */
bool gm_extents_cover(const gm_extent *boxes, int n, int ndim, const int64_t *shape, const char **why);

/* Tells how many elements of `part`, a box inside of `box`, lie one after another in the row-major bytes of `box`: the
 * inner dimensions that part takes whole, and one more. Both boxes count from the same origin. */
int64_t gm_extent_run(const gm_extent *part, const gm_extent *box);
/* Gives the place, in elements, that element `at` of `part` (row-major in part) has in the row-major bytes of `box`. */
int64_t gm_extent_place(const gm_extent *part, const gm_extent *box, int64_t at);

/* Copies n elements of `size` bytes between a packed run and a strided block. The run holds the elements first,
 * first + 1, ... of `part`, in row-major order of the part. The block is the tensor at `data` with `stride` (in
 * elements); its element 0 has the global index `origin`. to_run: true copies from the block to the run, false from the
 * run to the block. */
void gm_extent_copy(const gm_extent *part, int64_t first, int64_t n, size_t size, char *run, char *data,
                    const int64_t *stride, const int64_t *origin, bool to_run);
/* Zeros in the block t behind its first held[d] elements of each dimension d. elements: the bytes of t on the host. */
void gm_extent_clear_rest(const gm_tensor *t, void *elements, const int64_t *held);

#endif
