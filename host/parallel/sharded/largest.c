/* largest.c - the largest entry of rows that are cut along the dimension worked along, and its index (ops max and
 * argmax). One all_reduce finds the entry, a second one the lowest index that has it. NaN counts as larger than any
 * number, as in the plain ops, and the first NaN wins. Two numbers a row are sent. */
#include <math.h>

#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "../../autograd/tape.h"
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

/* Both have the leading shape of the block and are new: the entries, and their indices, i64. */
static gm_status find(gm_rank *r, const char *op, gm_value *x, gm_tensor **entry, gm_tensor **index)
{
    gm_rows    k = gm_rows_here(r, &x->layout, x->ndim, x->shape, x->ndim - 1);
    gm_work    w;
    gm_tensor *place, *nowhere, *mine, *best;
    gm_work_begin(&w, r, op);
    nowhere = gm_work_scalar(&w, GM_F64, (double)k.n);
    mine = local_largest(&w, &k, gm_work_flat(&w, x->local), &place);
    best = w.st == GM_OK ? gm_work_cast(&w, mine, mine->dtype) : NULL;
    gm_rows_reduce(&w, k.axes, best, GM_MAX);
    /* where none equals the largest, that is NaN, and so is mine where it has a part in it */
    gm_tensor *found = gm_work_where(&w, gm_work_binary(&w, GM_FN_eq, mine, best), place, nowhere);
    found = gm_work_where(&w, gm_work_binary(&w, GM_FN_ne, mine, mine), place, found);
    gm_rows_reduce(&w, k.axes, found, GM_MIN);
    found = gm_work_shaped(&w, gm_work_cast(&w, found, GM_I64), x->ndim - 1, x->local->shape);
    best = gm_work_shaped(&w, best, x->ndim - 1, x->local->shape);
    *index = gm_work_keep(&w, found);
    *entry = gm_work_keep(&w, best);
    return gm_work_end(&w);
}

/* A block of such a shape, laid out as the rows, as a value. Takes the block. */
static gm_status as_value(gm_rank *r, gm_tensor *block, const gm_layout *rows, const gm_value *x, gm_value **v)
{
    GM_TRY(gm_comm_once(gm_value_take_block(r, block, rows, x->ndim - 1, x->shape, v)));
    return gm_comm_once(gm_padding_finish(*v));
}

/* Along the last dimension of x, which is cut: the entries and their indices. */
static gm_status along_last(gm_rank *r, const gm_value_call *of, gm_value *x, gm_value **both)
{
    gm_attrs      a = gm_attrs_default();
    gm_value_call call = {.op = of->op, .n_in = 1, .n_out = of->n_out, .in = &x, .attrs = &a};
    gm_spec       global[2];
    gm_layout     layout[2], rows = gm_layout_replicated();
    gm_fit        fit;
    gm_tensor    *entry = NULL, *index = NULL;
    const char   *op = gm_op_called(of->op, &a);
    GM_TRY(gm_judge_call(&call, global));
    gm_rule_call c = gm_rule_begin(r, op, of->op, 1, &x, &a, of->n_out, global, layout, &fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d + 1 < x->ndim; d++) gm_layout_copy_dim(&rows, d, &x->layout, d);
    GM_TRY(find(r, op, x, &entry, &index));
    gm_status st = as_value(r, entry, &rows, x, &both[0]);
    if (st == GM_OK) return as_value(r, index, &rows, x, &both[1]);
    gm_tensor_release(index);
    return st;
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

/* Along dimension d, which is cut: the entries and their indices. */
static gm_status along(gm_rank *r, const gm_value_call *c, int d, gm_value **both)
{
    gm_value *x = c->in[0], *turned = NULL;
    int       order[GM_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) order[i] = i < d ? i : i + 1 < x->ndim ? i + 1 : d;
    r->no_grad++;
    gm_status st = gm_permute(r, x, order, &turned);
    if (st == GM_OK) st = along_last(r, c, turned, both);
    for (int i = 0; st == GM_OK && c->attrs->keepdim && i < 2; i++) st = gm_comm_once(restore_dim(r, x, d, &both[i]));
    gm_value_release(turned);
    r->no_grad--;
    return st;
}

static bool is_cut(const gm_value_call *c, int64_t *d)
{
    *d = c->attrs->dim;
    return gm_check_dim(gm_op_called(c->op, c->attrs), c->in[0]->ndim, d) == GM_OK && c->in[0]->layout.n_cuts[*d];
}

gm_status gm_sharded_argmax(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    int64_t   d;
    gm_value *both[2] = {NULL, NULL};
    if (!is_cut(c, &d)) return gm_apply_blocks(r, c, out);
    gm_status st = along(r, c, (int)d, both);
    gm_value_release(both[0]);
    out[0] = both[1];
    return st;
}

gm_status gm_sharded_max(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    int64_t d;
    if (!is_cut(c, &d) || gm_tape_wanted(r, 1, c->in)) return gm_apply_blocks(r, c, out);
    out[0] = out[1] = NULL;
    GM_TRY(along(r, c, (int)d, out));
    for (int i = 0; c->want && i < 2; i++) {
        if (c->want[i]) continue;
        gm_value_release(out[i]);
        out[i] = NULL;
    }
    return GM_OK;
}
