/* norm.c - layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) of rows that are cut.
 *
 * Forward: the sum of a row is reduced over the axes that cut it, then the sum of squares around the mean: two passes,
 * since the difference of large sums would lose a small variance. Backward: with h the gradient of the normalised input
 * and hat that input, sum(h) and sum(h hat) are reduced as one. All that is sent is one or two numbers a row. The
 * padding of the last block counts nowhere, but must be finite. Passes go piece by piece over the rows, and the
 * normalised input is computed again rather than kept. */
#include "../../autograd/apply_blocks.h"
#include "../redistribute.h"
#include "rows.h"

enum { X, RESIDUAL, W, B, N_IN };
enum { SAVED_X, SAVED_W, SAVED_MEAN, SAVED_RSTD, N_SAVED };

/* What the work of a piece needs: blocks (lines, room), numbers of the rows (lines, 1), parameters (room). NULL: there
 * is none, or it is not wanted; mean is NULL for RMS norm. */
typedef struct norm_work {
    gm_tensor *x, *mean, *rstd, *scale, *shift;
    gm_tensor *y, *sum;                  /* forward: sum is that of the pass under way */
    gm_tensor *g, *g_sum, *dx, *dw, *db; /* backward */
    gm_tensor *sum_h, *sum_h_hat;        /* of h, and of h hat; then their means */
} norm_work;

/* NULL of NULL. */
static gm_tensor *part(gm_rows *w, gm_tensor *t, int64_t from, int64_t n)
{
    return t ? gm_rows_part(w, t, from, n) : NULL;
}

/* Lines of x around their mean. */
static gm_tensor *centered(gm_rows *w, const norm_work *t, int64_t from, int64_t n)
{
    gm_tensor *x = gm_rows_part(w, t->x, from, n);
    return t->mean ? gm_rows_binary(w, GM_FN_sub, x, gm_rows_part(w, t->mean, from, n)) : x;
}

/* ---- backward ---- */

static void add_to(gm_rows *w, gm_tensor *sum, gm_tensor *term)
{
    gm_attrs a = gm_attrs_default();
    gm_rows_into(w, GM_OP_axpy, 1, &term, &a, 1, &sum);
}

/* dw += sum over rows of g hat, db += of g; sums of h = g scale and of h hat, a row each. */
static void sum_gradients(gm_rows *w, void *context, int64_t from, int64_t n)
{
    const norm_work *t = context;
    gm_tensor       *g = gm_rows_part(w, t->g, from, n);
    gm_tensor       *hat = gm_rows_binary(w, GM_FN_mul, centered(w, t, from, n), gm_rows_part(w, t->rstd, from, n));
    gm_tensor       *g_hat = gm_rows_binary(w, GM_FN_mul, g, hat);
    if (t->dw) add_to(w, t->dw, gm_rows_sum(w, g_hat, 0, NULL));
    if (t->db) add_to(w, t->db, gm_rows_sum(w, g, 0, NULL));
    if (!t->dx) return;
    gm_tensor *h_hat = t->scale ? gm_rows_binary(w, GM_FN_mul, g_hat, t->scale) : g_hat;
    gm_rows_sum(w, h_hat, 1, gm_rows_part(w, t->sum_h_hat, from, n));
    if (!t->sum_h) return;
    gm_tensor *h = t->scale ? gm_rows_binary(w, GM_FN_mul, g, t->scale) : g;
    gm_rows_sum(w, h, 1, gm_rows_part(w, t->sum_h, from, n));
}

/* dx = rstd (h - mean(h) - hat mean(h hat)) + gradient of the sum; RMS norm subtracts no mean, so it has no mean(h). */
static void input_gradient(gm_rows *w, void *context, int64_t from, int64_t n)
{
    const norm_work *t = context;
    gm_tensor       *g = gm_rows_part(w, t->g, from, n), *rstd = gm_rows_part(w, t->rstd, from, n);
    gm_tensor       *dx = gm_rows_part(w, t->dx, from, n), *g_sum = part(w, t->g_sum, from, n);
    gm_tensor       *h = t->scale ? gm_rows_binary(w, GM_FN_mul, g, t->scale) : g;
    gm_tensor       *along = gm_rows_binary(w, GM_FN_mul, rstd, gm_rows_part(w, t->sum_h_hat, from, n));
    along = gm_rows_binary(w, GM_FN_mul, centered(w, t, from, n), along);
    h = gm_rows_binary(w, GM_FN_sub, h, along);
    if (t->sum_h) h = gm_rows_binary(w, GM_FN_sub, h, gm_rows_part(w, t->sum_h, from, n));
    h = gm_rows_binary_to(w, GM_FN_mul, h, rstd, g_sum ? NULL : dx);
    if (g_sum) gm_rows_binary_to(w, GM_FN_add, h, g_sum, dx);
}

/* The means over whole rows of what sum_gradients has summed: one all_reduce. */
static void mean_gradients(gm_rows *w, norm_work *t, gm_tensor *sums)
{
    gm_rows_reduce(w, 0, sums, GM_SUM);
    gm_tensor *means = gm_rows_affine(w, sums, 1 / (double)w->n, 0);
    t->sum_h_hat = gm_rows_of_stack(w, means, 0);
    if (t->sum_h) t->sum_h = gm_rows_of_stack(w, means, 1);
}

/* dx in the shape of the block, zero in the padding; new. */
static gm_tensor *finish_input(gm_backward *b, gm_rows *w, gm_tensor *dx)
{
    const int64_t   *shape;
    const gm_spec   *spec = gm_backward_input(b, X);
    const gm_layout *layout = gm_backward_input_layout(b, X, &shape);
    gm_tensor       *clean = NULL;
    dx = gm_rows_shaped(w, dx, spec->ndim, spec->shape);
    if (w->st == GM_OK) w->st = gm_clear_padding(w->rank, layout, spec->ndim, shape, dx, &clean);
    return clean;
}

static gm_tensor *saved(gm_backward *b, gm_rows *w, int i)
{
    gm_tensor *t = NULL;
    gm_rows_check(w, gm_backward_saved(b, i, &t));
    return t;
}

/* dx, dw and db as far as they are wanted; new. */
static gm_status gradients(gm_backward *b, gm_rows *w, gm_tensor *g, gm_tensor *g_sum, gm_tensor **dx, gm_tensor **dw,
                           gm_tensor **db)
{
    bool       wants_input = gm_backward_wants(b, X) || gm_backward_wants(b, RESIDUAL);
    norm_work  t = {.mean = saved(b, w, SAVED_MEAN), .rstd = saved(b, w, SAVED_RSTD), .scale = saved(b, w, SAVED_W)};
    gm_tensor *x = saved(b, w, SAVED_X), *sums = NULL;
    t.x = gm_rows_flat(w, x);
    t.g = gm_rows_flat(w, g);
    if (g_sum && wants_input) t.g_sum = gm_rows_flat(w, g_sum);
    if (w->st != GM_OK) return gm_rows_end(w);
    if (gm_backward_wants(b, W)) t.dw = gm_rows_full(w, g->dtype, 1, &w->room, 0);
    if (gm_backward_wants(b, B)) t.db = gm_rows_full(w, g->dtype, 1, &w->room, 0);
    if (wants_input) {
        t.dx = gm_rows_new(w, g->dtype, 2, t.g->shape);
        sums = gm_rows_new(w, g->dtype, 3, (int64_t[]){t.mean ? 2 : 1, t.g->shape[0], 1});
        t.sum_h_hat = gm_rows_of_stack(w, sums, 0);
        if (t.mean) t.sum_h = gm_rows_of_stack(w, sums, 1);
    }
    gm_rows_pieces(w, t.g->shape[0], sum_gradients, &t);
    if (wants_input) {
        mean_gradients(w, &t, sums);
        gm_rows_pieces(w, t.g->shape[0], input_gradient, &t);
        *dx = finish_input(b, w, t.dx);
    }
    if (t.dw) *dw = gm_rows_keep(w, t.dw);
    if (t.db) *db = gm_rows_keep(w, t.db);
    return gm_rows_end(w);
}

static gm_status norm_rule(gm_backward *b)
{
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, X, &shape);
    int              ndim = gm_backward_input(b, X)->ndim;
    gm_tensor       *g, *g_sum = gm_backward_outputs(b) > 1 ? gm_backward_grad(b, 1) : NULL, *given[4] = {NULL};
    static const int to[4] = {X, W, B, RESIDUAL};
    gm_rows          w;
    GM_TRY(gm_backward_grad_or_zeros(b, 0, &g));
    gm_rows_begin(&w, gm_backward_rank(b), layout, ndim, shape, ndim - 1);
    gm_status st = gradients(b, &w, g, g_sum, &given[0], &given[1], &given[2]);
    if (given[0] && gm_backward_wants(b, RESIDUAL)) {
        given[3] = given[0];
        gm_tensor_retain(given[3]);
    }
    for (int i = 0; i < 4; i++) {
        if (given[i] && st == GM_OK) st = gm_backward_give(b, to[i], given[i]);
        else gm_tensor_release(given[i]);
    }
    return st;
}

/* ---- forward ---- */

static void sum_rows(gm_rows *w, void *context, int64_t from, int64_t n)
{
    const norm_work *t = context;
    gm_rows_sum(w, gm_rows_inside(w, gm_rows_part(w, t->x, from, n)), 1, gm_rows_part(w, t->sum, from, n));
}

static void sum_squares(gm_rows *w, void *context, int64_t from, int64_t n)
{
    const norm_work *t = context;
    gm_tensor       *squares = gm_rows_unary(w, GM_FN_square, gm_rows_inside(w, centered(w, t, from, n)));
    gm_rows_sum(w, squares, 1, gm_rows_part(w, t->sum, from, n));
}

/* y = (x - mean) rstd scale + shift */
static void normalise(gm_rows *w, void *context, int64_t from, int64_t n)
{
    const norm_work *t = context;
    gm_tensor       *to = gm_rows_part(w, t->y, from, n), *rstd = gm_rows_part(w, t->rstd, from, n);
    gm_tensor *y = gm_rows_binary_to(w, GM_FN_mul, centered(w, t, from, n), rstd, t->scale || t->shift ? NULL : to);
    if (t->scale) y = gm_rows_binary_to(w, GM_FN_mul, y, t->scale, t->shift ? NULL : to);
    if (t->shift) gm_rows_binary_to(w, GM_FN_add, y, t->shift, to);
}

/* The mean over whole rows of what `step` sums up in pieces, (lines, 1). */
static gm_tensor *mean_of(gm_rows *w, norm_work *t, void (*step)(gm_rows *, void *, int64_t, int64_t), double plus)
{
    if (w->st != GM_OK) return NULL;
    t->sum = gm_rows_new(w, t->x->dtype, 2, (int64_t[]){t->x->shape[0], 1});
    gm_rows_pieces(w, t->x->shape[0], step, t);
    gm_rows_reduce(w, 0, t->sum, GM_SUM);
    return gm_rows_affine(w, t->sum, 1 / (double)w->n, plus);
}

/* Output and statistics of t->x. */
static void run_forward(gm_rows *w, norm_work *t, bool subtract_mean, double eps)
{
    if (subtract_mean) t->mean = mean_of(w, t, sum_rows, 0);
    t->rstd = gm_rows_unary(w, GM_FN_rsqrt, mean_of(w, t, sum_squares, eps));
    if (w->st != GM_OK) return;
    t->y = gm_rows_new(w, t->x->dtype, 2, t->x->shape);
    gm_rows_pieces(w, t->x->shape[0], normalise, t);
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
    gm_tensor      *sum = NULL;
    gm_rows         w;
    norm_work       t = {.scale = in[W] ? in[W]->local : NULL, .shift = in[B] ? in[B]->local : NULL};
    gm_rank_place(r, gm_op_name(op));
    gm_rows_begin(&w, r, layout, x->ndim, x->shape, x->ndim - 1);
    if (in[RESIDUAL]) sum = gm_rows_binary(&w, GM_FN_add, x->local, in[RESIDUAL]->local);
    t.x = gm_rows_flat(&w, in[RESIDUAL] ? sum : x->local);
    run_forward(&w, &t, op == GM_OP_layer_norm, eps);
    gm_tensor *y = w.st == GM_OK ? gm_rows_shaped(&w, t.y, x->ndim, x->local->shape) : NULL;
    as_value(&w, gm_rows_keep(&w, y), layout, x, &out[0]);
    if (sum) as_value(&w, gm_rows_keep(&w, sum), layout, x, &out[1]);
    if (t.mean) as_value(&w, gm_rows_keep(&w, t.mean), NULL, x, &out[2]);
    as_value(&w, gm_rows_keep(&w, t.rstd), NULL, x, &out[3]);
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

static gm_status judged(gm_rank *r, gm_op op, gm_value *const *in, double eps, gm_value **y, gm_value **sum)
{
    gm_attrs     a = gm_attrs_default();
    gm_spec      global[4];
    gm_layout    layout;
    gm_fit       fit[N_IN];
    gm_value    *out[4];
    int          n_in = op == GM_OP_layer_norm ? 4 : 3;
    bool         cut = false, want[4] = {true, in[RESIDUAL] != NULL, true, true};
    gm_rule_call c = gm_rule_begin(r, gm_op_name(op), op, N_IN, in, &a, 1, global, &layout, fit);
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

/* w or b, (n), as rows need it whose last dimension is cut as dimension `last` of `rows`: whole, cut so, or less deep
 * (then it is sliced). What is cut deeper or otherwise is redistributed. New reference; *sent: others had a part. */
static gm_status bring(gm_rank *r, gm_value *w, const gm_layout *rows, int last, bool *sent, gm_value **out)
{
    gm_layout to = {.partial = w->layout.partial};
    int       have = w->layout.n_cuts[0];
    bool      fits = !have || (gm_layout_dims_agree(&w->layout, 0, rows, last) && have <= rows->n_cuts[last]) ||
                w->ndim != 1;
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

static gm_status norm(gm_rank *r, gm_op op, gm_value *const *in, double eps, gm_value **y, gm_value **sum)
{
    gm_value *own[N_IN] = {in[X], in[RESIDUAL]};
    int       last = in[X]->ndim - 1;
    bool      deeper = in[RESIDUAL] && in[RESIDUAL]->ndim == last + 1 &&
                  in[RESIDUAL]->layout.n_cuts[last] > in[X]->layout.n_cuts[last];
    const gm_layout *rows = deeper ? &in[RESIDUAL]->layout : &in[X]->layout;
    gm_status        st = GM_OK;
    bool             sent = false;
    if (gm_all_replicated(r, N_IN, in) || last < 0) return judged(r, op, in, eps, y, sum);
    for (int i = W; i <= B && st == GM_OK; i++)
        if (in[i]) st = bring(r, in[i], rows, last, &sent, &own[i]);
    if (st == GM_OK) st = judged(r, op, own, eps, y, sum);
    gm_value_release(own[W]);
    gm_value_release(own[B]);
    return sent ? gm_rows_once(st) : st;
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
