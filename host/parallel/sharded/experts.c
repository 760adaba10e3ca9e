/* experts.c - the op of experts.h: rows out, products, rows back, weighed sum; and the same backward.
 *
 * In both passes the first transfer runs beside the first products of the rows that stay, and the transfer back runs
 * beside their second products. */
#include "experts_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../autograd/padding.h"
#include "../../autograd/layout_rules/family.h"

enum { X, INDEX, WEIGHT, UP, UP_BIAS, DOWN, DOWN_BIAS, GATE, GATE_BIAS, N_IN };
/* What a node keeps; CHOICE .. BOUNDS and IN .. BACK are new tensors, BACK only for the gradient of weight. Between the
 * halves of a backward pass (see keep_rows) WEIGHT is empty, and BACK and DGATE have the gradients of the
 * pre-activations. The numbers of the plan are the context of the node's callback, the capacity of its rows an
 * attribute. */
enum {
    KEPT_CHOICE,
    KEPT_ROW,
    KEPT_BOUNDS,
    KEPT_WEIGHT,
    KEPT_UP,
    KEPT_GATE,
    KEPT_DOWN,
    KEPT_IN,
    KEPT_PRE,
    KEPT_GATE_PRE,
    KEPT_BACK,
    KEPT_DGATE,
    N_KEPT
};

/* ---- what fits ---- */

static gm_status refuse(gm_value *const *in, const char *why)
{
    static const char *const names[N_IN] = {"x",    "index",     "weight", "up",       "up_bias",
                                            "down", "down_bias", "gate",   "gate_bias"};
    char                     text[2000], one[200];
    size_t                   at = 0;
    text[0] = 0;
    for (int i = 0; i < N_IN && at < sizeof text; i++)
        if (in[i])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s is %s", i ? ", " : "", names[i],
                                   gm_value_describe(in[i], one, sizeof one));
    return GM_FAIL(GM_ESHAPE, "experts: %s: %s", why, text);
}

static bool has_shape(const gm_value *v, int ndim, const int64_t *shape)
{
    return v->ndim == ndim && !memcmp(v->shape, shape, (size_t)ndim * sizeof *shape);
}

static bool alike(const gm_value *a, int d, const gm_value *b, int e)
{
    return a->layout.n_cuts[d] == b->layout.n_cuts[e] && gm_layout_dims_agree(&a->layout, d, &b->layout, e);
}

static bool is_gate(gm_function f) { return f >= GM_FN_reglu && f <= GM_FN_swiglu; }

/* The gate beside up, and its bias beside that of up. */
static gm_status check_gate(gm_value *const *in, gm_function f)
{
    const gm_value *up = in[UP], *gate = in[GATE], *bias = in[GATE_BIAS];
    if (is_gate(f) != (gate != NULL))
        return refuse(in, "a gated activation needs gate (E, f, h), and no other has one");
    if (!gate) return bias ? refuse(in, "gate_bias without a gate") : GM_OK;
    bool fits = has_shape(gate, 3, up->shape) && (!bias || has_shape(bias, 2, up->shape));
    if (!fits) return refuse(in, "gate should be as up, gate_bias (E, f)");
    for (int d = 0; d < 3; d++) fits = fits && alike(gate, d, up, d);
    for (int d = 0; bias && d < 2; d++) fits = fits && alike(bias, d, up, d);
    return fits ? GM_OK : refuse(in, "gate and up are cut in different ways");
}

static gm_status check_shapes(gm_value *const *in)
{
    const gm_value *x = in[X], *up = in[UP], *index = in[INDEX];
    if (x->ndim < 2 || up->ndim != 3) return refuse(in, "x should be (..., width), up (experts, hidden, width)");
    int64_t e = up->shape[0], f = up->shape[1], h = x->shape[x->ndim - 1];
    bool    fits = up->shape[2] == h && has_shape(in[DOWN], 3, (int64_t[]){e, h, f});
    if (in[UP_BIAS]) fits = fits && has_shape(in[UP_BIAS], 2, (int64_t[]){e, f});
    if (in[DOWN_BIAS]) fits = fits && has_shape(in[DOWN_BIAS], 2, (int64_t[]){e, h});
    if (!fits) return refuse(in, "up should be (E, f, h), up_bias (E, f), down (E, h, f), down_bias (E, h)");
    fits = index->ndim == x->ndim && has_shape(in[WEIGHT], x->ndim, index->shape);
    fits = fits && !memcmp(index->shape, x->shape, (size_t)(x->ndim - 1) * sizeof *x->shape);
    if (!fits || index->shape[x->ndim - 1] < 1)
        return refuse(in, "index and weight should be (..., choices), with the leading dimensions of x");
    if (index->local->dtype != GM_I64) return refuse(in, "index should be i64");
    gm_dtype dtype = x->local->dtype;
    if (!gm_dtype_is_float(dtype)) return refuse(in, "numbers should be f32, f64, bf16 or f16");
    for (int i = 0; i < N_IN; i++)
        if (in[i] && i != INDEX && in[i]->local->dtype != (i == WEIGHT ? gm_dtype_wide(dtype) : dtype))
            return refuse(in, "dtypes differ (beside x of bf16 or f16 weight is f32)");
    return GM_OK;
}

static gm_status check_layouts(gm_value *const *in)
{
    const gm_value *x = in[X], *up = in[UP], *down = in[DOWN];
    uint32_t        tokens = gm_layout_cut_axes(&x->layout), experts = gm_layout_dim_axes(&up->layout, 0);
    int             last = x->ndim - 1;
    for (int i = 0; i < N_IN; i++)
        if (in[i] && in[i]->layout.partial) return refuse(in, "one of them is still a sum over ranks");
    for (int i = X; i <= WEIGHT; i++) {
        if (in[i]->layout.n_cuts[last]) return refuse(in, "the last dimension of x, index and weight should be whole");
        for (int d = 0; d < last; d++)
            if (!alike(in[i], d, x, d)) return refuse(in, "tokens are cut in different ways");
    }
    bool fits = !up->layout.n_cuts[2] && !down->layout.n_cuts[1] && alike(up, 0, down, 0) && alike(up, 1, down, 2);
    if (in[UP_BIAS]) fits = fits && alike(in[UP_BIAS], 0, up, 0) && alike(in[UP_BIAS], 1, up, 1);
    if (in[DOWN_BIAS]) fits = fits && alike(in[DOWN_BIAS], 0, up, 0) && !in[DOWN_BIAS]->layout.n_cuts[1];
    if (!fits) return refuse(in, "experts, or their hidden width, are cut in different ways");
    if (experts & ~tokens) return refuse(in, "axes that cut the experts should cut the tokens, too");
    if (gm_layout_dim_axes(&up->layout, 1) & tokens)
        return refuse(in, "an axis cuts the hidden width of the experts and the tokens");
    return GM_OK;
}

/* ---- one pass ---- */

static int64_t hidden_here(gm_rank *r, const gm_side *up)
{
    int64_t logical, block;
    gm_side_extent(r, up, 1, &logical, &block);
    return logical;
}

static gm_tensor *here(gm_experts_work *w, gm_tensor *t) { return gm_experts_part(w, t, 0, w->plan.n_here); }
static gm_tensor *other(gm_experts_work *w, gm_tensor *t, int64_t n)
{
    return gm_experts_part(w, t, w->plan.n_here, n);
}

/* ---- forward ---- */

static void first_product(gm_experts_work *w, void *context, const gm_experts_span *s)
{
    (void)context;
    gm_tensor *in = gm_experts_span_of(w, w->in, s, 0);
    gm_experts_linear(w, s, in, gm_experts_of(w, w->up, 1), gm_experts_of(w, w->up_bias, 1),
                      gm_experts_span_of(w, w->pre, s, 0));
    if (w->gate)
        gm_experts_linear(w, s, in, gm_experts_of(w, w->gate, 1), gm_experts_of(w, w->gate_bias, 1),
                          gm_experts_span_of(w, w->gate_pre, s, 0));
}

/* What the second products of the span's rows multiply. */
static gm_tensor *activated(gm_experts_work *w, const gm_experts_span *s)
{
    return gm_experts_activate(w, gm_experts_span_of(w, w->gate_pre, s, 0), gm_experts_span_of(w, w->pre, s, 0));
}

typedef struct results {
    gm_tensor *to;
    int64_t    from; /* row of the pass that is row 0 of it */
} results;

static void second_product(gm_experts_work *w, void *context, const gm_experts_span *s)
{
    const results *out = context;
    gm_experts_linear(w, s, activated(w, s), gm_experts_of(w, w->down, 2), gm_experts_of(w, w->down_bias, -1),
                      gm_experts_span_of(w, out->to, s, out->from));
}

/* w->in, w->pre and the result's rows, which *back receives: (n_here + n_sent, h). y: (tokens, h). */
static void forward(gm_experts_work *w, gm_tensor *x, gm_tensor *weight, gm_tensor *y, gm_tensor **back)
{
    const gm_experts_plan *p = &w->plan;
    gm_tensor             *ours = gm_experts_new(w, p->n_sent, w->width);
    w->in = gm_experts_new(w, p->n_here + p->n_away, w->width);
    w->pre = gm_experts_new(w, p->n_here + p->n_away, w->hidden);
    if (w->gate) w->gate_pre = gm_experts_new(w, p->n_here + p->n_away, w->hidden);
    *back = gm_experts_new(w, p->n_here + p->n_sent, w->width);
    gm_tensor *theirs = gm_experts_new(w, p->n_away, w->width), *away = other(w, w->in, p->n_away);
    gm_tensor *mine = here(w, *back), *returned = other(w, *back, p->n_sent);
    gm_experts_gather(w, x, other(w, w->choice, p->n_sent), NULL, ours);
    gm_experts_travel(w, ours, away, false);
    gm_experts_gather(w, x, here(w, w->choice), NULL, here(w, w->in));
    gm_experts_hold(w, (gm_tensor *[GM_EXPERTS_HELD]){w->up, w->up_bias, w->gate, w->gate_bias});
    gm_experts_all(w, false, first_product, NULL);
    gm_experts_arrive(w);
    gm_experts_all(w, true, first_product, NULL);
    gm_experts_hold(w, (gm_tensor *[GM_EXPERTS_HELD]){w->down, w->down_bias});
    gm_experts_all(w, true, second_product, &(results){theirs, p->n_here});
    gm_experts_travel(w, returned, theirs, true);
    gm_experts_all(w, false, second_product, &(results){mine, 0});
    gm_experts_hold(w, NULL);
    gm_experts_arrive(w);
    gm_experts_combine(w, *back, weight, false, y);
}

/* ---- backward ---- */

typedef struct gradients {
    gm_tensor *g, *dpre, *dx; /* rows of the pass: of the results, pre-activations; of `from` on: what is returned */
    gm_tensor *dgate;         /* of the pre-activations of the gate; NULL: there is none */
    int64_t    from;
    gm_tensor *target[N_IN]; /* where they go, NULL where not wanted */
    bool       add[N_IN];    /* it holds something that is added to */
} gradients;

/* The gradient of what the rows of experts are inside. */
static void back_to_hidden(gm_experts_work *w, void *context, const gm_experts_span *s)
{
    gradients *d = context;
    gm_tensor *dpre = gm_experts_span_of(w, d->dpre, s, 0), *da = dpre;
    if (w->f != GM_FN_none) da = gm_experts_new(w, s->n, w->hidden);
    gm_experts_input_gradient(w, s, gm_experts_span_of(w, d->g, s, 0), gm_experts_of(w, w->down, 2), false, da);
    if (w->f != GM_FN_none)
        gm_experts_slope(w, da, gm_experts_span_of(w, w->gate_pre, s, 0), gm_experts_span_of(w, w->pre, s, 0),
                         gm_experts_span_of(w, d->dgate, s, 0), dpre);
}

static void back_to_rows(gm_experts_work *w, void *context, const gm_experts_span *s)
{
    gradients *d = context;
    if (!d->dx) return;
    gm_tensor *dx = gm_experts_span_of(w, d->dx, s, d->from);
    gm_experts_input_gradient(w, s, gm_experts_span_of(w, d->dpre, s, 0), gm_experts_of(w, w->up, 1), false, dx);
    if (w->gate)
        gm_experts_input_gradient(w, s, gm_experts_span_of(w, d->dgate, s, 0), gm_experts_of(w, w->gate, 1), true, dx);
}

/* The gradients of weights `of` and of the biases behind them, of products of x whose results have the gradient g. */
static void give(gm_experts_work *w, gradients *d, int of, gm_tensor *g, gm_tensor *x, const gm_experts_span *s)
{
    int        bias = of + 1;
    gm_tensor *dw = gm_experts_of(w, d->target[of], of == DOWN ? 2 : 1);
    gm_tensor *db = gm_experts_of(w, d->target[bias], of == DOWN ? -1 : 1);
    gm_experts_weight_gradient(w, s, g, x, dw, d->add[of], db, d->add[bias]);
}

/* The gradients of experts' parameters: nothing waits for them, so they are computed while rows travel. */
static void back_to_parameters(gm_experts_work *w, void *context, const gm_experts_span *s)
{
    gradients *d = context;
    gm_tensor *in = gm_experts_span_of(w, w->in, s, 0), *g = gm_experts_span_of(w, d->g, s, 0);
    if (d->target[DOWN] || d->target[DOWN_BIAS]) give(w, d, DOWN, g, activated(w, s), s);
    give(w, d, UP, gm_experts_span_of(w, d->dpre, s, 0), in, s);
    if (w->gate) give(w, d, GATE, gm_experts_span_of(w, d->dgate, s, 0), in, s);
}

/* g, and d->target[X] where that is wanted: (tokens, h). Rows of gradients go out from where those of
 * this rank's tokens come back to, behind those that stay. */
static void backward(gm_experts_work *w, gm_tensor *g, gm_tensor *weight, gradients *d)
{
    const gm_experts_plan *p = &w->plan;
    gm_tensor             *dx = d->target[X];
    gm_tensor             *all = gm_experts_new(w, (dx ? p->n_here : 0) + p->n_sent, w->width), *theirs = NULL;
    gm_tensor             *ours = gm_experts_part(w, all, dx ? p->n_here : 0, p->n_sent);
    d->g = gm_experts_new(w, p->n_here + p->n_away, w->width);
    d->dpre = gm_experts_new(w, p->n_here + p->n_away, w->hidden);
    if (w->gate) d->dgate = gm_experts_new(w, p->n_here + p->n_away, w->hidden);
    if (dx) theirs = gm_experts_new(w, p->n_away, w->width);
    gm_experts_gather(w, g, other(w, w->choice, p->n_sent), weight, ours);
    gm_experts_travel(w, ours, other(w, d->g, p->n_away), false);
    gm_experts_gather(w, g, here(w, w->choice), weight, here(w, d->g));
    gm_experts_hold(w, (gm_tensor *[GM_EXPERTS_HELD]){w->down});
    gm_experts_all(w, false, back_to_hidden, d);
    gm_experts_all(w, false, back_to_parameters, d);
    gm_experts_arrive(w);
    gm_experts_all(w, true, back_to_hidden, d);
    gm_experts_hold(w, dx ? (gm_tensor *[GM_EXPERTS_HELD]){w->up, w->gate} : NULL);
    d->dx = theirs;
    d->from = p->n_here;
    gm_experts_all(w, true, back_to_rows, d);
    if (dx) gm_experts_travel(w, ours, theirs, true);
    d->dx = dx ? all : NULL;
    d->from = 0;
    gm_experts_all(w, true, back_to_parameters, d);
    gm_experts_all(w, false, back_to_rows, d);
    gm_experts_hold(w, NULL);
    gm_experts_arrive(w);
    if (dx) gm_experts_combine(w, all, NULL, d->add[X], dx);
}

/* Where the gradient of input i goes. One that holds nothing is cleared and added to, unless all of it is written. */
static void find_target(gm_backward *b, int i, bool written, gradients *d)
{
    if (!gm_backward_wants(b, i)) return;
    d->target[i] = gm_backward_target(b, i, &d->add[i]);
    if (d->add[i] || written) return;
    d->add[i] = true;
    gm_work_fill(gm_backward_work(b), d->target[i], 0);
}

/* Those of the parameters: where there are rows here alone, steps write all of them, but for padding. The bias of a sum
 * counts at one of its terms alone. */
static void find_targets(gm_backward *b, gm_experts_work *w, const gm_experts_sides *sides, gradients *d)
{
    bool counts = gm_rule_counts(gm_backward_rank(b), gm_layout_dim_axes(sides->up.layout, 1));
    bool written = w->plan.p == 1 && w->plan.n_here && w->hidden == w->up->shape[1];
    for (int i = UP; i < N_IN; i++) find_target(b, i, written && (i != DOWN_BIAS || counts), d);
    if (!counts) d->target[DOWN_BIAS] = NULL;
}

/* Between two halves: the rows that the gradients of parameters are made of, so that the second sends nothing. Where a
 * gradient of tokens or weights is still to come, all stays as it is, and the second half begins anew. */
static void keep_rows(gm_backward *b, const gradients *d)
{
    if (gm_backward_later(b, X) || gm_backward_later(b, WEIGHT)) return;
    gm_backward_keep_grad(b, 0, d->g);
    gm_backward_keep(b, KEPT_BACK, d->dpre);
    if (d->dgate) gm_backward_keep(b, KEPT_DGATE, d->dgate);
    gm_backward_keep(b, KEPT_WEIGHT, NULL);
}

/* The second half, of rows that were kept. */
static void run_second(gm_backward *b, gm_experts_work *w, gm_tensor *dpre, gradients *d)
{
    d->g = gm_backward_grad(b, 0);
    d->dpre = dpre;
    d->dgate = w->gate ? gm_backward_saved(b, KEPT_DGATE) : NULL;
    gm_experts_all(w, false, back_to_parameters, d);
    gm_experts_all(w, true, back_to_parameters, d);
}

/* The gradient of weight. */
static void give_weight(gm_backward *b, gm_experts_work *w, gm_tensor *back, gm_tensor *g)
{
    gm_work   *k = w->work;
    gm_tensor *dweight = gm_backward_like(b, WEIGHT), *to = gm_work_flat(k, dweight);
    gm_work_into(k, GM_OP_experts_combine_grad, 3, (gm_tensor *[]){back, w->row, g}, NULL, 1, &to);
    gm_backward_give(b, WEIGHT, dweight);
}

static void run_backward(gm_backward *b, gm_experts_work *w, gm_tensor *weight, gm_tensor *back,
                         const gm_experts_sides *sides)
{
    gm_work  *k = w->work;
    gradients d = {0};
    w->hidden = hidden_here(k->rank, &sides->up);
    gm_experts_resume(w, k->rank, sides, gm_backward_callback(b)->context, gm_backward_attrs(b)->capacity);
    if (k->st == GM_OK) find_targets(b, w, sides, &d);
    if (!weight) {
        run_second(b, w, back, &d);
        return;
    }
    find_target(b, X, true, &d);
    gm_tensor *g = gm_work_compact(k, gm_backward_grad(b, 0));
    if (d.target[X]) d.target[X] = gm_work_flat(k, d.target[X]);
    backward(w, g, gm_work_flat(k, weight), &d);
    if (gm_backward_wants(b, WEIGHT)) give_weight(b, w, back, g);
    if (k->st == GM_OK) keep_rows(b, &d);
}

static void experts_rule(gm_backward *b)
{
    gm_experts_work  w = {.work = gm_backward_work(b), .f = gm_backward_attrs(b)->function};
    gm_experts_sides sides;
    sides.x.layout = gm_backward_input_layout(b, X, &sides.x.shape);
    sides.x.ndim = gm_backward_input(b, X)->ndim;
    sides.up.layout = gm_backward_input_layout(b, UP, &sides.up.shape);
    sides.up.ndim = 3;
    w.choice = gm_backward_saved(b, KEPT_CHOICE);
    w.row = gm_backward_saved(b, KEPT_ROW);
    w.bounds = gm_backward_saved(b, KEPT_BOUNDS);
    w.up = gm_backward_saved(b, KEPT_UP);
    w.gate = gm_backward_saved(b, KEPT_GATE);
    w.down = gm_backward_saved(b, KEPT_DOWN);
    w.in = gm_backward_saved(b, KEPT_IN);
    w.pre = gm_backward_saved(b, KEPT_PRE);
    w.gate_pre = gm_backward_saved(b, KEPT_GATE_PRE);
    gm_tensor *weight = gm_backward_saved(b, KEPT_WEIGHT), *back = gm_backward_saved(b, KEPT_BACK);
    if (w.work->st == GM_OK) run_backward(b, &w, weight, back, &sides);
    gm_experts_end(&w);
}

/* ---- the op ---- */

/* A value of what a node keeps; takes nothing. NULL stays NULL. */
static gm_status kept(gm_rank *r, gm_tensor *t, gm_value **out)
{
    *out = NULL;
    if (!t) return GM_OK;
    gm_tensor_retain(t);
    return gm_value_take(r, t, out);
}

/* The node; it takes w->numbers. */
static gm_status record(gm_rank *r, gm_value *const *in, gm_experts_work *w, gm_tensor *back, gm_value *y)
{
    gm_value *saved[N_KEPT] = {
        [KEPT_WEIGHT] = in[WEIGHT], [KEPT_UP] = in[UP], [KEPT_GATE] = in[GATE], [KEPT_DOWN] = in[DOWN]};
    gm_attrs a = gm_attrs_default();
    a.function = w->f;
    a.capacity = w->plan.capacity;
    gm_record rec = {.name = "experts",
                     .rule = experts_rule,
                     .op = GM_OP_linear,
                     .attrs = &a,
                     .n_in = N_IN,
                     .in = in,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = N_KEPT,
                     .saved = saved,
                     .callback = {.context = w->numbers, .release = free},
                     .splits = true};
    if (!gm_tape_wanted(r, N_IN, in)) return GM_OK;
    gm_status st = kept(r, w->choice, &saved[KEPT_CHOICE]);
    if (st == GM_OK) st = kept(r, w->row, &saved[KEPT_ROW]);
    if (st == GM_OK) st = kept(r, w->bounds, &saved[KEPT_BOUNDS]);
    if (st == GM_OK) st = kept(r, w->in, &saved[KEPT_IN]);
    if (st == GM_OK) st = kept(r, w->pre, &saved[KEPT_PRE]);
    if (st == GM_OK) st = kept(r, w->gate_pre, &saved[KEPT_GATE_PRE]);
    if (st == GM_OK) st = kept(r, in[WEIGHT]->requires_grad ? back : NULL, &saved[KEPT_BACK]);
    if (st == GM_OK) {
        w->numbers = NULL;
        st = gm_tape_record(r, &rec);
    }
    for (int i = 0; i < N_KEPT; i++)
        if (i < KEPT_WEIGHT || i > KEPT_DOWN) gm_value_release(saved[i]);
    return st;
}

/* Rows of each expert, where they follow from shapes: on a device with memory of its own, whose batches are fast, and
 * on which all tokens are. 0: as many as chose it. */
static int64_t rows_of_expert(gm_rank *r, const gm_value *x, const gm_value *index, int64_t room)
{
    const gm_backend *be = r->device->backend;
    int64_t           choices = gm_tensor_numel(index->local);
    if (room < 1 || choices < 1 || !be->has_data || be->on_host || gm_experts_shared(r, x)) return 0;
    return room < choices ? room : choices;
}

static gm_status run(gm_rank *r, gm_value *const *in, gm_experts_work *w, int64_t room, gm_value *y)
{
    gm_experts_sides sides = {gm_side_of(in[X]), gm_side_of(in[UP])};
    gm_tensor       *back = NULL, *x = in[X]->local;
    gm_work          k;
    gm_work_begin(&k, r, "experts");
    w->work = &k;
    w->hidden = hidden_here(r, &sides.up);
    gm_tensor *index = gm_experts_index(&k, r, &sides.x, in[INDEX]->local);
    gm_experts_begin(w, r, &sides, index, rows_of_expert(r, in[X], in[INDEX], room));
    x = gm_work_compact(&k, x);
    if (k.st == GM_OK) forward(w, x, gm_work_flat(&k, in[WEIGHT]->local), gm_work_flat(&k, y->local), &back);
    GM_STEP(&k, gm_padding_finish(y));
    GM_STEP(&k, record(r, in, w, back, y));
    gm_experts_end(w);
    return gm_work_end(&k);
}

gm_status gm_experts(gm_rank *r, gm_value *x, gm_value *index, gm_value *weight, const gm_experts_layer *layer,
                     gm_value **y)
{
    gm_value *in[N_IN] =
        {x, index, weight, layer->up, layer->up_bias, layer->down, layer->down_bias, layer->gate, layer->gate_bias},
             *v = NULL;
    gm_layout       layout = x->layout;
    uint32_t        terms = gm_layout_dim_axes(&layer->up->layout, 1);
    gm_experts_work w = {.f = layer->f, .up = layer->up->local, .down = layer->down->local};
    gm_device      *device;
    GM_TRY(gm_rank_device(r, &device));
    GM_TRY(check_shapes(in));
    GM_TRY(check_layouts(in));
    GM_TRY(check_gate(in, layer->f));
    if (layer->up_bias) w.up_bias = layer->up_bias->local;
    if (layer->gate) w.gate = layer->gate->local;
    if (layer->gate_bias) w.gate_bias = layer->gate_bias->local;
    if (layer->down_bias && gm_rule_counts(r, terms)) w.down_bias = layer->down_bias->local;
    layout.partial |= terms;
    GM_TRY(gm_value_new_block(r, "experts", x->local->dtype, &layout, x->ndim, x->shape, &v));
    gm_status st = run(r, in, &w, layer->room, v);
    if (st == GM_OK) *y = v;
    else gm_value_release(v);
    return st;
}
