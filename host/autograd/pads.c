/* pads.c - tensors with places around them (apply.h).
 *
 * The result is one copy of x, and one fill or copies of its borders. These are made for one dimension after the other:
 * those of a dimension are as long as the result in the dimensions before it, whose borders are there, and as x in
 * those behind. Backward, the gradients of the borders are added to where they came from, in the opposite order. */
#include <inttypes.h>

#include "apply.h"
#include "padding.h"
#include "tape.h"
#include "work.h"

/* What is done with a border and with the place of x that it shows. */
typedef void (*border_step)(gm_work *w, gm_tensor *border, gm_tensor *from);

/* The window of a padded tensor that x fills; before: how many places stand in front of it, in each dimension. */
static gm_tensor *pad_window(gm_work *w, gm_tensor *whole, const int64_t *shape, int from, const int64_t *before)
{
    for (int d = from; whole && d < whole->ndim; d++)
        if (whole->shape[d] != shape[d]) whole = gm_work_narrow(w, whole, d, before[d], shape[d]);
    return whole;
}

/* Place `to` of dimension d of t, which shows another one. */
static void reflected(gm_work *w, gm_tensor *t, int d, int64_t to, int64_t from, border_step step)
{
    int mark = w->n_held;
    step(w, gm_work_select(w, t, d, to), gm_work_select(w, t, d, from));
    gm_work_drop(w, mark);
}

/* Both borders of dimension d; t is the tensor as long as x in the dimensions behind, n the places of x in this one. */
static void each_reflected(gm_work *w, gm_tensor *t, int d, int64_t n, int64_t before, border_step step)
{
    const int64_t last = before + n - 1;
    for (int64_t i = 0; w->st == GM_OK && i < before; i++) reflected(w, t, d, i, 2 * before - i, step);
    for (int64_t i = last + 1; w->st == GM_OK && i < t->shape[d]; i++) reflected(w, t, d, i, 2 * last - i, step);
}

static void each_replicated(gm_work *w, gm_tensor *t, int d, int64_t n, int64_t before, border_step step)
{
    int64_t after = t->shape[d] - before - n;
    if (before) step(w, gm_work_narrow(w, t, d, 0, before), gm_work_narrow(w, t, d, before, 1));
    if (after) step(w, gm_work_narrow(w, t, d, before + n, after), gm_work_narrow(w, t, d, before + n - 1, 1));
}

/* The borders of dimension d of a tensor around one of this shape. */
static void each_border(gm_work *w, gm_tensor *whole, const int64_t *shape, int d, const int64_t *before,
                        gm_pad_mode mode, border_step step)
{
    if (w->st != GM_OK || whole->shape[d] == shape[d]) return;
    int        mark = w->n_held;
    gm_tensor *t = pad_window(w, whole, shape, d + 1, before);
    if (mode == GM_PAD_REFLECT) each_reflected(w, t, d, shape[d], before[d], step);
    else each_replicated(w, t, d, shape[d], before[d], step);
    gm_work_drop(w, mark);
}

static void show(gm_work *w, gm_tensor *border, gm_tensor *from)
{
    if (w->st == GM_OK) gm_work_copy(w, gm_work_expand(w, from, border->ndim, border->shape), border);
}

/* from += the sum of border, which is as large, or longer in one dimension. */
static void add_back(gm_work *w, gm_tensor *border, gm_tensor *from)
{
    gm_attrs a = gm_attrs_default();
    if (w->st != GM_OK) return;
    gm_tensor *sum = gm_work_sum_to(w, border, from->ndim, from->shape);
    gm_work_into(w, GM_OP_axpy, 1, &sum, &a, 1, &from);
}

static void bordered_rule(gm_backward *b, gm_pad_mode mode)
{
    gm_work       *w = gm_backward_work(b);
    const gm_spec *x = gm_backward_input(b, 0);
    const int64_t *before = gm_backward_extra(b);
    gm_tensor     *g = gm_backward_grad(b, 0);
    if (w->st != GM_OK) return;
    g = gm_work_cast(w, g, g->dtype);
    for (int d = x->ndim - 1; d >= 0; d--) each_border(w, g, x->shape, d, before, mode, add_back);
    gm_backward_give(b, 0, pad_window(w, g, x->shape, 0, before));
}

static void reflect_rule(gm_backward *b) { bordered_rule(b, GM_PAD_REFLECT); }
static void replicate_rule(gm_backward *b) { bordered_rule(b, GM_PAD_REPLICATE); }

static void pad_rule(gm_backward *b)
{
    gm_work *w = gm_backward_work(b);
    gm_backward_give(b, 0,
                     pad_window(w, gm_backward_grad(b, 0), gm_backward_input(b, 0)->shape, 0, gm_backward_extra(b)));
}

/* The shape of the result; a padded dimension must not be cut, and have the places that borders show. */
static gm_status pad_shape(const gm_value *x, const int64_t *before, const int64_t *after, gm_pad_mode mode,
                           int64_t *shape)
{
    char have[256];
    for (int d = 0; d < x->ndim; d++) {
        const int64_t n = x->shape[d], longest = before[d] > after[d] ? before[d] : after[d];
        if (before[d] < 0 || after[d] < 0)
            return GM_FAIL(GM_EINVAL, "pad: %" PRId64 " and %" PRId64 " elements around dimension %d", before[d],
                           after[d], d + 1);
        shape[d] = n + before[d] + after[d];
        if (shape[d] != n && x->layout.n_cuts[d])
            return GM_FAIL(GM_ESHAPE, "pad: dimension %d of %s is cut over ranks; redistribute it first", d + 1,
                           gm_value_describe(x, have, sizeof have));
        if (longest && ((mode == GM_PAD_REFLECT && longest >= n) || (mode == GM_PAD_REPLICATE && n == 0)))
            return GM_FAIL(GM_EINVAL,
                           "pad: dimension %d has %" PRId64 " places, too few to %s %" PRId64 " in front and %" PRId64
                           " behind",
                           d + 1, n, mode == GM_PAD_REFLECT ? "reflect" : "replicate", before[d], after[d]);
    }
    return GM_OK;
}

/* Writes the block of the result. */
static gm_status fill_padded(gm_rank *r, gm_tensor *x, const int64_t *before, gm_pad_mode mode, double value,
                             gm_tensor *whole)
{
    gm_work w;
    gm_work_begin(&w, r, "pad");
    if (mode == GM_PAD_VALUE) gm_work_fill(&w, whole, value);
    gm_work_copy(&w, x, pad_window(&w, whole, x->shape, 0, before));
    for (int d = 0; mode != GM_PAD_VALUE && d < x->ndim; d++) each_border(&w, whole, x->shape, d, before, mode, show);
    return gm_work_end(&w);
}

gm_status gm_pad(gm_rank *r, gm_value *x, const int64_t *before, const int64_t *after, gm_pad_mode mode, double value,
                 gm_value **y)
{
    static const gm_rule rules[] = {
        [GM_PAD_VALUE] = pad_rule, [GM_PAD_REFLECT] = reflect_rule, [GM_PAD_REPLICATE] = replicate_rule};
    gm_value *whole = NULL;
    int64_t   shape[GM_MAX_DIMS], extra[2 * GM_MAX_DIMS] = {0};
    char      have[256];
    if (x->layout.partial && mode == GM_PAD_VALUE && value != 0)
        return GM_FAIL(GM_ESHAPE,
                       "pad: %s is a sum that is not made yet, and %g around each of its terms would be added up too; "
                       ":settle() makes the sum",
                       gm_value_describe(x, have, sizeof have), value);
    GM_TRY(pad_shape(x, before, after, mode, shape));
    for (int d = 0; d < x->ndim; d++) extra[d] = before[d];
    gm_rank_place(r, "pad");
    GM_TRY(gm_value_new_block(r, "pad", x->local->dtype, &x->layout, x->ndim, shape, &whole));
    gm_status st = fill_padded(r, x->local, before, mode, value, whole->local);
    if (st == GM_OK) st = gm_padding_finish(whole);
    if (st == GM_OK) return gm_tape_record_one(r, "pad", rules[mode], x, whole, extra, GM_MAX_DIMS, y);
    gm_value_release(whole);
    return st;
}
