/* linear1d.c - products of whole rows of x with the rows of w that a rank holds, y cut as w's rows are.
 *
 * Column kind (Shoeybi et al., arXiv:1909.08053): every rank has x; dx is a sum over the ranks that share it. Gather
 * kind (Korthikanti et al., arXiv:2205.05198): each has some of the rows of x, which are gathered first, and dx is
 * scattered back; the shard is kept for backward and gathered again, unless the rank keeps what it gathers. Sums of dx
 * run under the product of dw, and x is gathered again under that of dx. */
#include "linear.h"

#include "../../autograd/layout_rules/rules.h"

typedef struct pass {
    gm_work    *work;
    gm_comm    *comm;
    int         dim;     /* of x: what is gathered */
    gm_group   *over;    /* by whom; NULL: nothing is */
    gm_group   *sharing; /* who have x: dx is summed over them; NULL: nobody else */
    int64_t     whole;   /* rows along dim once gathered, without what pads the blocks */
    int64_t     out, in; /* of O and I, what this rank multiplies */
    gm_tensor  *x;       /* all rows of x, I as in its block */
    gm_tensor  *part;    /* this rank's part of the sum of dx */
    gm_pending *gathering, *summing;
} pass;

static pass open_pass(gm_work *work, const gm_linear_plan *p, const gm_side *x, const gm_side *w)
{
    gm_rank  *r = work->rank;
    gm_layout gathered = *x->layout;
    gm_side   all = {&gathered, x->ndim, x->shape};
    uint32_t  shared = gm_layout_dim_axes(w->layout, 0) & ~(gm_layout_cut_axes(x->layout) | x->layout->partial);
    int64_t   logical, block;
    pass      k = {.work = work, .dim = p->dim};
    GM_STEP(work, gm_rank_comm(r, &k.comm));
    gm_side_extent(r, w, 0, &k.out, &block);
    gm_side_extent(r, w, 1, &k.in, &block);
    if (shared) k.sharing = gm_rows_group(work, shared);
    if (p->kind != GM_LINEAR_GATHER) return k;
    gathered.n_cuts[p->dim]--;
    gm_side_extent(r, &all, p->dim, &logical, &k.whole);
    k.over = gm_rows_group(work, 1u << p->row);
    return k;
}

/* What has not been waited for is left to itself: something failed. */
static void close_pass(pass *k)
{
    gm_comm_drop(k->comm, k->gathering);
    gm_comm_drop(k->comm, k->summing);
}

/* All rows of x from this rank's block: under way until k->gathering is waited for. */
static gm_tensor *gather(pass *k, gm_tensor *block)
{
    gm_work   *w = k->work;
    gm_tensor *mine = k->over ? gm_work_contiguous(w, block) : block;
    if (!k->over || w->st != GM_OK) return mine;
    gm_tensor *all = gm_linear_grown(w, mine->dtype, mine->ndim, mine->shape, k->dim, gm_group_size(k->over));
    gm_tensor *inside = gm_work_narrow(w, all, k->dim, 0, k->whole);
    gm_rows_all_gather(w, k->over, mine, k->dim, all, &k->gathering);
    return inside;
}

/* ---- forward ---- */

/* The op `linear` on what blocks logically hold; y and pre become zero beyond it. */
static void multiply(const gm_linear_call *c, const pass *k)
{
    gm_work   *w = k->work;
    gm_tensor *out[2] = {NULL, NULL}, *whole[2] = {c->y->local, c->pre ? c->pre->local : NULL};
    gm_attrs   a = gm_attrs_default();
    int        last = c->y->ndim - 1;
    a.function = c->f;
    gm_tensor *x = gm_work_narrow(w, k->x, last, 0, k->in);
    gm_tensor *weight = gm_work_narrow(w, gm_work_narrow(w, c->w->local, 0, 0, k->out), 1, 0, k->in);
    gm_tensor *in[3] = {x, weight, c->b ? gm_work_narrow(w, c->b->local, 0, 0, k->out) : NULL};
    for (int i = 0; i < 2; i++) {
        if (!whole[i]) continue;
        if (k->out < whole[i]->shape[last]) gm_work_fill(w, whole[i], 0);
        out[i] = gm_work_narrow(w, whole[i], last, 0, k->out);
    }
    if (k->out) gm_work_into(w, GM_OP_linear, 3, in, &a, 2, out);
}

void gm_linear_1d(gm_linear_call *c)
{
    gm_work *w = c->work;
    gm_side  xs = gm_side_of(c->x), ws = gm_side_of(c->w);
    GM_STEP(w, gm_linear_results(c));
    pass k = open_pass(w, &c->plan, &xs, &ws);
    k.x = gather(&k, c->x->local);
    w->sent |= w->st == GM_OK;
    GM_STEP(w, gm_linear_bias(c));
    GM_STEP(w, gm_comm_finish(k.comm, &k.gathering));
    if (w->st == GM_OK) multiply(c, &k);
    if (k.over && c->rank->keep_gathered && c->w->requires_grad)
        GM_STEP(w, gm_value_take(c->rank, gm_work_keep(w, k.x), &c->kept[0]));
    close_pass(&k);
}

/* ---- backward ---- */

/* y (..., out) x (out, in) into the first rows along dim of dx; zeros elsewhere. */
static void terms_of_x(pass *k, gm_tensor *y, gm_tensor *weight, gm_tensor *dx)
{
    gm_work *w = k->work;
    int      mark = w->n_held;
    if (w->st != GM_OK) return;
    bool       padded = k->over && k->whole < dx->shape[k->dim];
    gm_tensor *to = padded ? gm_work_narrow(w, dx, k->dim, 0, k->whole) : dx, *compact = to;
    if (padded) gm_work_fill(w, dx, 0);
    if (to && !gm_tensor_is_contiguous(to)) compact = gm_work_like(w, to);
    gm_operand a = {.block = gm_work_compact(w, y)}, b = {.block = weight};
    gm_tensor *rows = gm_work_compact(w, compact);
    if (rows) gm_block_product(w, &a, &b, rows->shape[0], k->out, k->in, false, rows);
    if (compact != to) gm_work_copy(w, compact, to);
    gm_work_drop(w, mark);
}

/* dx = dy w: its sum is under way afterwards. */
static void gradient_of_x(gm_backward *b, pass *k, gm_tensor *dy)
{
    gm_work         *w = k->work;
    const gm_spec   *x = gm_backward_input(b, 0);
    const gm_layout *from = gm_backward_output_layout(b, 0, NULL), *to = gm_backward_input_layout(b, 0, NULL);
    uint32_t         summed = gm_layout_dim_axes(gm_backward_input_layout(b, 1, NULL), 0);
    gm_tensor       *dx = gm_linear_grown(w, x->dtype, x->ndim, x->shape, k->dim, k->over ? gm_group_size(k->over) : 1);
    terms_of_x(k, dy, gm_backward_saved(b, 1), dx);
    gm_backward_set_partial(b, 0, gm_layout_gradient(to, from, gm_backward_partial(b)) & ~summed);
    k->part = k->over ? gm_backward_like(b, 0) : dx;
    if (k->over) GM_STEP(w, gm_comm_reduce_scatter(k->comm, k->over, dx, k->dim, GM_SUM, k->part, &k->summing));
    else if (k->sharing) GM_STEP(w, gm_comm_all_reduce(k->comm, k->sharing, dx, GM_SUM, &k->summing));
}

/* dw = dy' x, and db with it */
static void gradient_of_w(gm_backward *b, pass *k, gm_tensor *dy)
{
    gm_work *w = k->work;
    GM_STEP(w, gm_comm_finish(k->comm, &k->gathering));
    gm_tensor *y = gm_work_narrow(w, gm_work_compact(w, dy), 1, 0, k->out);
    gm_linear_rule_weight(b, y, gm_work_narrow(w, gm_work_compact(w, k->x), 1, 0, k->in));
}

void gm_linear_1d_rule(gm_backward *b)
{
    gm_side        xs, ws;
    gm_linear_plan p = gm_plan_of(b, &xs, &ws);
    gm_work       *w = gm_backward_work(b);
    pass           k = open_pass(w, &p, &xs, &ws);
    w->sent |= w->st == GM_OK;
    if (gm_backward_wants(b, 1)) {
        k.x = gm_backward_saved(b, 0);
        if (!gm_backward_extra(b)[0]) k.x = gather(&k, k.x);
    }
    gm_tensor *dy = gm_linear_rule_pre(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    if (gm_backward_wants(b, 0)) gradient_of_x(b, &k, dy);
    if (gm_backward_wants(b, 1)) gradient_of_w(b, &k, dy);
    GM_STEP(w, gm_comm_finish(k.comm, &k.summing));
    gm_linear_rule_keep(b, dy);
    if (k.part) gm_backward_give(b, 0, k.part);
    close_pass(&k);
}
