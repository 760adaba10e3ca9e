/* views.c - layouts of views: reshape, permute, narrow and select, expand, cat. All are linear: partial stays partial.
 *
 * Reshape works on groups: the shortest runs of dimensions of both shapes with equal products. Inside a group only
 * the outermost dimension may be cut. Its blocks are blocks of the outermost dimension of the new shape: of whole
 * units (see layout.h) where rows are merged and the cut is uneven. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "rules.h"

static gm_status refuse(const char *op, const gm_value *x, const char *why)
{
    char have[256];
    return GM_FAIL(GM_ESHAPE, "%s: %s: %s; redistribute it", op, why, gm_value_describe(x, have, sizeof have));
}

/* The first dimension of begin .. end - 1 that has more than one element; begin where none has. */
static int outermost(const int64_t *shape, int begin, int end)
{
    for (int d = begin; d < end; d++)
        if (shape[d] != 1) return d;
    return begin;
}

/* The cut of dimension d of x, with `inner_x` elements inside of each of its own, becomes that of dimension `to`, which
 * has `inner_y` inside of each. */
static gm_status move_cut(const gm_value *x, int d, int64_t inner_x, int to, int64_t inner_y, gm_layout *out)
{
    const gm_layout *l = &x->layout;
    int64_t          unit = l->unit[d] ? l->unit[d] : 1, parts = gm_layout_parts(&x->rank->mesh, l, d);
    int64_t          units = x->shape[d] / unit, in_unit = unit * inner_x;
    bool             even = units % parts == 0;
    if ((even ? units / parts * in_unit : in_unit) % inner_y || in_unit / inner_y > INT32_MAX)
        return refuse("reshape", x, "the blocks of the cut dimension are no blocks of the new shape");
    gm_layout_copy_dim(out, to, l, d);
    out->unit[to] = even || in_unit == inner_y ? 0 : (int32_t)(in_unit / inner_y);
    return GM_OK;
}

/* Dimensions i0 .. i1 - 1 of x become j0 .. j1 - 1 of the result. */
static gm_status regroup(gm_value *x, int i0, int i1, const int64_t *shape, int j0, int j1, gm_layout *out)
{
    int cut = -1;
    for (int i = i0; i < i1; i++) {
        if (!x->layout.n_cuts[i]) continue;
        if (cut >= 0) return refuse("reshape", x, "two dimensions that are merged are cut");
        cut = i;
    }
    if (cut < 0) return GM_OK;
    int64_t inner_x = 1, inner_y = 1, outer = 1;
    for (int i = i0; i < cut; i++) outer *= x->shape[i];
    if (j0 == j1 || outer != 1)
        return refuse("reshape", x, "a cut dimension is not the outermost of those that are merged");
    /* One unit of all elements is a batch of one sample that was merged with others: it becomes the batch again. */
    bool one_unit = x->shape[cut] <= x->layout.unit[cut];
    int  to = one_unit ? j0 : outermost(shape, j0, j1);
    for (int i = cut + 1; i < i1; i++) inner_x *= x->shape[i];
    for (int j = to + 1; j < j1; j++) inner_y *= shape[j];
    return move_cut(x, cut, inner_x, to, inner_y, out);
}

gm_status gm_layout_reshape(gm_value *x, int ndim, const int64_t *shape, gm_layout *out)
{
    int i = 0, j = 0;
    *out = (gm_layout){.partial = x->layout.partial};
    bool same = x->ndim == ndim, empty = false;
    for (int d = 0; d < x->ndim; d++) empty |= x->shape[d] == 0;
    for (int d = 0; same && d < ndim; d++) same = x->shape[d] == shape[d];
    if (same) *out = x->layout;
    if (same || !gm_layout_cut_axes(&x->layout)) return GM_OK;
    if (empty) return refuse("reshape", x, "it has no elements and is cut");
    while (i < x->ndim || j < ndim) {
        int     i0 = i, j0 = j;
        int64_t a = i < x->ndim ? x->shape[i++] : 1, b = j < ndim ? shape[j++] : 1;
        while (a != b) {
            if (a < b) a *= x->shape[i++]; /* the products of all are equal, so that neither runs out first */
            else b *= shape[j++];
        }
        GM_TRY(regroup(x, i0, i, shape, j0, j, out));
    }
    return GM_OK;
}

gm_layout gm_layout_permute(const gm_layout *x, int ndim, const int *order)
{
    gm_layout out = {.partial = x->partial};
    for (int d = 0; d < ndim; d++) gm_layout_copy_dim(&out, d, x, order[d]);
    return out;
}

gm_status gm_layout_part(gm_value *x, const char *op, int dim, int64_t start, int64_t length, bool drop, gm_layout *out)
{
    char why[64];
    snprintf(why, sizeof why, "dimension %d is cut", dim + 1);
    if (x->layout.n_cuts[dim] && !drop && (start != 0 || length != x->shape[dim])) return refuse(op, x, why);
    *out = x->layout;
    if (drop) out->partial |= gm_layout_dim_axes(&x->layout, dim);
    for (int d = dim; drop && d + 1 < x->ndim; d++) gm_layout_copy_dim(out, d, &x->layout, d + 1);
    if (drop) out->n_cuts[x->ndim - 1] = 0, out->unit[x->ndim - 1] = 0;
    return GM_OK;
}

gm_status gm_layout_expand(gm_value *x, int ndim, const int64_t *shape, gm_layout *out)
{
    *out = (gm_layout){.partial = x->layout.partial};
    for (int d = 0; d < x->ndim; d++) {
        int to = d + ndim - x->ndim;
        if (!x->layout.n_cuts[d]) continue;
        if (x->shape[d] != shape[to]) return refuse("expand", x, "a dimension of one element that is cut is repeated");
        gm_layout_copy_dim(out, to, &x->layout, d);
    }
    return GM_OK;
}

static gm_status refuse_cat(const gm_value *first, const gm_value *other, const char *why)
{
    char a[256], b[256];
    return GM_FAIL(GM_ESHAPE, "cat: %s: %s and %s; " GM_RULE_CURE, why, gm_value_describe(first, a, sizeof a),
                   gm_value_describe(other, b, sizeof b));
}

gm_status gm_layout_cat(int n, gm_value *const *x, int dim, gm_layout *out, gm_fit *fit)
{
    *out = gm_layout_replicated();
    for (int i = 0; i < n; i++) {
        const gm_layout *l = &x[i]->layout;
        out->partial |= l->partial;
        if (l->n_cuts[dim]) return refuse_cat(x[0], x[i], "the dimension that they are joined along is cut");
        for (int d = 0; d < x[i]->ndim; d++) {
            if (!gm_layout_dims_agree(l, d, out, d)) return refuse_cat(x[0], x[i], "they are cut in different ways");
            if (l->n_cuts[d] > out->n_cuts[d]) gm_layout_copy_dim(out, d, l, d);
        }
    }
    for (int i = 0; i < n; i++) {
        const gm_layout *l = &x[i]->layout;
        fit[i] = (gm_fit){.layout = *out};
        for (int d = 0; d < x[i]->ndim; d++)
            if (x[i]->shape[d] == 1) gm_layout_copy_dim(&fit[i].layout, d, l, d);
    }
    return gm_layout_check(&x[0]->rank->mesh, out, x[0]->ndim) == GM_OK
               ? GM_OK
               : refuse_cat(x[0], x[n - 1], "an axis would cut two dimensions, or cut a sum over itself");
}
