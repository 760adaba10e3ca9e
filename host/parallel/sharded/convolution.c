/* convolution.c - convolutions of images whose first dimension of space is cut: each rank makes its own rows of the
 * result from the rows of x that these read, its own and those of others (halo.h). The zeros around an image stand at
 * its ends alone. Backward fetches the rows again, for the gradient of the weight, rather than keep them beside the
 * block; the gradient of the rows goes back to the ranks that have them. */
#include "../../autograd/apply_blocks.h"
#include "../../autograd/gradients.h"
#include "../../autograd/padding.h"
#include "halo.h"
#include "rows.h"

#define SPACE 2 /* the dimension that is cut */

enum { X, W, B, N_IN };
enum { SAVED_X, SAVED_W, SAVED_PRE, N_SAVED };

/* ---- the call on the rows of this rank ---- */

/* Zeros in front and behind, so that the kernel makes exactly the rows of this rank. */
static void pad_windows(const gm_halo_axis *axis, const gm_halo_place *at, gm_attrs *a)
{
    int64_t first = at->makes.first * axis->stride - axis->before;
    int64_t end = first + (at->makes.count - 1) * axis->stride + gm_halo_reach(axis);
    a->pad_low.at[0] = at->reads.first - first;
    a->pad_high.at[0] = end - at->reads.first - at->reads.count;
}

/* The same of a transposed one: what is cut off of what the rows make. Negative: what is missing at the image's end. */
static void pad_kernels(const gm_halo_axis *axis, const gm_halo_place *at, gm_attrs *a)
{
    int64_t low = at->makes.first + axis->before - at->reads.first * axis->stride;
    int64_t made = (at->reads.count - 1) * axis->stride + gm_halo_reach(axis), high = made - low - at->makes.count;
    a->pad_low.at[0] = low;
    a->pad_high.at[0] = high > 0 ? high : 0;
    a->output_padding.at[0] = high < 0 ? -high : 0;
}

/* Plans for x, laid out so, and `rows` rows of the result; *local: the attributes of this rank's call. */
static gm_status open_rows(gm_rank *r, gm_op op, const gm_attrs *attrs, const gm_layout *x, const int64_t *shape,
                           int64_t kernel, int64_t rows, gm_halo *h, gm_attrs *local)
{
    bool         transposed = op == GM_OP_transposed_convolution;
    gm_halo_axis axis = {.n = shape[SPACE],
                         .out = rows,
                         .kernel = kernel,
                         .stride = attrs->stride.at[0],
                         .dilation = attrs->dilation.at[0],
                         .before = attrs->pad_low.at[0]};
    *local = *attrs;
    GM_TRY(gm_halo_open(r, gm_op_called(op, attrs), x, SPACE, &axis,
                        transposed ? gm_halo_of_kernels : gm_halo_of_windows, h));
    if (gm_halo_here(h)->makes.count) (transposed ? pad_kernels : pad_windows)(&axis, gm_halo_here(h), local);
    return GM_OK;
}

/* ---- backward ---- */

/* The gradient of the rows that this rank reads; NULL: it makes none, and so reads none. */
static gm_tensor *rows_gradient(gm_backward *b, const gm_halo *h, const gm_attrs *a, gm_tensor *dpre)
{
    const gm_spec *block = gm_backward_input(b, X);
    if (!dpre) return NULL;
    gm_tensor *dx = gm_halo_rows(gm_backward_work(b), h, block->dtype, block->ndim, block->shape,
                                 gm_halo_here(h)->reads.count);
    gm_convolution_rule_input(b, a, dpre, dx);
    return dx;
}

/* The gradient of x is computed while rows are fetched, that of the weight while gradients go back. */
static void convolution_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape, *made;
    const gm_layout *layout = gm_backward_input_layout(b, X, &shape);
    const gm_spec   *block = gm_backward_input(b, X);
    gm_tensor       *x = gm_backward_saved(b, SAVED_X), *dpre = NULL, *rows = NULL, *dx = NULL;
    bool             of_x = gm_backward_wants(b, X), of_weight = gm_backward_wants(b, W);
    gm_halo          h = {0};
    gm_attrs         a;
    gm_backward_output_layout(b, 0, &made);
    GM_STEP(w, open_rows(w->rank, gm_backward_op(b), gm_backward_attrs(b), layout, shape,
                         gm_backward_input(b, W)->shape[SPACE], made[SPACE], &h, &a));
    if (of_weight) gm_halo_start_fetch(w, &h, x);
    if (w->st == GM_OK && gm_halo_here(&h)->makes.count) {
        gm_tensor *g = gm_work_narrow(w, gm_backward_grad(b, 0), SPACE, 0, gm_halo_here(&h)->makes.count);
        dpre = gm_convolution_rule_pre(b, gm_work_contiguous(w, g), SAVED_PRE);
    }
    if (of_x) dx = rows_gradient(b, &h, &a, dpre);
    if (of_weight) rows = gm_halo_end_fetch(w, &h, x);
    if (of_x) gm_halo_start_return(w, &h, dx, block);
    gm_convolution_rule_weight(b, &a, dpre, rows);
    if (of_x) gm_backward_give(b, X, gm_halo_end_return(w, &h, dx, block));
    gm_halo_close(w, &h);
}

/* ---- forward ---- */

typedef struct made {
    gm_value *y, *pre; /* pre: NULL without an activation, or where no gradient needs it */
} made;

/* The op on the rows; *pre: what its activation was given, if that is wanted. */
static void run_rows(gm_work *w, const gm_halo *h, gm_op op, const gm_attrs *a, gm_value *const *in, gm_tensor *rows,
                     gm_tensor *block, bool keep, gm_tensor **pre)
{
    gm_tensor *all[N_IN] = {rows, in[W]->local, in[B] ? in[B]->local : NULL};
    gm_tensor *out[2] = {gm_halo_made(w, h, block), NULL};
    if (keep) *pre = out[1] = gm_halo_rows(w, h, block->dtype, block->ndim, block->shape, gm_halo_here(h)->makes.count);
    gm_work_into(w, op, N_IN, all, a, 2, out);
    gm_halo_put(w, h, out[0], block);
}

static gm_status forward(gm_rank *r, gm_op op, const gm_attrs *attrs, gm_value *const *in, const gm_layout *layout,
                         const gm_spec *global, made *out)
{
    gm_work     w;
    gm_halo     h = {0};
    gm_attrs    a;
    gm_tensor  *pre = NULL;
    const char *name = gm_op_called(op, attrs);
    bool        keep = gm_gradient_outputs(op, attrs) & 2 && gm_tape_wanted(r, N_IN, in);
    gm_work_begin(&w, r, name);
    GM_STEP(&w,
            open_rows(r, op, attrs, &in[X]->layout, in[X]->shape, in[W]->shape[SPACE], global->shape[SPACE], &h, &a));
    GM_STEP(&w, gm_value_new_block(r, name, global->dtype, layout, global->ndim, global->shape, &out->y));
    gm_tensor *rows = gm_halo_fetch(&w, &h, in[X]->local);
    if (rows) run_rows(&w, &h, op, &a, in, rows, out->y->local, keep, &pre);
    GM_STEP(&w, gm_padding_finish(out->y));
    if (pre) GM_STEP(&w, gm_value_take(r, gm_work_keep(&w, pre), &out->pre));
    gm_halo_close(&w, &h);
    gm_status st = gm_work_end(&w);
    return w.sent ? gm_comm_once(st) : st;
}

static gm_status record(gm_rank *r, gm_op op, const gm_attrs *attrs, gm_value *const *in, const made *out)
{
    gm_value *kept[N_SAVED] = {in[X], in[W], out->pre}, *y = out->y;
    gm_record rec = {.name = gm_op_called(op, attrs),
                     .rule = convolution_rule,
                     .op = op,
                     .attrs = attrs,
                     .n_in = N_IN,
                     .in = in,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = N_SAVED,
                     .saved = kept};
    return gm_tape_record(r, &rec);
}

static gm_status convolution(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    const gm_value *x = call->in[X];
    gm_attrs        a = *call->attrs;
    gm_spec         global[2];
    gm_layout       layout[2];
    gm_fit          fit[N_IN];
    gm_value       *fitted[N_IN];
    made            m = {NULL, NULL};
    if (x->ndim <= SPACE || !x->layout.n_cuts[SPACE]) return gm_apply_blocks(r, call, out);
    GM_TRY(gm_judge_call(call, global));
    gm_rule_call c = gm_rule_begin(r, gm_op_called(call->op, &a), call->op, N_IN, call->in, &a, 1, global, layout, fit);
    gm_layout_copy_dim(&layout[0], SPACE, &x->layout, SPACE);
    layout[0].unit[SPACE] = 0;
    GM_TRY(gm_rule_convolution(&c, SPACE + 1));
    GM_TRY(gm_fit_all(r, N_IN, call->in, fit, fitted));
    gm_status st = forward(r, call->op, &a, fitted, layout, global, &m);
    if (st == GM_OK) st = gm_comm_once(record(r, call->op, &a, fitted, &m));
    gm_release_all(N_IN, fitted);
    gm_value_release(m.pre);
    if (st == GM_OK) out[0] = m.y;
    else gm_value_release(m.y);
    return st;
}

gm_status gm_sharded_convolution(gm_rank *r, const gm_value_call *c, gm_value **out) { return convolution(r, c, out); }
gm_status gm_sharded_transposed_convolution(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    return convolution(r, c, out);
}
