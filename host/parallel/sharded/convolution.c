/* convolution.c - convolutions of images whose first dimension of space is cut, or whose channels lie in blocks on
 * q x q ranks (convolution.h), or both.
 *
 * Where space is cut, each rank makes its own rows of the result from the rows of x that these read, its own and those
 * of others (halo.h). The zeros around an image stand at its ends alone. Backward fetches the rows again, for the
 * gradient of the weight, rather than keep them beside the block; the gradient of the rows goes back to the ranks that
 * have them. What is then computed of the rows at hand is the op itself, or products of blocks of channels. */
#include "../../autograd/apply_blocks.h"
#include "../../autograd/gradients.h"
#include "../../autograd/padding.h"
#include "convolution.h"
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

/* What this rank does of a call. */
typedef struct part {
    bool        cut; /* space is cut, and h says which rows are made and read */
    gm_halo     h;
    gm_attrs    attrs;    /* of the call on the rows at hand */
    gm_channels channels; /* GM_LINEAR_LOCAL: the op is a local one */
} part;

static bool in_blocks(const part *p) { return p->channels.plan.kind != GM_LINEAR_LOCAL; }

/* Ranks that share channels make the same rows. */
static bool makes_rows(const part *p) { return !p->cut || gm_halo_here(&p->h)->makes.count; }

/* The plan of rows for `rows` rows of the result. */
static gm_status open_rows(gm_rank *r, gm_op op, const gm_attrs *attrs, const gm_side *x, int64_t kernel, int64_t rows,
                           part *p)
{
    bool         transposed = op == GM_OP_transposed_convolution;
    gm_halo_axis axis = {.n = x->shape[SPACE],
                         .out = rows,
                         .kernel = kernel,
                         .stride = attrs->stride.at[0],
                         .dilation = attrs->dilation.at[0],
                         .before = attrs->pad_low.at[0]};
    GM_TRY(gm_halo_open(r, gm_op_called(op, attrs), x->layout, SPACE, &axis,
                        transposed ? gm_halo_of_kernels : gm_halo_of_windows, &p->h));
    if (makes_rows(p)) (transposed ? pad_kernels : pad_windows)(&axis, gm_halo_here(&p->h), &p->attrs);
    return GM_OK;
}

/* *p is to be closed also after a failure. It stays where it is: channels refer to it. */
static void open_part(gm_work *work, gm_op op, const gm_attrs *attrs, const gm_side *x, const gm_side *w, int64_t rows,
                      part *p)
{
    *p = (part){.cut = x->layout->n_cuts[SPACE], .attrs = *attrs};
    p->channels = (gm_channels){work, op, &p->attrs, gm_plan_channels(op, attrs, x, w), *w};
    if (p->cut) GM_STEP(work, open_rows(work->rank, op, attrs, x, w->shape[SPACE], rows, p));
}

static void close_part(part *p)
{
    if (p->cut) gm_halo_close(p->channels.work, &p->h);
}

/* ---- backward ---- */

/* The gradient of what is at hand of x; NULL: this rank makes no rows, and so reads none. */
static gm_tensor *input_gradient(gm_backward *b, const part *p, gm_tensor *dpre)
{
    const gm_spec *block = gm_backward_input(b, X);
    gm_tensor     *dx = NULL;
    if (!dpre) return NULL;
    if (!p->cut) dx = gm_backward_like(b, X);
    else
        dx = gm_halo_rows(gm_backward_work(b), &p->h, block->dtype, block->ndim, block->shape,
                          gm_halo_here(&p->h)->reads.count);
    if (in_blocks(p)) gm_channels_gradient_of_x(&p->channels, dpre, gm_backward_saved(b, SAVED_W), dx);
    else gm_convolution_rule_input(b, &p->attrs, dpre, dx);
    return dx;
}

static void weight_gradients(gm_backward *b, const part *p, gm_tensor *dpre, gm_tensor *rows)
{
    bool held = false;
    if (!in_blocks(p) || !dpre) {
        gm_convolution_rule_weight(b, &p->attrs, dpre, rows);
        return;
    }
    if (gm_backward_wants(b, W)) {
        gm_tensor *dw = gm_backward_target(b, W, &held);
        gm_channels_gradient_of_w(&p->channels, dpre, rows, dw, held);
    }
    if (gm_backward_wants(b, B)) gm_convolution_rule_bias(b, dpre);
}

/* The gradient of the rows that this rank makes, before the activation. */
static gm_tensor *made_gradient(gm_backward *b, const part *p)
{
    gm_work *w = gm_backward_work(b);
    if (w->st != GM_OK || !makes_rows(p)) return NULL;
    gm_tensor *g = gm_backward_grad(b, 0);
    if (p->cut) g = gm_work_narrow(w, g, SPACE, 0, gm_halo_here(&p->h)->makes.count);
    return gm_convolution_rule_pre(b, gm_work_contiguous(w, g), SAVED_PRE);
}

/* The gradient of x is computed while rows are fetched, that of the weight while gradients go back. */
static void convolution_rule(gm_backward *b)
{
    gm_work       *w = gm_backward_work(b);
    const int64_t *made;
    gm_side        xs, ws;
    const gm_spec *block = gm_backward_input(b, X);
    gm_tensor     *x = gm_backward_saved(b, SAVED_X), *rows = NULL, *dx = NULL;
    bool           of_x = gm_backward_wants(b, X), of_weight = gm_backward_wants(b, W);
    part           p;
    gm_backward_output_layout(b, 0, &made);
    (void)gm_plan_of(b, &xs, &ws);
    open_part(w, gm_backward_op(b), gm_backward_attrs(b), &xs, &ws, made[SPACE], &p);
    if (of_weight && p.cut) gm_halo_start_fetch(w, &p.h, x);
    gm_tensor *dpre = made_gradient(b, &p);
    if (of_x) dx = input_gradient(b, &p, dpre);
    if (of_weight) rows = p.cut ? gm_halo_end_fetch(w, &p.h, x) : x;
    if (of_x && p.cut) gm_halo_start_return(w, &p.h, dx, block);
    weight_gradients(b, &p, dpre, rows);
    if (of_x) gm_backward_give(b, X, p.cut ? gm_halo_end_return(w, &p.h, dx, block) : dx);
    close_part(&p);
}

/* ---- forward ---- */

typedef struct made {
    gm_value *y, *pre; /* pre: NULL without an activation, or where no gradient needs it */
} made;

/* The rows that this rank makes, in `to`: sums of products first, where channels lie in blocks. NULL pre: unwanted. */
static void compute(gm_work *w, const part *p, gm_op op, gm_value *const *in, gm_tensor *rows, gm_tensor *pre,
                    gm_tensor *to)
{
    gm_tensor *b = in[B] ? in[B]->local : NULL, *all[N_IN] = {rows, in[W]->local, b}, *out[2] = {to, pre};
    if (!in_blocks(p)) {
        gm_work_into(w, op, N_IN, all, &p->attrs, 2, out);
        return;
    }
    gm_tensor *sum = pre ? pre : p->attrs.function != GM_FN_none && w->st == GM_OK ? gm_work_like(w, to) : to;
    gm_channels_forward(&p->channels, rows, in[W]->local, sum);
    gm_channels_finish(&p->channels, b, sum, to);
}

/* The block of the result; *pre: what its activation was given, if that is wanted. */
static void run_part(gm_work *w, const part *p, gm_op op, gm_value *const *in, gm_tensor *rows, gm_tensor *block,
                     bool keep, gm_tensor **pre)
{
    gm_tensor *to = p->cut ? gm_halo_made(w, &p->h, block) : block;
    if (keep && w->st == GM_OK) *pre = gm_work_like(w, to);
    compute(w, p, op, in, rows, *pre, to);
    if (p->cut) gm_halo_put(w, &p->h, to, block);
}

static gm_status forward(gm_rank *r, gm_op op, const gm_attrs *attrs, gm_value *const *in, const gm_layout *layout,
                         const gm_spec *global, made *out)
{
    gm_work     w;
    part        p;
    gm_side     xs = gm_side_of(in[X]), ws = gm_side_of(in[W]);
    gm_tensor  *pre = NULL;
    const char *name = gm_op_called(op, attrs);
    bool        keep = gm_gradient_outputs(op, attrs) & 2 && gm_tape_wanted(r, N_IN, in);
    gm_work_begin(&w, r, name);
    open_part(&w, op, attrs, &xs, &ws, global->shape[SPACE], &p);
    GM_STEP(&w, gm_value_new_block(r, name, global->dtype, layout, global->ndim, global->shape, &out->y));
    gm_tensor *rows = p.cut ? gm_halo_fetch(&w, &p.h, in[X]->local) : in[X]->local;
    if (rows && w.st == GM_OK) run_part(&w, &p, op, in, rows, out->y->local, keep, &pre);
    GM_STEP(&w, gm_padding_finish(out->y));
    if (pre) GM_STEP(&w, gm_value_take(r, gm_work_keep(&w, pre), &out->pre));
    close_part(&p);
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
    gm_side         xs = gm_side_of(x), ws = gm_side_of(call->in[W]);
    gm_linear_plan  plan = gm_plan_channels(call->op, &a, &xs, &ws);
    bool            cut = x->ndim > SPACE && x->layout.n_cuts[SPACE], blocks = plan.kind != GM_LINEAR_LOCAL;
    if (!cut && !blocks) return gm_apply_blocks(r, call, out);
    GM_TRY(gm_judge_call(call, global));
    gm_rule_call c = gm_rule_begin(r, gm_op_called(call->op, &a), call->op, N_IN, call->in, &a, 1, global, layout, fit);
    if (cut) gm_layout_copy_dim(&layout[0], SPACE, &x->layout, SPACE);
    layout[0].unit[SPACE] = 0;
    GM_TRY(blocks ? gm_rule_channels(&c, &plan, SPACE + cut) : gm_rule_convolution(&c, SPACE + cut));
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
