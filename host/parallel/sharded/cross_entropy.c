/* cross_entropy.c - the loss of each row of logits whose classes are cut (Megatron-LM's vocabulary-parallel loss,
 * Shoeybi et al. 2019, with ignored targets and label smoothing).
 *
 * Forward: the largest logit of a row is reduced over the axes of the classes, then, as one, the sum of exponentials,
 * the target's logit (of the rank that holds it) and, with label smoothing, the sum of the logits, all of them relative
 * to the largest: logits may be so large that their own digits say nothing of their differences. Backward needs
 * nothing from others, unless the loss was cut further along the axes of the classes: then its gradient is a sum over
 * them, which is made first. Logits are never gathered, and no tensor of their size is made but their gradient. All
 * else is in the dtype of losses: f32, where the logits are of 16 bits. */
#include <math.h>

#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "rows.h"

enum { LOGITS, TARGET, N_IN };
enum { SAVED_LOGITS, SAVED_TARGET, SAVED_LARGEST, SAVED_SUM, N_SAVED };

/* x in the dtype of losses: x itself, or a copy. */
static gm_tensor *widened(gm_work *w, gm_tensor *x)
{
    return w->st == GM_OK && gm_dtype_is_narrow(x->dtype) ? gm_work_cast(w, x, gm_dtype_wide(x->dtype)) : x;
}

/* u8 (lines, 1): rows that cost nothing. */
static gm_tensor *ignored_rows(gm_work *w, const gm_rows_places *p, const gm_attrs *a)
{
    return gm_work_binary(w, GM_FN_eq, p->global, gm_work_scalar(w, GM_F64, (double)a->ignore_index));
}

static gm_rows_places locate(gm_work *w, const gm_rows *k, gm_tensor *target, const gm_attrs *a)
{
    return gm_rows_locate(w, k, target, &a->ignore_index, "target", "classes");
}

/* ---- forward ---- */

/* What one rank knows of each row, (lines, 1): its largest logit, the sum of exponentials relative to it, and how far
 * below it the target's logit is, if that is here. No class here: as if all of them were -inf. */
typedef struct own_part {
    gm_tensor *largest, *sum, *below;
} own_part;

static own_part own(gm_work *w, const gm_rows *k, gm_tensor *x, const gm_rows_places *p)
{
    gm_tensor *elsewhere = gm_work_scalar(w, GM_F64, -1), *in[2], *out[3];
    gm_attrs   a = gm_attrs_default();
    own_part   t = {NULL, NULL, NULL};
    if (w->st != GM_OK) return t;
    if (!k->count) {
        gm_dtype wide = gm_dtype_wide(x->dtype);
        t.largest = gm_work_full(w, wide, 2, (int64_t[]){x->shape[0], 1}, -INFINITY);
        t.sum = t.below = gm_work_full(w, wide, 2, (int64_t[]){x->shape[0], 1}, 0);
        return t;
    }
    a.ignore_index = -1;
    in[0] = x;
    in[1] = gm_work_cast(w, gm_work_where(w, p->owned, p->local, elsewhere), GM_I64);
    if (w->st == GM_OK) in[1] = gm_work_shaped(w, in[1], 1, in[1]->shape);
    gm_work_run_all(w, GM_OP_cross_entropy, 2, in, &a, 3, out); /* loss = log(sum) + (largest - logit) */
    t.largest = gm_work_column(w, out[1]);
    t.sum = gm_work_column(w, out[2]);
    t.below = gm_work_binary(w, GM_FN_sub, gm_work_column(w, out[0]), gm_work_unary(w, GM_FN_log, t.sum));
    return t;
}

typedef struct above_work {
    gm_tensor *x, *largest, *to;
} above_work;

static void above_piece(gm_work *w, void *context, int64_t from, int64_t n)
{
    const above_work *t = context;
    gm_tensor        *x = gm_work_narrow(w, t->x, 0, from, n), *largest = gm_work_narrow(w, t->largest, 0, from, n);
    gm_tensor        *to = gm_work_narrow(w, t->to, 0, from, n);
    gm_work_sum(w, gm_work_binary(w, GM_FN_sub, widened(w, x), largest), 1u << 1, true, to);
}

/* The sum of x - largest of each row, (lines, 1). */
static gm_tensor *sum_above(gm_work *w, const gm_rows *k, gm_tensor *x, gm_tensor *largest)
{
    above_work t = {x, largest, gm_work_like(w, largest)};
    gm_rows_pieces(w, k->room, x->shape[0], above_piece, &t);
    return t.to;
}

/* This rank's terms of the row sums, (2 or 3, lines, 1), relative to `largest` of the whole row: of exponentials, of
 * the target's logit, of the logits. A row whose logits here are all -inf (classes that are masked) adds no
 * exponential. */
static gm_tensor *terms(gm_work *w, const gm_rows *k, gm_tensor *x, const gm_rows_places *p, own_part t,
                        gm_tensor *largest, bool smooth)
{
    gm_tensor *zero, *none, *empty, *up, *sums[3];
    if (w->st != GM_OK) return NULL;
    gm_dtype dtype = largest->dtype;
    zero = gm_work_scalar(w, dtype, 0);
    none = gm_work_scalar(w, dtype, -INFINITY);
    empty = gm_work_binary(w, GM_FN_eq, t.largest, none);
    up = gm_work_binary(w, GM_FN_sub, t.largest, largest);
    sums[0] = gm_work_binary(w, GM_FN_mul, t.sum, gm_work_unary(w, GM_FN_exp, up));
    sums[1] = gm_work_where(w, empty, none, gm_work_binary(w, GM_FN_sub, up, t.below));
    sums[1] = gm_work_where(w, p->owned, sums[1], zero);
    if (smooth) sums[2] = sum_above(w, k, x, largest);
    return gm_rows_stack(w, smooth ? 3 : 2, sums);
}

/* (lines, 1): (1 - e) (log(sum) - target's logit) + e (log(sum) - mean of the logits); zero where ignored. */
static gm_tensor *row_losses(gm_work *w, int64_t n, gm_tensor *sums, gm_tensor *ignored, double e)
{
    gm_tensor *rest = gm_work_unary(w, GM_FN_log, gm_work_select(w, sums, 0, 0));
    gm_tensor *loss = gm_work_binary(w, GM_FN_sub, rest, gm_work_select(w, sums, 0, 1));
    if (e > 0) {
        gm_tensor *mean = gm_work_affine(w, gm_work_select(w, sums, 0, 2), 1 / (double)n, 0);
        gm_tensor *even = gm_work_affine(w, gm_work_binary(w, GM_FN_sub, rest, mean), e, 0);
        loss = gm_work_binary(w, GM_FN_add, gm_work_affine(w, loss, 1 - e, 0), even);
    }
    return w->st == GM_OK ? gm_work_where(w, ignored, gm_work_scalar(w, loss->dtype, 0), loss) : NULL;
}

/* All new: losses in the shape of the target's block, and, (lines, 1), the largest logit and the sum of exponentials
 * relative to it. */
enum { LOSS, LARGEST, SUM, N_OUT };

static void forward(gm_work *w, const gm_rows *k, gm_value *logits, gm_value *target, const gm_attrs *a,
                    gm_tensor **out)
{
    gm_rows_places p = locate(w, k, target->local, a);
    gm_tensor     *x = gm_rows_inside(w, k, gm_work_flat(w, logits->local)), *loss, *sum;
    own_part       t = own(w, k, x, &p);
    gm_tensor     *largest = w->st == GM_OK ? gm_work_cast(w, t.largest, t.largest->dtype) : NULL;
    gm_rows_reduce(w, k->axes, largest, GM_MAX);
    gm_tensor *sums = terms(w, k, x, &p, t, largest, a->label_smoothing > 0);
    gm_rows_reduce(w, k->axes, sums, GM_SUM);
    loss = row_losses(w, k->n, sums, ignored_rows(w, &p, a), a->label_smoothing);
    sum = gm_work_select(w, sums, 0, 0);
    out[LOSS] = gm_work_keep(w, gm_work_shaped(w, loss, target->ndim, target->local->shape));
    out[LARGEST] = gm_work_keep(w, largest);
    out[SUM] = gm_work_keep(w, w->st == GM_OK ? gm_work_cast(w, sum, largest->dtype) : NULL);
}

/* ---- backward ---- */

typedef struct gradient_work {
    gm_tensor *x, *largest, *dx;
    gm_tensor *ignored;       /* u8: rows whose gradient is zero whatever their logits are, NaN too */
    gm_tensor *by, *even;     /* g / sum; g e / classes, NULL where e is 0 */
    gm_tensor *target, *less; /* where in a row, and what the target's logit gets besides */
} gradient_work;

static void add_targets(gm_work *w, gm_tensor *target, gm_tensor *less, gm_tensor *dx)
{
    gm_attrs a = gm_attrs_default();
    a.dim = 1;
    gm_work_into(w, GM_OP_scatter, 2, (gm_tensor *[]){target, less}, &a, 1, &dx);
}

/* dx = g (exp(x - largest) / sum - e / classes), and, of 16 bits, the targets' too, so that it is rounded once */
static void gradient_piece(gm_work *w, void *context, int64_t from, int64_t n)
{
    const gradient_work *t = context;
    gm_tensor           *x = gm_work_narrow(w, t->x, 0, from, n), *largest = gm_work_narrow(w, t->largest, 0, from, n);
    gm_tensor           *by = gm_work_narrow(w, t->by, 0, from, n), *dx = gm_work_narrow(w, t->dx, 0, from, n);
    gm_tensor           *p = gm_work_unary(w, GM_FN_exp, gm_work_binary(w, GM_FN_sub, widened(w, x), largest));
    gm_tensor           *ignored = gm_work_narrow(w, t->ignored, 0, from, n), *zero;
    p = gm_work_binary(w, GM_FN_mul, p, by);
    if (t->even) p = gm_work_binary(w, GM_FN_sub, p, gm_work_narrow(w, t->even, 0, from, n));
    if (w->st != GM_OK) return;
    zero = gm_work_scalar(w, p->dtype, 0);
    if (!gm_dtype_is_narrow(dx->dtype)) {
        gm_work_into(w, GM_OP_where, 3, (gm_tensor *[]){ignored, zero, p}, NULL, 1, &dx);
        return;
    }
    p = gm_work_where(w, ignored, zero, p);
    add_targets(w, gm_work_narrow(w, t->target, 0, from, n), gm_work_narrow(w, t->less, 0, from, n), p);
    gm_work_copy(w, p, dx);
}

/* dlogits (lines, room) from the gradients g of the rows, (lines, 1): at the target (1 - e) g less. */
static gm_tensor *gradient(gm_work *w, const gm_rows *k, gm_tensor *x, gm_tensor *largest, gm_tensor *sum, gm_tensor *g,
                           gm_tensor *ignored, const gm_rows_places *p, double e)
{
    if (w->st != GM_OK) return NULL;
    gradient_work t = {.x = x, .largest = largest, .ignored = ignored, .dx = gm_work_like(w, x)};
    t.by = gm_work_binary(w, GM_FN_div, g, sum);
    if (e > 0) t.even = gm_work_affine(w, g, e / (double)k->n, 0);
    t.target = gm_work_cast(w, p->local, GM_I64);
    t.less = gm_work_where(w, p->owned, gm_work_affine(w, g, e - 1, 0), gm_work_scalar(w, g->dtype, 0));
    gm_rows_pieces(w, k->room, x->shape[0], gradient_piece, &t);
    if (!gm_dtype_is_narrow(x->dtype)) add_targets(w, t.target, t.less, t.dx);
    return t.dx;
}

static void cross_entropy_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, LOGITS, &shape),
                    *rows = gm_backward_output_layout(b, 0, NULL);
    const gm_spec  *spec = gm_backward_input(b, LOGITS);
    const gm_attrs *a = gm_backward_attrs(b);
    gm_tensor      *x = gm_backward_saved(b, SAVED_LOGITS), *target = gm_backward_saved(b, SAVED_TARGET);
    gm_tensor      *largest = gm_backward_saved(b, SAVED_LARGEST), *sum = gm_backward_saved(b, SAVED_SUM);
    gm_rows         k = gm_rows_here(w->rank, layout, spec->ndim, shape, spec->ndim - 1);
    uint32_t        partial = gm_backward_partial(b);
    gm_rows_places  p = locate(w, &k, target, a);
    gm_tensor      *g = gm_work_column(w, gm_backward_grad(b, 0)), *ignored = ignored_rows(w, &p, a);
    if (w->st != GM_OK) return;
    g = gm_work_where(w, ignored, gm_work_scalar(w, gm_dtype_wide(x->dtype), 0), g); /* a tensor of our own */
    if (partial & k.axes) gm_rows_reduce(w, partial & k.axes, g, GM_SUM);
    x = gradient(w, &k, gm_work_flat(w, x), largest, sum, g, ignored, &p, a->label_smoothing);
    gm_backward_set_partial(b, LOGITS, gm_layout_gradient(layout, rows, partial));
    gm_backward_give(b, LOGITS, gm_work_shaped(w, x, spec->ndim, spec->shape));
}

/* ---- the op ---- */

static gm_status sharded(gm_rank *r, gm_value *const *in, const gm_attrs *attrs, const gm_layout *layout,
                         const gm_fit *fit, gm_value **loss)
{
    gm_value  *fitted[N_IN], *out = NULL, *row[N_OUT] = {NULL};
    gm_tensor *t[N_OUT] = {NULL};
    gm_layout  rows = gm_layout_replicated();
    gm_rows    k = gm_rows_here(r, layout, in[LOGITS]->ndim, in[LOGITS]->shape, in[LOGITS]->ndim - 1);
    gm_work    w;
    gm_status  st;
    GM_TRY(gm_fit_all(r, N_IN, in, fit, fitted));
    for (int d = 0; d < in[TARGET]->ndim; d++) gm_layout_copy_dim(&rows, d, layout, d);
    gm_work_begin(&w, r, "cross_entropy");
    forward(&w, &k, fitted[LOGITS], fitted[TARGET], attrs, t);
    GM_TRY_OR(gm_work_end(&w), st, done);
    st = gm_comm_once(gm_value_take_block(r, t[LOSS], &rows, in[TARGET]->ndim, in[TARGET]->shape, &out));
    t[LOSS] = NULL;
    if (st == GM_OK) st = gm_comm_once(gm_padding_finish(out));
    for (int i = LARGEST; i <= SUM && st == GM_OK; i++) {
        st = gm_comm_once(gm_value_take(r, t[i], &row[i]));
        t[i] = NULL;
    }
    if (st != GM_OK) goto done;
    gm_value *saved[N_SAVED] = {fitted[LOGITS], fitted[TARGET], row[LARGEST], row[SUM]};
    gm_record rec = {.name = "cross_entropy",
                     .rule = cross_entropy_rule,
                     .op = GM_OP_cross_entropy,
                     .attrs = attrs,
                     .n_in = N_IN,
                     .in = fitted,
                     .n_out = 1,
                     .out = &out,
                     .n_saved = N_SAVED,
                     .saved = saved};
    GM_TRY_OR(gm_comm_once(gm_tape_record(r, &rec)), st, done);
    *loss = out;
    out = NULL;
done:
    for (int i = 0; i < N_OUT; i++) gm_tensor_release(t[i]);
    gm_value_release(out);
    gm_release_all(N_OUT, row);
    gm_release_all(N_IN, fitted);
    return st;
}

gm_status gm_cross_entropy(gm_rank *r, gm_value *logits, gm_value *target, gm_value *scale, const gm_attrs *attrs,
                           gm_value **losses)
{
    gm_value *in[] = {logits, target, NULL};
    gm_attrs  a = *attrs;
    bool      cut = logits->ndim && logits->layout.n_cuts[logits->ndim - 1];
    if (!scale || cut || !gm_tape_wanted(r, 1, in)) return gm_apply_first(r, GM_OP_cross_entropy, 2, in, attrs, losses);
    a.name = gm_op_name(GM_OP_cross_entropy); /* what the caller knows */
    GM_TRY(gm_value_detach(scale, &in[2]));
    gm_status st = gm_apply_first(r, GM_OP_cross_entropy_both, 3, in, &a, losses);
    gm_value_release(in[2]);
    return st;
}

gm_status gm_sharded_cross_entropy(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value *const *in = call->in;
    gm_attrs         a = *call->attrs;
    gm_spec          global[3], rows;
    gm_layout        layout;
    gm_fit           fit[N_IN];
    GM_TRY(gm_judge_call(call, global));
    int last = in[LOGITS]->ndim - 1;
    rows = global[0];
    rows.shape[rows.ndim++] = in[LOGITS]->shape[last];
    gm_rule_call c = gm_rule_begin(r, "cross_entropy", call->op, N_IN, in, &a, 1, &rows, &layout, fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d <= last; d++) GM_TRY(gm_rule_join(&c, LOGITS, d, d));
    for (int d = 0; d < last; d++) GM_TRY(gm_rule_join(&c, TARGET, d, d));
    GM_TRY(gm_rule_slices(&c));
    if (layout.n_cuts[last]) return sharded(r, in, &a, &layout, fit, &out[0]);
    return gm_apply_blocks(r, call, out);
}
