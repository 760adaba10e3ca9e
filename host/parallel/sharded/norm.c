/* norm.c - layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) of rows that are cut.
 *
 * A rank works out mean and squares around it of its block of each row, in one pass; these are merged (moments.c), in
 * the bytes of one all_reduce of two numbers a row. RMS norm has one number a row, summed. A second pass normalises.
 * Backward: with h the gradient of the normalised input and hat that input, sum(h) and sum(h hat) are reduced as one
 * between its two passes. The padding of the last block counts nowhere. The normalised input is computed again rather
 * than kept. */
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "../redistribute.h"
#include "rows.h"

enum { X, RESIDUAL, W, B, N_IN };
enum { SAVED_X, SAVED_W, SAVED_MEAN, SAVED_RSTD, N_SAVED };

/* NULL of NULL. */
static gm_tensor *flat(gm_work *w, gm_tensor *t) { return t ? gm_work_flat(w, t) : NULL; }
static gm_tensor *inside(gm_work *w, const gm_rows *k, gm_tensor *t) { return t ? gm_rows_inside(w, k, t) : NULL; }

/* ---- backward ---- */

/* dx = rstd (h - mean(h) - hat mean(h hat)) + gradient of the sum, from the sums of this rank's block; RMS norm
 * subtracts no mean, so it has no mean(h). */
static gm_tensor *input_gradient(gm_work *w, const gm_rows *k, gm_tensor *const *in, gm_tensor *g_sum, gm_tensor *sums,
                                 bool with_mean)
{
    gm_rows_reduce(w, k->axes, sums, GM_SUM);
    gm_tensor *means = gm_work_affine(w, sums, 1 / (double)k->n, 0);
    gm_tensor *h_hat = gm_work_select(w, means, 0, 0), *h = with_mean ? gm_work_select(w, means, 0, 1) : NULL;
    gm_tensor *all[8] = {in[0], g_sum, in[1], in[2], in[3], in[4], h, h_hat};
    return gm_work_run(w, GM_OP_norm_grad_apply, 8, all, NULL);
}

static void norm_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, X, &shape);
    const gm_spec   *spec = gm_backward_input(b, X);
    gm_tensor       *g = gm_backward_grad_or_zeros(b, 0), *x = gm_backward_saved(b, SAVED_X), *sums = NULL;
    gm_tensor       *g_sum = gm_backward_outputs(b) > 1 ? gm_backward_grad(b, 1) : NULL, *out[4] = {NULL};
    gm_tensor       *in[5] = {gm_work_flat(w, g), gm_work_flat(w, x), gm_backward_saved(b, SAVED_W),
                              gm_backward_saved(b, SAVED_MEAN), gm_backward_saved(b, SAVED_RSTD)};
    gm_rows          k = gm_rows_here(w->rank, layout, spec->ndim, shape, spec->ndim - 1);
    bool             wants_input = gm_backward_wants(b, X) || gm_backward_wants(b, RESIDUAL), layer = in[3] != NULL;
    g_sum = wants_input ? flat(w, g_sum) : NULL;
    if (w->st != GM_OK) return;
    if (gm_backward_wants(b, W)) out[0] = gm_work_new(w, g->dtype, 1, &k.room);
    if (gm_backward_wants(b, B)) out[1] = gm_work_new(w, g->dtype, 1, &k.room);
    if (wants_input) {
        sums = gm_work_new(w, gm_dtype_wide(g->dtype), 2, (int64_t[]){layer ? 2 : 1, in[0]->shape[0]});
        out[3] = gm_work_select(w, sums, 0, 0);
        if (layer) out[2] = gm_work_select(w, sums, 0, 1);
    }
    gm_work_into(w, GM_OP_norm_grad_sums, 5, in, NULL, 4, out);
    if (wants_input) {
        gm_tensor *dx = gm_work_shaped(w, input_gradient(w, &k, in, g_sum, sums, layer), spec->ndim, spec->shape);
        gm_backward_give(b, RESIDUAL, gm_work_share(w, dx));
        gm_backward_give(b, X, dx);
    }
    for (int i = W; i <= B; i++)
        if (out[i - W]) gm_backward_give(b, i, out[i - W]);
}

/* ---- forward ---- */

/* The work of a pass over blocks (lines, room): NULL where there is none; mean is NULL for RMS norm. */
typedef struct norm_work {
    gm_tensor *x, *residual, *sum, *mean, *rstd;
} norm_work;

/* t->mean and t->rstd, (lines), and t->sum. */
static void statistics(gm_work *w, const gm_rows *k, norm_work *t, bool layer, const gm_layout *layout,
                       const gm_value *x, double eps)
{
    gm_group  *g = gm_rows_group(w, k->axes);
    gm_tensor *in[2], *out[3];
    if (w->st != GM_OK) return;
    int64_t    lines = t->x->shape[0], p = gm_group_size(g), rows = layer ? (lines + p - 1) / p * p : lines;
    gm_tensor *here = gm_work_full(w, gm_dtype_wide(t->x->dtype), 2, (int64_t[]){layer ? 2 : 1, rows}, 0);
    if (t->residual) t->sum = gm_work_like(w, t->x);
    if (t->residual && k->count < k->room) gm_work_fill(w, t->sum, 0);
    if (k->count) {
        in[0] = inside(w, k, t->x);
        in[1] = inside(w, k, t->residual);
        out[0] = inside(w, k, t->sum);
        out[1] = layer ? gm_rows_line(w, here, 0, lines) : NULL;
        out[2] = gm_rows_line(w, here, layer ? 1 : 0, lines);
        gm_work_into(w, GM_OP_norm_sums, 2, in, NULL, 3, out);
    }
    if (layer) {
        here = gm_rows_merge(w, g, here, gm_rows_counts(w, g, layout, x, 1u << (x->ndim - 1)), k->n);
        t->mean = gm_rows_line(w, here, 0, lines);
    } else {
        gm_rows_reduce(w, k->axes, here, GM_SUM);
    }
    t->rstd = gm_rows_line(w, here, layer ? 1 : 0, lines); /* in the place of the squares: here is what is kept */
    gm_tensor *variance = gm_work_affine(w, t->rstd, 1 / (double)k->n, eps);
    gm_attrs   rsqrt = gm_attrs_default();
    rsqrt.function = GM_FN_rsqrt;
    gm_work_into(w, GM_OP_unary, 1, &variance, &rsqrt, 1, &t->rstd);
}

/* A tensor (lines, room) as a value like x, complete. NULL of NULL. */
static void as_value(gm_work *w, gm_tensor *t, const gm_layout *layout, const gm_value *x, gm_value **out)
{
    if (!t) return;
    t = gm_work_keep(w, gm_work_shaped(w, t, x->ndim, x->local->shape));
    GM_STEP(w, gm_value_take_block(w->rank, t, layout, x->ndim, x->shape, out));
    GM_STEP(w, gm_padding_finish(*out));
}

/* A number a line, kept: zero for lines that are padding, of which it says nothing (rstd: 1 / sqrt(eps)). */
static void as_numbers(gm_work *w, gm_tensor *t, const gm_layout *layout, const gm_value *x, gm_value **out)
{
    gm_layout lines = *layout;
    lines.n_cuts[x->ndim - 1] = 0;
    if (!t) return;
    gm_tensor *shaped = gm_work_shaped(w, t, x->ndim - 1, x->local->shape);
    GM_STEP(w, gm_padding_fill(w->rank, &lines, x->ndim - 1, x->shape, shaped, 0));
    gm_work_slot(w, t, out);
}

/* in: fitted to the layout of the rows. Outputs: y, sum (with a residual), mean (of layer norm), rstd. */
static gm_status forward(gm_rank *r, gm_op op, gm_value *const *in, const gm_layout *layout, double eps, gm_value **out)
{
    const gm_value *x = in[X];
    gm_rows         k = gm_rows_here(r, layout, x->ndim, x->shape, x->ndim - 1);
    gm_work         w;
    norm_work       t = {NULL};
    gm_work_begin(&w, r, gm_op_name(op));
    t.x = gm_work_flat(&w, x->local);
    t.residual = flat(&w, in[RESIDUAL] ? in[RESIDUAL]->local : NULL);
    statistics(&w, &k, &t, op == GM_OP_layer_norm, layout, x, eps);
    gm_tensor *all[5] = {t.sum ? t.sum : t.x, in[W] ? in[W]->local : NULL, in[B] ? in[B]->local : NULL, t.mean, t.rstd};
    as_value(&w, gm_work_run(&w, GM_OP_norm_apply, 5, all, NULL), layout, x, &out[0]);
    as_value(&w, t.sum, layout, x, &out[1]);
    as_numbers(&w, t.mean, layout, x, &out[2]);
    as_numbers(&w, t.rstd, layout, x, &out[3]);
    return gm_work_end(&w);
}

static gm_status sharded(gm_rank *r, const gm_value_call *c, const gm_layout *layout, const gm_fit *fit, gm_value **out)
{
    gm_value *fitted[N_IN] = {NULL}, *made[4] = {NULL};
    GM_TRY(gm_fit_all(r, c->n_in, c->in, fit, fitted));
    gm_status st = forward(r, c->op, fitted, layout, c->attrs->eps, made);
    gm_value *kept[N_SAVED] = {made[1] ? made[1] : fitted[X], fitted[W], made[2], made[3]};
    gm_record rec = {.name = gm_op_called(c->op, c->attrs),
                     .rule = norm_rule,
                     .op = c->op,
                     .attrs = c->attrs,
                     .n_in = N_IN,
                     .in = fitted,
                     .n_out = made[1] ? 2 : 1,
                     .out = made,
                     .n_saved = N_SAVED,
                     .saved = kept};
    if (st == GM_OK) st = gm_comm_once(gm_tape_record(r, &rec));
    for (int i = 0; i < 2 && st == GM_OK; i++) {
        out[i] = made[i];
        made[i] = NULL;
    }
    gm_release_all(N_IN, fitted);
    gm_release_all(4, made);
    return st;
}

/* Layouts of the rows and of what is asked of the operands; *cut: the dimension normalised over is cut. */
static gm_status choose_layout(gm_rule_call *c, bool *cut)
{
    int last = c->in[X]->ndim - 1;
    GM_TRY(gm_rule_no_partial(c));
    for (int i = X; i <= RESIDUAL; i++)
        for (int d = 0; c->in[i] && d <= last; d++) GM_TRY(gm_rule_join(c, i, d, d));
    *cut = c->out[0].n_cuts[last] > 0;
    for (int i = W; i < c->n_in && *cut; i++) GM_TRY(gm_rule_join(c, i, 0, last));
    return *cut ? gm_rule_slices(c) : GM_OK;
}

static gm_status judged(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_attrs     a = *call->attrs;
    gm_spec      global[4];
    gm_layout    layout;
    gm_fit       fit[N_IN];
    bool         cut;
    gm_rule_call c = gm_rule_begin(r, gm_op_called(call->op, &a), call->op, call->n_in, call->in, &a, 1, global,
                                   &layout, fit);
    GM_TRY(gm_judge_call(call, global));
    GM_TRY(choose_layout(&c, &cut));
    return cut ? sharded(r, call, &layout, fit, out) : gm_apply_blocks(r, call, out);
}

/* w or b, (n), as rows need it whose last dimension is cut as dimension `last` of `rows`: whole, cut so, or less deep
 * (then it is sliced). What is cut deeper or otherwise is redistributed. New reference; *sent: others had a part. */
static gm_status bring(gm_rank *r, gm_value *w, const gm_layout *rows, int last, bool *sent, gm_value **out)
{
    gm_layout to = {.partial = w->layout.partial};
    int       have = w->layout.n_cuts[0];
    bool      fits = !have || w->layout.partial /* refused by name, later */ ||
                (gm_layout_dims_agree(&w->layout, 0, rows, last) && have <= rows->n_cuts[last]) || w->ndim != 1;
    if (fits) {
        gm_value_retain(w);
        *out = w;
        return GM_OK;
    }
    gm_layout_copy_dim(&to, 0, rows, last);
    GM_TRY(gm_redistribute(r, w, &to, out));
    *sent = true;
    return GM_OK;
}

static gm_status norm(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    gm_value     *own[N_IN] = {c->in[X], c->in[RESIDUAL]}, *add = own[RESIDUAL];
    gm_value_call call = *c;
    int           last = own[X]->ndim - 1;
    bool          sent = false;
    gm_status     st = GM_OK;
    if (last < 0) return gm_apply_blocks(r, c, out);
    bool deeper = add && add->ndim == last + 1 && add->layout.n_cuts[last] > own[X]->layout.n_cuts[last];
    for (int i = W; i < c->n_in && st == GM_OK; i++)
        if (c->in[i]) st = bring(r, c->in[i], deeper ? &add->layout : &own[X]->layout, last, &sent, &own[i]);
    call.in = own;
    if (st == GM_OK) st = judged(r, &call, out);
    gm_value_release(own[W]);
    gm_value_release(own[B]);
    return sent ? gm_comm_once(st) : st;
}

gm_status gm_sharded_layer_norm(gm_rank *r, const gm_value_call *c, gm_value **out) { return norm(r, c, out); }
gm_status gm_sharded_rms_norm(gm_rank *r, const gm_value_call *c, gm_value **out) { return norm(r, c, out); }
