/* touched.c - the update of a table whose gradient is sparse (host/autograd/sparse.h): its touched rows, and those of
 * its moments and master, are taken together, updated by the optimizer's kernel as if they were all there is, and put
 * back. So the rule of each row is that of a dense update, and rows without a gradient are not read.
 *
 * On the host this goes in pieces that stay in a core's cache, up to the first row of -1. What must not depend on the
 * place of an element (rounding by chance) or on all elements (trust ratios) is refused when the optimizer is made
 * (ganymede.optim). */
#include "../autograd/padding.h"
#include "../autograd/sparse.h"
#include "../gradients/parts.h"
#include "../../kernels/states.h"
#include "items.h"

#define PIECE (INT64_C(1) << 15) /* elements of each tensor */

typedef struct touched {
    gm_optimizer *o;
    item         *it;
    gm_work       w;
    gm_attrs      attrs;
    gm_tensor    *control, *p;
} touched;

static gm_tensor *take(gm_work *w, gm_tensor *x, gm_tensor *row)
{
    gm_tensor *in[2] = {x, row};
    return x ? gm_work_run(w, GM_OP_rows_take, 2, in, NULL) : NULL;
}

static void put(gm_work *w, gm_tensor *from, gm_tensor *row, gm_tensor *x)
{
    gm_tensor *in[2] = {from, row};
    if (x) gm_work_into(w, GM_OP_rows_put, 2, in, NULL, 1, &x);
}

/* The tensor that output k of the kernel is some rows of; NULL: there is none. */
static gm_tensor *whole_of(const touched *t, int k)
{
    if (k == 0) return t->p;
    return k <= gm_optimizer_master(t->o) + 1 ? t->it->state[k - 1] : NULL;
}

static void update_piece(touched *t, gm_tensor *row, gm_tensor *sum)
{
    int        width = gm_optimizer_width(t->o);
    gm_tensor *in[3] = {t->control, t->it->missed, sum}, *out[MAX_STATES + 2] = {NULL};
    for (int k = 0; k < width; k++) out[k] = take(&t->w, whole_of(t, k), row);
    gm_work_into(&t->w, t->o->op, 3, in, &t->attrs, width, out);
    for (int k = 0; k < width; k++) put(&t->w, out[k], row, whole_of(t, k));
}

/* Is the row at this place of the list one of -1, as all behind it? Only the host can see that without a wait. */
static bool is_end(const touched *t, const gm_tensor *row, int64_t at)
{
    double first = 0;
    if (gm_rank_is_apart(t->o->rank) || !gm_tensor_data(row)) return false;
    return gm_host_load(row, at, &first) == GM_OK && first < 0;
}

static void update_pieces(touched *t, gm_tensor *row, gm_tensor *sum)
{
    int64_t n = row->shape[0], width = sum->shape[1], most = PIECE / (width ? width : 1) + 1;
    int     mark = t->w.n_held;
    if (gm_rank_is_apart(t->o->rank) || !t->o->rank->device->backend->has_data) most = n ? n : 1;
    for (int64_t at = 0; at < n && t->w.st == GM_OK && !is_end(t, row, at); at += most) {
        int64_t count = n - at < most ? n - at : most;
        update_piece(t, gm_work_narrow(&t->w, row, 0, at, count), gm_work_narrow(&t->w, sum, 0, at, count));
        gm_work_drop(&t->w, mark);
    }
}

gm_status gm_touched_step(gm_optimizer *o, int i, gm_tensor *control)
{
    item      *it = &o->items[i];
    gm_tensor *row, *sum;
    touched    t = {.o = o, .it = it, .control = control, .attrs = *gm_item_attrs(o, it), .p = it->parameter->local};
    if (!gm_value_sparse_grad(it->parameter, &row, &sum)) return GM_OK;
    it->done = true;
    if (it->parameter->param->grad_partial)
        return GM_FAIL(GM_EINVAL, "optimizer: the sparse gradient of parameter %d is still to be summed over ranks",
                       i + 1);
    if (gm_is_shared_out(it->parameter))
        return GM_FAIL(GM_EINVAL, "optimizer: parameter %d has a sparse gradient, and ZeRO shares its sum out", i + 1);
    t.attrs.lr_scale = it->set.lr_scale;
    t.attrs.weight_decay = it->set.weight_decay;
    t.attrs.trust = 0;
    t.attrs.states = GM_STATES_F32;
    GM_TRY(gm_padding_renew(it->parameter));
    GM_TRY(gm_value_resting_changes(it->parameter));
    gm_work_begin(&t.w, o->rank, gm_op_name(o->op));
    update_pieces(&t, row, sum);
    return gm_work_end(&t.w);
}
