/* linear1d.c - products of whole rows of x with the rows of w that a rank holds, y cut as w's rows are.
 *
 * Column kind (Shoeybi et al., arXiv:1909.08053): every rank has x; dx is a sum over the ranks that share it. Gather
 * kind (Korthikanti et al., arXiv:2205.05198): each has some of the rows of x, which are gathered first, and dx is
 * scattered back; the shard is kept for backward and gathered again, unless the rank keeps what it gathers. Sums of dx
 * run under the product of dw, and x is gathered again under that of dx. */
#include "linear.h"

#include <string.h>
#include "../../autograd/gradients.h"
#include "../../autograd/rules.h"
#include "../../autograd/layout_rules/rules.h"

typedef struct work {
    gm_rank    *rank;
    gm_device  *dev;
    gm_comm    *comm;
    int         dim;     /* of x: what is gathered */
    gm_group   *over;    /* by whom; NULL: nothing is */
    gm_group   *sharing; /* who have x: dx is summed over them; NULL: nobody else */
    int64_t     whole;   /* rows along dim once gathered, without what pads the blocks */
    int64_t     out, in; /* of O and I, what this rank multiplies */
    gm_tensor  *x;       /* all rows of x, I as in its block */
    gm_tensor  *dx;      /* terms of the gradient of x, laid out as x above, and this rank's part of their sum */
    gm_tensor  *part;
    gm_pending *gathering, *summing;
} work;

static gm_status open_work(gm_rank *r, const gm_linear_plan *p, const gm_side *x, const gm_side *w, work *k)
{
    gm_layout gathered = *x->layout;
    gm_side   all = {&gathered, x->ndim, x->shape};
    uint32_t  shared = gm_layout_dim_axes(w->layout, 0) & ~(gm_layout_cut_axes(x->layout) | x->layout->partial);
    int64_t   logical, block;
    k->rank = r;
    k->dim = p->dim;
    GM_TRY(gm_rank_device(r, &k->dev));
    GM_TRY(gm_rank_comm(r, &k->comm));
    gm_side_extent(r, w, 0, &k->out, &block);
    gm_side_extent(r, w, 1, &k->in, &block);
    if (shared) GM_TRY(gm_comm_group(k->comm, shared, &k->sharing));
    if (p->kind != GM_LINEAR_GATHER) return GM_OK;
    gathered.n_cuts[p->dim]--;
    gm_side_extent(r, &all, p->dim, &logical, &k->whole);
    return gm_comm_group(k->comm, 1u << p->row, &k->over);
}

/* What has not been waited for is left to itself: something failed. */
static void close_work(work *k)
{
    gm_comm_drop(k->comm, k->gathering);
    gm_comm_drop(k->comm, k->summing);
    gm_tensor_release(k->x);
    gm_tensor_release(k->dx);
    gm_tensor_release(k->part);
}

/* k->x from this rank's block: under way until k->gathering is waited for. */
static gm_status gather(work *k, gm_tensor *block)
{
    gm_tensor *mine = NULL, *all = NULL;
    gm_status  st;
    if (!k->over) {
        gm_tensor_retain(k->x = block);
        return GM_OK;
    }
    GM_TRY_OR(gm_block_contiguous(k->rank, block, &mine), st, done);
    GM_TRY_OR(gm_block_grown(k->rank, mine, k->dim, gm_group_size(k->over), 0, &all), st, done);
    GM_TRY_OR(gm_block_leading(all, k->dim, k->whole, &k->x), st, done);
    st = gm_comm_all_gather(k->comm, k->over, mine, k->dim, all, &k->gathering);
done:
    gm_tensor_release(mine);
    gm_tensor_release(all);
    return st;
}

/* ---- forward ---- */

/* The op `linear` on what blocks logically hold; y and pre become zero beyond it. */
static gm_status multiply(const gm_linear_call *c, const work *k)
{
    gm_tensor *in[3] = {NULL}, *w = NULL, *out[2] = {NULL}, *whole[2] = {c->y->local, c->pre ? c->pre->local : NULL};
    gm_attrs   a = gm_attrs_default();
    int        last = c->y->ndim - 1;
    gm_status  st = GM_OK;
    a.function = c->f;
    GM_TRY_OR(gm_block_leading(k->x, last, k->in, &in[0]), st, done);
    GM_TRY_OR(gm_block_leading(c->w->local, 0, k->out, &w), st, done);
    GM_TRY_OR(gm_block_leading(w, 1, k->in, &in[1]), st, done);
    if (c->b) GM_TRY_OR(gm_block_leading(c->b->local, 0, k->out, &in[2]), st, done);
    for (int i = 0; i < 2; i++) {
        if (!whole[i]) continue;
        if (k->out < whole[i]->shape[last]) GM_TRY_OR(gm_block_zero(k->dev, whole[i]), st, done);
        GM_TRY_OR(gm_block_leading(whole[i], last, k->out, &out[i]), st, done);
    }
    gm_call call = {.op = GM_OP_linear, .n_in = 3, .n_out = 2, .in = in, .out = out, .attrs = &a};
    if (k->out) st = gm_run(k->dev, &call);
done:
    for (int i = 0; i < 3; i++) gm_tensor_release(in[i]);
    gm_tensor_release(w);
    gm_tensor_release(out[0]);
    gm_tensor_release(out[1]);
    return st;
}

static gm_status forward(gm_linear_call *c, work *k)
{
    GM_TRY(gather(k, c->x->local));
    GM_TRY(gm_comm_once(gm_linear_bias(c)));
    GM_TRY(gm_comm_once(gm_comm_finish(k->comm, &k->gathering)));
    GM_TRY(gm_comm_once(multiply(c, k)));
    if (!k->over || !c->rank->keep_gathered || !c->w->requires_grad) return GM_OK;
    gm_tensor_retain(k->x);
    return gm_comm_once(gm_value_take(c->rank, k->x, &c->kept[0]));
}

gm_status gm_linear_1d(gm_linear_call *c)
{
    gm_side   x = gm_side_of(c->x), w = gm_side_of(c->w);
    work      k = {0};
    gm_status st;
    GM_TRY_OR(gm_linear_results(c), st, done);
    GM_TRY_OR(open_work(c->rank, &c->plan, &x, &w, &k), st, done);
    st = forward(c, &k);
done:
    close_work(&k);
    return st;
}

/* ---- backward ---- */

/* y (..., out) x (out, in) into the first rows along dim of k->dx; zeros elsewhere. */
static gm_status terms_of_x(work *k, gm_tensor *y, gm_tensor *w)
{
    gm_operand a = {0}, b = {.block = w};
    gm_tensor *rows = NULL, *to = NULL, *compact = NULL;
    bool       padded = k->over && k->whole < k->dx->shape[k->dim];
    gm_status  st;
    if (padded) GM_TRY(gm_block_zero(k->dev, k->dx));
    if (padded) GM_TRY_OR(gm_block_leading(k->dx, k->dim, k->whole, &to), st, done);
    else gm_tensor_retain(to = k->dx);
    if (gm_tensor_is_contiguous(to)) gm_tensor_retain(compact = to);
    else GM_TRY_OR(gm_tensor_new(k->dev, to->dtype, to->ndim, to->shape, &compact), st, done);
    GM_TRY_OR(gm_block_rows(k->rank, y, &a.block), st, done);
    GM_TRY_OR(gm_block_rows(k->rank, compact, &rows), st, done);
    GM_TRY_OR(gm_block_product(k->dev, &a, &b, rows->shape[0], k->out, k->in, false, rows), st, done);
    if (compact != to) st = gm_run_one(k->dev, GM_OP_copy, NULL, compact, to);
done:
    gm_tensor_release(a.block);
    gm_tensor_release(rows);
    gm_tensor_release(compact);
    gm_tensor_release(to);
    return st;
}

/* dx = dy w: its sum is under way afterwards. */
static gm_status gradient_of_x(gm_backward *b, work *k, gm_tensor *dy)
{
    const gm_spec *x = gm_backward_input(b, 0);
    gm_tensor      like = {.dtype = x->dtype, .ndim = x->ndim}, *w;
    memcpy(like.shape, x->shape, sizeof like.shape);
    GM_TRY(gm_backward_saved(b, 1, &w));
    GM_TRY(gm_block_grown(k->rank, &like, k->dim, k->over ? gm_group_size(k->over) : 1, 0, &k->dx));
    GM_TRY(terms_of_x(k, dy, w));
    gm_backward_set_partial(b, 0,
                            gm_layout_gradient(gm_backward_input_layout(b, 0, NULL),
                                               gm_backward_output_layout(b, 0, NULL), gm_backward_partial(b)) &
                                ~gm_layout_dim_axes(gm_backward_input_layout(b, 1, NULL), 0));
    if (k->over) {
        GM_TRY(gm_backward_new(b, x, &k->part));
        return gm_comm_reduce_scatter(k->comm, k->over, k->dx, k->dim, GM_SUM, k->part, &k->summing);
    }
    gm_tensor_retain(k->part = k->dx);
    return k->sharing ? gm_comm_all_reduce(k->comm, k->sharing, k->dx, GM_SUM, &k->summing) : GM_OK;
}

/* dw = dy' x, and db with it */
static gm_status gradient_of_w(gm_backward *b, work *k, gm_tensor *dy)
{
    gm_tensor *rows[2] = {NULL, NULL}, *inside[2] = {NULL, NULL};
    gm_status  st;
    GM_TRY(gm_comm_finish(k->comm, &k->gathering));
    GM_TRY_OR(gm_block_rows(k->rank, dy, &rows[0]), st, done);
    GM_TRY_OR(gm_block_rows(k->rank, k->x, &rows[1]), st, done);
    GM_TRY_OR(gm_block_leading(rows[0], 1, k->out, &inside[0]), st, done);
    GM_TRY_OR(gm_block_leading(rows[1], 1, k->in, &inside[1]), st, done);
    st = gm_rule_linear_weight(b, inside[0], inside[1]);
done:
    for (int i = 0; i < 2; i++) {
        gm_tensor_release(rows[i]);
        gm_tensor_release(inside[i]);
    }
    return st;
}

static gm_status backward(gm_backward *b, work *k)
{
    gm_tensor *dy = NULL, *g = NULL, *x;
    gm_status  st;
    if (gm_backward_wants(b, 1)) {
        GM_TRY(gm_backward_saved(b, 0, &x));
        if (gm_backward_extra(b)[0]) gm_tensor_retain(k->x = x);
        else GM_TRY(gather(k, x));
    }
    GM_TRY_OR(gm_rule_contiguous(b, gm_backward_grad(b, 0), &g), st, done);
    GM_TRY_OR(gm_rule_linear_pre(b, g, &dy), st, done);
    if (gm_backward_wants(b, 0)) GM_TRY_OR(gradient_of_x(b, k, dy), st, done);
    if (gm_backward_wants(b, 1)) GM_TRY_OR(gradient_of_w(b, k, dy), st, done);
    GM_TRY_OR(gm_comm_finish(k->comm, &k->summing), st, done);
    gm_rule_linear_keep(b, dy);
    if (!k->part) goto done;
    gm_tensor_release(k->dx);
    k->dx = NULL;
    st = gm_backward_give(b, 0, k->part);
    k->part = NULL;
done:
    gm_tensor_release(dy);
    gm_tensor_release(g);
    return st;
}

gm_status gm_linear_1d_rule(gm_backward *b)
{
    gm_side        x, w;
    gm_linear_plan p = gm_plan_of(b, &x, &w);
    work           k = {0};
    gm_status      st = open_work(gm_backward_rank(b), &p, &x, &w, &k);
    if (st == GM_OK) st = gm_comm_once(backward(b, &k));
    close_work(&k);
    return st;
}
