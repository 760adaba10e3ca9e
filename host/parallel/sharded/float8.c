/* float8.c - products of floats of 8 bits (kernels/float8.h): the scale of a tensor that is cut, and a dense layer.
 *
 * The forward pass is made of ops on values, which have layout rules; the node is recorded over all of them. With
 * scales of blocks it works on this rank's part alone, since tensors are cut between blocks (float8_blocks.h). Backward
 * works on blocks. Its only communication is for the scale of the gradient, for a gradient that arrives as a sum over
 * ranks (a code is no linear function of it), and for the sum of dx, as in linear1d.c. */
#include <string.h>

#include "../../autograd/apply_blocks.h"
#include "../../autograd/gradients.h"
#include "../../../kernels/float8.h"
#include "../redistribute.h"
#include "float8_blocks.h"
#include "linear.h"

enum { X_TURNED, W, X_SCALE, W_SCALE, DY_SCALE, DY_NEEDED }; /* what a node keeps; X_SCALE: that of X_TURNED */
enum { GATHERED, BLOCKS };                                   /* what else it knows */

static gm_attrs of_format(int format)
{
    gm_attrs a = gm_attrs_default();
    a.format = format;
    return a;
}

/* ---- scales ---- */

/* The scale of all blocks of a tensor whose block is t, without padding that is not zero; axes: those that cut it. */
static gm_tensor *scale_of(gm_work *w, gm_tensor *t, uint32_t axes, int format)
{
    gm_attrs   a = of_format(format);
    gm_tensor *scale = gm_work_run(w, GM_OP_float8_scale, 1, &t, &a);
    if (axes) gm_rows_reduce(w, axes, scale, GM_MAX);
    return scale;
}

gm_status gm_sharded_float8_scale(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    gm_value *x = c->in[0];
    gm_spec   global;
    gm_layout layout, whole = gm_layout_replicated();
    gm_fit    fit;
    gm_attrs  a = *c->attrs;
    gm_work   w;
    GM_TRY(gm_judge_call(c, &global));
    gm_rule_call rule = gm_rule_begin(r, "float8_scale", c->op, 1, &x, &a, 1, &global, &layout, &fit);
    GM_TRY(gm_rule_no_partial(&rule));
    gm_work_begin(&w, r, "float8_scale");
    gm_tensor *scale = scale_of(&w, x->local, gm_layout_cut_axes(&x->layout), (int)a.format);
    scale = gm_work_keep(&w, scale);
    GM_TRY(gm_work_end(&w));
    return gm_comm_once(gm_value_take_block(r, scale, &whole, 0, global.shape, out));
}

/* ---- the layer ---- */

typedef struct layer {
    gm_rank                *rank;
    const gm_float8_scales *given;                  /* borrowed */
    gm_value               *x, *w, *b;              /* owned, as those below */
    gm_value               *scale[2], *codes[2];    /* of x and w; NULL with scales of blocks */
    gm_value               *turned, *turned_scales; /* of x; NULL: no gradient needs it */
    bool                    gathered;               /* rows of x: dx is scattered by the node of the gathering */
} layer;

static void close_layer(layer *l)
{
    gm_value *held[] = {l->x,        l->w,        l->b,      l->scale[0],     l->scale[1],
                        l->codes[0], l->codes[1], l->turned, l->turned_scales};
    gm_release_all(sizeof held / sizeof *held, held);
}

static gm_status replace(gm_rank *r, gm_value **v, const gm_layout *to)
{
    gm_value *other = NULL;
    GM_TRY(gm_redistribute(r, *v, to, &other));
    gm_value_release(*v);
    *v = other;
    return GM_OK;
}

/* Lays b out as y's last dimension: where y is a sum over ranks, one of them has b and the others zeros. */
static gm_status lay_out_bias(layer *l)
{
    gm_layout to = gm_layout_replicated();
    if (!l->b) return GM_OK;
    gm_layout_copy_dim(&to, 0, &l->w->layout, 0);
    to.partial = gm_layout_dim_axes(&l->w->layout, 1);
    return replace(l->rank, &l->b, &to);
}

/* Cuts the dimension that is summed over alike in x and w, and gathers rows of x that the axis of w's rows cuts. */
static gm_status lay_out(layer *l)
{
    int       last = l->x->ndim - 1;
    gm_layout x = l->x->layout, w = l->w->layout;
    if (w.n_cuts[0] && w.n_cuts[1])
        return GM_FAIL(GM_ESHAPE,
                       "linear_float8: both dimensions of w are cut, which 2D, 2.5D and 3D tensor parallelism "
                       "do; products of 8 bits go with data, pipeline, sequence and 1D tensor parallelism");
    if (w.n_cuts[1] && !x.n_cuts[last]) {
        gm_layout_copy_dim(&x, last, &w, 1);
        GM_TRY(replace(l->rank, &l->x, &x));
    } else if (x.n_cuts[last] && !w.n_cuts[0] && !w.n_cuts[1]) {
        gm_layout_copy_dim(&w, 1, &x, last);
        GM_TRY(replace(l->rank, &l->w, &w));
    }
    gm_side        xs = gm_side_of(l->x), ws = gm_side_of(l->w);
    gm_linear_plan p = gm_plan_linear(&xs, &ws);
    if (p.kind != GM_LINEAR_GATHER) return GM_OK;
    x = l->x->layout;
    if (!--x.n_cuts[p.dim]) x.unit[p.dim] = 0;
    l->gathered = true;
    return replace(l->rank, &l->x, &x);
}

/* l->scale[i]: the scale that was given, or that of v now. */
static gm_status choose_scale(layer *l, int i, gm_value *v)
{
    gm_attrs a = of_format(GM_FLOAT8_E4M3);
    if (!l->given->scale[i]) return gm_apply_first(l->rank, GM_OP_float8_scale, 1, &v, &a, &l->scale[i]);
    gm_value_retain(l->scale[i] = l->given->scale[i]);
    return GM_OK;
}

static gm_tensor *bytes(gm_work *w, int ndim, const int64_t *shape) { return gm_work_new(w, GM_U8, ndim, shape); }

/* Codes of v as the value *out, laid out as v is; turned: the last dimension is the first. */
static gm_status take_codes(gm_rank *r, gm_tensor *codes, const gm_value *v, bool turned, gm_value **out)
{
    gm_layout layout = gm_layout_replicated();
    int64_t   shape[GM_MAX_DIMS];
    for (int d = 0, n = v->ndim; d < n; d++) {
        int from = turned ? (d + n - 1) % n : d;
        gm_layout_copy_dim(&layout, d, &v->layout, from);
        shape[d] = v->shape[from];
    }
    return gm_value_take_block(r, codes, &layout, v->ndim, shape, out);
}

/* Rounds v's block, and raises what was given to hold the scale that it needs. */
static gm_status encode(layer *l, int i, gm_value *v, bool turned)
{
    gm_attrs   a = of_format(GM_FLOAT8_E4M3);
    gm_value  *needed = l->given->needed[i];
    gm_tensor *t = v->local, *to[3] = {NULL, NULL, needed ? needed->local : NULL};
    int64_t    shape[GM_MAX_DIMS];
    gm_work    w;
    a.accumulate = needed != NULL;
    GM_TRY(choose_scale(l, i, v));
    gm_work_begin(&w, l->rank, "float8_encode");
    for (int d = 0; d < t->ndim; d++) shape[d] = t->shape[(d + t->ndim - 1) % t->ndim];
    to[0] = bytes(&w, t->ndim, t->shape);
    if (turned) to[1] = bytes(&w, t->ndim, shape);
    gm_work_into(&w, GM_OP_float8_encode, 2, (gm_tensor *[]){t, l->scale[i]->local}, &a, 3, to);
    to[0] = gm_work_keep(&w, to[0]);
    if (turned) to[1] = gm_work_keep(&w, to[1]);
    GM_TRY(gm_comm_once(gm_work_end(&w)));
    gm_status st = take_codes(l->rank, to[0], v, false, &l->codes[i]);
    if (st == GM_OK && turned) st = take_codes(l->rank, to[1], v, true, &l->turned);
    else gm_tensor_release(to[1]);
    return gm_comm_once(st);
}

/* y = x w' + b of this rank's part, whose blocks are those of the whole tensors. */
static gm_status multiply_blocks(layer *l, bool turned, gm_value **y)
{
    gm_layout       layout = l->x->layout;
    int64_t         shape[GM_MAX_DIMS], local[GM_MAX_DIMS];
    int             last = l->x->ndim - 1;
    gm_work         w;
    gm_float8_coded x = {NULL}, of_w = {NULL};
    GM_TRY(gm_float8_check_blocks(l->rank, l->x, l->w, turned));
    memcpy(shape, l->x->shape, sizeof shape);
    memcpy(local, l->x->local->shape, sizeof local);
    shape[last] = l->w->shape[0];
    local[last] = l->w->local->shape[0];
    gm_layout_copy_dim(&layout, last, &l->w->layout, 0);
    layout.partial = gm_layout_dim_axes(&l->w->layout, 1);
    gm_work_begin(&w, l->rank, "linear_float8");
    x = gm_float8_code_blocks(&w, l->x->local, false, true, turned);
    of_w = gm_float8_code_blocks(&w, l->w->local, true, true, false);
    gm_tensor *to = gm_work_new(&w, l->x->local->dtype, l->x->ndim, local);
    gm_float8_multiply_blocks(&w, x.codes, x.scales, of_w.codes, of_w.scales, true, l->b ? l->b->local : NULL, false,
                              to);
    to = gm_work_keep(&w, to);
    if (turned) x.turned = gm_work_keep(&w, x.turned), x.turned_scales = gm_work_keep(&w, x.turned_scales);
    GM_TRY(gm_comm_once(gm_work_end(&w)));
    gm_status st = gm_value_take_block(l->rank, to, &layout, l->x->ndim, shape, y);
    if (turned) {
        gm_status taken = take_codes(l->rank, x.turned, l->x, true, &l->turned);
        if (st == GM_OK) st = taken;
        taken = gm_float8_take_scales(l->rank, x.turned_scales, l->x, &l->turned_scales);
        if (st == GM_OK) st = taken;
    }
    return gm_comm_once(st);
}

static gm_status multiply(layer *l, bool turned, gm_value **y)
{
    gm_attrs  a = of_format(GM_FLOAT8_E4M3);
    gm_value *in[5] = {NULL, NULL, NULL, NULL, l->b};
    GM_TRY(encode(l, 0, l->x, turned));
    GM_TRY(encode(l, 1, l->w, false));
    for (int i = 0; i < 2; i++) in[i] = l->codes[i], in[2 + i] = l->scale[i];
    a.dtype = l->x->local->dtype;
    if (l->turned) gm_value_retain(l->turned_scales = l->scale[0]);
    return gm_comm_once(gm_apply_first(l->rank, GM_OP_float8_product, 5, in, &a, y));
}

static gm_status forward(layer *l, gm_value **y)
{
    gm_value *all[3] = {l->x, l->w, l->b};
    bool      turned = gm_tape_wanted(l->rank, 3, all) && l->w->requires_grad;
    l->rank->no_grad++;
    gm_status st = l->given->blocks ? multiply_blocks(l, turned, y) : multiply(l, turned, y);
    l->rank->no_grad--;
    return st;
}

static void float8_rule(gm_backward *b);

static gm_status record(const layer *l, gm_value *y)
{
    gm_value *in[3] = {l->x, l->w, l->b}, *saved[GM_MAX_SAVED] = {NULL};
    saved[X_TURNED] = l->turned;
    saved[X_SCALE] = l->turned_scales;
    saved[DY_SCALE] = l->given->scale[2];
    saved[DY_NEEDED] = l->given->needed[2];
    if (l->x->requires_grad) saved[W] = l->w, saved[W_SCALE] = l->scale[1];
    gm_record rec = {.name = "linear_float8",
                     .rule = float8_rule,
                     .op = l->given->blocks ? GM_OP_float8_block_product : GM_OP_float8_product,
                     .n_in = 3,
                     .in = in,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = GM_MAX_SAVED,
                     .saved = saved,
                     .extra = {[GATHERED] = l->gathered, [BLOCKS] = l->given->blocks},
                     .splits = true};
    return gm_tape_record(l->rank, &rec);
}

/* v: one number with which, or into which, numbers of this dtype go; NULL: none. */
static gm_status check_scale(const gm_value *v, const char *what, gm_dtype dtype)
{
    char text[256];
    if (!v || (!v->ndim && v->local->dtype == gm_dtype_wide(dtype) && !v->layout.partial)) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "linear_float8: a %s beside x of %s should be %s (), is %s", what, gm_dtype_name(dtype),
                   gm_dtype_name(gm_dtype_wide(dtype)), gm_value_describe(v, text, sizeof text));
}

static gm_status check_operands(const layer *l)
{
    const gm_value *x = l->x, *w = l->w;
    char            a[256], b[256];
    if (x->ndim < 1 || w->ndim != 2 || x->shape[x->ndim - 1] != w->shape[1])
        return GM_FAIL(GM_ESHAPE,
                       "linear_float8: w should be (outputs, inputs), and rows of x its inputs: x is %s, w %s",
                       gm_value_describe(x, a, sizeof a), gm_value_describe(w, b, sizeof b));
    if (x->local->dtype != w->local->dtype || !gm_dtype_is_float(x->local->dtype))
        return GM_FAIL(GM_ESHAPE, "linear_float8: x is %s, w %s; both should be floats of one dtype",
                       gm_dtype_name(x->local->dtype), gm_dtype_name(w->local->dtype));
    for (int i = 0; i < 3; i++) {
        if (l->given->blocks && (l->given->scale[i] || l->given->needed[i]))
            return GM_FAIL(GM_EINVAL, "linear_float8: scales of blocks are found when tensors are read: give none");
        GM_TRY(check_scale(l->given->scale[i], "scale", x->local->dtype));
        GM_TRY(check_scale(l->given->needed[i], "needed scale", x->local->dtype));
    }
    if (x->layout.partial || w->layout.partial)
        return GM_FAIL(GM_ESHAPE,
                       "linear_float8: %s is still a sum over ranks, and codes are no linear function of it "
                       "(gather() makes the sum)",
                       x->layout.partial ? "x" : "w");
    return GM_OK;
}

gm_status gm_linear_float8(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, const gm_float8_scales *given,
                           gm_value **y)
{
    layer     l = {.rank = r, .given = given, .x = x, .w = w, .b = b};
    gm_status st;
    *y = NULL;
    GM_TRY(check_operands(&l));
    gm_value_retain(x);
    gm_value_retain(w);
    if (b) gm_value_retain(b);
    st = lay_out(&l);
    if (st == GM_OK) st = lay_out_bias(&l);
    if (st == GM_OK) st = forward(&l, y);
    if (st == GM_OK) st = gm_comm_once(record(&l, *y));
    if (st != GM_OK) {
        gm_value_release(*y);
        *y = NULL;
    }
    close_layer(&l);
    return st;
}

/* ---- backward ---- */

typedef struct pass {
    gm_backward    *b;
    gm_work        *work;
    bool            blocks;
    gm_float8_coded dy; /* of (m, n); with one scale both of its fields name it */
} pass;

/* dy, summed over the axes over which it is partial, in rows. */
static gm_tensor *gradient_of_y(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const gm_layout *y = gm_backward_output_layout(b, 0, NULL);
    uint32_t         partial = gm_backward_partial(b) & ~(gm_layout_cut_axes(y) | y->partial);
    gm_tensor       *dy = gm_work_contiguous(w, gm_backward_grad(b, 0));
    if (!partial) return dy;
    dy = w->st == GM_OK ? gm_work_cast(w, dy, dy->dtype) : NULL;
    gm_rows_reduce(w, partial, dy, GM_SUM);
    for (int i = 0; i < 3; i++)
        if (gm_backward_wants(b, i))
            gm_backward_set_partial(b, i, gm_layout_gradient(gm_backward_input_layout(b, i, NULL), y, 0));
    return dy;
}

/* to: codes, turned, needed (raised); NULL: not wanted. */
static void encode_into(gm_work *w, int format, gm_tensor *t, gm_tensor *scale, gm_tensor *const *to)
{
    gm_attrs a = of_format(format);
    a.accumulate = to[2] != NULL;
    gm_work_into(w, GM_OP_float8_encode, 2, (gm_tensor *[]){t, scale}, &a, 3, to);
}

/* The codes of dy, as the gradients that are wanted read them. */
static void encode_gradient(pass *k, gm_tensor *rows)
{
    gm_work *w = k->work;
    bool     straight = gm_backward_wants(k->b, 0), turned = gm_backward_wants(k->b, 1);
    if (w->st != GM_OK) return;
    if (k->blocks) {
        k->dy = gm_float8_code_blocks(w, rows, false, straight, turned);
        return;
    }
    int64_t    m = rows->shape[0], n = rows->shape[1];
    gm_tensor *scale = gm_backward_saved(k->b, DY_SCALE);
    if (!scale) scale = scale_of(w, rows, gm_layout_cut_axes(gm_backward_output_layout(k->b, 0, NULL)), GM_FLOAT8_E5M2);
    k->dy.scales = k->dy.turned_scales = scale;
    if (straight) k->dy.codes = bytes(w, 2, (int64_t[]){m, n});
    if (turned) k->dy.turned = bytes(w, 2, (int64_t[]){n, m});
    encode_into(w, GM_FLOAT8_E5M2, rows, scale,
                (gm_tensor *[]){k->dy.codes, k->dy.turned, gm_backward_saved(k->b, DY_NEEDED)});
}

/* to (+)= a b', a of dy; square: b has a scale for each 128 x 128 numbers, where scales are of blocks. */
static void product_into(pass *k, gm_tensor *a, gm_tensor *a_scale, gm_tensor *b, gm_tensor *b_scale, bool square,
                         bool accumulate, gm_tensor *to)
{
    gm_attrs at = of_format(GM_FLOAT8_E5M2);
    if (k->work->st != GM_OK) return;
    if (k->blocks) {
        gm_float8_multiply_blocks(k->work, a, a_scale, b, b_scale, square, NULL, accumulate, to);
        return;
    }
    at.accumulate = accumulate;
    at.dtype = to->dtype;
    gm_work_into(k->work, GM_OP_float8_product, 5, (gm_tensor *[]){a, b, a_scale, b_scale, NULL}, &at, 1, &to);
}

/* The codes of w's columns, made anew. */
static gm_float8_coded turned_weight(pass *k, gm_tensor *weight)
{
    if (k->blocks) return gm_float8_code_blocks(k->work, weight, true, false, true);
    gm_float8_coded of_w = {.turned_scales = gm_backward_saved(k->b, W_SCALE)};
    of_w.turned = bytes(k->work, 2, (int64_t[]){weight->shape[1], weight->shape[0]});
    encode_into(k->work, GM_FLOAT8_E4M3, weight, of_w.turned_scales, (gm_tensor *[]){NULL, of_w.turned, NULL});
    return of_w;
}

/* dx = dy w, whose sum over the ranks that share x may be under way afterwards. */
static gm_tensor *gradient_of_x(pass *k, gm_pending **summing)
{
    gm_backward     *b = k->b;
    gm_work         *w = k->work;
    const gm_layout *x = gm_backward_input_layout(b, 0, NULL), *of_w = gm_backward_input_layout(b, 1, NULL);
    uint32_t         shared = gm_layout_dim_axes(of_w, 0) & ~(gm_layout_cut_axes(x) | x->partial);
    gm_tensor       *weight = gm_backward_saved(b, W), *dx = gm_backward_like(b, 0);
    if (w->st != GM_OK) return NULL;
    gm_float8_coded turned = turned_weight(k, weight);
    product_into(k, k->dy.codes, k->dy.scales, turned.turned, turned.turned_scales, true, false, gm_work_flat(w, dx));
    if (!shared || gm_backward_extra(b)[GATHERED]) return dx;
    uint32_t left = gm_layout_gradient(x, gm_backward_output_layout(b, 0, NULL), 0) & ~shared;
    gm_backward_set_partial(b, 0, left);
    gm_group *sharing = gm_rows_group(w, shared);
    w->sent |= w->st == GM_OK;
    GM_STEP(w, gm_comm_all_reduce(w->rank->comm, sharing, dx, GM_SUM, summing));
    return dx;
}

/* dw (+)= dy' x */
static void gradient_of_w(pass *k)
{
    bool       accumulate;
    gm_work   *w = k->work;
    gm_tensor *x = gm_backward_saved(k->b, X_TURNED), *dw = gm_backward_wide_target(k->b, 1, &accumulate);
    if (w->st != GM_OK) return;
    int64_t shape[2] = {x->shape[0], x->shape[0] ? gm_tensor_numel(x) / x->shape[0] : 0};
    product_into(k, k->dy.turned, k->dy.turned_scales, gm_work_shaped(w, x, 2, shape), gm_backward_saved(k->b, X_SCALE),
                 false, accumulate, dw);
}

static void float8_rule(gm_backward *b)
{
    pass        k = {.b = b, .work = gm_backward_work(b), .blocks = gm_backward_extra(b)[BLOCKS]};
    gm_pending *summing = NULL;
    gm_tensor  *dx = NULL;
    gm_tensor  *dy = gm_linear_rule_bias(b, gradient_of_y(b));
    if (gm_backward_wants(b, 0) || gm_backward_wants(b, 1)) encode_gradient(&k, gm_work_flat(k.work, dy));
    if (gm_backward_wants(b, 0)) dx = gradient_of_x(&k, &summing);
    if (gm_backward_wants(b, 1)) gradient_of_w(&k);
    if (summing) GM_STEP(k.work, gm_comm_finish(k.work->rank->comm, &summing));
    if (dx && k.work->st == GM_OK) gm_backward_give(b, 0, dx);
    if (summing) gm_comm_drop(k.work->rank->comm, summing);
}
