/* block.c - see block.h. */
#include "block.h"

#include <string.h>
#include "../../kernels/device.h"

static int dim_of(const gm_array_target *to, int d) { return to->order ? to->order[d] : d; }

static gm_status check_fit(const gm_array *a, const gm_array_target *to)
{
    char     got[96], have[96];
    unsigned seen = 0;
    bool     fits = to->ndim == a->ndim;
    for (int d = 0; fits && d < to->ndim; d++) {
        int     k = dim_of(to, d);
        int64_t at = to->offset && k < a->ndim ? to->offset[k] : 0;
        fits = k >= 0 && k < a->ndim && !(seen & 1u << k) && at >= 0 && at <= a->shape[k] &&
               (to->offset ? to->shape[d] <= a->shape[k] - at : to->shape[d] == a->shape[k]);
        if (fits) seen |= 1u << k;
    }
    if (fits) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "array '%s' is %s in the file, %s%s here", a->name,
                   gm_shape_describe(a->ndim, a->shape, have, sizeof have),
                   gm_shape_describe(to->ndim, to->shape, got, sizeof got), to->order ? " (transposed)" : "");
}

/* The part of the array that this rank holds; held: the same by the dimensions of the tensor. */
static gm_extent extent_of(const gm_array_target *to, int64_t *held)
{
    int       coordinate[GM_MAX_AXES];
    int64_t   local[GM_MAX_DIMS];
    gm_box    box;
    gm_extent e = {.ndim = to->ndim};
    gm_mesh_coordinates(to->mesh, to->rank, coordinate);
    gm_layout_block(to->mesh, to->layout, coordinate, to->ndim, to->shape, &box, local, held);
    for (int d = 0; d < to->ndim; d++) {
        int k = dim_of(to, d);
        e.offset[k] = box.offset[d] + (to->offset ? to->offset[k] : 0);
        e.shape[k] = held[d];
    }
    return e;
}

gm_status gm_arrays_read_block(const gm_arrays *s, const gm_array *a, const gm_array_target *to)
{
    int64_t          held[GM_MAX_DIMS], stride[GM_MAX_DIMS];
    gm_host_elements elements;
    GM_TRY(check_fit(a, to));
    if (!gm_tensor_numel(to->block)) return GM_OK;
    if (!gm_tensor_has_data(to->block))
        return GM_FAIL(GM_EINVAL, "there is no memory to read '%s' into on this device", a->name);
    gm_extent e = extent_of(to, held);
    for (int d = 0; d < to->ndim; d++) stride[dim_of(to, d)] = to->block->stride[d];
    GM_TRY(gm_host_open(to->block, &elements));
    gm_extent_clear_rest(to->block, elements.data, held);
    gm_status st = gm_arrays_read(s, a, &e, to->block->dtype, elements.data, stride);
    if (st == GM_OK) st = gm_host_changed(&elements);
    gm_host_close(&elements);
    return st;
}
