/* argmax.c - the index of the largest entry of rows that are cut along their last dimension. One all_reduce finds the
 * largest entry, a second one the lowest index that has it. NaN counts as larger than any number, as in the plain op,
 * and the first NaN wins. Two numbers a row are sent. */
#include <math.h>

#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "rows.h"

/* This rank's largest entries (lines, 1), -inf where it has none, and their places in the whole rows, f64. */
static gm_tensor *local_largest(gm_work *w, const gm_rows *k, gm_tensor *x, gm_tensor **place)
{
    gm_tensor *out[2];
    gm_attrs   a = gm_attrs_default();
    *place = NULL;
    if (w->st != GM_OK) return NULL;
    if (!k->count) {
        int64_t shape[2] = {x->shape[0], 1};
        *place = gm_work_full(w, GM_F64, 2, shape, (double)k->n);
        return gm_work_full(w, x->dtype, 2, shape, -INFINITY);
    }
    a.keepdim = true;
    x = gm_rows_inside(w, k, x);
    gm_work_run_all(w, GM_OP_max, 1, &x, &a, 2, out);
    *place = gm_work_affine(w, gm_work_cast(w, out[1], GM_F64), 1, (double)k->first);
    return out[0];
}

/* i64, the leading shape of the block; new. */
static gm_status find(gm_rank *r, gm_value *x, gm_tensor **index)
{
    gm_rows    k = gm_rows_here(r, &x->layout, x->ndim, x->shape, x->ndim - 1);
    gm_work    w;
    gm_tensor *place, *nowhere, *mine, *best;
    gm_work_begin(&w, r, "argmax");
    nowhere = gm_work_scalar(&w, GM_F64, (double)k.n);
    mine = local_largest(&w, &k, gm_work_flat(&w, x->local), &place);
    best = w.st == GM_OK ? gm_work_cast(&w, mine, mine->dtype) : NULL;
    gm_rows_reduce(&w, k.axes, best, GM_MAX);
    /* where none equals the largest, that is NaN, and so is mine where it has a part in it */
    gm_tensor *found = gm_work_where(&w, gm_work_binary(&w, GM_FN_eq, mine, best), place, nowhere);
    found = gm_work_where(&w, gm_work_binary(&w, GM_FN_ne, mine, mine), place, found);
    gm_rows_reduce(&w, k.axes, found, GM_MIN);
    found = gm_work_shaped(&w, gm_work_cast(&w, found, GM_I64), x->ndim - 1, x->local->shape);
    *index = gm_work_keep(&w, found);
    return gm_work_end(&w);
}

/* Along the last dimension of x, which is cut. */
static gm_status along_last(gm_rank *r, gm_value *x, gm_value **index)
{
    gm_attrs      a = gm_attrs_default();
    gm_value_call call = {.op = GM_OP_argmax, .n_in = 1, .n_out = 1, .in = &x, .attrs = &a};
    gm_spec       global;
    gm_layout     layout, rows = gm_layout_replicated();
    gm_fit        fit;
    gm_tensor    *t;
    GM_TRY(gm_judge_call(&call, &global));
    gm_rule_call c = gm_rule_begin(r, "argmax", GM_OP_argmax, 1, &x, &a, 1, &global, &layout, &fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d < global.ndim; d++) gm_layout_copy_dim(&rows, d, &x->layout, d);
    GM_TRY(find(r, x, &t));
    GM_TRY(gm_comm_once(gm_value_take_block(r, t, &rows, global.ndim, global.shape, index)));
    return gm_comm_once(gm_padding_finish(*index));
}

/* y's dimension d, dropped, as one of one element. */
static gm_status restore_dim(gm_rank *r, const gm_value *x, int d, gm_value **y)
{
    int64_t   shape[GM_MAX_DIMS];
    gm_value *flat = *y;
    for (int i = 0; i < x->ndim; i++) shape[i] = i == d ? 1 : x->shape[i];
    *y = NULL;
    gm_status st = gm_reshape(r, flat, x->ndim, shape, y);
    gm_value_release(flat);
    return st;
}

gm_status gm_sharded_argmax(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    gm_value *x = c->in[0], *turned = NULL;
    int64_t   d = c->attrs->dim;
    int       order[GM_MAX_DIMS];
    gm_status st;
    if (gm_check_dim("argmax", x->ndim, &d) != GM_OK || !x->layout.n_cuts[d]) return gm_apply_blocks(r, c, out);
    for (int i = 0; i < x->ndim; i++) order[i] = i < d ? i : i + 1 < x->ndim ? i + 1 : (int)d;
    r->no_grad++;
    st = gm_permute(r, x, order, &turned);
    if (st == GM_OK) st = along_last(r, turned, out);
    if (st == GM_OK && c->attrs->keepdim) st = gm_comm_once(restore_dim(r, x, (int)d, out));
    gm_value_release(turned);
    r->no_grad--;
    return st;
}
