/* linear3d.c - the 3D product of gm_sharded_linear: x gathered over one axis, w over another, the product's terms
 * summed and scattered over the third (Agarwal et al. 1995; arXiv:2105.14450). Axes of the plan: x's rows are cut by
 * `row` innermost, its last dimension by `col`; w's rows by row, its columns by col, one of them inside by `third`. */
#include "linear.h"

#include <string.h>

enum { X, W, Y, DX, DW, TRANSFERS };

/* The slot in which the first half of a pass leaves the gathered gradient of the product for the second, where the rank
 * keeps what it gathers. */
#define SLOT_GATHERED 2

typedef struct pass {
    gm_work    *work;
    gm_comm    *comm;
    int         dim;       /* of x and y: the one that is gathered and scattered */
    int         third_dim; /* of w likewise */
    gm_group   *over_row, *over_col, *over_third;
    int64_t     out, in;   /* of O and I, what this rank multiplies */
    gm_tensor  *x, *w, *y; /* gathered; y: terms of it, or its gradient */
    gm_tensor  *part[2];   /* this rank's part of the sums of dx and dw */
    gm_pending *pending[TRANSFERS];
} pass;

static pass open_pass(gm_work *work, const gm_linear_plan *p, const gm_side *w)
{
    gm_rank  *r = work->rank;
    gm_layout outer = *w->layout;
    gm_side   whole = {&outer, w->ndim, w->shape};
    int64_t   block;
    pass      k = {.work = work, .dim = p->dim, .third_dim = p->third_dim};
    outer.n_cuts[p->third_dim] = 1; /* as it is once gathered over `third` */
    GM_STEP(work, gm_rank_comm(r, &k.comm));
    k.over_row = gm_rows_group(work, 1u << p->row);
    k.over_col = gm_rows_group(work, 1u << p->col);
    k.over_third = gm_rows_group(work, 1u << p->third);
    gm_side_extent(r, &whole, 0, &k.out, &block);
    gm_side_extent(r, &whole, 1, &k.in, &block);
    return k;
}

/* What has not been waited for is left to itself: something failed. */
static void close_pass(pass *k)
{
    for (int i = 0; i < TRANSFERS; i++) gm_comm_drop(k->comm, k->pending[i]);
}

static void wait_for(pass *k, int what) { GM_STEP(k->work, gm_comm_finish(k->comm, &k->pending[what])); }

/* The blocks t of a group along dim, in a new tensor: under way. */
static gm_tensor *gather(pass *k, int what, gm_group *g, gm_tensor *t, int dim)
{
    gm_work *w = k->work;
    t = gm_work_contiguous(w, t);
    if (w->st != GM_OK) return NULL;
    gm_tensor *all = gm_linear_grown(w, t->dtype, t->ndim, t->shape, dim, gm_group_size(g));
    gm_rows_all_gather(w, g, t, dim, all, &k->pending[what]);
    return all;
}

/* c = a b on the leading (m, k) and (k, n), all rows of tensors of any dimensions. */
static void product(pass *k, gm_tensor *a, bool ta, gm_tensor *b, bool tb, int64_t m, int64_t inner, int64_t n,
                    gm_tensor *c)
{
    gm_work   *w = k->work;
    int        mark = w->n_held;
    gm_operand in[2] = {{gm_work_compact(w, a), ta, NULL}, {gm_work_compact(w, b), tb, NULL}};
    gm_tensor *out = gm_work_compact(w, c);
    if (out) gm_block_product(w, &in[0], &in[1], m, inner, n, false, out);
    gm_work_drop(w, mark);
}

/* ---- backward ---- */

/* What input i was, gathered over g along dim: as it was kept (the slot is emptied soon), or under way. */
static gm_tensor *gather_saved(gm_backward *b, pass *k, int i, gm_group *g, int dim)
{
    gm_tensor *saved = gm_backward_saved(b, i);
    return gm_backward_extra(b)[i] ? gm_work_share(k->work, saved) : gather(k, i, g, saved, dim);
}

/* The gradient of the product is gathered, and what the gradients of x and w need of each other. */
static void gather_all(gm_backward *b, pass *k)
{
    gm_tensor *dy = gm_linear_rule_bias(b, gm_work_contiguous(k->work, gm_backward_grad(b, 0)));
    k->y = gm_backward_saved(b, SLOT_GATHERED);
    if (!k->y) k->y = gather(k, Y, k->over_col, dy, k->dim);
    if (gm_backward_wants(b, 0)) k->w = gather_saved(b, k, W, k->over_third, k->third_dim);
    if (gm_backward_wants(b, 1)) k->x = gather_saved(b, k, X, k->over_row, k->dim);
    gm_linear_rule_keep(b, dy);
}

/* Sums the terms of the gradient of input i over g; this rank's part of the sum comes. */
static void scatter(gm_backward *b, pass *k, int i, gm_group *g, int dim, gm_tensor *terms)
{
    k->part[i] = gm_backward_like(b, i);
    GM_STEP(k->work, gm_comm_reduce_scatter(k->comm, g, terms, dim, GM_SUM, k->part[i], &k->pending[DX + i]));
}

static void give(gm_backward *b, pass *k, int i)
{
    if (!k->part[i]) return;
    wait_for(k, DX + i);
    gm_backward_give(b, i, k->part[i]);
}

/* dx = dy w */
static void gradient_of_x(gm_backward *b, pass *k)
{
    const gm_spec *x = gm_backward_input(b, 0);
    int64_t        shape[GM_MAX_DIMS];
    wait_for(k, W);
    if (k->work->st != GM_OK) return;
    memcpy(shape, k->y->shape, sizeof shape);
    shape[x->ndim - 1] = x->shape[x->ndim - 1];
    gm_tensor *terms = gm_work_new(k->work, x->dtype, x->ndim, shape);
    product(k, k->y, false, k->w, false, gm_work_lines(k->y), k->out, k->in, terms);
    scatter(b, k, 0, k->over_row, k->dim, terms);
}

/* dw = dy' x */
static void gradient_of_w(gm_backward *b, pass *k)
{
    const gm_spec *w = gm_backward_input(b, 1);
    wait_for(k, X);
    if (k->work->st != GM_OK) return;
    gm_tensor *terms = gm_linear_grown(k->work, w->dtype, 2, w->shape, k->third_dim, gm_group_size(k->over_third));
    product(k, k->y, true, k->x, false, k->out, gm_work_lines(k->y), k->in, terms);
    scatter(b, k, 1, k->over_third, k->third_dim, terms);
}

/* The sum of dx runs under the product of dw. */
void gm_linear_3d_rule(gm_backward *b)
{
    gm_side        xs, ws;
    gm_linear_plan p = gm_plan_of(b, &xs, &ws);
    gm_work       *w = gm_backward_work(b);
    pass           k = open_pass(w, &p, &ws);
    w->sent |= w->st == GM_OK;
    gather_all(b, &k);
    wait_for(&k, Y);
    if (gm_backward_wants(b, 0)) gradient_of_x(b, &k);
    if (gm_backward_wants(b, 1)) gradient_of_w(b, &k);
    if (w->rank->keep_gathered && gm_backward_later(b, 1)) gm_backward_keep(b, SLOT_GATHERED, k.y);
    give(b, &k, 0);
    give(b, &k, 1);
    close_pass(&k);
}

/* ---- forward ---- */

/* *kept: the gathered block as what a node keeps, where the gradient of `other` will need it. */
static void keep(const gm_linear_call *c, gm_tensor *t, const gm_value *other, gm_value **kept)
{
    if (!c->rank->keep_gathered || !other->requires_grad) return;
    GM_STEP(c->work, gm_value_take(c->rank, gm_work_keep(c->work, t), kept));
}

static void forward(gm_linear_call *c, pass *k)
{
    gm_work   *w = c->work;
    gm_tensor *y = gm_linear_product(c);
    k->x = gather(k, X, k->over_row, c->x->local, k->dim);
    k->w = gather(k, W, k->over_third, c->w->local, k->third_dim);
    k->y = gm_linear_grown(w, y->dtype, y->ndim, y->shape, k->dim, gm_group_size(k->over_col));
    wait_for(k, X);
    wait_for(k, W);
    if (w->st != GM_OK) return;
    product(k, k->x, false, k->w, true, gm_work_lines(k->x), k->in, k->out, k->y);
    GM_STEP(w, gm_comm_reduce_scatter(k->comm, k->over_col, k->y, k->dim, GM_SUM, y, NULL));
    keep(c, k->x, c->w, &c->kept[0]);
    keep(c, k->w, c->x, &c->kept[1]);
    gm_linear_finish(c);
}

void gm_linear_3d(gm_linear_call *c)
{
    gm_side ws = gm_side_of(c->w);
    GM_STEP(c->work, gm_linear_results(c));
    pass k = open_pass(c->work, &c->plan, &ws);
    if (c->work->st == GM_OK) forward(c, &k);
    close_pass(&k);
}
