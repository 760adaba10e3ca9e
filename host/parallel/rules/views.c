/* views.c - layouts of views: reshape, permute, narrow and select, expand, cat. All are linear: partial stays partial.
 *
 * Reshape works on groups: the shortest runs of dimensions of both shapes with equal products. Inside a group only
 * the outermost dimension may be cut, and its blocks must be blocks of the outermost dimension of the new shape:
 * merging (b, s) that is cut along b, and splitting it again, is right when each block of rows of the merged one
 * has as many as the layout says, which it has when the cut is even. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "rules.h"

static gm_status refuse(const char *op, const gm_value *x, const char *why)
{
    char have[256];
    return GM_FAIL(GM_ESHAPE, "%s: %s: %s; redistribute it", op, why, gm_value_describe(x, have, sizeof have));
}

/* Elements of a block of a dimension of n. */
static int64_t block_of(const gm_value *x, const gm_layout *layout, int d, int64_t n)
{
    for (int k = 0; k < layout->n_cuts[d]; k++) {
        int64_t parts = x->rank->mesh.axis[layout->cut[d][k]].size;
        n = (n + parts - 1) / parts;
    }
    return n;
}

/* The first dimension of begin .. end - 1 that has more than one element; begin where none has. */
static int outermost(const int64_t *shape, int begin, int end)
{
    for (int d = begin; d < end; d++)
        if (shape[d] != 1) return d;
    return begin;
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
    int     first = outermost(x->shape, i0, i1), to = outermost(shape, j0, j1);
    int64_t inner_x = 1, inner_y = 1;
    if (j0 == j1 || (x->shape[cut] != 1 && cut != first) || (x->shape[cut] == 1 && first != i0))
        return refuse("reshape", x, "a cut dimension is not the outermost of those that are merged");
    for (int i = cut + 1; i < i1; i++) inner_x *= x->shape[i];
    for (int j = to + 1; j < j1; j++) inner_y *= shape[j];
    if (block_of(x, &x->layout, cut, x->shape[cut]) * inner_x != block_of(x, &x->layout, cut, shape[to]) * inner_y)
        /* the parts are those of x's cut, the size the new one */
        return refuse("reshape", x, "the blocks of the cut dimension are no blocks of the new shape");
    memcpy(out->cut[to], x->layout.cut[cut], sizeof out->cut[to]);
    out->n_cuts[to] = x->layout.n_cuts[cut];
    return GM_OK;
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
    for (int d = 0; d < ndim; d++) {
        memcpy(out.cut[d], x->cut[order[d]], sizeof out.cut[d]);
        out.n_cuts[d] = x->n_cuts[order[d]];
    }
    return out;
}

gm_status gm_layout_part(gm_value *x, const char *op, int dim, int64_t start, int64_t length, bool drop, gm_layout *out)
{
    char why[64];
    snprintf(why, sizeof why, "dimension %d is cut", dim + 1);
    if (x->layout.n_cuts[dim] && (drop || start != 0 || length != x->shape[dim])) return refuse(op, x, why);
    *out = x->layout;
    for (int d = dim; drop && d < GM_MAX_DIMS; d++) {
        bool more = d + 1 < GM_MAX_DIMS;
        out->n_cuts[d] = more ? x->layout.n_cuts[d + 1] : 0;
        if (more) memcpy(out->cut[d], x->layout.cut[d + 1], sizeof out->cut[d]);
    }
    return GM_OK;
}

gm_status gm_layout_expand(gm_value *x, int ndim, const int64_t *shape, gm_layout *out)
{
    *out = (gm_layout){.partial = x->layout.partial};
    for (int d = 0; d < x->ndim; d++) {
        int to = d + ndim - x->ndim;
        if (!x->layout.n_cuts[d]) continue;
        if (x->shape[d] != shape[to]) return refuse("expand", x, "a dimension of one element that is cut is repeated");
        memcpy(out->cut[to], x->layout.cut[d], sizeof out->cut[to]);
        out->n_cuts[to] = x->layout.n_cuts[d];
    }
    return GM_OK;
}

static gm_status refuse_cat(const gm_value *first, const gm_value *other, const char *why)
{
    char a[256], b[256];
    return GM_FAIL(GM_ESHAPE, "cat: %s: %s and %s; redistribute one of them", why,
                   gm_value_describe(first, a, sizeof a), gm_value_describe(other, b, sizeof b));
}

gm_status gm_layout_cat(int n, gm_value *const *x, int dim, gm_layout *out, gm_fit *fit)
{
    *out = gm_layout_replicated();
    for (int i = 0; i < n; i++) {
        const gm_layout *l = &x[i]->layout;
        out->partial |= l->partial;
        if (l->n_cuts[dim]) return refuse_cat(x[0], x[i], "the dimension that they are joined along is cut");
        for (int d = 0; d < x[i]->ndim; d++) {
            int n_cuts = l->n_cuts[d], have = out->n_cuts[d];
            if (memcmp(l->cut[d], out->cut[d], (size_t)(n_cuts < have ? n_cuts : have)))
                return refuse_cat(x[0], x[i], "they are cut in different ways");
            if (n_cuts <= have) continue;
            memcpy(out->cut[d], l->cut[d], sizeof out->cut[d]);
            out->n_cuts[d] = (uint8_t)n_cuts;
        }
    }
    for (int i = 0; i < n; i++) {
        fit[i] = (gm_fit){.layout = *out};
        for (int d = 0; d < x[i]->ndim; d++)
            if (x[i]->shape[d] == 1 && out->n_cuts[d]) fit[i].layout.n_cuts[d] = x[i]->layout.n_cuts[d];
    }
    return gm_layout_check(&x[0]->rank->mesh, out, x[0]->ndim) == GM_OK
               ? GM_OK
               : refuse_cat(x[0], x[n - 1], "an axis would cut two dimensions, or cut a sum over itself");
}
