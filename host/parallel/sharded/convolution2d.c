/* convolution2d.c - see convolution.h. */
#include "convolution.h"

static int outputs_of(gm_op op) { return op == GM_OP_transposed_convolution; } /* the dimension of w that is outputs */

/* ---- layouts ---- */

/* The only axis that cuts a dimension; -1: none or several. */
static int only_cut(const gm_layout *l, int d) { return l->n_cuts[d] == 1 ? l->cut[d][0] : -1; }

gm_linear_plan gm_plan_channels(gm_op op, const gm_attrs *attrs, const gm_side *x, const gm_side *w)
{
    gm_linear_plan p = {.kind = GM_LINEAR_LOCAL};
    if (x->ndim < 3 || attrs->groups > 1) return p;
    int out = only_cut(w->layout, outputs_of(op)), in = only_cut(w->layout, !outputs_of(op));
    p.col = only_cut(x->layout, 1);
    if (p.col < 0 || out < 0 || in < 0 || (out != p.col && in != p.col)) return p;
    p.row = out == p.col ? in : out;
    if (gm_layout_dim_axes(x->layout, 0) & 1u << p.row) p.kind = out == p.col ? GM_LINEAR_AB : GM_LINEAR_ABT;
    return p;
}

/* Blocks of channels are compared by size: x may come with cuts between units of several channels. */
static gm_status check_blocks(const gm_rule_call *c, const gm_linear_plan *p)
{
    const gm_mesh *mesh = &c->r->mesh;
    gm_side        x = gm_side_of(c->in[0]), w = gm_side_of(c->in[1]);
    int64_t        logical, of_x, of_w;
    if (mesh->axis[p->row].size != mesh->axis[p->col].size)
        return gm_rule_refuse(c, "rows and columns of channels are cut by axes of different size");
    gm_side_extent(c->r, &x, 1, &logical, &of_x);
    gm_side_extent(c->r, &w, !outputs_of(c->op), &logical, &of_w);
    return of_x == of_w ? GM_OK
                        : gm_rule_refuse(c, "the channels of x are cut into blocks of another size than those of w");
}

gm_status gm_rule_channels(gm_rule_call *c, const gm_linear_plan *p, int first)
{
    for (int d = 2; d < c->in[0]->ndim; d++) {
        if (d >= first) GM_TRY(gm_rule_whole(c, 0, d, "the space that the kernel goes over is cut"));
        GM_TRY(gm_rule_whole(c, 1, d, "the kernel is cut"));
    }
    GM_TRY(gm_rule_no_partial(c));
    GM_TRY(check_blocks(c, p));
    GM_TRY(gm_rule_join(c, 0, 0, 0));
    c->out[0].n_cuts[1] = 1;
    c->out[0].cut[1][0] = (uint8_t)p->col;
    GM_TRY(gm_rule_join(c, 2, 0, 1));
    return gm_rule_slices(c);
}

/* ---- products of blocks ---- */

typedef struct terms {
    const gm_channels *call;
    gm_tensor         *term; /* of a result that is added up in place */
} terms;

/* The kernels set what they make: a further term is made beside the result. */
static gm_tensor *place(const terms *t, bool accumulate, gm_tensor *c) { return accumulate ? t->term : c; }

static void add(gm_work *w, gm_tensor *term, gm_tensor *c)
{
    if (term != c) gm_work_into(w, GM_OP_axpy, 1, &term, NULL, 1, &c);
}

static void of_y(gm_work *w, const void *context, gm_tensor *x, gm_tensor *weight, bool accumulate, gm_tensor *y)
{
    const terms *t = context;
    gm_attrs     a = *t->call->attrs;
    gm_tensor   *in[3] = {x, weight, NULL}, *out[2] = {place(t, accumulate, y), NULL};
    a.function = GM_FN_none;
    gm_work_into(w, t->call->op, 3, in, &a, 2, out);
    add(w, out[0], y);
}

static void of_x(gm_work *w, const void *context, gm_tensor *dy, gm_tensor *weight, bool accumulate, gm_tensor *dx)
{
    const terms *t = context;
    gm_tensor   *to = place(t, accumulate, dx);
    gm_convolution_input_gradient(w, t->call->op, t->call->attrs, dy, weight, to);
    add(w, to, dx);
}

static void of_w(gm_work *w, const void *context, gm_tensor *dy, gm_tensor *x, bool accumulate, gm_tensor *dw)
{
    const terms *t = context;
    gm_convolution_weight_gradient(w, t->call->op, t->call->attrs, dy, x, accumulate, dw);
}

static gm_tensor *given(gm_work *w, gm_tensor *t) { return t ? gm_work_contiguous(w, t) : NULL; }

/* Of x, w and y one is what the product makes. */
static gm_grid open_grid(const gm_channels *c, const terms *t, gm_tensor *x, gm_tensor *w, gm_tensor *y)
{
    gm_grid k = gm_grid_open(c->work, &c->plan, &c->w, outputs_of(c->op));
    k.x = given(c->work, x);
    k.w = given(c->work, w);
    k.y = given(c->work, y);
    if (k.y) k.rows.n = k.y->shape[0];
    k.of_y = of_y;
    k.of_x = of_x;
    k.of_w = of_w;
    k.context = t;
    return k;
}

/* ---- a call ---- */

void gm_channels_forward(const gm_channels *c, gm_tensor *x, gm_tensor *w, gm_tensor *y)
{
    terms t = {.call = c};
    int   mark = c->work->n_held;
    if (c->plan.kind == GM_LINEAR_AB && c->work->st == GM_OK) t.term = gm_work_like(c->work, y);
    gm_grid k = open_grid(c, &t, x, w, y);
    if (c->work->st == GM_OK) gm_grid_forward(&k);
    gm_work_drop(c->work, mark);
}

void gm_channels_gradient_of_x(const gm_channels *c, gm_tensor *dy, gm_tensor *w, gm_tensor *dx)
{
    terms t = {.call = c};
    int   mark = c->work->n_held;
    if (c->plan.kind == GM_LINEAR_ABT && c->work->st == GM_OK) t.term = gm_work_like(c->work, dx);
    gm_grid k = open_grid(c, &t, NULL, w, dy);
    if (c->work->st == GM_OK) gm_grid_gradient_of_x(&k, dx, false);
    gm_work_drop(c->work, mark);
}

void gm_channels_gradient_of_w(const gm_channels *c, gm_tensor *dy, gm_tensor *x, gm_tensor *dw, bool accumulate)
{
    terms   t = {.call = c};
    int     mark = c->work->n_held;
    gm_grid k = open_grid(c, &t, x, NULL, dy);
    if (c->work->st == GM_OK) gm_grid_gradient_of_w(&k, dw, accumulate);
    gm_work_drop(c->work, mark);
}

void gm_channels_finish(const gm_channels *c, gm_tensor *b, gm_tensor *sum, gm_tensor *y)
{
    gm_work *w = c->work;
    int64_t  shape[GM_MAX_DIMS] = {1, 1, 1, 1, 1};
    if (w->st != GM_OK) return;
    if (b) {
        shape[0] = b->shape[0]; /* beside the space: (channels, 1, ...) */
        gm_tensor *all = gm_work_expand(w, gm_work_shaped(w, b, sum->ndim - 1, shape), sum->ndim, sum->shape);
        gm_work_into(w, GM_OP_axpy, 1, &all, NULL, 1, &sum);
    }
    if (sum == y) return;
    gm_attrs a = gm_attrs_default();
    a.function = c->attrs->function;
    gm_work_into(w, GM_OP_unary, 1, &sum, &a, 1, &y);
}
