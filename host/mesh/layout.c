/* layout.c - see layout.h. */
#include "layout.h"

#include <stdio.h>
#include <string.h>

static int64_t unit_of(const gm_layout *layout, int d) { return layout->unit[d] ? layout->unit[d] : 1; }

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
        int64_t unit = unit_of(layout, d), begin = 0, end = global[d] / unit, size = end;
        for (int k = 0; k < layout->n_cuts[d]; k++) {
            int     axis = layout->cut[d][k];
            int64_t parts = mesh->axis[axis].size;
            size = (size + parts - 1) / parts;
            begin += size * coordinate[axis];
            if (begin > end) begin = end;
            if (begin + size < end) end = begin + size;
        }
        box->shape[d] = global[d];
        box->offset[d] = begin * unit;
        local[d] = size * unit;
        logical[d] = (end - begin) * unit;
    }
}

void gm_layout_local(const gm_mesh *mesh, const gm_layout *layout, int ndim, const int64_t *global, int64_t *local)
{
    for (int d = 0; d < ndim; d++) {
        int64_t unit = unit_of(layout, d);
        local[d] = global[d] / unit;
        for (int k = 0; k < layout->n_cuts[d]; k++) {
            int64_t parts = mesh->axis[layout->cut[d][k]].size;
            local[d] = (local[d] + parts - 1) / parts;
        }
        local[d] *= unit;
    }
}

bool gm_layout_equal(const gm_layout *a, const gm_layout *b)
{
    if (a->partial != b->partial) return false;
    for (int d = 0; d < GM_MAX_DIMS; d++)
        if (a->n_cuts[d] != b->n_cuts[d] || !gm_layout_dims_agree(a, d, b, d)) return false;
    return true;
}

void gm_layout_copy_dim(gm_layout *to, int d, const gm_layout *from, int e)
{
    to->n_cuts[d] = from->n_cuts[e];
    memcpy(to->cut[d], from->cut[e], sizeof to->cut[d]);
    to->unit[d] = from->n_cuts[e] ? from->unit[e] : 0;
}

bool gm_layout_dims_agree(const gm_layout *a, int d, const gm_layout *b, int e)
{
    int n = a->n_cuts[d] < b->n_cuts[e] ? a->n_cuts[d] : b->n_cuts[e];
    return !n || (unit_of(a, d) == unit_of(b, e) && !memcmp(a->cut[d], b->cut[e], (size_t)n));
}

gm_layout gm_layout_cut(int dim, uint32_t axes)
{
    gm_layout layout = {0};
    for (int a = 0; a < GM_MAX_AXES; a++)
        if (axes & 1u << a) layout.cut[dim][layout.n_cuts[dim]++] = (uint8_t)a;
    return layout;
}

static gm_layout cut_further(const gm_layout *layout, int dim, uint32_t axes)
{
    gm_layout out = *layout;
    for (int a = 0; a < GM_MAX_AXES; a++)
        if (axes & 1u << a) out.cut[dim][out.n_cuts[dim]++] = (uint8_t)a;
    return out;
}

/* The share of a dimension that is padding when `to` is laid out, which cuts it further than `from`. */
static double padding_of(const gm_mesh *mesh, const gm_layout *from, const gm_layout *to, int ndim,
                         const int64_t *global, int dim)
{
    int64_t whole[GM_MAX_DIMS], part[GM_MAX_DIMS];
    gm_layout_local(mesh, from, ndim, global, whole);
    gm_layout_local(mesh, to, ndim, global, part);
    int64_t parts = gm_layout_parts(mesh, to, dim) / gm_layout_parts(mesh, from, dim);
    return whole[dim] ? (double)(part[dim] * parts - whole[dim]) / (double)whole[dim] : 0;
}

int gm_layout_divide(const gm_mesh *mesh, const gm_layout *layout, int ndim, const int64_t *global, uint32_t axes,
                     gm_layout *out)
{
    int    best = -1;
    double least = 0;
    *out = *layout;
    axes &= ~(gm_layout_cut_axes(layout) | layout->partial);
    if (!axes) return -1;
    for (int d = 0; d < ndim; d++) {
        gm_layout further = cut_further(layout, d, axes);
        double    padding = padding_of(mesh, layout, &further, ndim, global, d);
        if (best >= 0 && padding >= least) continue;
        best = d;
        least = padding;
        *out = further;
        if (padding <= 1.0 / 64) break;
    }
    return best;
}

uint32_t gm_layout_dim_axes(const gm_layout *layout, int dim)
{
    uint32_t axes = 0;
    for (int k = 0; k < layout->n_cuts[dim]; k++) axes |= 1u << layout->cut[dim][k];
    return axes;
}

uint32_t gm_layout_cut_axes(const gm_layout *layout)
{
    uint32_t axes = 0;
    for (int d = 0; d < GM_MAX_DIMS; d++) axes |= gm_layout_dim_axes(layout, d);
    return axes;
}

int gm_layout_parts(const gm_mesh *mesh, const gm_layout *layout, int dim)
{
    int parts = 1;
    for (int k = 0; k < layout->n_cuts[dim]; k++) parts *= mesh->axis[layout->cut[dim][k]].size;
    return parts;
}

gm_status gm_layout_check(const gm_mesh *mesh, const gm_layout *layout, int ndim)
{
    uint32_t seen = layout->partial;
    if (seen >> mesh->n_axes) return GM_FAIL(GM_EINVAL, "layout: partial over an axis that the mesh does not have");
    for (int d = 0; d < GM_MAX_DIMS; d++) {
        if (layout->n_cuts[d] && d >= ndim)
            return GM_FAIL(GM_EINVAL, "layout: it cuts dimension %d of a tensor with %d", d + 1, ndim);
        for (int k = 0; k < layout->n_cuts[d]; k++) {
            int a = layout->cut[d][k];
            if (a >= mesh->n_axes) return GM_FAIL(GM_EINVAL, "layout: cut by an axis that the mesh does not have");
            if (seen & 1u << a)
                return GM_FAIL(GM_EINVAL, "layout: axis '%s' is used twice; it cuts one dimension or is partial",
                               mesh->axis[a].name);
            seen |= 1u << a;
        }
    }
    return GM_OK;
}

static size_t add(char *buf, size_t size, size_t n, const char *text)
{
    if (n < size) n += (size_t)snprintf(buf + n, size - n, "%s", text);
    return n;
}

char *gm_layout_describe(const gm_mesh *mesh, const gm_layout *layout, int ndim, char *buf, size_t size)
{
    char   axes[128];
    size_t n = 0;
    if (gm_layout_is_replicated(layout)) {
        snprintf(buf, size, "replicated");
        return buf;
    }
    n = add(buf, size, n, "(");
    for (int d = 0; d < ndim; d++) {
        n = add(buf, size, n, d ? ", " : "");
        if (!layout->n_cuts[d]) n = add(buf, size, n, "-");
        for (int k = 0; k < layout->n_cuts[d]; k++) {
            n = add(buf, size, n, k ? "." : "");
            n = add(buf, size, n, mesh->axis[layout->cut[d][k]].name);
        }
        if (layout->n_cuts[d] && layout->unit[d] > 1) {
            snprintf(axes, sizeof axes, " by %d", (int)layout->unit[d]);
            n = add(buf, size, n, axes);
        }
    }
    n = add(buf, size, n, ")");
    if (layout->partial) {
        n = add(buf, size, n, " partial ");
        add(buf, size, n, gm_mesh_describe(mesh, layout->partial, axes, sizeof axes));
    }
    return buf;
}

bool gm_layout_is_even(const gm_mesh *mesh, const gm_layout *layout, int ndim, const int64_t *global)
{
    for (int d = 0; d < ndim; d++)
        if (global[d] / unit_of(layout, d) % gm_layout_parts(mesh, layout, d)) return false;
    return true;
}
