/* linear_cross_entropy.c - a classifier and its loss, some rows at a time, so that the logits never exist whole.
 *
 * The gradient of a sum of losses is known up to one scalar before anything behind the sum has run. So each piece of
 * the rows goes forward and backward at once, on a tape of its own, by the ops that the whole would use (sharded.h):
 * its logits are gone before the next piece's are made. What is left is the sum, dx, dW and db of the sum; the node on
 * the outer tape multiplies them by the gradient of the sum. No product is made twice.
 *
 * A piece is so many rows of each rank's block. Padded rows, which lie anywhere in a block, count as ignored targets,
 * and blocks as full: then pieces of any layout are laid out as the whole is. */
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "../redistribute.h"
#include "linear.h"

enum { X, W, B, N_IN };

typedef struct head {
    gm_work        *work; /* tensors and steps; pieces are values, by the ops that users call */
    gm_rank        *rank;
    const gm_attrs *attrs;
    gm_value       *x, *target; /* blocks as (rows, width) and (rows) */
    gm_value       *leaf[N_IN]; /* W, B: what the pieces read; NULL: no bias */
    gm_tensor      *dx;         /* (rows, width); NULL: not wanted */
    uint32_t        partial_x;  /* axes that dx is still a sum over */
    gm_tensor      *places;     /* (rows) i64; NULL: not wanted */
    gm_value       *sum;
    bool            records; /* gradients are wanted */
    gm_value       *one;     /* () 1, what backward of a piece brings to each loss; NULL: there is none */
} head;

/* ---- blocks as rows ---- */

/* All dimensions of x but the last as one; axes that cut w stay innermost, where products look for them. */
static gm_layout as_rows(const gm_value *x, const gm_layout *w)
{
    gm_layout to = gm_layout_replicated();
    uint32_t  of_w = gm_layout_cut_axes(w);
    to.partial = x->layout.partial;
    for (int inner = 0; inner < 2; inner++)
        for (int d = 0; d < x->ndim - 1; d++)
            for (int i = 0; i < x->layout.n_cuts[d]; i++) {
                uint8_t axis = x->layout.cut[d][i];
                if ((of_w >> axis & 1) == (unsigned)inner) to.cut[0][to.n_cuts[0]++] = axis;
            }
    gm_layout_copy_dim(&to, 1, &x->layout, x->ndim - 1);
    return to;
}

/* A block of rows (taken) as a value of rows that all ranks have as many of; width 0: there is no second dimension. */
static gm_status rows_value(gm_rank *r, gm_tensor *block, const gm_layout *layout, int64_t width, gm_value **out)
{
    gm_layout l = *layout;
    int64_t   shape[2] = {block->shape[0] * gm_layout_parts(&r->mesh, layout, 0), width};
    if (!width) {
        l = gm_layout_replicated();
        gm_layout_copy_dim(&l, 0, layout, 0);
    }
    return gm_value_take_block(r, block, &l, width ? 2 : 1, shape, out);
}

/* Padded rows of a target's block, which is this rank's own, become ignored ones. */
static void ignore_padding(gm_work *w, const gm_value *v, double ignored, gm_tensor *block)
{
    int64_t logical[GM_MAX_DIMS];
    gm_value_logical(v, logical);
    for (int d = 0; d < v->ndim && w->st == GM_OK; d++) {
        if (logical[d] == block->shape[d]) continue;
        gm_work_fill(w, gm_work_narrow(w, block, d, logical[d], block->shape[d] - logical[d]), ignored);
    }
}

static bool has_padding(const gm_value *v) { return !gm_layout_is_even(&v->rank->mesh, &v->layout, v->ndim, v->shape); }

/* The target laid out as the rows of x are. */
static gm_status target_like(gm_rank *r, gm_value *x, gm_value *target, gm_value **out)
{
    gm_layout to = gm_layout_replicated();
    for (int d = 0; d < target->ndim; d++) gm_layout_copy_dim(&to, d, &x->layout, d);
    return gm_redistribute(r, target, &to, out);
}

static gm_status target_rows(head *k, const gm_value *target, const gm_layout *rows)
{
    gm_work   *w = k->work;
    gm_tensor *t = target->local;
    int64_t    n = gm_tensor_numel(t);
    if (has_padding(target)) {
        t = gm_work_cast(w, t, t->dtype);
        ignore_padding(w, target, (double)k->attrs->ignore_index, t);
    }
    t = gm_work_keep(w, gm_work_shaped(w, gm_work_contiguous(w, t), 1, &n));
    GM_TRY(w->st);
    return rows_value(k->rank, t, rows, 0, &k->target);
}

/* ---- a piece ---- */

/* The sum of the losses, and where the largest logits are (places NULL: not asked for). The target follows the rows of
 * x where the product moves them. */
static gm_status loss_of(gm_rank *r, gm_value *const *in, gm_value *target, gm_value *scale, const gm_attrs *attrs,
                         gm_value **sum, gm_value **places)
{
    gm_value *y = NULL, *logits = NULL, *moved = NULL, *losses = NULL;
    gm_layout to = gm_layout_replicated();
    gm_attrs  a = gm_attrs_default();
    gm_status st;
    GM_TRY(gm_apply_first(r, GM_OP_linear, N_IN, in, &a, &y));
    GM_TRY_OR(gm_settle(r, y, &logits), st, done);
    for (int d = 0; d < target->ndim; d++) gm_layout_copy_dim(&to, d, &logits->layout, d);
    GM_TRY_OR(gm_redistribute(r, target, &to, &moved), st, done);
    GM_TRY_OR(gm_cross_entropy(r, logits, moved, scale, attrs, &losses), st, done);
    if (places) GM_TRY_OR(gm_apply_first(r, GM_OP_argmax, 1, &logits, &a, places), st, done);
    st = gm_apply_first(r, GM_OP_sum, 1, &losses, &a, sum);
done:
    gm_value_release(losses);
    gm_value_release(moved);
    gm_value_release(logits);
    gm_value_release(y);
    return st;
}

/* Rows from .. from + n of x and of the target; the gradient of these of x goes into dx. */
static gm_status cut_piece(head *k, int64_t from, int64_t n, gm_value **x, gm_value **target)
{
    gm_tensor *part = NULL;
    GM_TRY(gm_tensor_narrow(k->x->local, 0, from, n, &part));
    GM_TRY(rows_value(k->rank, part, &k->x->layout, k->x->shape[1], x));
    GM_TRY(gm_tensor_narrow(k->target->local, 0, from, n, &part));
    GM_TRY(rows_value(k->rank, part, &k->target->layout, 0, target));
    if (!k->dx) return GM_OK;
    GM_TRY(gm_value_require_grad(*x, true));
    return gm_tensor_narrow(k->dx, 0, from, n, &(*x)->param->grad);
}

/* Runs what the piece recorded, and nothing else is on that tape. */
static gm_status piece_backward(head *k, gm_value *sum)
{
    gm_value   *seed = NULL;
    gm_tape    *tape = gm_tape_take(k->rank);
    gm_tape_job job = {.pass = GM_TAPE_WHOLE, .n = 1, .outputs = &sum, .seeds = &seed};
    gm_status   st = gm_tape_run(k->rank, tape, &job);
    gm_tape_free(tape);
    return st;
}

/* The places of a piece, in the order of the rows of x. */
static gm_status keep_places(head *k, gm_value *places, int64_t from, int64_t n)
{
    gm_work  *w = k->work;
    gm_value *moved = NULL;
    int       mark = w->n_held;
    if (!places) return GM_OK;
    GM_TRY(gm_redistribute(k->rank, places, &k->target->layout, &moved));
    gm_work_copy(w, moved->local, gm_work_narrow(w, k->places, 0, from, n));
    gm_work_drop(w, mark);
    gm_value_release(moved);
    return w->st;
}

static gm_status add_sum(head *k, gm_value *sum)
{
    if (k->sum) return gm_run_one(k->rank->device, GM_OP_axpy, NULL, sum->local, k->sum->local);
    return gm_value_detach(sum, &k->sum);
}

static gm_status piece(head *k, int64_t from, int64_t n)
{
    gm_value *in[N_IN] = {NULL, k->leaf[W], k->leaf[B]}, *target = NULL, *sum = NULL, *places = NULL;
    gm_status st;
    GM_TRY_OR(cut_piece(k, from, n, &in[X], &target), st, done);
    GM_TRY_OR(loss_of(k->rank, in, target, k->one, k->attrs, &sum, k->places ? &places : NULL), st, done);
    if (k->records) GM_TRY_OR(piece_backward(k, sum), st, done);
    if (k->dx) k->partial_x = in[X]->param->grad_partial;
    GM_TRY_OR(keep_places(k, places, from, n), st, done);
    st = add_sum(k, sum);
done:
    gm_value_release(places);
    gm_value_release(sum);
    gm_value_release(target);
    gm_value_release(in[X]);
    return st;
}

/* ---- the node ---- */

/* Slots: the gradients of x, w and b of the sum, whose own gradient is that of all ranks that have a term of it; extra:
 * what each is partial over. */
static void rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_layout  from = gm_layout_replicated(), to = gm_layout_replicated();
    gm_tensor *g = NULL;
    from.partial = gm_backward_partial(b);
    GM_STEP(w, gm_redistribute_block(w->rank, gm_backward_grad(b, 0), &from, &to, 0, NULL, &g));
    g = gm_work_hold(w, g);
    for (int i = 0; i < N_IN; i++) {
        if (!gm_backward_wants(b, i)) continue;
        gm_attrs a = gm_attrs_default();
        gm_backward_set_partial(b, i, (uint32_t)gm_backward_extra(b)[i]);
        gm_tensor *in[2] = {gm_backward_saved(b, i), g};
        if (w->st != GM_OK) return;
        bool       wide = !gm_dtype_is_narrow(in[0]->dtype);
        gm_tensor *target = (wide ? gm_backward_wide_target : gm_backward_target)(b, i, &a.accumulate);
        if (!target) return;
        a.dtype = target->dtype;
        gm_work_into(w, GM_OP_scale, 2, in, &a, 1, &target);
        gm_backward_keep(b, i, NULL);
    }
}

static gm_status record(head *k, gm_value *const *in)
{
    gm_work  *w = k->work;
    gm_value *saved[N_IN] = {NULL};
    gm_record rec = {.name = "linear_cross_entropy",
                     .rule = rule,
                     .n_in = N_IN,
                     .in = in,
                     .n_out = 1,
                     .out = &k->sum,
                     .n_saved = N_IN,
                     .saved = saved,
                     .extra = {k->partial_x},
                     .splits = true};
    if (k->dx) gm_work_slot(w, gm_work_shaped(w, k->dx, in[X]->ndim, in[X]->local->shape), &saved[X]);
    for (int i = W; i < N_IN; i++) {
        if (!k->leaf[i] || !k->leaf[i]->requires_grad) continue;
        rec.extra[i] = k->leaf[i]->param->grad_partial;
        gm_work_slot(w, k->leaf[i]->param->grad, &saved[i]);
    }
    GM_STEP(w, gm_tape_record(k->rank, &rec));
    gm_release_all(N_IN, saved);
    return w->st;
}

/* ---- the op ---- */

static gm_status open_head(head *k, gm_value *const *in, gm_value *target, bool wants_places)
{
    gm_work   *w = k->work;
    gm_layout  rows = as_rows(in[X], &in[W]->layout);
    gm_tensor *flat = gm_work_keep(w, gm_work_compact(w, in[X]->local));
    GM_TRY(w->st);
    GM_TRY(rows_value(k->rank, flat, &rows, in[X]->shape[in[X]->ndim - 1], &k->x));
    GM_TRY(target_rows(k, target, &rows));
    if (k->records)
        GM_TRY(
            gm_value_take(k->rank, gm_work_keep(w, gm_work_full(w, gm_dtype_wide(flat->dtype), 0, NULL, 1)), &k->one));
    if (k->records && in[X]->requires_grad) k->dx = gm_work_like(w, flat);
    if (wants_places) k->places = gm_work_new(w, GM_I64, 1, flat->shape);
    for (int i = W; i < N_IN && w->st == GM_OK; i++) {
        if (!in[i]) continue;
        GM_TRY(gm_value_detach(in[i], &k->leaf[i]));
        if (!k->records || !in[i]->requires_grad) continue;
        GM_TRY(gm_value_require_grad(k->leaf[i], true));
        k->leaf[i]->param->wide_grad = true;
    }
    return w->st;
}

static void close_head(head *k)
{
    gm_release_all(N_IN, k->leaf);
    gm_value_release(k->one);
    gm_value_release(k->x);
    gm_value_release(k->target);
    gm_value_release(k->sum);
}

/* All pieces; what they record is theirs, and the tape of the rank waits. */
static gm_status run_pieces(head *k, int64_t rows)
{
    gm_rank  *r = k->rank;
    gm_tape  *outer = gm_tape_set_aside(r);
    int64_t   n = k->x->local->shape[0];
    gm_status st = GM_OK;
    for (int64_t at = 0; at < n && st == GM_OK; at += rows) st = piece(k, at, n - at < rows ? n - at : rows);
    gm_tape_restore(r, outer); /* drops what a piece that failed has left */
    return st;
}

static gm_status places_value(head *k, const gm_value *target, gm_value **out)
{
    gm_work   *w = k->work;
    gm_tensor *t = gm_work_keep(w, gm_work_shaped(w, k->places, target->ndim, target->local->shape));
    GM_TRY(w->st);
    GM_TRY(gm_value_take_block(k->rank, t, &target->layout, target->ndim, target->shape, out));
    return gm_padding_finish(*out);
}

static gm_status in_pieces(gm_rank *r, gm_value *const *in, gm_value *target, const gm_attrs *attrs, int64_t rows,
                           gm_value **sum, gm_value **places)
{
    gm_work   work;
    head      k = {.work = &work, .rank = r, .attrs = attrs, .records = gm_tape_wanted(r, N_IN, in)};
    gm_value *like = NULL;
    gm_status st;
    GM_TRY(target_like(r, in[X], target, &like));
    gm_work_begin(&work, r, "linear_cross_entropy");
    GM_TRY_OR(open_head(&k, in, like, places != NULL), st, done);
    GM_TRY_OR(run_pieces(&k, rows), st, done);
    if (places) GM_TRY_OR(places_value(&k, like, places), st, done);
    if (k.records) st = record(&k, in);
    if (st != GM_OK && places) gm_value_release(*places);
    if (st != GM_OK) goto done;
    *sum = k.sum;
    k.sum = NULL;
done:
    GM_STEP(&work, st);
    close_head(&k);
    gm_value_release(like);
    return gm_work_end(&work);
}

static gm_status check(gm_rank *r, gm_value *const *in, gm_value *target, int64_t rows)
{
    gm_spec       whole[2];
    gm_device    *dev;
    gm_attrs      a = gm_attrs_default();
    char          x[256], t[256];
    gm_value_call call = {.op = GM_OP_linear, .n_in = N_IN, .n_out = 2, .in = in, .attrs = &a};
    bool          fits = in[X]->ndim >= 1 && target->ndim == in[X]->ndim - 1;
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(gm_judge_call(&call, whole));
    for (int d = 0; fits && d < target->ndim; d++) fits = target->shape[d] == in[X]->shape[d];
    if (!fits)
        return GM_FAIL(GM_ESHAPE, "linear_cross_entropy: x is %s, the target %s; should be one for each row of x",
                       gm_value_describe(in[X], x, sizeof x), gm_value_describe(target, t, sizeof t));
    if (rows < 1) return GM_FAIL(GM_EINVAL, "linear_cross_entropy: pieces have at least one row");
    return GM_OK;
}

gm_status gm_linear_cross_entropy(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, gm_value *target, gm_value *scale,
                                  const gm_attrs *attrs, int64_t rows, gm_value **sum, gm_value **places)
{
    gm_value *all[] = {x, w, b, target};
    GM_TRY(check(r, all, target, rows));
    if (gm_work_lines(x->local) <= rows) return loss_of(r, all, target, scale, attrs, sum, places);
    gm_status st = in_pieces(r, all, target, attrs, rows, sum, places);
    return gm_all_replicated(r, 4, all) ? st : gm_comm_once(st);
}
