/* pooling.c - pooling of images whose first dimension of space is cut: each rank makes the windows of its own rows from
 * the rows of x that they reach over (halo.h). A window that goes beyond the image does so at its ends alone.
 *
 * Windows of adaptive pooling are of one size where the size of the result divides that of the image, and are pooled as
 * such. A mean over the whole of the dimension is a sum of the ranks' terms, which stays partial. */
#include <inttypes.h>
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "halo.h"
#include "rows.h"

#define SPACE 2 /* the dimension that is cut */

enum { SAVED_INDEX, N_SAVED };

/* ---- the call on the rows of this rank ---- */

/* By how many rows the windows of a place go beyond the image's end; 0 or less: they do not. */
static int64_t beyond(const gm_halo_axis *axis, const gm_halo_place *at)
{
    int64_t last = at->makes.first + at->makes.count - 1;
    return last * axis->stride - axis->before + gm_halo_reach(axis) - axis->n;
}

/* Padding in front and behind. Behind, all of it belongs to the last window, which ceil_mode may let reach further. */
static void pad(const gm_halo_axis *axis, const gm_halo_place *at, gm_attrs *a)
{
    bool last = at->makes.first + at->makes.count == axis->out;
    a->pad_low.at[0] = at->reads.first - (at->makes.first * axis->stride - axis->before);
    if (beyond(axis, at) <= 0) a->pad_high.at[0] = 0;
    else if (!last) a->pad_high.at[0] = beyond(axis, at);
}

/* A kernel takes a window that reaches beyond the padding only behind another one. Asked on all ranks alike. */
static gm_status expect_company(const char *op, const gm_halo *h, const gm_halo_axis *axis, int64_t padding)
{
    for (int j = 0; j < h->p; j++)
        if (h->place[j].makes.count == 1 && beyond(axis, &h->place[j]) > padding)
            return GM_FAIL(GM_ESHAPE,
                           "%s: ranks share dimension %d, and its last window, which reaches beyond the padding, would "
                           "lie alone on a rank; leave ceil_mode out, or make the dimension whole",
                           op, SPACE + 1);
    return GM_OK;
}

static gm_status open_rows(gm_rank *r, gm_op op, const gm_attrs *attrs, const gm_layout *x, const int64_t *shape,
                           int64_t rows, gm_halo *h, gm_attrs *local)
{
    gm_halo_axis axis = {.n = shape[SPACE],
                         .out = rows,
                         .kernel = attrs->kernel.at[0],
                         .stride = attrs->stride.at[0],
                         .dilation = attrs->dilation.at[0],
                         .before = attrs->pad_low.at[0]};
    *local = *attrs;
    local->accumulate = false;
    GM_TRY(gm_halo_open(r, gm_op_called(op, attrs), x, SPACE, &axis, gm_halo_of_windows, h));
    GM_TRY(expect_company(gm_op_called(op, attrs), h, &axis, attrs->pad_high.at[0]));
    if (gm_halo_here(h)->makes.count) pad(&axis, gm_halo_here(h), local);
    return GM_OK;
}

/* ---- backward ---- */

static void pooling_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    bool             largest = gm_backward_op(b) == GM_OP_max_pool;
    const int64_t   *shape, *made;
    const gm_spec   *block = gm_backward_input(b, 0);
    const gm_layout *layout = gm_backward_input_layout(b, 0, &shape);
    gm_halo          h = {0};
    gm_attrs         a;
    gm_tensor       *dx = NULL;
    gm_backward_output_layout(b, 0, &made);
    GM_STEP(w, open_rows(w->rank, gm_backward_op(b), gm_backward_attrs(b), layout, shape, made[SPACE], &h, &a));
    if (w->st == GM_OK && gm_halo_here(&h)->makes.count) {
        gm_tensor *g = gm_work_narrow(w, gm_backward_grad(b, 0), SPACE, 0, gm_halo_here(&h)->makes.count), *in[2];
        in[0] = largest ? gm_backward_saved(b, SAVED_INDEX) : NULL;
        in[largest] = gm_work_contiguous(w, g);
        dx = gm_halo_rows(w, &h, block->dtype, block->ndim, block->shape, gm_halo_here(&h)->reads.count);
        gm_work_into(w, largest ? GM_OP_max_pool_grad : GM_OP_avg_pool_grad, 1 + largest, in, &a, 1, &dx);
    }
    gm_backward_give(b, 0, gm_halo_return(w, &h, dx, block));
    gm_halo_close(w, &h);
}

/* ---- forward ---- */

/* The op on the rows; *index: where the largest elements are among them, if a gradient asks for it. */
static void run_rows(gm_work *w, const gm_halo *h, gm_op op, const gm_attrs *a, gm_tensor *rows, gm_tensor *block,
                     bool keep, gm_tensor **index)
{
    gm_tensor *out[2] = {gm_halo_made(w, h, block), NULL};
    if (keep) *index = out[1] = gm_halo_rows(w, h, GM_I64, block->ndim, block->shape, gm_halo_here(h)->makes.count);
    gm_work_into(w, op, 1, &rows, a, op == GM_OP_max_pool ? 2 : 1, out);
    gm_halo_put(w, h, out[0], block);
}

static gm_status forward(gm_rank *r, gm_op op, const gm_attrs *attrs, gm_value *x, const gm_layout *layout,
                         const gm_spec *global, gm_value **y, gm_value **index)
{
    gm_work     w;
    gm_halo     h = {0};
    gm_attrs    a;
    gm_tensor  *places = NULL;
    const char *name = gm_op_called(op, attrs);
    bool        keep = op == GM_OP_max_pool && gm_tape_wanted(r, 1, &x);
    gm_work_begin(&w, r, name);
    GM_STEP(&w, open_rows(r, op, attrs, &x->layout, x->shape, global->shape[SPACE], &h, &a));
    GM_STEP(&w, gm_value_new_block(r, name, global->dtype, layout, global->ndim, global->shape, y));
    gm_tensor *rows = gm_halo_fetch(&w, &h, x->local);
    if (rows) run_rows(&w, &h, op, &a, rows, (*y)->local, keep, &places);
    GM_STEP(&w, gm_padding_finish(*y));
    if (places) GM_STEP(&w, gm_value_take(r, gm_work_keep(&w, places), index));
    gm_halo_close(&w, &h);
    gm_status st = gm_work_end(&w);
    return w.sent ? gm_comm_once(st) : st;
}

static gm_status pooled(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value *x = call->in[0], *fitted = NULL, *y = NULL, *index = NULL;
    gm_attrs  a = *call->attrs;
    gm_spec   global[2];
    gm_layout layout[2];
    gm_fit    fit;
    GM_TRY(gm_judge_call(call, global));
    gm_rule_call c = gm_rule_begin(r, gm_op_called(call->op, &a), call->op, 1, call->in, &a, 1, global, layout, &fit);
    gm_layout_copy_dim(&layout[0], SPACE, &x->layout, SPACE);
    layout[0].unit[SPACE] = 0;
    GM_TRY(gm_rule_pooling(&c, SPACE + 1));
    GM_TRY(gm_fit_all(r, 1, &x, &fit, &fitted));
    gm_status st = forward(r, call->op, &a, fitted, layout, global, &y, &index);
    gm_record rec = {.name = gm_op_called(call->op, &a),
                     .rule = pooling_rule,
                     .op = call->op,
                     .attrs = &a,
                     .n_in = 1,
                     .in = &fitted,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = N_SAVED,
                     .saved = &index};
    if (st == GM_OK) st = gm_comm_once(gm_tape_record(r, &rec));
    gm_value_release(fitted);
    gm_value_release(index);
    if (st == GM_OK) out[0] = y;
    else gm_value_release(y);
    return st;
}

/* ---- adaptive pooling ---- */

/* The mean over the dimension that is cut, and then the windows of the others. */
static gm_status mean(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_attrs  sum = gm_attrs_default(), over = gm_attrs_default();
    gm_value *x = call->in[0], *total = NULL, *y = NULL;
    sum.dims = 1u << SPACE;
    sum.keepdim = true;
    over.alpha = 1 / (double)x->shape[SPACE];
    GM_TRY(gm_apply_first(r, GM_OP_sum, 1, &x, &sum, &total));
    gm_status st = gm_apply_first(r, GM_OP_affine, 1, &total, &over, &y);
    if (st == GM_OK && x->ndim > SPACE + 1) st = gm_apply_first(r, GM_OP_avg_pool, 1, &y, call->attrs, &out[0]);
    else if (st == GM_OK) out[0] = y, y = NULL;
    gm_value_release(total);
    gm_value_release(y);
    return st;
}

static gm_status adaptive(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value     *x = call->in[0];
    int64_t       size = call->attrs->output.at[0], n = x->shape[SPACE];
    gm_attrs      a = *call->attrs;
    gm_value_call windows = *call;
    gm_spec       global[2];
    GM_TRY(gm_judge_call(call, global));
    if (size == 1 && call->op == GM_OP_avg_pool) return mean(r, call, out);
    if (size == 1 || n % size)
        return GM_FAIL(GM_ESHAPE,
                       "%s: ranks share dimension %d, which has %" PRId64 " places; its windows, %" PRId64
                       ", must be more than one and equally long (gather it first)",
                       gm_op_called(call->op, call->attrs), SPACE + 1, n, size);
    a.output.at[0] = 0;
    a.kernel.at[0] = a.stride.at[0] = n / size;
    a.name = gm_op_called(call->op, call->attrs);
    windows.attrs = &a;
    return pooled(r, &windows, out);
}

static gm_status pooling(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    const gm_value *x = call->in[0];
    if (x->ndim <= SPACE || !x->layout.n_cuts[SPACE]) return gm_apply_blocks(r, call, out);
    return call->attrs->output.at[0] ? adaptive(r, call, out) : pooled(r, call, out);
}

gm_status gm_sharded_max_pool(gm_rank *r, const gm_value_call *c, gm_value **out) { return pooling(r, c, out); }
gm_status gm_sharded_avg_pool(gm_rank *r, const gm_value_call *c, gm_value **out) { return pooling(r, c, out); }
