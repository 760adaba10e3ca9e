/* linear3d.c - the 3D product of gm_sharded_linear: x gathered over one axis, w over another, the product's terms
 * summed and scattered over the third (Agarwal et al. 1995; arXiv:2105.14450). Axes of the plan: x's rows are cut by
 * `row` innermost, its last dimension by `col`; w's rows by row, its columns by col, one of them inside by `third`. */
#include "linear.h"

#include <string.h>
#include "../../autograd/rules.h"

typedef struct gradient {
    gm_tensor *terms, *part; /* what this rank has of the sum, and its part of the sum */
} gradient;

enum { X, W, Y, DX, DW, TRANSFERS };

/* The slot in which the first half of a pass leaves the gathered gradient of the product for the second, where the rank
 * keeps what it gathers. */
#define SLOT_GATHERED 2

typedef struct work {
    gm_rank    *rank;
    gm_device  *dev;
    gm_comm    *comm;
    int         dim;       /* of x and y: the one that is gathered and scattered */
    int         third_dim; /* of w likewise */
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
    outer.n_cuts[p->third_dim] = 1; /* as it is once gathered over `third` */
    k->rank = r;
    k->dim = p->dim;
    k->third_dim = p->third_dim;
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
    for (int i = 0; i < TRANSFERS; i++) gm_comm_drop(k->comm, k->pending[i]);
    gm_tensor_release(k->x);
    gm_tensor_release(k->w);
    gm_tensor_release(k->y);
    for (int i = 0; i < 2; i++) {
        gm_tensor_release(k->gradient[i].terms);
        gm_tensor_release(k->gradient[i].part);
    }
}

static gm_status wait_for(work *k, int what) { return gm_comm_finish(k->comm, &k->pending[what]); }

/* Starts to gather the blocks t (contiguous) of a group along dim into a new tensor. */
static gm_status gather(work *k, int what, gm_group *g, gm_tensor *t, int dim, gm_tensor **out)
{
    GM_TRY(gm_block_grown(k->rank, t, dim, gm_group_size(g), 0, out));
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

/* ---- backward ---- */

/* What input i was, gathered over g along dim: as it was kept, or under way. */
static gm_status gather_saved(gm_backward *b, work *k, int i, gm_group *g, int dim, gm_tensor **out)
{
    gm_tensor *saved, *block = NULL;
    GM_TRY(gm_backward_saved(b, i, &saved));
    if (gm_backward_extra(b)[i]) {
        gm_tensor_retain(*out = saved);
        return GM_OK;
    }
    GM_TRY(gm_rule_contiguous(b, saved, &block));
    gm_status st = gather(k, i, g, block, dim, out);
    gm_tensor_release(block);
    return st;
}

/* The gradient of the product is gathered, and what the gradients of x and w need of each other. */
static gm_status gather_all(gm_backward *b, work *k)
{
    gm_tensor *g = NULL, *dy = NULL, *kept;
    gm_status  st;
    GM_TRY_OR(gm_rule_contiguous(b, gm_backward_grad(b, 0), &g), st, done);
    GM_TRY_OR(gm_rule_linear_bias(b, g, &dy), st, done);
    GM_TRY_OR(gm_backward_saved(b, SLOT_GATHERED, &kept), st, done);
    if (kept) gm_tensor_retain(k->y = kept);
    else GM_TRY_OR(gather(k, Y, k->over_col, dy, k->dim, &k->y), st, done);
    if (gm_backward_wants(b, 0)) GM_TRY_OR(gather_saved(b, k, W, k->over_third, k->third_dim, &k->w), st, done);
    if (gm_backward_wants(b, 1)) GM_TRY_OR(gather_saved(b, k, X, k->over_row, k->dim, &k->x), st, done);
    gm_rule_linear_keep(b, dy);
done:
    gm_tensor_release(dy);
    gm_tensor_release(g);
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
    GM_TRY(gm_block_grown(k->rank, k->y, k->dim, 1, x->shape[x->ndim - 1], terms));
    GM_TRY(product(k, k->y, false, k->w, false, gm_rows_of(k->y), k->out, k->in, *terms));
    return scatter(b, k, 0, k->over_row, k->dim);
}

/* dw = dy' x */
static gm_status gradient_of_w(gm_backward *b, work *k)
{
    const gm_spec *w = gm_backward_input(b, 1);
    gm_tensor      like = {.dtype = w->dtype, .ndim = 2, .shape = {w->shape[0], w->shape[1]}};
    gm_tensor    **terms = &k->gradient[1].terms;
    GM_TRY(wait_for(k, X));
    GM_TRY(gm_block_grown(k->rank, &like, k->third_dim, gm_group_size(k->over_third), 0, terms));
    GM_TRY(product(k, k->y, true, k->x, false, k->out, gm_rows_of(k->y), k->in, *terms));
    return scatter(b, k, 1, k->over_third, k->third_dim);
}

/* The sum of dx runs under the product of dw. */
static gm_status backward(gm_backward *b, work *k)
{
    GM_TRY(gather_all(b, k));
    GM_TRY(wait_for(k, Y));
    if (gm_backward_wants(b, 0)) GM_TRY(gradient_of_x(b, k));
    if (gm_backward_wants(b, 1)) GM_TRY(gradient_of_w(b, k));
    if (k->rank->keep_gathered && gm_backward_later(b, 1)) gm_backward_keep(b, SLOT_GATHERED, k->y);
    GM_TRY(give(b, k, 0));
    return give(b, k, 1);
}

gm_status gm_linear_3d_rule(gm_backward *b)
{
    gm_side        x, w;
    gm_linear_plan p = gm_plan_of(b, &x, &w);
    work           k = {0};
    gm_status      st = open_work(gm_backward_rank(b), &p, &w, &k);
    if (st == GM_OK) st = gm_comm_once(backward(b, &k));
    close_work(&k);
    return st;
}

/* ---- forward ---- */

/* *kept: the gathered block as what a node keeps, where the gradient of `other` will need it. */
static gm_status keep(const gm_linear_call *c, gm_tensor *t, const gm_value *other, gm_value **kept)
{
    if (!c->rank->keep_gathered || !other->requires_grad) return GM_OK;
    gm_tensor_retain(t);
    return gm_value_take(c->rank, t, kept);
}

static gm_status forward(gm_linear_call *c, work *k, gm_tensor *x, gm_tensor *w)
{
    gm_tensor *y = gm_linear_product(c);
    GM_TRY(gather(k, X, k->over_row, x, k->dim, &k->x));
    GM_TRY(gather(k, W, k->over_third, w, k->third_dim, &k->w));
    GM_TRY(gm_block_grown(k->rank, y, k->dim, gm_group_size(k->over_col), 0, &k->y));
    GM_TRY(wait_for(k, X));
    GM_TRY(wait_for(k, W));
    GM_TRY(product(k, k->x, false, k->w, true, gm_rows_of(k->x), k->in, k->out, k->y));
    GM_TRY(gm_comm_reduce_scatter(k->comm, k->over_col, k->y, k->dim, GM_SUM, y, NULL));
    GM_TRY(keep(c, k->x, c->w, &c->kept[0]));
    GM_TRY(keep(c, k->w, c->x, &c->kept[1]));
    return gm_linear_finish(c);
}

gm_status gm_linear_3d(gm_linear_call *c)
{
    gm_side    w = gm_side_of(c->w);
    gm_tensor *blocks[2] = {NULL, NULL};
    work       k = {0};
    gm_status  st;
    GM_TRY_OR(gm_linear_results(c), st, done);
    GM_TRY_OR(open_work(c->rank, &c->plan, &w, &k), st, done);
    GM_TRY_OR(gm_block_contiguous(c->rank, c->x->local, &blocks[0]), st, done);
    GM_TRY_OR(gm_block_contiguous(c->rank, c->w->local, &blocks[1]), st, done);
    st = gm_comm_once(forward(c, &k, blocks[0], blocks[1]));
done:
    gm_tensor_release(blocks[0]);
    gm_tensor_release(blocks[1]);
    close_work(&k);
    return st;
}
