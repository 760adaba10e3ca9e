/* batch_norm.c - see batch_norm.h. Backward: with h the gradient of the normalised input and hat that input, sum(h) and
 * sum(h hat) are added up over the block, given as the gradients of b and w, and then summed over the ranks for dx. */
#include "batch_norm.h"

#include <inttypes.h>
#include "../../../kernels/infer.h"
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "rows.h"

enum { SAVED_X, SAVED_W, SAVED_MEAN, SAVED_RSTD, N_SAVED };

/* The axes over which a channel's elements are shared out. */
static uint32_t shared_axes(const gm_layout *layout, int ndim)
{
    uint32_t axes = 0;
    for (int d = 0; d < ndim; d++)
        if (d != 1) axes |= gm_layout_dim_axes(layout, d);
    return axes;
}

/* The elements of a channel in this shape. */
static int64_t each_channel(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        if (d != 1) n *= shape[d];
    return n;
}

/* ---- backward ---- */

/* extra[0]: the elements of a channel, or 0 where statistics were given, which have no gradient. */
static void batch_norm_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    int64_t          n = gm_backward_extra(b)[0];
    const gm_layout *layout = gm_backward_input_layout(b, GM_BN_X, NULL);
    gm_tensor       *g = gm_backward_grad(b, 0), *x = gm_backward_saved(b, SAVED_X), *out[2], *means = NULL;
    gm_tensor       *mean = gm_backward_saved(b, SAVED_MEAN), *rstd = gm_backward_saved(b, SAVED_RSTD);
    gm_tensor       *weight = gm_backward_saved(b, SAVED_W);
    bool             wants_x = gm_backward_wants(b, GM_BN_X);
    if (w->st != GM_OK) return;
    gm_dtype   wide = gm_dtype_wide(x->dtype);
    gm_tensor *sums = gm_work_new(w, wide, 2, (int64_t[]){2, x->shape[1]});
    out[0] = gm_work_select(w, sums, 0, 0);
    out[1] = gm_work_select(w, sums, 0, 1);
    if (gm_backward_wants(b, GM_BN_W) || gm_backward_wants(b, GM_BN_B) || (wants_x && n))
        gm_work_into(w, GM_OP_batch_norm_grad_sums, 4, (gm_tensor *[]){g, x, mean, rstd}, NULL, 2, out);
    if (gm_backward_wants(b, GM_BN_B)) gm_backward_give(b, GM_BN_B, gm_work_cast(w, out[0], g->dtype));
    if (gm_backward_wants(b, GM_BN_W)) gm_backward_give(b, GM_BN_W, gm_work_cast(w, out[1], g->dtype));
    if (!wants_x) return;
    if (n) {
        uint32_t axes = shared_axes(layout, x->ndim);
        if (axes) gm_rows_reduce(w, axes, sums, GM_SUM);
        means = gm_work_affine(w, sums, 1 / (double)n, 0);
        if (weight) means = gm_work_binary(w, GM_FN_mul, means, gm_work_cast(w, weight, wide));
    }
    gm_tensor *all[7] = {g, x, weight, mean, rstd};
    all[5] = n ? gm_work_select(w, means, 0, 0) : NULL;
    all[6] = n ? gm_work_select(w, means, 0, 1) : NULL;
    gm_backward_give(b, GM_BN_X, gm_work_run(w, GM_OP_batch_norm_grad_apply, 7, all, NULL));
}

/* ---- forward ---- */

/* Mean and squares around it of each channel, (2, channels and more). */
static gm_tensor *statistics(gm_work *w, const gm_value *x)
{
    gm_tensor *block = x->local, *out[2];
    uint32_t   axes = shared_axes(&x->layout, x->ndim);
    gm_group  *g = axes ? gm_rows_group(w, axes) : NULL;
    int64_t    logical[GM_MAX_DIMS], channels = block->shape[1];
    if (w->st != GM_OK) return NULL;
    int64_t    p = g ? gm_group_size(g) : 1, rows = (channels + p - 1) / p * p;
    gm_tensor *here = gm_work_full(w, gm_dtype_wide(block->dtype), 2, (int64_t[]){2, rows}, 0);
    gm_value_logical(x, logical);
    for (int d = 0; d < x->ndim; d++)
        if (d != 1 && logical[d] < block->shape[d]) block = gm_work_narrow(w, block, d, 0, logical[d]);
    if (each_channel(x->ndim, logical)) {
        out[0] = gm_rows_line(w, here, 0, channels);
        out[1] = gm_rows_line(w, here, 1, channels);
        gm_work_into(w, GM_OP_batch_norm_sums, 1, &block, NULL, 2, out);
    }
    if (!g) return here;
    gm_tensor *counts = gm_rows_counts(w, g, &x->layout, x, ~(1u << 1)); /* of all dimensions but the channels */
    return gm_rows_merge(w, g, here, counts, each_channel(x->ndim, x->shape));
}

/* t, a number a channel of x, as a value that is cut as they are. */
static void as_channels(gm_work *w, gm_tensor *t, const gm_value *x, gm_value **out)
{
    gm_layout layout = gm_layout_replicated();
    if (!out) return;
    gm_layout_copy_dim(&layout, 0, &x->layout, 1);
    t = gm_work_keep(w, gm_work_contiguous(w, t));
    GM_STEP(w, gm_value_take_block(w->rank, t, &layout, 1, &x->shape[1], out));
    GM_STEP(w, gm_padding_finish(*out));
}

static gm_tensor *in_dtype(gm_work *w, const gm_value *v, gm_dtype dtype)
{
    return v->local->dtype == dtype ? v->local : gm_work_cast(w, v->local, dtype);
}

typedef struct norm_results {
    gm_value  *y, *kept_mean, *kept_rstd;
    gm_value **mean, **variance; /* NULL: not wanted */
    int64_t    n;                /* the elements of a channel; 0: statistics were given */
    bool       sent;
} norm_results;

/* in: fitted to the layout of x. */
static gm_status forward(gm_rank *r, gm_value *const *in, double eps, norm_results *to)
{
    const gm_value *x = in[GM_BN_X];
    gm_dtype        wide = gm_dtype_wide(x->local->dtype);
    gm_tensor      *mean, *variance; /* as y has it */
    gm_work         w;
    gm_work_begin(&w, r, "batch_norm");
    if (in[GM_BN_MEAN]) {
        mean = in_dtype(&w, in[GM_BN_MEAN], wide);
        variance = in_dtype(&w, in[GM_BN_VARIANCE], wide);
    } else {
        gm_tensor *both = statistics(&w, x), *squares = gm_rows_line(&w, both, 1, x->local->shape[1]);
        mean = gm_work_contiguous(&w, gm_rows_line(&w, both, 0, x->local->shape[1]));
        variance = gm_work_affine(&w, squares, 1 / (double)to->n, 0);
        as_channels(&w, gm_work_cast(&w, mean, wide), x, to->mean);
        as_channels(&w, gm_work_affine(&w, squares, 1 / (double)(to->n - 1), 0), x, to->variance);
    }
    gm_tensor *rstd = gm_work_unary(&w, GM_FN_rsqrt, gm_work_affine(&w, variance, 1, eps));
    gm_tensor *all[5] = {x->local, in[GM_BN_W] ? in[GM_BN_W]->local : NULL, in[GM_BN_B] ? in[GM_BN_B]->local : NULL,
                         mean, rstd};
    gm_tensor *y = gm_work_keep(&w, gm_work_run(&w, GM_OP_batch_norm_apply, 5, all, NULL));
    GM_STEP(&w, gm_value_take_block(r, y, &x->layout, x->ndim, x->shape, &to->y));
    GM_STEP(&w, gm_padding_finish(to->y));
    gm_work_slot(&w, mean, &to->kept_mean);
    gm_work_slot(&w, rstd, &to->kept_rstd);
    to->sent = w.sent;
    return gm_work_end(&w);
}

static gm_status record(gm_rank *r, gm_value *const *in, const norm_results *made)
{
    gm_value *kept[N_SAVED] = {in[GM_BN_X], in[GM_BN_W], made->kept_mean, made->kept_rstd};
    gm_value *out = made->y;
    gm_record rec = {.name = "batch_norm",
                     .rule = batch_norm_rule,
                     .op = GM_OP_batch_norm_apply,
                     .n_in = 3,
                     .in = in,
                     .n_out = 1,
                     .out = &out,
                     .n_saved = N_SAVED,
                     .saved = kept,
                     .extra = {made->n}};
    return gm_tape_record(r, &rec);
}

/* ---- checks ---- */

static gm_status expect_inputs(gm_value *const *in, int64_t n)
{
    static const char *const names[] = {"x", "w", "b", "mean", "variance"};
    const gm_value          *x = in[GM_BN_X];
    char                     text[256];
    if (x->ndim < 2)
        return GM_FAIL(GM_ESHAPE, "batch_norm: x is %s, should be (batch, channels, ...)",
                       gm_value_describe(x, text, sizeof text));
    for (int i = GM_BN_W; i < GM_BN_INPUTS; i++)
        if (in[i] && (in[i]->ndim != 1 || in[i]->shape[0] != x->shape[1]))
            return GM_FAIL(GM_ESHAPE, "batch_norm: %s is %s, should have a number for each of %" PRId64 " channels",
                           names[i], gm_value_describe(in[i], text, sizeof text), x->shape[1]);
    if (!in[GM_BN_MEAN] != !in[GM_BN_VARIANCE])
        return GM_FAIL(GM_EINVAL, "batch_norm: mean and variance are given together, or neither is");
    if (in[GM_BN_MEAN] || n > 1) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "batch_norm: a channel of x %s has %" PRId64 " element%s in the whole batch, and a variance needs 2 "
                   "(evaluation uses given statistics: model:eval())",
                   gm_value_describe(x, text, sizeof text), n, n == 1 ? "" : "s");
}

/* Inputs as the layout of x needs them. */
static gm_status fitted_inputs(gm_rank *r, gm_value *const *in, gm_value **fitted)
{
    const gm_value *x = in[GM_BN_X];
    gm_attrs        a = gm_attrs_default();
    gm_spec         global = gm_spec_of(x->local->dtype, x->ndim, x->shape);
    gm_layout       layout;
    gm_fit          fit[GM_BN_INPUTS];
    gm_rule_call c = gm_rule_begin(r, "batch_norm", GM_OP_batch_norm_apply, GM_BN_INPUTS, in, &a, 1, &global, &layout,
                                   fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d < x->ndim; d++) GM_TRY(gm_rule_join(&c, GM_BN_X, d, d));
    for (int i = GM_BN_W; i < GM_BN_INPUTS; i++) GM_TRY(gm_rule_join(&c, i, 0, 1));
    GM_TRY(gm_rule_slices(&c));
    return gm_fit_all(r, GM_BN_INPUTS, in, fit, fitted);
}

gm_status gm_batch_norm(gm_rank *r, gm_value *const *in, double eps, gm_value **y, gm_value **mean, gm_value **variance)
{
    gm_value    *fitted[GM_BN_INPUTS];
    gm_device   *dev;
    norm_results made = {.mean = mean, .variance = variance};
    int64_t      n = each_channel(in[GM_BN_X]->ndim, in[GM_BN_X]->shape);
    if (mean) *mean = NULL;
    if (variance) *variance = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(expect_inputs(in, n));
    if (!in[GM_BN_MEAN]) made.n = n;
    GM_TRY(fitted_inputs(r, in, fitted));
    gm_status st = forward(r, fitted, eps, &made);
    if (st == GM_OK) st = record(r, fitted, &made);
    gm_release_all(GM_BN_INPUTS, fitted);
    gm_value_release(made.kept_mean);
    gm_value_release(made.kept_rstd);
    if (st == GM_OK) {
        *y = made.y;
        return GM_OK;
    }
    gm_value_release(made.y);
    if (mean) gm_release_all(1, mean);
    if (variance) gm_release_all(1, variance);
    return made.sent ? gm_comm_once(st) : st;
}
