/* block.c - see block.h. */
#include "block.h"

#include <string.h>
#include "../../kernels/device.h"

gm_status gm_array_as(const gm_array *a, int ndim, const int64_t *shape, gm_array *out)
{
    char     have[96], want[96];
    uint64_t bytes = 0;
    bool     fits = ndim >= 0 && ndim <= GM_MAX_DIMS && (!a->fortran || a->ndim < 2) &&
                gm_array_size(a->element, ndim, shape, &bytes) && bytes == a->bytes;
    if (!fits)
        return GM_FAIL(GM_ESHAPE, "array '%s' is %s%s in the file and cannot be read as %s", a->name,
                       gm_shape_describe(a->ndim, a->shape, have, sizeof have), a->fortran ? " (Fortran's order)" : "",
                       gm_shape_describe(ndim, shape, want, sizeof want));
    *out = *a;
    out->ndim = ndim;
    memcpy(out->shape, shape, (size_t)ndim * sizeof *shape);
    return GM_OK;
}

static bool fits(const gm_array_piece *p, int ndim, const int64_t *shape)
{
    unsigned seen = 0;
    if (p->array.ndim != ndim || p->part.ndim != ndim || !gm_extent_inside(&p->part, shape)) return false;
    for (int d = 0; d < ndim; d++) {
        int k = p->order[d];
        if (k < 0 || k >= ndim || seen & 1u << k) return false;
        if (p->offset[k] < 0 || p->offset[k] > p->array.shape[k]) return false;
        if (p->part.shape[d] > p->array.shape[k] - p->offset[k]) return false;
        if (p->all && p->part.shape[d] != p->array.shape[k]) return false;
        seen |= 1u << k;
    }
    return true;
}

gm_status gm_array_piece_check(const gm_array_piece *p, int ndim, const int64_t *shape)
{
    char got[96], have[96];
    bool turned = false;
    if (fits(p, ndim, shape)) return GM_OK;
    for (int d = 0; d < ndim; d++) turned = turned || p->order[d] != d;
    return GM_FAIL(GM_ESHAPE, "array '%s' is %s in the file, %s%s here", p->array.name,
                   gm_shape_describe(p->array.ndim, p->array.shape, have, sizeof have),
                   gm_shape_describe(p->part.ndim, p->part.shape, got, sizeof got), turned ? " (transposed)" : "");
}

/* The part of the tensor that this rank holds. */
static gm_extent held_of(const gm_array_target *to)
{
    int       coordinate[GM_MAX_AXES];
    int64_t   local[GM_MAX_DIMS], held[GM_MAX_DIMS];
    gm_box    box;
    gm_extent e = {.ndim = to->ndim};
    gm_mesh_coordinates(to->mesh, to->rank, coordinate);
    gm_layout_block(to->mesh, to->layout, coordinate, to->ndim, to->shape, &box, local, held);
    for (int d = 0; d < to->ndim; d++) {
        e.offset[d] = box.offset[d];
        e.shape[d] = held[d];
    }
    return e;
}

static gm_status read_piece(const gm_arrays *s, const gm_array_piece *p, const gm_extent *held, gm_tensor *block,
                            char *elements)
{
    int64_t   stride[GM_MAX_DIMS];
    gm_extent common, box = {.ndim = held->ndim};
    if (!gm_extent_meet(held, &p->part, &common)) return GM_OK;
    for (int d = 0; d < held->ndim; d++) {
        int k = p->order[d];
        box.offset[k] = p->offset[k] + common.offset[d] - p->part.offset[d];
        box.shape[k] = common.shape[d];
        stride[k] = block->stride[d];
        elements += (common.offset[d] - held->offset[d]) * block->stride[d] * (int64_t)gm_dtype_size(block->dtype);
    }
    return gm_arrays_read(s, &p->array, &box, block->dtype, elements, stride);
}

gm_status gm_arrays_read_block(const gm_arrays *s, const gm_array_piece *pieces, int n, const gm_array_target *to)
{
    gm_host_elements elements;
    for (int i = 0; i < n; i++) GM_TRY(gm_array_piece_check(&pieces[i], to->ndim, to->shape));
    if (!n || !gm_tensor_numel(to->block)) return GM_OK;
    if (!gm_tensor_has_data(to->block))
        return GM_FAIL(GM_EINVAL, "there is no memory to read '%s' into on this device", pieces[0].array.name);
    gm_extent held = held_of(to);
    GM_TRY(gm_host_open(to->block, &elements));
    gm_extent_clear_rest(to->block, elements.data, held.shape);
    gm_status st = GM_OK;
    for (int i = 0; st == GM_OK && i < n; i++) st = read_piece(s, &pieces[i], &held, to->block, elements.data);
    if (st == GM_OK) st = gm_host_changed(&elements);
    gm_host_close(&elements);
    return st;
}
