/* fit.c - operands made to fit without communication: slices of what is replicated, masks, blocks without their
 * padding. See rules.h. */
#include <string.h>
#include "../gradients.h"
#include "rules.h"

bool gm_all_replicated(const gm_rank *r, int n, gm_value *const *v)
{
    if (!r->mesh.n_axes) return true;
    for (int i = 0; i < n; i++)
        if (v[i] && !gm_layout_is_replicated(&v[i]->layout)) return false;
    return true;
}

uint32_t gm_layout_gradient(const gm_layout *in, const gm_layout *out, uint32_t g)
{
    return (gm_layout_cut_axes(out) | out->partial | g) & ~(gm_layout_cut_axes(in) | in->partial);
}

/* A block that was computed from x as a value (takes it) of x's global shape, recorded. */
static gm_status finish(gm_rank *r, const char *name, gm_rule rule, gm_value *x, gm_tensor *block,
                        const gm_layout *layout, const int64_t *extra, int n_extra, gm_value **y)
{
    gm_value *v = NULL;
    GM_TRY(gm_value_take(r, block, &v));
    v->layout = *layout;
    memcpy(v->shape, x->shape, sizeof v->shape);
    gm_value_find_padding(v);
    return gm_tape_record_one(r, name, rule, x, v, extra, n_extra, y);
}

/* A new block of `size` elements along d: t's from `start`, `count` of them, then zeros. */
static gm_tensor *padded_slice(gm_work *w, gm_tensor *t, int d, int64_t start, int64_t count, int64_t size)
{
    int64_t shape[GM_MAX_DIMS];
    memcpy(shape, t->shape, sizeof shape);
    shape[d] = size;
    gm_tensor *block = gm_work_new(w, t->dtype, t->ndim, shape);
    if (count) gm_work_copy(w, gm_work_narrow(w, t, d, start, count), gm_work_narrow(w, block, d, 0, count));
    gm_work_fill(w, gm_work_narrow(w, block, d, count, size - count), 0);
    return block;
}

/* Dimension d cut as in `layout`, of which x's own cuts are the outer ones. */
static gm_status slice(gm_rank *r, gm_value *x, int d, const gm_layout *layout, gm_value **y)
{
    gm_layout  after = x->layout;
    gm_box     from, to;
    gm_tensor *t = x->local, *block;
    gm_work    w;
    int64_t    local[GM_MAX_DIMS], count[GM_MAX_DIMS];
    gm_layout_copy_dim(&after, d, layout, d);
    gm_layout_block(&r->mesh, &x->layout, r->coordinate, x->ndim, x->shape, &from, local, count);
    gm_layout_block(&r->mesh, &after, r->coordinate, x->ndim, x->shape, &to, local, count);
    int64_t size = local[d], n = count[d], start = n ? to.offset[d] - from.offset[d] : 0;
    gm_work_begin(&w, r, "slice");
    block = n == size ? gm_work_narrow(&w, t, d, start, n) : padded_slice(&w, t, d, start, n, size);
    block = gm_work_keep(&w, block);
    GM_TRY(gm_work_end(&w));
    return finish(r, "slice", gm_part_rule, x, block, &after, (int64_t[]){d, start, n}, 3, y);
}

/* y = x at coordinate 0, zero elsewhere: the sum of all y is x, so the gradient passes as it is. */
static void mask_rule(gm_backward *b)
{
    gm_backward_set_partial(b, 0, gm_backward_partial(b));
    gm_backward_give(b, 0, gm_backward_grad(b, 0));
}

static gm_status mask(gm_rank *r, gm_value *x, uint32_t axes, gm_value **y)
{
    gm_layout  after = x->layout;
    gm_tensor *t = x->local;
    gm_work    w;
    bool       counts = true;
    after.partial |= axes;
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (axes & 1u << a && r->coordinate[a]) counts = false;
    gm_work_begin(&w, r, "mask");
    t = gm_work_keep(&w, counts ? t : gm_work_full(&w, t->dtype, x->ndim, t->shape, 0));
    GM_TRY(gm_work_end(&w));
    return finish(r, "mask", mask_rule, x, t, &after, NULL, 0, y);
}

static gm_status trim(gm_rank *r, gm_value *x, int d, gm_value **y)
{
    gm_tensor *t = NULL;
    int64_t    logical[GM_MAX_DIMS];
    gm_value_logical(x, logical);
    if (logical[d] == x->local->shape[d]) {
        gm_value_retain(x);
        *y = x;
        return GM_OK;
    }
    GM_TRY(gm_tensor_narrow(x->local, d, 0, logical[d], &t));
    return finish(r, "trim", gm_part_rule, x, t, &x->layout, (int64_t[]){d, 0, logical[d]}, 3, y);
}

/* Replaces *held by what a step made of it, in *next. */
static gm_status advance(gm_status st, gm_value **held, gm_value *const *next)
{
    if (st != GM_OK) return st;
    gm_value_release(*held);
    *held = *next;
    return GM_OK;
}

gm_status gm_fit_value(gm_rank *r, gm_value *x, const gm_fit *fit, gm_value **y)
{
    gm_value *held = x, *next = NULL;
    gm_status st = GM_OK;
    uint32_t  masked = fit->layout.partial & ~x->layout.partial;
    gm_value_retain(x);
    for (int d = 0; d < x->ndim && st == GM_OK; d++)
        if (fit->layout.n_cuts[d] > held->layout.n_cuts[d])
            st = advance(slice(r, held, d, &fit->layout, &next), &held, &next);
    if (st == GM_OK && masked) st = advance(mask(r, held, masked, &next), &held, &next);
    for (int d = 0; d < x->ndim && st == GM_OK; d++)
        if (fit->trim & 1u << d) st = advance(trim(r, held, d, &next), &held, &next);
    if (st == GM_OK) *y = held;
    else gm_value_release(held);
    return st;
}

gm_status gm_fit_seed(gm_value *loss, gm_value *seed, gm_value **y)
{
    gm_fit fit = {.layout = seed->layout};
    char   have[256], want[256];
    bool   fits = seed->ndim == loss->ndim;
    if (seed->local->dtype != loss->local->dtype)
        return GM_FAIL(GM_ESHAPE, "backward: the seed is of %s, the loss of %s; cast the seed: seed:to '%s'",
                       gm_dtype_name(seed->local->dtype), gm_dtype_name(loss->local->dtype),
                       gm_dtype_name(loss->local->dtype));
    for (int d = 0; fits && d < loss->ndim; d++) {
        fits = seed->shape[d] == loss->shape[d];
        if (!seed->layout.n_cuts[d]) gm_layout_copy_dim(&fit.layout, d, &loss->layout, d);
        fits = fits && fit.layout.n_cuts[d] == loss->layout.n_cuts[d] &&
               gm_layout_dims_agree(&fit.layout, d, &loss->layout, d);
    }
    if (!fits || seed->layout.partial & (loss->layout.partial | gm_layout_cut_axes(&loss->layout)))
        return GM_FAIL(GM_ESHAPE, "backward: the seed is %s, the loss %s; they agree in shape and cuts",
                       gm_value_describe(seed, have, sizeof have), gm_value_describe(loss, want, sizeof want));
    return gm_fit_value(loss->rank, seed, &fit, y);
}
