/* linear.c - gm_sharded_linear: which algorithm the layouts call for, and SUMMA. 3D is in linear3d.c.
 *
 * Padding is never multiplied along a dimension of w: the products take what the blocks logically hold, and results
 * are zero beyond it. Only rows are taken with their padding; it may hold anything finite in x, and y's gradient is
 * zero there, as the tape sees to. So FLOPs over all ranks are the serial ones, but for padded rows. */
#include "linear.h"

#include <string.h>
#include "../../autograd/rules.h"

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

gm_linear_plan gm_plan_linear(const gm_side *x, const gm_side *w)
{
    gm_linear_plan p = {.kind = GM_LINEAR_LOCAL};
    if (w->ndim != 2 || x->ndim < 2 || x->layout->n_cuts[x->ndim - 1] != 1 || w->layout->n_cuts[0] != 1) return p;
    const uint8_t *out = w->layout->cut[0], *in = w->layout->cut[1];
    int            n_in = w->layout->n_cuts[1];
    p.col = x->layout->cut[x->ndim - 1][0];
    if (n_in == 1 && out[0] == p.col && (p.dim = place_of_cut(x, in[0])) >= 0) {
        p.kind = GM_LINEAR_AB;
        p.row = in[0];
    } else if (n_in == 1 && in[0] == p.col && (p.dim = place_of_cut(x, out[0])) >= 0) {
        p.kind = GM_LINEAR_ABT;
        p.row = out[0];
    } else if (n_in == 2 && in[0] == p.col && (p.dim = place_of_cut(x, out[0])) >= 0 && innermost(x, p.dim, out[0]) &&
               place_of_cut(x, in[1]) >= 0) {
        p.kind = GM_LINEAR_3D;
        p.row = out[0];
        p.third = in[1];
    }
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

static gm_side side_of(const gm_value *v) { return (gm_side){&v->layout, v->ndim, v->shape}; }

void gm_side_extent(const gm_rank *r, const gm_side *s, int d, int64_t *logical, int64_t *block)
{
    gm_box  box;
    int64_t padded[GM_MAX_DIMS], inside[GM_MAX_DIMS];
    gm_layout_block(&r->mesh, s->layout, r->coordinate, s->ndim, s->shape, &box, padded, inside);
    *logical = inside[d];
    *block = padded[d];
}

static gm_status refuse(const char *why, const gm_value *x, const gm_value *w)
{
    char a[256], b[256];
    return GM_FAIL(GM_ESHAPE, "sharded linear: %s: x is %s, w %s; redistribute one of them", why,
                   gm_value_describe(x, a, sizeof a), gm_value_describe(w, b, sizeof b));
}

/* What the products rely on. Blocks of the inner dimension are compared by size: the unit that a cut falls between may
 * differ where it makes none. */
static gm_status check(const gm_rank *r, const gm_linear_plan *p, const gm_value *x, const gm_value *w)
{
    gm_side   xs = side_of(x), ws = side_of(w);
    gm_layout outer = w->layout;
    int64_t   logical, of_x, of_w;
    if (r->mesh.axis[p->row].size != r->mesh.axis[p->col].size)
        return refuse("rows and columns are cut by axes of different size", x, w);
    if (x->layout.partial & w->layout.partial) return refuse("both operands are sums over the same ranks", x, w);
    outer.n_cuts[1] = 1;
    ws.layout = &outer;
    gm_side_extent(r, &xs, x->ndim - 1, &logical, &of_x);
    gm_side_extent(r, &ws, 1, &logical, &of_w);
    if (of_x != of_w) return refuse("the dimension summed over is cut into blocks of different size", x, w);
    return GM_OK;
}

/* ---- blocks ---- */

gm_status gm_block_contiguous(gm_rank *r, gm_tensor *t, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    if (gm_tensor_is_contiguous(t)) {
        gm_tensor_retain(t);
        *out = t;
        return GM_OK;
    }
    gm_tensor *y = NULL;
    gm_rank_place(r, "linear");
    GM_TRY(gm_tensor_new(r->device, t->dtype, t->ndim, t->shape, &y));
    gm_call   c = {.op = GM_OP_copy, .n_in = 1, .n_out = 1, .in = &t, .out = &y, .attrs = &a};
    gm_status st = gm_run(r->device, &c);
    if (st == GM_OK) *out = y;
    else gm_tensor_release(y);
    return st;
}

gm_status gm_block_rows(gm_rank *r, gm_tensor *t, gm_tensor **rows)
{
    gm_tensor *y = NULL;
    int64_t    shape[2] = {1, t->shape[t->ndim - 1]};
    for (int d = 0; d < t->ndim - 1; d++) shape[0] *= t->shape[d];
    GM_TRY(gm_block_contiguous(r, t, &y));
    gm_status st = gm_tensor_reshape(y, 2, shape, rows);
    gm_tensor_release(y);
    return st;
}

gm_status gm_linear_result(gm_rank *r, const gm_linear_plan *p, gm_value *x, gm_value *w, gm_value **y)
{
    gm_layout layout = x->layout;
    int64_t   shape[GM_MAX_DIMS];
    int       last = x->ndim - 1;
    memcpy(shape, x->shape, sizeof shape);
    shape[last] = w->shape[0];
    gm_layout_copy_dim(&layout, last, &w->layout, 0);
    if (p->kind == GM_LINEAR_3D) layout.cut[p->dim][layout.n_cuts[p->dim] - 1] = (uint8_t)p->col;
    else layout.cut[last][0] = (uint8_t)p->col;
    layout.partial |= w->layout.partial;
    if (gm_layout_check(&r->mesh, &layout, x->ndim) != GM_OK)
        return refuse("one operand is a sum over ranks that cut the other", x, w);
    return gm_value_new_block(r, "linear", x->local->dtype, &layout, x->ndim, shape, y);
}

/* ---- SUMMA: what the three products of a layer are made of ---- */

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

/* Gradients are partial as gm_layout_gradient says: where w is copied and rows are cut. Slots: 0 x, 1 w. */
static gm_status summa_rule(gm_backward *b)
{
    gm_side        x, w;
    gm_linear_plan p = gm_plan_of(b, &x, &w);
    gm_rank       *r = gm_backward_rank(b);
    gm_tensor     *saved[2], *t, *rows = NULL;
    work           k = {0};
    gm_status      st;
    bool           accumulate;
    GM_TRY(gm_backward_saved(b, 0, &saved[0]));
    GM_TRY(gm_backward_saved(b, 1, &saved[1]));
    GM_TRY_OR(gm_block_rows(r, gm_backward_grad(b, 0), &k.y), st, done);
    GM_TRY_OR(open_work(r, &p, &w, k.y->shape[0], &k), st, done);
    GM_TRY_OR(gm_block_rows(r, saved[1], &k.w), st, done);
    if (gm_backward_wants(b, 0)) {
        GM_TRY_OR(gm_backward_target(b, 0, &t, &accumulate), st, done);
        GM_TRY_OR(gm_block_rows(r, t, &rows), st, done);
        GM_TRY_OR(gradient_of_x(&k, rows, accumulate), st, done);
    }
    if (gm_backward_wants(b, 1)) {
        GM_TRY_OR(gm_block_rows(r, saved[0], &k.x), st, done);
        GM_TRY_OR(gm_backward_target(b, 1, &t, &accumulate), st, done);
        GM_TRY_OR(gradient_of_w(&k, t, accumulate), st, done);
    }
done:
    gm_tensor_release(rows);
    close_work(&k);
    return st;
}

static gm_status summa(gm_rank *r, const gm_linear_plan *p, gm_value *x, gm_value *w, gm_value **y)
{
    gm_value *in[2] = {x, w}, *v = NULL;
    gm_side   ws = side_of(w);
    work      k = {0};
    gm_status st;
    GM_TRY(gm_linear_result(r, p, x, w, &v));
    GM_TRY_OR(gm_block_rows(r, x->local, &k.x), st, done);
    GM_TRY_OR(gm_block_rows(r, w->local, &k.w), st, done);
    GM_TRY_OR(gm_block_rows(r, v->local, &k.y), st, done);
    GM_TRY_OR(open_work(r, p, &ws, k.x->shape[0], &k), st, done);
    GM_TRY_OR(forward(&k), st, done);
    gm_record rec = {
        .name = "linear", .rule = summa_rule, .n_in = 2, .in = in, .n_out = 1, .out = &v, .n_saved = 2, .saved = in};
    GM_TRY_OR(gm_tape_record(r, &rec), st, done);
    *y = v;
    v = NULL;
done:
    gm_value_release(v);
    close_work(&k);
    return st;
}

gm_status gm_sharded_linear(gm_rank *r, gm_value *x, gm_value *w, bool keep_gathered, gm_value **y)
{
    gm_side        xs = side_of(x), ws = side_of(w);
    gm_linear_plan p = gm_plan_linear(&xs, &ws);
    gm_device     *dev;
    bool           legal = w->ndim == 2 && x->ndim && x->shape[x->ndim - 1] == w->shape[1] &&
                 x->local->dtype == w->local->dtype && gm_dtype_is_float(x->local->dtype);
    if (p.kind == GM_LINEAR_LOCAL || !legal) return gm_linear(r, x, w, NULL, GM_FN_none, y);
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(check(r, &p, x, w));
    return p.kind == GM_LINEAR_3D ? gm_linear_3d(r, &p, x, w, keep_gathered, y) : summa(r, &p, x, w, y);
}
