/* linear2d.c - the layer of gm_sharded_linear on operands in blocks on q x q ranks: three products of summa.h. */
#include "linear.h"

#include "../../autograd/rules.h"

typedef struct work {
    gm_rank   *rank;
    bool       both; /* x and w travel: GM_LINEAR_AB; else w travels and y is summed */
    int        q;
    gm_group  *along_row, *along_column;         /* the ranks of this one's row, and column */
    gm_span    rows, out, in, each_out, each_in; /* this rank's blocks, and those of a step */
    gm_tensor *x, *w, *y;                        /* two-dimensional blocks; y or its gradient */
} work;

static gm_status open_work(gm_rank *r, const gm_linear_plan *p, const gm_side *w, int64_t rows, work *k)
{
    gm_comm *comm;
    GM_TRY(gm_rank_comm(r, &comm));
    k->rank = r;
    k->both = p->kind == GM_LINEAR_AB;
    k->q = r->mesh.axis[p->row].size;
    GM_TRY(gm_comm_group(comm, 1u << p->col, &k->along_row));
    GM_TRY(gm_comm_group(comm, 1u << p->row, &k->along_column));
    k->rows = (gm_span){rows, 0};
    gm_side_extent(r, w, 0, &k->out.n, &k->each_out.block);
    gm_side_extent(r, w, 1, &k->in.n, &k->each_in.block);
    k->each_out.n = w->shape[0];
    k->each_in.n = w->shape[1];
    return GM_OK;
}

static void close_work(work *k)
{
    gm_tensor_release(k->x);
    gm_tensor_release(k->w);
    gm_tensor_release(k->y);
}

/* y = x w' */
static gm_status forward(const work *k)
{
    gm_summa s = {.rank = k->rank, .steps = k->q, .out = k->y, .m = k->rows};
    s.a = (gm_operand){k->x, false, k->both ? k->along_row : NULL};
    s.b = (gm_operand){k->w, true, k->along_column};
    s.k = k->both ? k->each_in : k->in;
    s.n = k->both ? k->out : k->each_out;
    if (!k->both) s.sum = k->along_row;
    return gm_summa_run(&s);
}

/* dx (+)= dy w */
static gm_status gradient_of_x(const work *k, gm_tensor *dx, bool accumulate)
{
    gm_summa s = {.rank = k->rank, .steps = k->q, .out = dx, .accumulate = accumulate, .m = k->rows};
    s.a = (gm_operand){k->y, false, k->both ? NULL : k->along_row};
    s.b = (gm_operand){k->w, false, k->along_column};
    s.k = k->both ? k->out : k->each_out;
    s.n = k->both ? k->each_in : k->in;
    if (k->both) s.sum = k->along_row;
    return gm_summa_run(&s);
}

/* dw (+)= dy' x, over this column's rows: over other ranks with other rows it is partial */
static gm_status gradient_of_w(const work *k, gm_tensor *dw, bool accumulate)
{
    gm_summa s = {.rank = k->rank, .steps = k->q, .out = dw, .accumulate = accumulate, .k = k->rows};
    s.a = (gm_operand){k->y, true, k->both ? NULL : k->along_row};
    s.b = (gm_operand){k->x, false, k->both ? k->along_row : NULL};
    s.m = k->both ? k->out : k->each_out;
    s.n = k->both ? k->each_in : k->in;
    s.sum = k->along_column;
    return gm_summa_run(&s);
}

static gm_status give_x(gm_backward *b, work *k)
{
    gm_tensor *w, *dx, *rows = NULL;
    bool       accumulate;
    GM_TRY(gm_backward_saved(b, 1, &w));
    GM_TRY(gm_block_rows(k->rank, w, &k->w));
    GM_TRY(gm_backward_target(b, 0, &dx, &accumulate));
    GM_TRY(gm_block_rows(k->rank, dx, &rows));
    gm_status st = gradient_of_x(k, rows, accumulate);
    gm_tensor_release(rows);
    return st;
}

static gm_status give_w(gm_backward *b, work *k)
{
    gm_tensor *x, *dw;
    bool       accumulate;
    GM_TRY(gm_backward_saved(b, 0, &x));
    GM_TRY(gm_block_rows(k->rank, x, &k->x));
    GM_TRY(gm_backward_target(b, 1, &dw, &accumulate));
    return gradient_of_w(k, dw, accumulate);
}

/* Gradients are partial as gm_layout_gradient says: where w is copied and rows are cut. */
gm_status gm_linear_2d_rule(gm_backward *b)
{
    gm_side        x, w;
    gm_linear_plan p = gm_plan_of(b, &x, &w);
    gm_rank       *r = gm_backward_rank(b);
    gm_tensor     *g = NULL, *dy = NULL;
    work           k = {0};
    gm_status      st;
    GM_TRY_OR(gm_rule_contiguous(b, gm_backward_grad(b, 0), &g), st, done);
    GM_TRY_OR(gm_rule_linear_bias(b, g, &dy), st, done);
    GM_TRY_OR(gm_block_rows(r, dy, &k.y), st, done);
    GM_TRY_OR(open_work(r, &p, &w, k.y->shape[0], &k), st, done);
    if (gm_backward_wants(b, 0)) GM_TRY_OR(give_x(b, &k), st, done);
    if (gm_backward_wants(b, 1)) GM_TRY_OR(gm_comm_once(give_w(b, &k)), st, done);
    gm_rule_linear_keep(b, dy);
done:
    gm_tensor_release(dy);
    gm_tensor_release(g);
    close_work(&k);
    return st;
}

gm_status gm_linear_2d(gm_linear_call *c)
{
    gm_side   w = gm_side_of(c->w);
    work      k = {0};
    gm_status st;
    GM_TRY_OR(gm_linear_results(c), st, done);
    GM_TRY_OR(gm_block_rows(c->rank, c->x->local, &k.x), st, done);
    GM_TRY_OR(gm_block_rows(c->rank, c->w->local, &k.w), st, done);
    GM_TRY_OR(gm_block_rows(c->rank, gm_linear_product(c), &k.y), st, done);
    GM_TRY_OR(open_work(c->rank, &c->plan, &w, k.x->shape[0], &k), st, done);
    GM_TRY_OR(forward(&k), st, done);
    st = gm_comm_once(gm_linear_finish(c));
done:
    close_work(&k);
    return st;
}
