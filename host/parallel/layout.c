/* layout.c - see layout.h. */
#include "layout.h"

gm_layout gm_layout_replicated(void) { return (gm_layout){0}; }

bool gm_layout_is_replicated(const gm_layout *layout)
{
    if (layout->partial) return false;
    for (int d = 0; d < GM_MAX_DIMS; d++)
        if (layout->n_cuts[d]) return false;
    return true;
}

void gm_layout_block(const gm_mesh *mesh, const gm_layout *layout, const int *coordinate, int ndim,
                     const int64_t *global, gm_box *box, int64_t *local, int64_t *logical)
{
    box->ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        int64_t begin = 0, end = global[d], size = global[d];
        for (int k = 0; k < layout->n_cuts[d]; k++) {
            int     axis = layout->cut[d][k];
            int64_t parts = mesh->axis[axis].size;
            size = (size + parts - 1) / parts;
            begin += size * coordinate[axis];
            if (begin > end) begin = end;
            if (begin + size < end) end = begin + size;
        }
        box->shape[d] = global[d];
        box->offset[d] = begin;
        local[d] = size;
        logical[d] = end - begin;
    }
}
