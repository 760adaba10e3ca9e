/* layout.h - how a global tensor is distributed over the ranks of a mesh.
 *
 * A layout names for each dimension the axes that cut it, outermost first, and for the whole tensor the axes over which
 * the local blocks are terms of a sum (partial). On every other axis the tensor is replicated. A dimension of
 * size n cut by (a, b, ...) is cut into ceil(n / |a|) blocks, each of these into ceil(. / |b|), and all
 * blocks are padded to that size, so that gathering the innermost axis restores the parent's layout.
 *
 * A cut may fall between units of several elements: then there are n / unit of them to share out. So blocks of a
 * reshape that merges (10, 3) into 30 stay blocks, 3, 3, 3 and 1 rows of 3 on four ranks. */
#ifndef GM_LAYOUT_H
#define GM_LAYOUT_H

#include "../../kernels/op.h"
#include "mesh.h"

typedef struct gm_layout {
    uint8_t  n_cuts[GM_MAX_DIMS];
    uint8_t  cut[GM_MAX_DIMS][GM_MAX_AXES]; /* axis indices */
    uint32_t partial;                       /* bit a: still a sum over axis a */
    int32_t  unit[GM_MAX_DIMS];             /* of a cut dimension, which it divides; 0: one element, and never 1 */
} gm_layout;

gm_layout gm_layout_replicated(void);
bool      gm_layout_is_replicated(const gm_layout *layout);
bool      gm_layout_equal(const gm_layout *a, const gm_layout *b);
/* Dimension `dim` cut by the axes of a mask, outermost first; nothing else cut. */
gm_layout gm_layout_cut(int dim, uint32_t axes);
/* Makes *out the layout cut further by the axes of a mask, innermost, on one dimension: the first whose padding then is
 * at most 1/64 of its elements, else the one that is padded least. Axes that the layout cuts by or is partial over are
 * left out. Returns the dimension; -1, and *out = *layout: no axis is left, or the tensor has no dimension. */
int      gm_layout_divide(const gm_mesh *mesh, const gm_layout *layout, int ndim, const int64_t *global, uint32_t axes,
                          gm_layout *out);
uint32_t gm_layout_cut_axes(const gm_layout *layout); /* all axes that cut some dimension */
uint32_t gm_layout_dim_axes(const gm_layout *layout, int dim);
/* Dimension d of `to` becomes cut as dimension e of `from`. */
void gm_layout_copy_dim(gm_layout *to, int d, const gm_layout *from, int e);
/* Are the two dimensions cut by the same axes, as far as both are cut? One may be cut by further inner axes. */
bool gm_layout_dims_agree(const gm_layout *a, int d, const gm_layout *b, int e);
int  gm_layout_parts(const gm_mesh *mesh, const gm_layout *layout, int dim); /* blocks of a dimension */
/* GM_EINVAL: an axis that the mesh lacks, that cuts twice, or that cuts and is partial; cuts beyond ndim. */
gm_status gm_layout_check(const gm_mesh *mesh, const gm_layout *layout, int ndim);
/* "(data, -, row.col) partial depth", "replicated"; returns buf. */
char *gm_layout_describe(const gm_mesh *mesh, const gm_layout *layout, int ndim, char *buf, size_t size);
/* Is every block full, so that no block has padding? */
bool gm_layout_is_even(const gm_mesh *mesh, const gm_layout *layout, int ndim, const int64_t *global);
/* The padded shape that every block has. */
void gm_layout_local(const gm_mesh *mesh, const gm_layout *layout, int ndim, const int64_t *global, int64_t *local);
/* The block of the rank at `coordinate`. box->shape receives the global shape, box->offset the start of the block
 * (clamped to the end), local[ndim] the padded shape of every block, logical[ndim] its part inside the tensor. */
void gm_layout_block(const gm_mesh *mesh, const gm_layout *layout, const int *coordinate, int ndim,
                     const int64_t *global, gm_box *box, int64_t *local, int64_t *logical);

#endif
