/* linear3d.c - the 3D product of gm_sharded_linear: x gathered over one axis, w over another, the product's terms
 * summed and scattered over the third (Agarwal et al. 1995; arXiv:2105.14450). Axes of the plan: x's rows are cut by
 * `row` innermost, its last dimension by `col`; w's inner dimension by col, inside by `third`. */
#include "linear.h"

#include <string.h>
#include "../../autograd/rules.h"

typedef struct gradient {
    gm_tensor *terms, *part; /* what this rank has of the sum, and its part of the sum */
} gradient;

enum { X, W, Y, DX, DW, TRANSFERS };

typedef struct work {
    gm_rank    *rank;
    gm_device  *dev;
    gm_comm    *comm;
    int         dim; /* of x and y: the one that is gathered and scattered */
    gm_group   *over_row, *over_col, *over_third;
    int64_t     out, in;   /* of O and I, what this rank multiplies */
    gm_tensor  *x, *w, *y; /* gathered; y: terms of it, or its gradient */
    gradient    gradient[2];
    gm_pending *pending[TRANSFERS];
} work;

static gm_status open_work(gm_rank *r, const gm_linear_plan *p, const gm_side *w, work *k)
{
    gm_layout outer = *w->layout;
    gm_side   whole = {&outer, w->ndim, w->shape};
    int64_t   block;
    outer.n_cuts[1] = 1; /* as it is once gathered over `third` */
    k->rank = r;
    k->dim = p->dim;
    GM_TRY(gm_rank_device(r, &k->dev));
    GM_TRY(gm_rank_comm(r, &k->comm));
    GM_TRY(gm_comm_group(k->comm, 1u << p->row, &k->over_row));
    GM_TRY(gm_comm_group(k->comm, 1u << p->col, &k->over_col));
    GM_TRY(gm_comm_group(k->comm, 1u << p->third, &k->over_third));
    gm_side_extent(r, &whole, 0, &k->out, &block);
    gm_side_extent(r, &whole, 1, &k->in, &block);
    return GM_OK;
}

/* What has not been waited for is left to itself: something failed. */
static void close_work(work *k)
{
    for (int i = 0; i < TRANSFERS; i++)
        if (k->pending[i]) gm_comm_drop(k->comm, k->pending[i]);
    gm_tensor_release(k->x);
    gm_tensor_release(k->w);
    gm_tensor_release(k->y);
    for (int i = 0; i < 2; i++) {
        gm_tensor_release(k->gradient[i].terms);
        gm_tensor_release(k->gradient[i].part);
    }
}

static gm_status wait_for(work *k, int what)
{
    gm_pending *p = k->pending[what];
    k->pending[what] = NULL;
    return p ? gm_comm_wait(k->comm, p) : GM_OK;
}

/* Like t, but `members` times as long along dim, and its last dimension `last` (0: as it is). */
static gm_status grown(work *k, const gm_tensor *t, int dim, int members, int64_t last, gm_tensor **out)
{
    int64_t shape[GM_MAX_DIMS];
    memcpy(shape, t->shape, sizeof shape);
    shape[dim] *= members;
    if (last) shape[t->ndim - 1] = last;
    gm_rank_place(k->rank, "linear");
    return gm_tensor_new(k->dev, t->dtype, t->ndim, shape, out);
}

/* Starts to gather the blocks t (contiguous) of a group along dim into a new tensor. */
static gm_status gather(work *k, int what, gm_group *g, gm_tensor *t, int dim, gm_tensor **out)
{
    GM_TRY(grown(k, t, dim, gm_group_size(g), 0, out));
    return gm_comm_all_gather(k->comm, g, t, dim, *out, &k->pending[what]);
}

/* c = a b on the leading (m, k) and (k, n), all rows of tensors of any dimensions. */
static gm_status product(work *k, gm_tensor *a, bool ta, gm_tensor *b, bool tb, int64_t m, int64_t inner, int64_t n,
                         gm_tensor *c)
{
    gm_operand in[2] = {{.transposed = ta}, {.transposed = tb}};
    gm_tensor *out = NULL;
    gm_status  st;
    GM_TRY_OR(gm_block_rows(k->rank, a, &in[0].block), st, done);
    GM_TRY_OR(gm_block_rows(k->rank, b, &in[1].block), st, done);
    GM_TRY_OR(gm_block_rows(k->rank, c, &out), st, done);
    st = gm_block_product(k->dev, &in[0], &in[1], m, inner, n, false, out);
done:
    gm_tensor_release(in[0].block);
    gm_tensor_release(in[1].block);
    gm_tensor_release(out);
    return st;
}

static int64_t rows_of(const gm_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim - 1; d++) n *= t->shape[d];
    return n;
}

/* Short of memory when the others have had their part: this rank alone must not begin anew. */
static gm_status no_retry(gm_status st) { return st == GM_ENOMEM ? gm_fail_again(GM_EINVAL, gm_last_error()) : st; }

/* ---- backward ---- */

/* Slots: 0 x, 1 w, gathered where extra[0] says so. */
static gm_status gather_saved(gm_backward *b, work *k)
{
    gm_tensor *saved[2], *blocks[3] = {NULL, NULL, NULL};
    gm_status  st;
    bool       kept = gm_backward_extra(b)[0];
    GM_TRY(gm_backward_saved(b, 0, &saved[0]));
    GM_TRY(gm_backward_saved(b, 1, &saved[1]));
    GM_TRY_OR(gm_rule_contiguous(b, gm_backward_grad(b, 0), &blocks[Y]), st, done);
    GM_TRY_OR(gather(k, Y, k->over_col, blocks[Y], k->dim, &k->y), st, done);
    if (kept) {
        if ((k->x = saved[0])) gm_tensor_retain(k->x);
        if ((k->w = saved[1])) gm_tensor_retain(k->w);
        goto done;
    }
    if (gm_backward_wants(b, 0)) {
        GM_TRY_OR(gm_rule_contiguous(b, saved[1], &blocks[W]), st, done);
        GM_TRY_OR(gather(k, W, k->over_third, blocks[W], 1, &k->w), st, done);
    }
    if (gm_backward_wants(b, 1)) {
        GM_TRY_OR(gm_rule_contiguous(b, saved[0], &blocks[X]), st, done);
        GM_TRY_OR(gather(k, X, k->over_row, blocks[X], k->dim, &k->x), st, done);
    }
done:
    for (int i = 0; i < 3; i++) gm_tensor_release(blocks[i]);
    return st;
}

/* Sums the terms of the gradient of input i over g; this rank's part of the sum comes. */
static gm_status scatter(gm_backward *b, work *k, int i, gm_group *g, int dim)
{
    gradient *d = &k->gradient[i];
    GM_TRY(gm_backward_new(b, gm_backward_input(b, i), &d->part));
    return gm_comm_reduce_scatter(k->comm, g, d->terms, dim, GM_SUM, d->part, &k->pending[DX + i]);
}

static gm_status give(gm_backward *b, work *k, int i)
{
    gm_tensor *part = k->gradient[i].part;
    if (!part) return GM_OK;
    GM_TRY(wait_for(k, DX + i));
    k->gradient[i].part = NULL;
    return gm_backward_give(b, i, part);
}

/* dx = dy w */
static gm_status gradient_of_x(gm_backward *b, work *k)
{
    const gm_spec *x = gm_backward_input(b, 0);
    gm_tensor    **terms = &k->gradient[0].terms;
    GM_TRY(wait_for(k, W));
    GM_TRY(grown(k, k->y, k->dim, 1, x->shape[x->ndim - 1], terms));
    GM_TRY(product(k, k->y, false, k->w, false, rows_of(k->y), k->out, k->in, *terms));
    return scatter(b, k, 0, k->over_row, k->dim);
}

/* dw = dy' x */
static gm_status gradient_of_w(gm_backward *b, work *k)
{
    const gm_spec *w = gm_backward_input(b, 1);
    gm_tensor      like = {.dtype = w->dtype, .ndim = 2, .shape = {w->shape[0], w->shape[1]}};
    gm_tensor    **terms = &k->gradient[1].terms;
    GM_TRY(wait_for(k, X));
    GM_TRY(grown(k, &like, 1, gm_group_size(k->over_third), 0, terms));
    GM_TRY(product(k, k->y, true, k->x, false, k->out, rows_of(k->y), k->in, *terms));
    return scatter(b, k, 1, k->over_third, 1);
}

/* The sum of dx runs under the product of dw. */
static gm_status backward(gm_backward *b, work *k)
{
    GM_TRY(gather_saved(b, k));
    GM_TRY(wait_for(k, Y));
    if (gm_backward_wants(b, 0)) GM_TRY(gradient_of_x(b, k));
    if (gm_backward_wants(b, 1)) GM_TRY(gradient_of_w(b, k));
    GM_TRY(give(b, k, 0));
    return give(b, k, 1);
}

static gm_status rule_3d(gm_backward *b)
{
    gm_side        x, w;
    gm_linear_plan p = gm_plan_of(b, &x, &w);
    work           k = {0};
    gm_status      st = open_work(gm_backward_rank(b), &p, &w, &k);
    if (st == GM_OK) st = no_retry(backward(b, &k));
    close_work(&k);
    return st;
}

/* ---- forward ---- */

/* *kept: the gathered block as what a node keeps, where a gradient will need it. */
static gm_status keep(gm_rank *r, gm_tensor *t, bool needed, gm_value **kept)
{
    if (!needed) return GM_OK;
    gm_tensor_retain(t);
    return gm_value_take(r, t, kept);
}

static gm_status record(work *k, gm_value **in, bool keep_gathered, gm_value *y)
{
    gm_value *kept[2] = {NULL, NULL};
    gm_record rec = {.name = "linear",
                     .rule = rule_3d,
                     .n_in = 2,
                     .in = in,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = 2,
                     .saved = keep_gathered ? kept : in,
                     .extra = {keep_gathered}};
    gm_status st = GM_OK;
    if (!gm_tape_wanted(k->rank, 2, in)) return GM_OK;
    if (keep_gathered) st = keep(k->rank, k->x, in[1]->requires_grad, &kept[0]);
    if (keep_gathered && st == GM_OK) st = keep(k->rank, k->w, in[0]->requires_grad, &kept[1]);
    if (st == GM_OK) st = gm_tape_record(k->rank, &rec);
    gm_value_release(kept[0]);
    gm_value_release(kept[1]);
    return st;
}

static gm_status forward(work *k, gm_tensor *x, gm_tensor *w, gm_value *y)
{
    GM_TRY(gather(k, X, k->over_row, x, k->dim, &k->x));
    GM_TRY(gather(k, W, k->over_third, w, 1, &k->w));
    GM_TRY(grown(k, k->x, k->dim, 1, w->shape[0], &k->y));
    GM_TRY(wait_for(k, X));
    GM_TRY(wait_for(k, W));
    GM_TRY(product(k, k->x, false, k->w, true, rows_of(k->x), k->in, k->out, k->y));
    return gm_comm_reduce_scatter(k->comm, k->over_col, k->y, k->dim, GM_SUM, y->local, NULL);
}

gm_status gm_linear_3d(gm_rank *r, const gm_linear_plan *p, gm_value *x, gm_value *w, bool keep_gathered, gm_value **y)
{
    gm_value  *in[2] = {x, w}, *v = NULL;
    gm_side    ws = {&w->layout, w->ndim, w->shape};
    gm_tensor *blocks[2] = {NULL, NULL};
    work       k = {0};
    gm_status  st;
    GM_TRY(gm_linear_result(r, p, x, w, &v));
    GM_TRY_OR(open_work(r, p, &ws, &k), st, done);
    GM_TRY_OR(gm_block_contiguous(r, x->local, &blocks[0]), st, done);
    GM_TRY_OR(gm_block_contiguous(r, w->local, &blocks[1]), st, done);
    GM_TRY_OR(no_retry(forward(&k, blocks[0], blocks[1], v)), st, done);
    GM_TRY_OR(record(&k, in, keep_gathered, v), st, done);
    *y = v;
    v = NULL;
done:
    gm_tensor_release(blocks[0]);
    gm_tensor_release(blocks[1]);
    gm_value_release(v);
    close_work(&k);
    return st;
}
