/* views.c - ops that move no data, or only move it: reshape, permute, narrow, select, expand, cat,
 * patchify (pad: pads.c). Their nodes keep no tensors, only a few numbers (gm_record.extra). */
#include "apply.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "apply_blocks.h"
#include "gradients.h"
#include "padding.h"

/* A view of x's block, of a tensor of this global shape, being made: its layout, and the shape of its block. */
typedef struct viewed {
    gm_layout layout;
    int       ndim;
    int64_t   shape[GM_MAX_DIMS], local[GM_MAX_DIMS];
} viewed;

static bool is_cut(gm_value *x) { return !gm_all_replicated(x->rank, 1, &x); }

/* Wraps a finished view (takes it) and records it. */
static gm_status finish(gm_rank *r, const char *name, gm_rule rule, gm_value *x, gm_tensor *view, const viewed *global,
                        const int64_t *extra, int n_extra, gm_value **y)
{
    gm_value *v = NULL;
    if (global) GM_TRY(gm_value_take_block(r, view, &global->layout, global->ndim, global->shape, &v));
    else GM_TRY(gm_value_take(r, view, &v));
    v->guarded = x->guarded;
    return gm_tape_record_one(r, name, rule, x, v, extra, n_extra, y);
}

static void reshape_rule(gm_backward *b)
{
    gm_work       *w = gm_backward_work(b);
    const gm_spec *x = gm_backward_input(b, 0);
    gm_backward_give(b, 0, gm_work_shaped(w, gm_work_contiguous(w, gm_backward_grad(b, 0)), x->ndim, x->shape));
}

static int64_t numel(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    return n;
}

/* Replaces one size of -1 by what the others leave. */
static gm_status fill_in(gm_value *x, int ndim, const int64_t *shape, int64_t *full)
{
    int64_t n = 1, total = numel(x->ndim, x->shape);
    int     open = -1;
    char    have[256];
    for (int d = 0; d < ndim; d++) {
        full[d] = shape[d];
        if (shape[d] == -1 && open < 0) open = d;
        else n *= shape[d];
    }
    if (open < 0) return GM_OK;
    if (n <= 0 || total % n)
        return GM_FAIL(GM_ESHAPE,
                       "reshape: %s has %" PRId64 " elements, which the given sizes (product %" PRId64
                       ") do not divide",
                       gm_value_describe(x, have, sizeof have), total, n);
    full[open] = total / n;
    return GM_OK;
}

/* The block of a view of x: v->shape and v->ndim are given; sizes as the layout says. */
static void local_shape(const gm_value *x, viewed *v)
{
    gm_layout_local(&x->rank->mesh, &v->layout, v->ndim, v->shape, v->local);
}

static gm_status reshape_copy(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y)
{
    gm_value *copy = NULL;
    gm_attrs  a = gm_attrs_default();
    GM_TRY(gm_apply_first(r, GM_OP_copy, 1, &x, &a, &copy));
    gm_status st = gm_reshape(r, copy, ndim, shape, y);
    gm_value_release(copy);
    return st;
}

gm_status gm_reshape(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y)
{
    viewed     v = {.ndim = ndim};
    bool       cut = is_cut(x);
    gm_tensor *view = NULL;
    if (ndim > GM_MAX_DIMS) return GM_FAIL(GM_ESHAPE, "reshape: at most %d dimensions", GM_MAX_DIMS);
    GM_TRY(fill_in(x, ndim, shape, v.shape));
    const int64_t *full = v.shape;
    bool           whole = numel(ndim, full) == numel(x->ndim, x->shape);
    if (cut && whole) {
        GM_TRY(gm_layout_reshape(x, ndim, v.shape, &v.layout));
        local_shape(x, &v);
        full = v.local;
    }
    if (whole && !gm_tensor_can_reshape(x->local, ndim, full) && !gm_tensor_is_contiguous(x->local))
        return reshape_copy(r, x, ndim, v.shape, y);
    GM_TRY(gm_tensor_reshape(x->local, ndim, full, &view));
    return finish(r, "reshape", reshape_rule, x, view, cut ? &v : NULL, NULL, 0, y);
}

static void permute_rule(gm_backward *b)
{
    int back[GM_MAX_DIMS];
    for (int d = 0; d < gm_backward_input(b, 0)->ndim; d++) back[gm_backward_extra(b)[d]] = d;
    gm_backward_give(b, 0, gm_work_permute(gm_backward_work(b), gm_backward_grad(b, 0), back));
}

gm_status gm_permute(gm_rank *r, gm_value *x, const int *order, gm_value **y)
{
    gm_tensor *view = NULL;
    int64_t    extra[GM_MAX_DIMS];
    viewed     v = {.ndim = x->ndim};
    bool       cut = is_cut(x);
    GM_TRY(gm_tensor_permute(x->local, order, &view));
    for (int d = 0; d < x->ndim; d++) {
        extra[d] = order[d];
        v.shape[d] = x->shape[order[d]];
    }
    if (cut) v.layout = gm_layout_permute(&x->layout, x->ndim, order);
    return finish(r, "permute", permute_rule, x, view, cut ? &v : NULL, extra, x->ndim, y);
}

void gm_part_rule(gm_backward *b)
{
    gm_work       *w = gm_backward_work(b);
    const int64_t *e = gm_backward_extra(b);
    gm_tensor     *g = gm_backward_grad(b, 0), *part;
    int            d = (int)e[0];
    bool           accumulate;
    gm_tensor     *whole = gm_backward_target(b, 0, &accumulate);
    if (!accumulate) gm_work_fill(w, whole, 0);
    if (e[1] < 0) return;
    if (!e[3] && g->shape[d] > e[2]) g = gm_work_narrow(w, g, d, 0, e[2]); /* a block with padding */
    part = e[3] ? gm_work_select(w, whole, d, e[1]) : gm_work_narrow(w, whole, d, e[1], e[2]);
    gm_work_into(w, accumulate ? GM_OP_axpy : GM_OP_copy, 1, &g, NULL, 1, &part);
}

/* The layout and global shape of a part; *start and *length become those of the block where the dimension is cut
 * (then all of it is asked for, padding included). */
static gm_status view_part(gm_value *x, const char *op, int dim, int64_t *start, int64_t *length, bool drop, viewed *v)
{
    GM_TRY(gm_layout_part(x, op, dim, *start, *length, drop, &v->layout));
    for (int d = 0; d < x->ndim; d++)
        if (d != dim) v->shape[v->ndim++] = x->shape[d];
        else if (!drop) v->shape[v->ndim++] = *length;
    if (x->layout.n_cuts[dim]) *length = x->local->shape[dim];
    return GM_OK;
}

gm_status gm_narrow(gm_rank *r, gm_value *x, int dim, int64_t start, int64_t length, gm_value **y)
{
    gm_tensor *view = NULL;
    int64_t    d = dim;
    viewed     v = {.ndim = 0};
    bool       cut = is_cut(x);
    GM_TRY(gm_check_dim("narrow", x->ndim, &d));
    if (cut) GM_TRY(view_part(x, "narrow", (int)d, &start, &length, false, &v));
    GM_TRY(gm_tensor_narrow(x->local, (int)d, start, length, &view));
    return finish(r, "narrow", gm_part_rule, x, view, cut ? &v : NULL, (int64_t[]){d, start, length, 0}, 4, y);
}

/* Of dimension d, which is cut: the slice where this rank holds it, else zeros. Sends nothing. */
static gm_status select_cut(gm_rank *r, gm_value *x, int d, int64_t index, gm_value **y)
{
    gm_work w;
    gm_box  box;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS], whole = x->shape[d];
    viewed  v = {.ndim = 0};
    char    have[256];
    if (index < 0 || index >= whole)
        return GM_FAIL(GM_ESHAPE, "select: index %" PRId64 " (from 0) of dimension %d of %s", index, d + 1,
                       gm_value_describe(x, have, sizeof have));
    GM_TRY(view_part(x, "select", d, &(int64_t){index}, &(int64_t){1}, true, &v));
    gm_layout_block(&r->mesh, &x->layout, r->coordinate, x->ndim, x->shape, &box, local, logical);
    int64_t at = index - box.offset[d];
    if (at < 0 || at >= logical[d]) at = -1;
    local_shape(x, &v);
    gm_work_begin(&w, r, "select");
    gm_tensor *t = at < 0 ? gm_work_full(&w, x->local->dtype, v.ndim, v.local, 0) : gm_work_select(&w, x->local, d, at);
    t = gm_work_keep(&w, t);
    GM_TRY(gm_work_end(&w));
    return finish(r, "select", gm_part_rule, x, t, &v, (int64_t[]){d, at, 1, 1}, 4, y);
}

gm_status gm_select(gm_rank *r, gm_value *x, int dim, int64_t index, gm_value **y)
{
    gm_tensor *view = NULL;
    int64_t    d = dim, one = 1;
    viewed     v = {.ndim = 0};
    bool       cut = is_cut(x);
    GM_TRY(gm_check_dim("select", x->ndim, &d));
    if (x->layout.n_cuts[d]) return select_cut(r, x, (int)d, index, y);
    if (cut) GM_TRY(view_part(x, "select", (int)d, &index, &one, true, &v));
    GM_TRY(gm_tensor_select(x->local, (int)d, index, &view));
    return finish(r, "select", gm_part_rule, x, view, cut ? &v : NULL, (int64_t[]){d, index, 1, 1}, 4, y);
}

/* The gradients of the slices, side by side: those that were written in their places (gm_backward_place) are there. */
static void unbind_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    int        dim = (int)gm_backward_extra(b)[0];
    gm_tensor *whole = gm_backward_placed(b);
    if (!whole) whole = gm_backward_like(b, 0);
    for (int i = 0, mark = w->n_held; i < gm_backward_outputs(b) && w->st == GM_OK; i++) {
        gm_tensor *g = gm_backward_grad(b, i), *part;
        if (g && g->storage == whole->storage) continue;
        part = gm_work_select(w, whole, dim, i);
        if (g) gm_work_copy(w, g, part);
        else gm_work_fill(w, part, 0);
        gm_work_drop(w, mark);
    }
    gm_backward_give_whole(b, whole);
}

/* Slice i as a value; v: its layout and shape, NULL where nothing is cut. */
static gm_status slice(gm_rank *r, gm_value *x, int dim, int i, const viewed *v, gm_value **y)
{
    gm_tensor *view = NULL;
    GM_TRY(gm_tensor_select(x->local, dim, i, &view));
    if (v) GM_TRY(gm_value_take_block(r, view, &v->layout, v->ndim, v->shape, y));
    else GM_TRY(gm_value_take(r, view, y));
    (*y)->guarded = x->guarded;
    return GM_OK;
}

gm_status gm_unbind(gm_rank *r, gm_value *x, int dim, gm_value **y)
{
    int64_t   d = dim, one = 1;
    viewed    v = {.ndim = 0};
    bool      cut = is_cut(x);
    gm_status st = GM_OK;
    char      have[256];
    GM_TRY(gm_check_dim("unbind", x->ndim, &d));
    int n = x->shape[d] > GM_MAX_OUT ? 0 : (int)x->shape[d];
    if (n < 1 || x->layout.n_cuts[d])
        return GM_FAIL(GM_ESHAPE,
                       "unbind: dimension %d of %s; it should be whole on every rank and have 1 to %d slices",
                       (int)d + 1, gm_value_describe(x, have, sizeof have), GM_MAX_OUT);
    if (cut) GM_TRY(view_part(x, "unbind", (int)d, &(int64_t){0}, &one, true, &v));
    gm_record rec = {.name = "unbind",
                     .rule = unbind_rule,
                     .n_in = 1,
                     .in = &x,
                     .n_out = n,
                     .out = y,
                     .extra = {d},
                     .unbinds = true};
    for (int i = 0; i < n; i++) y[i] = NULL;
    for (int i = 0; i < n && st == GM_OK; i++) st = slice(r, x, (int)d, i, cut ? &v : NULL, &y[i]);
    if (st == GM_OK) st = gm_tape_record(r, &rec);
    if (st != GM_OK) gm_release_all(n, y);
    return st;
}

static void expand_rule(gm_backward *b)
{
    const gm_spec *x = gm_backward_input(b, 0);
    gm_backward_give(b, 0, gm_work_sum_to(gm_backward_work(b), gm_backward_grad(b, 0), x->ndim, x->shape));
}

gm_status gm_expand(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y)
{
    gm_tensor     *view = NULL;
    viewed         v = {.ndim = ndim};
    bool           cut = is_cut(x) && ndim >= x->ndim;
    const int64_t *local = shape;
    if (cut) {
        memcpy(v.shape, shape, (size_t)ndim * sizeof *shape);
        GM_TRY(gm_layout_expand(x, ndim, shape, &v.layout));
        local_shape(x, &v);
        local = v.local;
    }
    GM_TRY(gm_tensor_expand(x->local, ndim, local, &view));
    return finish(r, "expand", expand_rule, x, view, cut ? &v : NULL, NULL, 0, y);
}

static void cat_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *g = gm_backward_grad(b, 0);
    int        dim = (int)gm_backward_extra(b)[0];
    int64_t    at = 0;
    for (int i = 0; i < gm_backward_inputs(b); i++) {
        int64_t n = gm_backward_input(b, i)->shape[dim];
        if (gm_backward_wants(b, i)) gm_backward_give(b, i, gm_work_narrow(w, g, dim, at, n));
        at += n;
    }
}

/* Sizes of the result; every x must agree but along dim. */
static gm_status cat_shape(int n, gm_value *const *x, int dim, int64_t *shape)
{
    char a[256], b[256];
    memcpy(shape, x[0]->shape, sizeof x[0]->shape);
    for (int i = 1; i < n; i++) {
        bool fits = x[i]->ndim == x[0]->ndim && x[i]->local->dtype == x[0]->local->dtype;
        for (int d = 0; fits && d < x[0]->ndim; d++) fits = d == dim || x[i]->shape[d] == shape[d];
        if (!fits)
            return GM_FAIL(GM_ESHAPE, "cat: tensor %d is %s, the first is %s; they may differ along dimension %d only",
                           i + 1, gm_value_describe(x[i], a, sizeof a), gm_value_describe(x[0], b, sizeof b), dim + 1);
        shape[dim] += x[i]->shape[dim];
    }
    return GM_OK;
}

static gm_status cat_copy(gm_rank *r, int n, gm_value *const *x, int dim, gm_value *y)
{
    gm_work w;
    int64_t at = 0;
    gm_work_begin(&w, r, "cat");
    for (int i = 0; i < n; i++) {
        gm_work_copy(&w, x[i]->local, gm_work_narrow(&w, y->local, dim, at, x[i]->shape[dim]));
        gm_work_drop(&w, 0);
        at += x[i]->shape[dim];
    }
    return gm_work_end(&w);
}

/* x fit each other: the same cuts, or none, and the same partial axes. */
static gm_status cat_fitted(gm_rank *r, int n, gm_value *const *x, int dim, const viewed *v, gm_value **y)
{
    gm_value *whole = NULL;
    gm_rank_place(r, "cat");
    GM_TRY(gm_value_new_block(r, "cat", x[0]->local->dtype, &v->layout, v->ndim, v->shape, &whole));
    gm_status st = cat_copy(r, n, x, dim, whole);
    gm_record rec = {.name = "cat", .rule = cat_rule, .n_in = n, .in = x, .n_out = 1, .out = &whole, .extra = {dim}};
    if (st == GM_OK) st = gm_tape_record(r, &rec);
    if (st == GM_OK) *y = whole;
    else gm_value_release(whole);
    return st;
}

gm_status gm_cat(gm_rank *r, int n, gm_value *const *x, int dim, gm_value **y)
{
    gm_device *dev;
    int64_t    d = dim;
    if (n < 1) return GM_FAIL(GM_EINVAL, "cat: an empty list");
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(gm_check_dim("cat", x[0]->ndim, &d));
    viewed v = {.ndim = x[0]->ndim};
    GM_TRY(cat_shape(n, x, (int)d, v.shape));
    if (gm_all_replicated(r, n, x)) return cat_fitted(r, n, x, (int)d, &v, y);
    gm_fit    *fit = calloc((size_t)n, sizeof *fit);
    gm_value **fitted = calloc((size_t)n, sizeof *fitted);
    gm_status  st = fit && fitted ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to join %d tensors", n);
    if (st == GM_OK) st = gm_layout_cat(n, x, (int)d, &v.layout, fit);
    if (st == GM_OK) st = gm_fit_all(r, n, x, fit, fitted);
    if (st == GM_OK) {
        st = cat_fitted(r, n, fitted, (int)d, &v, y);
        gm_release_all(n, fitted);
    }
    free(fit);
    free(fitted);
    return st;
}

gm_status gm_patchify(gm_rank *r, gm_value *x, int64_t p, gm_value **y)
{
    char      have[256];
    gm_value *cut = NULL, *turned = NULL;
    if (x->ndim != 4 || p < 1 || x->shape[2] % p || x->shape[3] % p)
        return GM_FAIL(GM_ESHAPE,
                       "patchify: %s is not (batch, channels, height, width) with sides that %" PRId64 " divides",
                       gm_value_describe(x, have, sizeof have), p);
    int64_t b = x->shape[0], c = x->shape[1], h = x->shape[2] / p, w = x->shape[3] / p;
    GM_TRY(gm_reshape(r, x, 6, (int64_t[]){b, c, h, p, w, p}, &cut));
    gm_status st = gm_permute(r, cut, (int[]){0, 2, 4, 1, 3, 5}, &turned);
    if (st == GM_OK) st = gm_reshape(r, turned, 3, (int64_t[]){b, h * w, c * p * p}, y);
    gm_value_release(turned);
    gm_value_release(cut);
    return st;
}

gm_status gm_softmax(gm_rank *r, gm_op op, gm_value *x, const gm_attrs *attrs, gm_value **y)
{
    gm_value *row = NULL, *result = NULL;
    if (x->ndim) return gm_apply_first(r, op, 1, &x, attrs, y);
    GM_TRY(gm_reshape(r, x, 1, (int64_t[]){1}, &row));
    gm_status st = gm_apply_first(r, op, 1, &row, attrs, &result);
    if (st == GM_OK) st = gm_reshape(r, result, 0, NULL, y);
    gm_value_release(result);
    gm_value_release(row);
    return st;
}
