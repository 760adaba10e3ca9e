/* norm.c - layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) of rows cut along what is normalised over.
 *
 * Forward: the sum of a row is reduced over the axes that cut it, then the sum of squares around the mean: two passes,
 * since the difference of large sums would lose a small variance (mistakes of earlier systems: D11). Backward: with h
 * the gradient of the normalised input and hat that input, sum(h) and sum(h hat) are reduced as one. All that is sent is
 * one or two numbers a row. The padding of the last block counts nowhere. */
#include "../../autograd/apply_blocks.h"
#include "rows.h"

enum { X, RESIDUAL, W, B, N_IN };
enum { SAVED_X, SAVED_W, SAVED_MEAN, SAVED_RSTD, N_SAVED };

/* ---- backward ---- */

/* What the gradient is made of: blocks (lines, room), the rest (lines, 1). */
typedef struct norm_terms {
    gm_tensor *hat, *rstd; /* the normalised input; 1 / its deviation */
    gm_tensor *g, *g_hat;  /* of the output, and times hat */
} norm_terms;

static gm_tensor *saved(gm_backward *b, gm_rows *w, int i)
{
    gm_tensor *t = NULL;
    gm_rows_check(w, gm_backward_saved(b, i, &t));
    return t;
}

static norm_terms find_terms(gm_backward *b, gm_rows *w, gm_tensor *g)
{
    gm_tensor *x = saved(b, w, SAVED_X), *mean = saved(b, w, SAVED_MEAN), *rstd = saved(b, w, SAVED_RSTD), *d;
    norm_terms t = {.rstd = rstd, .g = gm_rows_flat(w, g)};
    x = gm_rows_flat(w, x);
    d = mean ? gm_rows_binary(w, GM_FN_sub, x, mean) : x;
    t.hat = gm_rows_binary(w, GM_FN_mul, d, rstd);
    gm_rows_drop(w, d);
    t.g_hat = gm_rows_binary(w, GM_FN_mul, t.g, t.hat);
    return t;
}

/* dx = rstd (h - mean(h) - hat mean(h hat)); RMS norm subtracts no mean, so it has no mean(h). */
static gm_tensor *input_gradient(gm_rows *w, const norm_terms *t, gm_tensor *scale, bool centered)
{
    gm_tensor *h = scale ? gm_rows_binary(w, GM_FN_mul, t->g, scale) : t->g;
    gm_tensor *h_hat = scale ? gm_rows_binary(w, GM_FN_mul, t->g_hat, scale) : t->g_hat;
    gm_tensor *sums[2] = {gm_rows_sum(w, h_hat, 1), centered ? gm_rows_sum(w, h, 1) : NULL};
    gm_rows_drop(w, h_hat);
    gm_tensor *all = gm_rows_stack(w, centered ? 2 : 1, sums);
    gm_rows_reduce(w, 0, all, GM_SUM);
    gm_tensor *means = gm_rows_affine(w, all, 1 / (double)w->n, 0);
    gm_tensor *along = gm_rows_binary(w, GM_FN_mul, t->hat, gm_rows_of_stack(w, means, 0));
    gm_tensor *rest = gm_rows_binary(w, GM_FN_sub, h, along);
    gm_rows_drop(w, along);
    if (centered) {
        gm_tensor *off = gm_rows_binary(w, GM_FN_sub, rest, gm_rows_of_stack(w, means, 1));
        gm_rows_drop(w, rest);
        rest = off;
    }
    gm_tensor *dx = gm_rows_binary(w, GM_FN_mul, rest, t->rstd);
    gm_rows_drop(w, rest);
    return dx;
}

/* With the gradient of the sum, in the shape of the block, zero in the padding; new. */
static gm_tensor *finish_input(gm_backward *b, gm_rows *w, gm_tensor *dx, gm_tensor *g_sum)
{
    const int64_t   *shape;
    const gm_spec   *spec = gm_backward_input(b, X);
    const gm_layout *layout = gm_backward_input_layout(b, X, &shape);
    gm_tensor       *clean = NULL;
    if (g_sum) dx = gm_rows_binary(w, GM_FN_add, dx, gm_rows_flat(w, g_sum));
    dx = gm_rows_shaped(w, dx, spec->ndim, spec->shape);
    if (w->st == GM_OK) w->st = gm_clear_padding(w->rank, layout, spec->ndim, shape, dx, &clean);
    return clean;
}

/* Gives t, if it is there, for input i. */
static gm_status give(gm_backward *b, int i, gm_tensor *t) { return t ? gm_backward_give(b, i, t) : GM_OK; }

static gm_status norm_rule(gm_backward *b)
{
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, X, &shape);
    int              ndim = gm_backward_input(b, X)->ndim;
    bool             wants_input = gm_backward_wants(b, X) || gm_backward_wants(b, RESIDUAL);
    gm_tensor       *g, *g_sum = gm_backward_outputs(b) > 1 ? gm_backward_grad(b, 1) : NULL;
    gm_tensor       *dx = NULL, *dw = NULL, *db = NULL;
    gm_rows          w;
    GM_TRY(gm_backward_grad_or_zeros(b, 0, &g));
    gm_rows_begin(&w, gm_backward_rank(b), layout, ndim, shape, ndim - 1);
    norm_terms t = find_terms(b, &w, g);
    if (gm_backward_wants(b, W)) dw = gm_rows_keep(&w, gm_rows_sum(&w, t.g_hat, 0));
    if (gm_backward_wants(b, B)) db = gm_rows_keep(&w, gm_rows_sum(&w, t.g, 0));
    if (wants_input) {
        bool centered = gm_backward_op(b) == GM_OP_layer_norm;
        dx = finish_input(b, &w, input_gradient(&w, &t, saved(b, &w, SAVED_W), centered), g_sum);
    }
    gm_status st = gm_rows_end(&w);
    if (st == GM_OK && dx && gm_backward_wants(b, RESIDUAL)) {
        gm_tensor_retain(dx);
        st = gm_backward_give(b, RESIDUAL, dx);
    }
    gm_tensor *given[3] = {dx, dw, db};
    int        to[3] = {X, W, B};
    for (int i = 0; i < 3; i++) {
        if (st == GM_OK) st = give(b, to[i], given[i]);
        else gm_tensor_release(given[i]);
    }
    return st;
}

/* ---- forward ---- */

/* The output and the statistics of x (lines, room); *mean stays NULL for RMS norm. */
static gm_tensor *normalise(gm_rows *w, gm_tensor *x, bool centered, double eps, gm_tensor **mean, gm_tensor **rstd)
{
    gm_tensor *d = x;
    *mean = NULL;
    if (centered) {
        gm_tensor *sum = gm_rows_sum(w, gm_rows_inside(w, x), 1);
        gm_rows_reduce(w, 0, sum, GM_SUM);
        *mean = gm_rows_affine(w, sum, 1 / (double)w->n, 0);
        d = gm_rows_binary(w, GM_FN_sub, x, *mean);
    }
    gm_tensor *squares = gm_rows_unary(w, GM_FN_square, gm_rows_inside(w, d));
    gm_tensor *sum = gm_rows_sum(w, squares, 1);
    gm_rows_drop(w, squares);
    gm_rows_reduce(w, 0, sum, GM_SUM);
    *rstd = gm_rows_unary(w, GM_FN_rsqrt, gm_rows_affine(w, sum, 1 / (double)w->n, eps));
    gm_tensor *hat = gm_rows_binary(w, GM_FN_mul, d, *rstd);
    gm_rows_drop(w, d == x ? NULL : d);
    return hat;
}

/* hat w + b */
static gm_tensor *scaled(gm_rows *w, gm_tensor *hat, gm_value *scale, gm_value *shift)
{
    gm_tensor *y = hat;
    if (scale) y = gm_rows_binary(w, GM_FN_mul, y, scale->local);
    if (shift) {
        if (y != hat) gm_rows_drop(w, hat);
        y = gm_rows_binary(w, GM_FN_add, y, shift->local);
    }
    return y;
}

/* A tensor that was kept as a value like x, or NULL; takes it. */
static void as_value(gm_rows *w, gm_tensor *t, const gm_layout *layout, const gm_value *x, gm_value **out)
{
    if (!t || w->st != GM_OK) return;
    if (layout) w->st = gm_value_take_block(w->rank, t, layout, x->ndim, x->shape, out);
    else w->st = gm_value_take(w->rank, t, out);
}

/* in: fitted to the layout of the rows. Outputs: y, sum (with a residual), mean (of layer norm), rstd. */
static gm_status forward(gm_rank *r, gm_op op, gm_value *const *in, const gm_layout *layout, double eps, gm_value **out)
{
    const gm_value *x = in[X];
    gm_tensor      *rows, *y, *mean, *rstd, *sum = NULL;
    gm_rows         w;
    gm_rank_place(r, gm_op_name(op));
    gm_rows_begin(&w, r, layout, x->ndim, x->shape, x->ndim - 1);
    if (in[RESIDUAL]) sum = gm_rows_binary(&w, GM_FN_add, x->local, in[RESIDUAL]->local);
    rows = gm_rows_flat(&w, in[RESIDUAL] ? sum : x->local);
    y = normalise(&w, rows, op == GM_OP_layer_norm, eps, &mean, &rstd);
    y = gm_rows_shaped(&w, scaled(&w, y, in[W], in[B]), x->ndim, x->local->shape);
    as_value(&w, gm_rows_keep(&w, y), layout, x, &out[0]);
    if (sum) as_value(&w, gm_rows_keep(&w, sum), layout, x, &out[1]);
    if (mean) as_value(&w, gm_rows_keep(&w, mean), NULL, x, &out[2]);
    as_value(&w, gm_rows_keep(&w, rstd), NULL, x, &out[3]);
    return gm_rows_end(&w);
}

static gm_status sharded(gm_rank *r, gm_op op, gm_value *const *in, const gm_attrs *attrs, const gm_layout *layout,
                         const gm_fit *fit, gm_value **y, gm_value **sum)
{
    gm_value *fitted[N_IN], *out[4] = {NULL};
    GM_TRY(gm_fit_all(r, N_IN, in, fit, fitted));
    gm_status st = forward(r, op, fitted, layout, attrs->eps, out);
    gm_value *kept[N_SAVED] = {out[1] ? out[1] : fitted[X], fitted[W], out[2], out[3]};
    gm_record rec = {.name = gm_op_name(op),
                     .rule = norm_rule,
                     .op = op,
                     .attrs = attrs,
                     .n_in = N_IN,
                     .in = fitted,
                     .n_out = out[1] ? 2 : 1,
                     .out = out,
                     .n_saved = N_SAVED,
                     .saved = kept};
    if (st == GM_OK) st = gm_rows_once(gm_tape_record(r, &rec));
    if (st == GM_OK) {
        *y = out[0];
        *sum = out[1];
        out[0] = out[1] = NULL;
    }
    gm_release_all(N_IN, fitted);
    gm_release_all(4, out);
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
    for (int i = W; i <= B && *cut; i++)
        if (c->in[i]) GM_TRY(gm_rule_join(c, i, 0, last));
    return *cut ? gm_rule_slices(c) : GM_OK;
}

static gm_status norm(gm_rank *r, gm_op op, gm_value *const *in, double eps, gm_value **y, gm_value **sum)
{
    gm_attrs     a = gm_attrs_default();
    gm_spec      global[4];
    gm_layout    layout;
    gm_fit       fit[N_IN];
    gm_value    *out[4];
    int          n_in = op == GM_OP_layer_norm ? 4 : 3;
    bool         cut = false, want[4] = {true, in[RESIDUAL] != NULL, true, true};
    gm_rule_call c = gm_rows_call(r, gm_op_name(op), op, N_IN, in, &a, global, &layout, fit);
    a.eps = eps;
    if (!gm_all_replicated(r, n_in, in)) {
        GM_TRY(gm_judge_call(op, n_in, in, &a, n_in, global));
        GM_TRY(choose_layout(&c, &cut));
    }
    if (cut) return sharded(r, op, in, &a, &layout, fit, y, sum);
    GM_TRY(gm_apply(r, op, n_in, in, &a, n_in, want, out));
    *y = out[0];
    *sum = out[1];
    gm_release_all(n_in - 2, out + 2);
    return GM_OK;
}

gm_status gm_sharded_layer_norm(gm_rank *r, gm_value *x, gm_value *residual, gm_value *w, gm_value *b, double eps,
                                gm_value **y, gm_value **sum)
{
    return norm(r, GM_OP_layer_norm, (gm_value *[]){x, residual, w, b}, eps, y, sum);
}

gm_status gm_sharded_rms_norm(gm_rank *r, gm_value *x, gm_value *residual, gm_value *w, double eps, gm_value **y,
                              gm_value **sum)
{
    return norm(r, GM_OP_rms_norm, (gm_value *[]){x, residual, w, NULL}, eps, y, sum);
}
