/* group_norm.c - see group_norm.h. Backward: with h the gradient of y and hat the normalised x, sum(h) and sum(h hat)
 * of each channel of a sample give the gradients of b and w, and, times w, the means over groups that dx needs. */
#include "group_norm.h"

#include <inttypes.h>
#include "../../../kernels/infer.h"
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "../../autograd/tape.h"
#include "../../autograd/work.h"
#include "rows.h"

enum { SAVED_X, SAVED_W, SAVED_MEAN, SAVED_RSTD, N_SAVED };

/* A block, and what it is made of. */
typedef struct blocks {
    gm_work *w;
    int64_t  n, c, groups, space; /* of the block; space: elements of a channel of a sample */
} blocks;

static blocks blocks_of(gm_work *w, const gm_tensor *x, int64_t groups)
{
    blocks k = {.w = w, .n = x->shape[0], .c = x->shape[1], .groups = groups, .space = 1};
    for (int d = 2; d < x->ndim; d++) k.space *= x->shape[d];
    return k;
}

static int64_t of_group(const blocks *k) { return k->c / k->groups * k->space; }

/* x as one sample whose channels are those of all samples. */
static gm_tensor *one_sample(const blocks *k, gm_tensor *x)
{
    return gm_work_shaped(k->w, x, 3, (int64_t[]){1, k->n * k->c, k->space});
}

/* A number for each channel, (c), for those of all samples. NULL stays NULL. */
static gm_tensor *of_samples(const blocks *k, gm_tensor *t)
{
    if (!t) return NULL;
    return gm_work_shaped(k->w, gm_work_expand(k->w, t, 2, (int64_t[]){k->n, k->c}), 1, (int64_t[]){k->n * k->c});
}

/* A number for each group of each sample, (rows, n groups), for its channels: (rows, n c). */
static gm_tensor *of_channels(const blocks *k, gm_tensor *t, int64_t rows)
{
    int64_t    all = k->n * k->groups;
    gm_tensor *one = gm_work_shaped(k->w, t, 3, (int64_t[]){rows, all, 1});
    one = gm_work_expand(k->w, one, 3, (int64_t[]){rows, all, k->c / k->groups});
    return gm_work_shaped(k->w, one, 2, (int64_t[]){rows, k->n * k->c});
}

static gm_tensor *of_statistic(const blocks *k, gm_tensor *t)
{
    return gm_work_select(k->w, of_channels(k, t, 1), 0, 0);
}

/* ---- backward ---- */

/* sums (2, n, c) -> their means over groups, times w, for each channel: (2, n c) */
static gm_tensor *means_of(const blocks *k, gm_tensor *sums, gm_tensor *weight)
{
    gm_work *w = k->w;
    int64_t  all = k->n * k->groups;
    if (weight) sums = gm_work_binary(w, GM_FN_mul, sums, gm_work_cast(w, weight, sums->dtype));
    sums = gm_work_shaped(w, sums, 3, (int64_t[]){2, all, k->c / k->groups});
    return of_channels(k, gm_work_affine(w, gm_work_sum(w, sums, 1u << 2, false, NULL), 1 / (double)of_group(k), 0), 2);
}

/* Gives the sums over samples of row i of sums (2, n, c) to an input. */
static void give_sums(gm_backward *b, int input, gm_tensor *sums, int row)
{
    gm_work *w = gm_backward_work(b);
    if (!gm_backward_wants(b, input)) return;
    gm_tensor *sum = gm_work_sum(w, gm_work_select(w, sums, 0, row), 1, false, NULL);
    gm_backward_give(b, input, gm_work_cast(w, sum, gm_backward_input(b, input)->dtype));
}

/* extra[0]: the groups of the block. */
static void group_norm_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *x = gm_backward_saved(b, SAVED_X), *weight = gm_backward_saved(b, SAVED_W), *out[2];
    if (w->st != GM_OK) return;
    blocks     k = blocks_of(w, x, gm_backward_extra(b)[0]);
    gm_tensor *g = one_sample(&k, gm_backward_grad(b, 0)), *mean = of_statistic(&k, gm_backward_saved(b, SAVED_MEAN));
    gm_tensor *rstd = of_statistic(&k, gm_backward_saved(b, SAVED_RSTD)), *rows = one_sample(&k, x);
    gm_tensor *sums = gm_work_new(w, gm_dtype_wide(x->dtype), 2, (int64_t[]){2, k.n * k.c});
    for (int i = 0; i < 2; i++) out[i] = gm_work_select(w, sums, 0, i);
    gm_work_into(w, GM_OP_batch_norm_grad_sums, 4, (gm_tensor *[]){g, rows, mean, rstd}, NULL, 2, out);
    sums = gm_work_shaped(w, sums, 3, (int64_t[]){2, k.n, k.c});
    give_sums(b, GM_GN_B, sums, 0);
    give_sums(b, GM_GN_W, sums, 1);
    if (!gm_backward_wants(b, GM_GN_X) || w->st != GM_OK) return;
    gm_tensor *means = means_of(&k, sums, weight), *all[7] = {g, rows, of_samples(&k, weight), mean, rstd};
    for (int i = 0; i < 2; i++) all[5 + i] = gm_work_select(w, means, 0, i);
    gm_tensor *dx = gm_work_run(w, GM_OP_batch_norm_grad_apply, 7, all, NULL);
    gm_backward_give(b, GM_GN_X, gm_work_shaped(w, dx, x->ndim, x->shape));
}

/* ---- forward ---- */

static gm_tensor *local(const gm_value *v) { return v ? v->local : NULL; }

/* in: fitted; groups: of the block. kept: mean and rstd of each group of each sample. */
static gm_status forward(gm_rank *r, gm_value *const *in, int64_t groups, double eps, gm_value **y, gm_value **kept)
{
    gm_tensor *x = in[GM_GN_X]->local, *out[2];
    gm_work    w;
    gm_work_begin(&w, r, "group_norm");
    blocks   k = blocks_of(&w, x, groups);
    int64_t  rows[3] = {1, k.n * groups, of_group(&k)};
    gm_dtype wide = gm_dtype_wide(x->dtype);
    for (int i = 0; i < 2; i++) out[i] = gm_work_new(&w, wide, 1, &rows[1]);
    gm_tensor *whole = gm_work_shaped(&w, x, 3, rows);
    gm_work_into(&w, GM_OP_batch_norm_sums, 1, &whole, NULL, 2, out);
    gm_tensor *variance = gm_work_affine(&w, out[1], 1 / (double)rows[2], eps);
    gm_tensor *rstd = gm_work_unary(&w, GM_FN_rsqrt, variance);
    gm_tensor *all[5] = {one_sample(&k, x), of_samples(&k, local(in[GM_GN_W])), of_samples(&k, local(in[GM_GN_B])),
                         of_statistic(&k, out[0]), of_statistic(&k, rstd)};
    gm_tensor *made = gm_work_shaped(&w, gm_work_run(&w, GM_OP_batch_norm_apply, 5, all, NULL), x->ndim, x->shape);
    GM_STEP(&w, gm_value_take_block(r, gm_work_yield(&w, made), &in[GM_GN_X]->layout, x->ndim, in[GM_GN_X]->shape, y));
    GM_STEP(&w, gm_padding_finish(*y));
    gm_work_slot(&w, out[0], &kept[0]);
    gm_work_slot(&w, rstd, &kept[1]);
    return gm_work_end(&w);
}

static gm_status record(gm_rank *r, gm_value *const *in, int64_t groups, gm_value *y, gm_value *const *kept)
{
    gm_value *saved[N_SAVED] = {in[GM_GN_X], in[GM_GN_W], kept[0], kept[1]};
    gm_record rec = {.name = "group_norm",
                     .rule = group_norm_rule,
                     .op = GM_OP_batch_norm_apply,
                     .n_in = GM_GN_INPUTS,
                     .in = in,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = N_SAVED,
                     .saved = saved,
                     .extra = {groups}};
    return gm_tape_record(r, &rec);
}

/* ---- a call ---- */

static gm_status expect_inputs(gm_value *const *in, int64_t groups)
{
    static const char *const names[] = {"x", "w", "b"};
    const gm_value          *x = in[GM_GN_X];
    char                     text[256];
    if (x->ndim < 2)
        return GM_FAIL(GM_ESHAPE, "group_norm: x is %s, should be (batch, channels, ...)",
                       gm_value_describe(x, text, sizeof text));
    if (groups < 1 || x->shape[1] % groups)
        return GM_FAIL(GM_EINVAL, "group_norm: %" PRId64 " groups do not divide the %" PRId64 " channels of %s", groups,
                       x->shape[1], gm_value_describe(x, text, sizeof text));
    for (int i = GM_GN_W; i < GM_GN_INPUTS; i++)
        if (in[i] && (in[i]->ndim != 1 || in[i]->shape[0] != x->shape[1]))
            return GM_FAIL(GM_ESHAPE, "group_norm: %s is %s, should have a number for each of %" PRId64 " channels",
                           names[i], gm_value_describe(in[i], text, sizeof text), x->shape[1]);
    return GM_OK;
}

/* Inputs as the layout of x needs them; *groups: those of this rank's block. */
static gm_status fitted_inputs(gm_rank *r, gm_value *const *in, int64_t *groups, gm_value **fitted)
{
    const gm_value *x = in[GM_GN_X];
    gm_attrs        a = gm_attrs_default();
    gm_spec         global = gm_spec_of(x->local->dtype, x->ndim, x->shape);
    gm_layout       layout;
    gm_fit          fit[GM_GN_INPUTS];
    gm_rule_call c = gm_rule_begin(r, "group_norm", GM_OP_batch_norm_apply, GM_GN_INPUTS, in, &a, 1, &global, &layout,
                                   fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 2; d < x->ndim; d++) GM_TRY(gm_rule_whole(&c, GM_GN_X, d, "a group is cut behind the channels"));
    for (int d = 0; d < 2; d++) GM_TRY(gm_rule_join(&c, GM_GN_X, d, d));
    for (int i = GM_GN_W; i < GM_GN_INPUTS; i++) GM_TRY(gm_rule_join(&c, i, 0, 1));
    int64_t parts = gm_layout_parts(&r->mesh, &layout, 1), each = x->shape[1] / *groups; /* w may cut more than x */
    int64_t here = (x->shape[1] + parts - 1) / parts;
    if (here % each) return gm_rule_refuse(&c, "a group of channels is cut");
    *groups = here / each;
    GM_TRY(gm_rule_slices(&c));
    return gm_fit_all(r, GM_GN_INPUTS, in, fit, fitted);
}

gm_status gm_group_norm(gm_rank *r, gm_value *const *in, int64_t groups, double eps, gm_value **y)
{
    gm_value  *fitted[GM_GN_INPUTS], *kept[2] = {NULL, NULL};
    gm_device *dev;
    *y = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(expect_inputs(in, groups));
    GM_TRY(fitted_inputs(r, in, &groups, fitted));
    gm_status st = forward(r, fitted, groups, eps, y, kept);
    if (st == GM_OK) st = record(r, fitted, groups, *y, kept);
    gm_release_all(GM_GN_INPUTS, fitted);
    gm_release_all(2, kept);
    if (st != GM_OK) gm_value_release(*y);
    return st;
}
