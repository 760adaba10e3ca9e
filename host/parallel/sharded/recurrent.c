/* recurrent.c - see recurrent.h. */
#include "recurrent.h"

#include <inttypes.h>
#include "../../../kernels/infer.h"
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "../../autograd/tape.h"
#include "../../autograd/work.h"
#include "rows.h"

enum { SAVED_W, SAVED_H, SAVED_C, SAVED_Y, SAVED_CELLS, SAVED_GATES, N_SAVED };
enum { Y, LAST };

/* What forward and backward have in common. Tensors (length, samples, ...), but w, b, and the first h and c. */
typedef struct sequence {
    gm_work   *w;
    bool       lstm, reverse;
    int64_t    length, samples, width;
    gm_tensor *weight, *bias, *h, *c;
    gm_tensor *y, *cells, *gates; /* gates: NULL without a gradient; cells: then of the last two steps */
    gm_tensor *room;              /* (samples, gates width), for what h gives */
} sequence;

/* The place of step i of the sequence, from 0. */
static int64_t place(const sequence *s, int64_t i) { return s->reverse ? s->length - 1 - i : i; }

/* Of t at step i; `first` for step -1. NULL where there is no t. */
static gm_tensor *at(const sequence *s, gm_tensor *t, int64_t i, gm_tensor *first)
{
    if (i < 0) return first;
    return t ? gm_work_select(s->w, t, 0, place(s, i)) : NULL;
}

static gm_tensor *cell_at(const sequence *s, int64_t i)
{
    if (i < 0 || s->gates || !s->cells) return at(s, s->cells, i, s->c);
    return gm_work_select(s->w, s->cells, 0, i % 2);
}

static gm_tensor *new_places(const sequence *s, gm_dtype dtype, int64_t length, int64_t width)
{
    return gm_work_new(s->w, dtype, 3, (int64_t[]){length, s->samples, width});
}

/* ---- forward ---- */

/* h w' + b, (samples, gates width); the bias alone where h is zeros. */
static gm_tensor *moved(const sequence *s, gm_tensor *h)
{
    gm_tensor *in[3] = {h, s->weight, s->bias};
    if (h) {
        gm_work_into(s->w, GM_OP_linear, 3, in, NULL, 2, (gm_tensor *[]){s->room, NULL});
        return s->room;
    }
    return s->bias ? gm_work_expand(s->w, s->bias, 2, (int64_t[]){s->samples, s->bias->shape[0]}) : NULL;
}

static void run_forward(const sequence *s, gm_tensor *x)
{
    gm_work *w = s->w;
    for (int64_t i = 0; i < s->length && w->st == GM_OK; i++) {
        int        mark = w->n_held;
        gm_tensor *h = at(s, s->y, i - 1, s->h), *gates = at(s, s->gates, i, NULL);
        gm_tensor *in[3] = {at(s, x, i, NULL), moved(s, h), s->lstm ? cell_at(s, i - 1) : h};
        gm_tensor *y = at(s, s->y, i, NULL), *next = s->lstm ? cell_at(s, i) : NULL;
        if (s->lstm) gm_work_into(w, GM_OP_lstm_cell, 3, in, NULL, 3, (gm_tensor *[]){y, next, gates});
        else gm_work_into(w, GM_OP_gru_cell, 3, in, NULL, 2, (gm_tensor *[]){y, gates});
        gm_work_drop(w, mark);
    }
}

/* ---- backward ---- */

/* Gradients on the way back through the steps. */
typedef struct slopes {
    gm_tensor *y, *last;    /* given; NULL: none */
    gm_tensor *x, *moved;   /* those of x and of what h gave, (length, samples, gates width); one tensor of an LSTM */
    gm_tensor *h[2], *c[2]; /* (samples, width), of the state behind and before the step, in turns; */
    gm_tensor *gh, *gc;     /* that of the state behind; NULL: none */
} slopes;

static void run_cell_grad(const sequence *s, slopes *d, int64_t i, gm_tensor *dh, gm_tensor *dc)
{
    gm_work   *w = s->w;
    gm_tensor *g = at(s, d->y, i, NULL), *gates = at(s, s->gates, i, NULL), *dx = at(s, d->x, i, NULL);
    if (s->lstm) {
        gm_tensor *in[6] = {g, d->gh, d->gc, gates, cell_at(s, i - 1), cell_at(s, i)};
        gm_work_into(w, GM_OP_lstm_cell_grad, 6, in, NULL, 2, (gm_tensor *[]){dx, dc});
        return;
    }
    gm_tensor *in[4] = {g, d->gh, gates, at(s, s->y, i - 1, s->h)};
    gm_work_into(w, GM_OP_gru_cell_grad, 4, in, NULL, 3, (gm_tensor *[]){dx, at(s, d->moved, i, NULL), dh});
}

/* first_h, first_c: are the gradients of the state before the first step wanted? They are then d->gh and d->gc. */
static void run_backward(const sequence *s, slopes *d, bool first_h, bool first_c)
{
    gm_work *w = s->w;
    gm_attrs product = gm_attrs_default();
    product.accumulate = !s->lstm; /* h of a GRU also goes to the next one as it is */
    d->gc = d->last;
    for (int64_t i = s->length - 1; i >= 0 && w->st == GM_OK; i--) {
        int        mark = w->n_held;
        gm_tensor *dh = i > 0 || first_h ? d->h[i % 2] : NULL, *dc = s->lstm && (i > 0 || first_c) ? d->c[i % 2] : NULL;
        run_cell_grad(s, d, i, dh, dc);
        gm_tensor *in[2] = {at(s, d->moved, i, NULL), s->weight};
        if (dh) gm_work_into(w, GM_OP_matmul, 2, in, &product, 1, &dh);
        d->gh = dh;
        d->gc = dc;
        gm_work_drop(w, mark);
    }
}

/* Adds the gradients of weight and bias (NULL: not wanted) for these rows. h: what they were multiplied by; NULL:
 * zeros. */
static void add_weights(gm_work *w, gm_tensor *rows, gm_tensor *h, gm_tensor *dw, gm_tensor *db)
{
    gm_attrs a = gm_attrs_default();
    a.accumulate = true;
    gm_tensor *in[2] = {gm_work_flat(w, rows), NULL};
    if (dw && h) {
        in[1] = gm_work_flat(w, h);
        gm_work_into(w, GM_OP_linear_weight_grad, 2, in, &a, 2, (gm_tensor *[]){dw, db});
    } else if (db) {
        gm_work_into(w, GM_OP_bias_activation_grad, 2, in, &a, 2, (gm_tensor *[]){NULL, db});
    }
}

static gm_tensor *zeroed_target(gm_backward *b, int i)
{
    bool       held = false;
    gm_tensor *t = gm_backward_wants(b, i) ? gm_backward_target(b, i, &held) : NULL;
    if (t && !held) gm_work_fill(gm_backward_work(b), t, 0);
    return t;
}

static void give_weights(gm_backward *b, const sequence *s, gm_tensor *rows)
{
    gm_work   *w = s->w;
    gm_tensor *dw = zeroed_target(b, GM_RNN_W), *db = zeroed_target(b, GM_RNN_B);
    int64_t    later = s->reverse ? 0 : 1, before = s->reverse ? 1 : 0; /* of the steps but the first; those before */
    add_weights(w, at(s, rows, 0, NULL), s->h, dw, db);
    if (s->length == 1) return;
    add_weights(w, gm_work_narrow(w, rows, 0, later, s->length - 1), gm_work_narrow(w, s->y, 0, before, s->length - 1),
                dw, db);
}

/* extra[0]: reverse. */
static void recurrent_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *gates = gm_backward_saved(b, SAVED_GATES), *cells = gm_backward_saved(b, SAVED_CELLS);
    if (w->st != GM_OK) return;
    sequence   s = {.w = w,
                    .lstm = cells != NULL,
                    .reverse = gm_backward_extra(b)[0] != 0,
                    .length = gates->shape[0],
                    .samples = gates->shape[1],
                    .width = gates->shape[2] / 4,
                    .weight = gm_backward_saved(b, SAVED_W),
                    .h = gm_backward_saved(b, SAVED_H),
                    .c = gm_backward_saved(b, SAVED_C),
                    .y = gm_backward_saved(b, SAVED_Y),
                    .cells = cells,
                    .gates = gates};
    slopes     d = {.y = gm_backward_grad(b, Y), .last = s.lstm ? gm_backward_grad(b, LAST) : NULL};
    gm_tensor *turns = new_places(&s, gates->dtype, 4, s.width);
    d.x = new_places(&s, gates->dtype, s.length, (s.lstm ? 4 : 3) * s.width);
    d.moved = s.lstm ? d.x : new_places(&s, gates->dtype, s.length, 3 * s.width);
    for (int i = 0; i < 2; i++) {
        d.h[i] = gm_work_select(w, turns, 0, i);
        d.c[i] = gm_work_select(w, turns, 0, 2 + i);
    }
    run_backward(&s, &d, gm_backward_wants(b, GM_RNN_H), gm_backward_wants(b, GM_RNN_C));
    if (w->st != GM_OK) return;
    give_weights(b, &s, d.moved);
    if (gm_backward_wants(b, GM_RNN_H)) gm_backward_give(b, GM_RNN_H, gm_work_cast(w, d.gh, d.gh->dtype));
    if (gm_backward_wants(b, GM_RNN_C)) gm_backward_give(b, GM_RNN_C, gm_work_cast(w, d.gc, d.gc->dtype));
    if (gm_backward_wants(b, GM_RNN_X)) gm_backward_give(b, GM_RNN_X, d.x);
}

/* ---- a call ---- */

typedef struct results {
    gm_value *y, *last, *cells, *gates; /* the last two: what backward reads */
} results;

static gm_tensor *local(const gm_value *v) { return v ? v->local : NULL; }

/* in: fitted; layout: of y. */
static gm_status forward(gm_rank *r, bool lstm, bool reverse, gm_value *const *in, const gm_layout *layout, results *to)
{
    gm_work    w;
    gm_tensor *x = in[GM_RNN_X]->local;
    int64_t    shape[3] = {x->shape[0], in[GM_RNN_X]->shape[1], in[GM_RNN_W]->shape[1]};
    bool       wanted = gm_tape_wanted(r, GM_RNN_INPUTS, in);
    sequence   s = {
          .w = &w, .lstm = lstm, .reverse = reverse, .length = x->shape[0], .samples = x->shape[1], .width = shape[2]};
    gm_work_begin(&w, r, "recurrent");
    s.weight = in[GM_RNN_W]->local;
    s.bias = local(in[GM_RNN_B]);
    s.h = local(in[GM_RNN_H]);
    s.c = local(in[GM_RNN_C]);
    s.y = new_places(&s, x->dtype, s.length, s.width);
    if (lstm) s.cells = new_places(&s, x->dtype, wanted ? s.length : 2, s.width);
    s.room = gm_work_new(&w, x->dtype, 2, (int64_t[]){s.samples, x->shape[2]});
    if (wanted) s.gates = new_places(&s, x->dtype, s.length, 4 * s.width);
    run_forward(&s, x);
    if (lstm) {
        gm_layout  of_last = gm_layout_replicated();
        gm_tensor *last = gm_work_cast(&w, cell_at(&s, s.length - 1), x->dtype);
        gm_layout_copy_dim(&of_last, 0, layout, 1);
        GM_STEP(&w, gm_value_take_block(r, gm_work_keep(&w, last), &of_last, 2, shape + 1, &to->last));
        GM_STEP(&w, gm_padding_finish(to->last));
    }
    GM_STEP(&w, gm_value_take_block(r, gm_work_keep(&w, s.y), layout, 3, shape, &to->y));
    GM_STEP(&w, gm_padding_finish(to->y));
    if (wanted) gm_work_slot(&w, s.cells, &to->cells);
    gm_work_slot(&w, s.gates, &to->gates);
    return gm_work_end(&w);
}

static gm_status record(gm_rank *r, gm_op cell, bool reverse, gm_value *const *in, const results *made)
{
    gm_value *kept[N_SAVED] = {in[GM_RNN_W], in[GM_RNN_H], in[GM_RNN_C], made->y, made->cells, made->gates};
    gm_value *out[] = {made->y, made->last};
    gm_record rec = {.name = "recurrent",
                     .rule = recurrent_rule,
                     .op = cell,
                     .n_in = GM_RNN_INPUTS,
                     .in = in,
                     .n_out = made->last ? 2 : 1,
                     .out = out,
                     .n_saved = N_SAVED,
                     .saved = kept,
                     .extra = {reverse}};
    return gm_tape_record(r, &rec);
}

/* ---- checks ---- */

static gm_status expect(const gm_value *v, const char *name, int ndim, const int64_t *shape)
{
    char text[256];
    bool fits = !v || v->ndim == ndim;
    for (int d = 0; v && fits && d < ndim; d++) fits = v->shape[d] == shape[d];
    if (fits) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "recurrent: %s is %s, should be %s", name, gm_value_describe(v, text, sizeof text),
                   GM_SHOW_SHAPE(ndim, shape));
}

static gm_status expect_inputs(gm_op cell, gm_value *const *in)
{
    const gm_value *x = in[GM_RNN_X], *w = in[GM_RNN_W];
    int             gates = cell == GM_OP_lstm_cell ? 4 : 3;
    char            text[2][256];
    if (x->ndim != 3 || w->ndim != 2 || x->shape[0] < 1 || w->shape[0] != gates * w->shape[1] ||
        x->shape[2] != w->shape[0])
        return GM_FAIL(
            GM_ESHAPE, "recurrent: x is %s and w %s, should be (length, samples, %d width) and (%d width, width)",
            gm_value_describe(x, text[0], sizeof text[0]), gm_value_describe(w, text[1], sizeof text[1]), gates, gates);
    int64_t state[2] = {x->shape[1], w->shape[1]};
    GM_TRY(expect(in[GM_RNN_B], "b", 1, w->shape));
    GM_TRY(expect(in[GM_RNN_H], "h", 2, state));
    GM_TRY(expect(in[GM_RNN_C], "c", 2, state));
    if (gates == 3 && in[GM_RNN_C]) return GM_FAIL(GM_EINVAL, "recurrent: a GRU has no c");
    return GM_OK;
}

/* Inputs as the layout of y needs them. */
static gm_status fitted_inputs(gm_rank *r, gm_op cell, gm_value *const *in, gm_layout *layout, gm_value **fitted)
{
    static const struct {
        int         input, dim;
        const char *why;
    } whole[] = {{GM_RNN_X, 0, "the sequence is cut"}, {GM_RNN_X, 2, "the gates are cut"},
                 {GM_RNN_W, 0, "the gates are cut"},   {GM_RNN_W, 1, "the state is cut"},
                 {GM_RNN_B, 0, "the gates are cut"},   {GM_RNN_H, 1, "the state is cut"},
                 {GM_RNN_C, 1, "the state is cut"}};
    const gm_value *x = in[GM_RNN_X];
    int64_t         shape[3] = {x->shape[0], x->shape[1], in[GM_RNN_W]->shape[1]};
    gm_attrs        a = gm_attrs_default();
    gm_spec         global = gm_spec_of(x->local->dtype, 3, shape);
    gm_fit          fit[GM_RNN_INPUTS];
    gm_rule_call    c = gm_rule_begin(r, "recurrent", cell, GM_RNN_INPUTS, in, &a, 1, &global, layout, fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        GM_TRY(gm_rule_whole(&c, whole[i].input, whole[i].dim, whole[i].why));
    GM_TRY(gm_rule_join(&c, GM_RNN_X, 1, 1));
    GM_TRY(gm_rule_join(&c, GM_RNN_H, 0, 1));
    GM_TRY(gm_rule_join(&c, GM_RNN_C, 0, 1));
    GM_TRY(gm_rule_slices(&c));
    return gm_fit_all(r, GM_RNN_INPUTS, in, fit, fitted);
}

gm_status gm_recurrent(gm_rank *r, gm_op cell, gm_value *const *in, bool reverse, gm_value **y, gm_value **last)
{
    gm_value  *fitted[GM_RNN_INPUTS];
    gm_device *dev;
    gm_layout  layout;
    results    made = {0};
    *last = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(expect_inputs(cell, in));
    GM_TRY(fitted_inputs(r, cell, in, &layout, fitted));
    gm_status st = forward(r, cell == GM_OP_lstm_cell, reverse, fitted, &layout, &made);
    if (st == GM_OK) st = record(r, cell, reverse, fitted, &made);
    gm_release_all(GM_RNN_INPUTS, fitted);
    gm_value_release(made.cells);
    gm_value_release(made.gates);
    if (st == GM_OK) {
        *y = made.y;
        *last = made.last;
        return GM_OK;
    }
    gm_value_release(made.y);
    gm_value_release(made.last);
    return st;
}
