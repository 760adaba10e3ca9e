/* linear.c - gm_sharded_linear: chooses the algorithm from the layouts, and holds the parts that all algorithms share.
 *
 * Products never include padding along a dimension of w: they take the logical part of the blocks, and results are zero
 * beyond it. Rows are taken with their padding, which is zero. So the FLOPs of all ranks together are those of the
 * serial product, plus those of padded rows. */
#include "linear.h"

#include <string.h>
#include "../../autograd/apply_blocks.h"
#include "../../autograd/gradients.h"
#include "../../autograd/padding.h"
#include "../redistribute.h"
#include "../../autograd/layout_rules/rules.h"

/* ---- plans ---- */

static int place_of_cut(const gm_side *s, int axis)
{
    for (int d = 0; d < s->ndim - 1; d++)
        if (gm_layout_dim_axes(s->layout, d) & 1u << axis) return d;
    return -1;
}

static bool innermost(const gm_side *s, int d, int axis)
{
    int n = s->layout->n_cuts[d];
    return n && s->layout->cut[d][n - 1] == axis;
}

/* Both dimensions of w and the last of x are cut. */
static gm_linear_plan plan_blocks(const gm_side *x, const gm_side *w)
{
    gm_linear_plan p = {.kind = GM_LINEAR_LOCAL};
    const uint8_t *out = w->layout->cut[0], *in = w->layout->cut[1];
    int            n_out = w->layout->n_cuts[0], n_in = w->layout->n_cuts[1];
    p.col = x->layout->cut[x->ndim - 1][0];
    if (x->layout->n_cuts[x->ndim - 1] != 1) return p;
    if (n_out == 1 && n_in == 1 && out[0] == p.col && (p.dim = place_of_cut(x, in[0])) >= 0) {
        p.kind = GM_LINEAR_AB;
        p.row = in[0];
    } else if (n_out == 1 && n_in == 1 && in[0] == p.col && (p.dim = place_of_cut(x, out[0])) >= 0) {
        p.kind = GM_LINEAR_ABT;
        p.row = out[0];
    } else if (n_out + n_in == 3 && in[0] == p.col && (p.dim = place_of_cut(x, out[0])) >= 0 &&
               innermost(x, p.dim, out[0])) {
        p.third_dim = n_in == 2;
        p.third = w->layout->cut[p.third_dim][1];
        p.row = out[0];
        if (place_of_cut(x, p.third) >= 0) p.kind = GM_LINEAR_3D;
    }
    return p;
}

gm_linear_plan gm_plan_linear(const gm_side *x, const gm_side *w)
{
    gm_linear_plan p = {.kind = GM_LINEAR_LOCAL};
    if (w->ndim != 2 || x->ndim < 2 || !w->layout->n_cuts[0]) return p;
    if (w->layout->n_cuts[1] && x->layout->n_cuts[x->ndim - 1]) p = plan_blocks(x, w);
    if (p.kind != GM_LINEAR_LOCAL) return p;
    p.row = w->layout->cut[0][0];
    p.dim = place_of_cut(x, p.row);
    p.kind = p.dim >= 0 && innermost(x, p.dim, p.row) ? GM_LINEAR_GATHER : GM_LINEAR_COLUMN;
    return p;
}

gm_linear_plan gm_plan_of(gm_backward *b, gm_side *x, gm_side *w)
{
    gm_side *side[2] = {x, w};
    for (int i = 0; i < 2; i++) {
        side[i]->layout = gm_backward_input_layout(b, i, &side[i]->shape);
        side[i]->ndim = gm_backward_input(b, i)->ndim;
    }
    return gm_plan_linear(x, w);
}

void gm_side_extent(const gm_rank *r, const gm_side *s, int d, int64_t *logical, int64_t *block)
{
    gm_box  box;
    int64_t padded[GM_MAX_DIMS], inside[GM_MAX_DIMS];
    gm_layout_block(&r->mesh, s->layout, r->coordinate, s->ndim, s->shape, &box, padded, inside);
    *logical = inside[d];
    *block = padded[d];
}

/* ---- what the products rely on ---- */

static gm_status refuse(const char *why, const gm_linear_call *c)
{
    char x[256], w[256], b[256];
    return GM_FAIL(GM_ESHAPE, "linear: %s: x is %s, w %s%s%s; " GM_RULE_CURE, why, gm_value_describe(c->x, x, sizeof x),
                   gm_value_describe(c->w, w, sizeof w), c->b ? ", b " : "",
                   c->b ? gm_value_describe(c->b, b, sizeof b) : "");
}

/* Whole rows of x by rows of w: the dimension summed over is cut alike in both, or in none. */
static gm_status check_1d(const gm_linear_call *c)
{
    const gm_layout *x = &c->x->layout, *w = &c->w->layout;
    int              last = c->x->ndim - 1;
    if (w->partial) return refuse("w is still a sum over ranks", c);
    if (x->n_cuts[last] != w->n_cuts[1] || !gm_layout_dims_agree(x, last, w, 1))
        return refuse("the dimension summed over is cut in different ways", c);
    if (c->plan.kind == GM_LINEAR_GATHER && w->n_cuts[0] > 1)
        return refuse("rows of x can be gathered over one of the axes that cut the rows of w", c);
    return GM_OK;
}

/* Blocks of the inner dimension are compared by size: the unit that a cut falls between may differ where it makes
 * none. */
static gm_status check_blocks(const gm_linear_call *c)
{
    const gm_rank *r = c->rank;
    gm_side        xs = gm_side_of(c->x), ws = gm_side_of(c->w);
    gm_layout      outer = c->w->layout;
    int64_t        logical, of_x, of_w;
    if (r->mesh.axis[c->plan.row].size != r->mesh.axis[c->plan.col].size)
        return refuse("rows and columns are cut by axes of different size", c);
    if (c->x->layout.partial & c->w->layout.partial) return refuse("both operands are sums over the same ranks", c);
    outer.n_cuts[1] = 1;
    ws.layout = &outer;
    gm_side_extent(r, &xs, c->x->ndim - 1, &logical, &of_x);
    gm_side_extent(r, &ws, 1, &logical, &of_w);
    if (of_x != of_w) return refuse("the dimension summed over is cut into blocks of different size", c);
    return GM_OK;
}

gm_tensor *gm_linear_grown(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape, int dim, int members)
{
    int64_t grown[GM_MAX_DIMS];
    memcpy(grown, shape, (size_t)ndim * sizeof *shape);
    if (members > 1) grown[dim] *= members; /* else there may be no such dimension */
    return gm_work_new(w, dtype, ndim, grown);
}

/* ---- results ---- */

/* Rows as x's, columns as w's rows, but for what is gathered, scattered or summed. */
static void lay_out(const gm_linear_call *c, gm_layout *y)
{
    const gm_linear_plan *p = &c->plan;
    int                   last = c->x->ndim - 1;
    *y = c->x->layout;
    y->partial |= c->w->layout.partial;
    gm_layout_copy_dim(y, last, &c->w->layout, 0);
    switch (p->kind) {
    case GM_LINEAR_GATHER: y->n_cuts[p->dim]--; break;
    case GM_LINEAR_AB:
    case GM_LINEAR_ABT: y->cut[last][0] = (uint8_t)p->col; break;
    case GM_LINEAR_3D:
        y->n_cuts[last] = 1;
        y->cut[p->dim][y->n_cuts[p->dim] - 1] = (uint8_t)p->col;
        break;
    case GM_LINEAR_LOCAL:
    case GM_LINEAR_COLUMN: break;
    }
    if (p->kind == GM_LINEAR_GATHER && !y->n_cuts[p->dim]) y->unit[p->dim] = 0;
    if (p->kind == GM_LINEAR_COLUMN || p->kind == GM_LINEAR_GATHER) y->partial |= gm_layout_dim_axes(&c->w->layout, 1);
}

gm_status gm_linear_results(gm_linear_call *c)
{
    gm_layout layout;
    int64_t   shape[GM_MAX_DIMS];
    gm_value *in[3] = {c->x, c->w, c->b};
    memcpy(shape, c->x->shape, sizeof shape);
    shape[c->x->ndim - 1] = c->w->shape[0];
    lay_out(c, &layout);
    if (gm_layout_check(&c->rank->mesh, &layout, c->x->ndim) != GM_OK)
        return refuse("one operand is a sum over ranks that cut the other, or an axis would cut twice", c);
    if (layout.partial && c->f != GM_FN_none)
        return refuse("the activation needs the sum, and this is a term of it", c);
    GM_TRY(gm_value_new_block(c->rank, "linear", c->x->local->dtype, &layout, c->x->ndim, shape, &c->y));
    if (c->f == GM_FN_none || !gm_tape_wanted(c->rank, 3, in)) return GM_OK;
    return gm_value_new_block(c->rank, "linear", c->x->local->dtype, &layout, c->x->ndim, shape, &c->pre);
}

gm_status gm_linear_bias(gm_linear_call *c)
{
    gm_layout to = gm_layout_replicated();
    gm_value *b = NULL;
    if (!c->b) return GM_OK;
    gm_layout_copy_dim(&to, 0, &c->y->layout, c->y->ndim - 1);
    to.partial = c->y->layout.partial;
    GM_TRY(gm_redistribute(c->rank, c->b, &to, &b));
    gm_value_release(c->b);
    c->b = b;
    return GM_OK;
}

gm_tensor *gm_linear_product(const gm_linear_call *c) { return c->pre ? c->pre->local : c->y->local; }

/* t += b in every row; both without padding */
static void add_bias(gm_linear_call *c, gm_tensor *t)
{
    gm_work *w = c->work;
    if (!c->b || w->st != GM_OK) return;
    gm_tensor *b = gm_work_narrow(w, c->b->local, 0, 0, t->shape[t->ndim - 1]);
    gm_tensor *rows = gm_work_expand(w, b, t->ndim, t->shape);
    gm_work_into(w, GM_OP_axpy, 1, &rows, NULL, 1, &t);
}

/* How many rows are activated at once where no second block is at hand. */
#define STRIP 64

/* t = f(t), through a strip of memory: ops do not write over what they read. */
static void activate_in_place(gm_linear_call *c, const gm_attrs *a, gm_tensor *t)
{
    gm_work   *w = c->work;
    gm_tensor *rows = NULL;
    int64_t    shape[2] = {gm_work_lines(t), t->shape[t->ndim - 1]}, step[2] = {t->stride[t->ndim - 2], 1};
    int64_t    each[2] = {shape[0] < STRIP ? shape[0] : STRIP, shape[1]};
    GM_STEP(w, gm_tensor_view(t, 2, shape, step, t->offset, &rows));
    rows = gm_work_hold(w, rows);
    gm_tensor *strip = gm_work_new(w, t->dtype, 2, each);
    for (int64_t row = 0, mark = w->n_held; row < shape[0]; row += STRIP) {
        int64_t    n = shape[0] - row < STRIP ? shape[0] - row : STRIP;
        gm_tensor *from = gm_work_narrow(w, rows, 0, row, n), *to = gm_work_narrow(w, strip, 0, 0, n);
        gm_work_into(w, GM_OP_unary, 1, &from, a, 1, &to);
        gm_work_copy(w, to, from);
        gm_work_drop(w, (int)mark);
    }
}

/* y = f(pre), both without the padding of their last dimension, which becomes zero in y. */
static void activate(gm_linear_call *c, gm_tensor *pre)
{
    gm_work *w = c->work;
    gm_attrs a = gm_attrs_default();
    a.function = c->f;
    if (w->st != GM_OK || c->f == GM_FN_none || !gm_tensor_numel(pre)) return;
    int last = pre->ndim - 1;
    if (!c->pre) {
        activate_in_place(c, &a, pre);
        return;
    }
    if (pre->shape[last] < c->y->local->shape[last]) gm_work_fill(w, c->y->local, 0);
    gm_tensor *y = gm_work_narrow(w, c->y->local, last, 0, pre->shape[last]);
    gm_work_into(w, GM_OP_unary, 1, &pre, &a, 1, &y);
}

void gm_linear_finish(gm_linear_call *c)
{
    int64_t logical, block;
    if (c->work->st != GM_OK) return;
    gm_side ys = gm_side_of(c->y);
    int     last = c->y->ndim - 1;
    c->work->sent = true; /* the product has been, and what it rests on */
    GM_STEP(c->work, gm_linear_bias(c));
    gm_side_extent(c->rank, &ys, last, &logical, &block);
    gm_tensor *inside = gm_work_narrow(c->work, gm_linear_product(c), last, 0, logical);
    add_bias(c, inside);
    activate(c, inside);
}

/* ---- layers ---- */

static const struct {
    void (*forward)(gm_linear_call *c);
    gm_rule rule;
} kinds[] = {
    [GM_LINEAR_COLUMN] = {gm_linear_1d, gm_linear_1d_rule}, [GM_LINEAR_GATHER] = {gm_linear_1d, gm_linear_1d_rule},
    [GM_LINEAR_AB] = {gm_linear_2d, gm_linear_2d_rule},     [GM_LINEAR_ABT] = {gm_linear_2d, gm_linear_2d_rule},
    [GM_LINEAR_3D] = {gm_linear_3d, gm_linear_3d_rule},
};

static gm_status record(const gm_linear_call *c)
{
    gm_value *in[3] = {c->x, c->w, c->b}, *saved[GM_MAX_SAVED] = {NULL};
    gm_attrs  a = gm_attrs_default();
    a.function = c->f;
    for (int i = 0; i < 2; i++) /* each is what the other's gradient needs */
        if (in[!i]->requires_grad) saved[i] = c->kept[i] ? c->kept[i] : in[i];
    saved[GM_SLOT_OUTPUT + 1] = c->pre;
    gm_record rec = {.name = "linear",
                     .rule = kinds[c->plan.kind].rule,
                     .op = GM_OP_linear,
                     .attrs = &a,
                     .n_in = 3,
                     .in = in,
                     .n_out = 1,
                     .out = &c->y,
                     .n_saved = GM_MAX_SAVED,
                     .saved = saved,
                     .extra = {c->kept[0] != NULL, c->kept[1] != NULL},
                     .splits = true};
    return gm_tape_record(c->rank, &rec);
}

static void close_call(gm_linear_call *c)
{
    gm_value *held[] = {c->x, c->w, c->b, c->kept[0], c->kept[1], c->y, c->pre};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) gm_value_release(held[i]);
}

/* *v with dimension d, which is not cut, cut as dimension e of `like`: slices, which send nothing; the gradient is
 * gathered, not left partial. */
static gm_status slice_like(gm_rank *r, gm_value **v, int d, const gm_layout *like, int e)
{
    gm_layout to = (*v)->layout;
    gm_value *cut = NULL;
    if (to.n_cuts[d] || !like->n_cuts[e]) return GM_OK;
    gm_layout_copy_dim(&to, d, like, e);
    if (gm_layout_check(&r->mesh, &to, (*v)->ndim) != GM_OK) return GM_OK; /* the op says what is wrong with it */
    GM_TRY(gm_redistribute(r, *v, &to, &cut));
    gm_value_release(*v);
    *v = cut;
    return GM_OK;
}

/* On the blocks that there are. */
static gm_status apply_local(gm_linear_call *c, gm_value **y)
{
    gm_value     *in[3] = {c->x, c->w, c->b}, *both[2] = {NULL, NULL};
    gm_attrs      a = gm_attrs_default();
    bool          want[2] = {true, false};
    gm_value_call call = {.op = GM_OP_linear, .n_in = 3, .n_out = 2, .in = in, .attrs = &a, .want = want};
    a.function = c->f;
    GM_TRY(gm_apply_blocks(c->rank, &call, both));
    *y = both[0];
    return GM_OK;
}

/* w has all outputs, so b has, too. */
static gm_status local(gm_linear_call *c, gm_value **y)
{
    gm_layout to = gm_layout_replicated();
    gm_value *b = NULL;
    if (c->b && c->b->layout.n_cuts[0] && !c->w->layout.n_cuts[0]) {
        to.partial = c->b->layout.partial;
        GM_TRY(gm_redistribute(c->rank, c->b, &to, &b));
        gm_value_release(c->b);
        c->b = b;
    }
    return apply_local(c, y);
}

static gm_status layer(gm_linear_call *c, gm_value **y)
{
    gm_side x, w;
    GM_TRY(slice_like(c->rank, &c->x, c->x->ndim - 1, &c->w->layout, 1));
    GM_TRY(slice_like(c->rank, &c->w, 1, &c->x->layout, c->x->ndim - 1));
    x = gm_side_of(c->x);
    w = gm_side_of(c->w);
    c->plan = gm_plan_linear(&x, &w);
    if (c->plan.kind == GM_LINEAR_LOCAL) return local(c, y);
    GM_TRY(c->plan.kind == GM_LINEAR_COLUMN || c->plan.kind == GM_LINEAR_GATHER ? check_1d(c) : check_blocks(c));
    kinds[c->plan.kind].forward(c);
    GM_STEP(c->work, gm_padding_finish(c->y)); /* the bias of rows that are padding */
    GM_STEP(c->work, gm_padding_finish(c->pre));
    GM_STEP(c->work, record(c));
    if (c->work->st == GM_OK) gm_value_retain(*y = c->y);
    return c->work->st;
}

gm_status gm_sharded_linear(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value *const *in = call->in;
    gm_work          work;
    gm_linear_call   c = {.rank = r, .work = &work, .x = in[0], .w = in[1], .b = in[2], .f = call->attrs->function};
    gm_spec          whole[2];
    GM_TRY(gm_judge_call(call, whole));
    for (int i = 0; i < 3; i++)
        if (in[i]) gm_value_retain(in[i]);
    gm_work_begin(&work, r, "linear");
    GM_STEP(&work, layer(&c, out));
    close_call(&c);
    return gm_work_end(&work);
}
