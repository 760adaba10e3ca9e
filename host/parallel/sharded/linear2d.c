/* linear2d.c - the layer of gm_sharded_linear on operands in blocks on q x q ranks: three products of summa.h, which
 * convolutions of such blocks take, too. */
#include "linear.h"

gm_grid gm_grid_open(gm_work *work, const gm_linear_plan *p, const gm_side *w, int of_out)
{
    gm_rank *r = work->rank;
    gm_grid  k = {.work = work, .both = p->kind == GM_LINEAR_AB, .q = r->mesh.axis[p->row].size};
    k.along_row = gm_rows_group(work, 1u << p->col);
    k.along_column = gm_rows_group(work, 1u << p->row);
    gm_side_extent(r, w, of_out, &k.out.n, &k.each_out.block);
    gm_side_extent(r, w, !of_out, &k.in.n, &k.each_in.block);
    k.each_out.n = w->shape[of_out];
    k.each_in.n = w->shape[!of_out];
    return k;
}

/* y: the block of y, or of its gradient. */
static gm_grid open_matrices(gm_work *work, const gm_linear_plan *p, const gm_side *w, gm_tensor *y)
{
    gm_grid k = gm_grid_open(work, p, w, 0);
    k.y = gm_work_compact(work, y);
    if (k.y) k.rows.n = k.y->shape[0];
    return k;
}

/* y = x w' */
void gm_grid_forward(const gm_grid *k)
{
    gm_summa s = {.work = k->work, .steps = k->q, .out = k->y, .m = k->rows};
    s.product = k->of_y;
    s.a = (gm_operand){k->x, false, k->both ? k->along_row : NULL};
    s.b = (gm_operand){k->w, true, k->along_column};
    s.k = k->both ? k->each_in : k->in;
    s.n = k->both ? k->out : k->each_out;
    if (!k->both) s.sum = k->along_row;
    s.context = k->context;
    gm_summa_run(&s);
}

/* dx (+)= dy w */
void gm_grid_gradient_of_x(const gm_grid *k, gm_tensor *dx, bool accumulate)
{
    gm_summa s = {.work = k->work, .steps = k->q, .out = dx, .accumulate = accumulate, .m = k->rows};
    s.product = k->of_x;
    s.a = (gm_operand){k->y, false, k->both ? NULL : k->along_row};
    s.b = (gm_operand){k->w, false, k->along_column};
    s.k = k->both ? k->out : k->each_out;
    s.n = k->both ? k->each_in : k->in;
    if (k->both) s.sum = k->along_row;
    s.context = k->context;
    gm_summa_run(&s);
}

/* dw (+)= dy' x, over this column's rows: over other ranks with other rows it is partial */
void gm_grid_gradient_of_w(const gm_grid *k, gm_tensor *dw, bool accumulate)
{
    gm_summa s = {.work = k->work, .steps = k->q, .out = dw, .accumulate = accumulate, .k = k->rows};
    s.product = k->of_w;
    s.a = (gm_operand){k->y, true, k->both ? NULL : k->along_row};
    s.b = (gm_operand){k->x, false, k->both ? k->along_row : NULL};
    s.m = k->both ? k->out : k->each_out;
    s.n = k->both ? k->each_in : k->in;
    s.sum = k->along_column;
    s.context = k->context;
    gm_summa_run(&s);
}

/* Gradients are partial as gm_layout_gradient says: where w is copied and rows are cut. */
void gm_linear_2d_rule(gm_backward *b)
{
    gm_side        xs, ws;
    gm_linear_plan p = gm_plan_of(b, &xs, &ws);
    gm_work       *w = gm_backward_work(b);
    gm_tensor     *dy = gm_linear_rule_bias(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    gm_grid        k = open_matrices(w, &p, &ws, dy);
    bool           accumulate;
    if (gm_backward_wants(b, 0)) {
        k.w = gm_work_compact(w, gm_backward_saved(b, 1));
        gm_tensor *dx = gm_work_compact(w, gm_backward_target(b, 0, &accumulate));
        if (w->st == GM_OK) gm_grid_gradient_of_x(&k, dx, accumulate);
    }
    if (gm_backward_wants(b, 1)) {
        k.x = gm_work_compact(w, gm_backward_saved(b, 0));
        gm_tensor *dw = gm_backward_target(b, 1, &accumulate);
        if (w->st == GM_OK) gm_grid_gradient_of_w(&k, dw, accumulate);
    }
    gm_linear_rule_keep(b, dy);
}

void gm_linear_2d(gm_linear_call *c)
{
    gm_work *w = c->work;
    gm_side  ws = gm_side_of(c->w);
    GM_STEP(w, gm_linear_results(c));
    gm_grid k = open_matrices(w, &c->plan, &ws, w->st == GM_OK ? gm_linear_product(c) : NULL);
    k.x = gm_work_compact(w, c->x->local);
    k.w = gm_work_compact(w, c->w->local);
    if (w->st == GM_OK) gm_grid_forward(&k);
    gm_linear_finish(c);
}
