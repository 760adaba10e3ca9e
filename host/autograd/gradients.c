/* gradients.c - backward rules of the ops of ops.def.
 *
 * Every rule writes `=` into a fresh tensor or lets gm_backward_target say whether it is `=` or `+=`.
 * The formulas are those of the plain loops in kernels/ref; gradcheck and spec/kernels judge them. */
#include "gradients.h"

#include "apply_blocks.h"

#define OUT(j) (GM_SLOT_OUTPUT + (j))

/* elementwise */

static void unary_rule(gm_backward *b)
{
    gm_tensor *in[2] = {gm_backward_saved(b, 0), gm_backward_grad(b, 0)};
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_unary_grad, 2, in, gm_backward_attrs(b)));
}

static void affine_rule(gm_backward *b)
{
    double alpha = gm_backward_attrs(b)->alpha;
    gm_backward_give(b, 0, gm_work_affine(gm_backward_work(b), gm_backward_grad(b, 0), alpha, 0));
}

static void copy_rule(gm_backward *b)
{
    gm_tensor *g = gm_backward_grad(b, 0);
    gm_dtype   dtype = gm_backward_input(b, 0)->dtype;
    gm_backward_give(b, 0, dtype == g->dtype ? g : gm_work_cast(gm_backward_work(b), g, dtype));
}

/* Gives t summed to the shape of input i. */
static void give_summed(gm_backward *b, int i, gm_tensor *t)
{
    const gm_spec *x = gm_backward_input(b, i);
    gm_backward_give(b, i, gm_work_sum_to(gm_backward_work(b), t, x->ndim, x->shape));
}

/* The same for a t as large as the result. */
static void give_reduced(gm_backward *b, int i, gm_tensor *t)
{
    if (t && t != gm_backward_grad(b, 0)) gm_backward_clear(b, t);
    give_summed(b, i, t);
}

/* where(condition, g, 0) or where(condition, 0, g). */
static gm_tensor *pick(gm_work *w, gm_tensor *condition, gm_tensor *g, bool when)
{
    if (w->st != GM_OK) return NULL;
    gm_tensor *zero = gm_work_scalar(w, g->dtype, 0);
    return gm_work_where(w, condition, when ? g : zero, when ? zero : g);
}

/* Of maximum and minimum: g, half of it where x and y are equal, nothing where x `loses` against y. NaN does not lose:
 * where one is NaN, both get g. */
static gm_tensor *extreme_side(gm_work *w, gm_function loses, gm_tensor *g, gm_tensor *x, gm_tensor *y)
{
    gm_tensor *equal = gm_work_binary(w, GM_FN_eq, x, y);
    gm_tensor *shared = gm_work_where(w, equal, gm_work_affine(w, g, 0.5, 0), g);
    return pick(w, gm_work_binary(w, loses, x, y), shared, false);
}

/* where(f(x, 0), 0, t): of a formula whose limit there is 0, but whose terms have none. */
static gm_tensor *zero_where(gm_work *w, gm_function f, gm_tensor *x, gm_tensor *t)
{
    return pick(w, gm_work_binary(w, f, x, gm_work_scalar(w, x->dtype, 0)), t, false);
}

/* d/dx of x^y: g y x^(y-1), and 0 where y is */
static gm_tensor *pow_base(gm_work *w, gm_tensor *g, gm_tensor *x, gm_tensor *y)
{
    gm_tensor *power = gm_work_binary(w, GM_FN_pow, x, gm_work_affine(w, y, 1, -1));
    gm_tensor *slope = gm_work_binary(w, GM_FN_mul, power, y);
    return zero_where(w, GM_FN_eq, y, gm_work_binary(w, GM_FN_mul, slope, g));
}

/* d/dy of x^y: g x^y ln x, and 0 where x is and y is not negative */
static gm_tensor *pow_exponent(gm_work *w, gm_tensor *g, gm_tensor *x, gm_tensor *y)
{
    gm_tensor *log = gm_work_unary(w, GM_FN_log, x), *power = gm_work_binary(w, GM_FN_pow, x, y);
    gm_tensor *t = gm_work_binary(w, GM_FN_mul, gm_work_binary(w, GM_FN_mul, power, log), g);
    gm_tensor *limit = zero_where(w, GM_FN_ge, y, t);
    gm_tensor *at_0 = gm_work_binary(w, GM_FN_eq, x, gm_work_scalar(w, x->dtype, 0));
    return gm_work_where(w, at_0, limit, t);
}

/* d/da of binary functions: g, g y, g / y, masks, g b a^(b-1). */
static gm_tensor *binary_a(gm_work *w, gm_function f, gm_tensor *g, gm_tensor *x, gm_tensor *y)
{
    switch (f) {
    case GM_FN_mul:
    case GM_FN_div: return gm_work_binary(w, f, g, y);
    case GM_FN_maximum: return extreme_side(w, GM_FN_lt, g, x, y);
    case GM_FN_minimum: return extreme_side(w, GM_FN_gt, g, x, y);
    case GM_FN_pow: return pow_base(w, g, x, y);
    default: return g; /* add, sub */
    }
}

static gm_tensor *binary_b(gm_work *w, gm_function f, gm_tensor *g, gm_tensor *x, gm_tensor *y)
{
    gm_tensor *t;
    switch (f) {
    case GM_FN_sub: return gm_work_affine(w, g, -1, 0);
    case GM_FN_mul: return gm_work_binary(w, GM_FN_mul, g, x);
    case GM_FN_div: /* -g x / y / y */
        t = gm_work_binary(w, GM_FN_div, gm_work_binary(w, GM_FN_div, x, y), y);
        return gm_work_affine(w, gm_work_binary(w, GM_FN_mul, t, g), -1, 0);
    case GM_FN_maximum: return extreme_side(w, GM_FN_lt, g, y, x);
    case GM_FN_minimum: return extreme_side(w, GM_FN_gt, g, y, x);
    case GM_FN_pow: return pow_exponent(w, g, x, y);
    default: return g;
    }
}

/* A gate f(a) b: both gradients from one pass. */
static void gate_rule(gm_backward *b, gm_tensor *x, gm_tensor *y, gm_tensor *g)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *in[3] = {g, gm_work_expand(w, x, g->ndim, g->shape), gm_work_expand(w, y, g->ndim, g->shape)};
    gm_tensor *out[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        if (gm_backward_wants(b, i)) out[i] = gm_work_like(w, g);
    gm_work_into(w, GM_OP_gate_grad, 3, in, gm_backward_attrs(b), 2, out);
    for (int i = 0; i < 2; i++)
        if (out[i]) give_reduced(b, i, out[i]);
}

static void binary_rule(gm_backward *b)
{
    gm_work    *w = gm_backward_work(b);
    gm_tensor  *x = gm_backward_saved(b, 0), *y = gm_backward_saved(b, 1), *g = gm_backward_grad(b, 0);
    gm_function f = gm_backward_attrs(b)->function;
    if (w->st != GM_OK) return;
    if (f >= GM_FN_reglu && f <= GM_FN_swiglu) {
        gate_rule(b, x, y, g);
        return;
    }
    if (gm_backward_wants(b, 0)) give_reduced(b, 0, binary_a(w, f, g, x, y));
    gm_work_drop(w, 0);
    if (gm_backward_wants(b, 1)) give_reduced(b, 1, binary_b(w, f, g, x, y));
}

static void where_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *condition = gm_backward_saved(b, 0), *g = gm_backward_grad(b, 0);
    for (int i = 1; i <= 2; i++)
        if (gm_backward_wants(b, i)) give_reduced(b, i, pick(w, condition, g, i == 1));
}

static void dropout_rule(gm_backward *b) /* the same mask: its stream is the forward's */
{
    gm_tensor *g = gm_backward_grad(b, 0);
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_dropout, 1, &g, gm_backward_attrs(b)));
}

/* contractions */

/* One side of y = alpha op(a) op(b): the gradient is a product of g and the other operand. */
static void matmul_side(gm_backward *b, int i, gm_tensor *first, gm_tensor *second, bool ta, bool tb)
{
    gm_work       *w = gm_backward_work(b);
    gm_attrs       a = gm_attrs_default();
    gm_tensor     *in[2] = {first, second}, *t;
    const gm_spec *want = gm_backward_input(b, i);
    a.transpose_a = ta;
    a.transpose_b = tb;
    a.alpha = gm_backward_attrs(b)->alpha;
    bool same_batch = first->ndim == want->ndim && second->ndim == want->ndim;
    for (int d = 0; same_batch && d < want->ndim - 2; d++)
        same_batch = first->shape[d] == want->shape[d] && second->shape[d] == want->shape[d];
    if (!same_batch) {
        give_summed(b, i, gm_work_run(w, GM_OP_matmul, 2, in, &a));
        return;
    }
    t = gm_backward_target(b, i, &a.accumulate);
    gm_work_into(w, GM_OP_matmul, 2, in, &a, 1, &t);
}

static void matmul_rule(gm_backward *b)
{
    const gm_attrs *at = gm_backward_attrs(b);
    gm_tensor      *x = gm_backward_saved(b, 0), *y = gm_backward_saved(b, 1), *g = gm_backward_grad(b, 0);
    if (gm_backward_work(b)->st != GM_OK) return;
    if (gm_backward_wants(b, 0)) {
        if (at->transpose_a) matmul_side(b, 0, y, g, at->transpose_b, true);
        else matmul_side(b, 0, g, y, false, !at->transpose_b);
    }
    if (gm_backward_wants(b, 1)) {
        if (at->transpose_b) matmul_side(b, 1, g, x, true, at->transpose_a);
        else matmul_side(b, 1, x, g, !at->transpose_a, false);
    }
    for (int i = 0; i < 2; i++)
        if (!gm_backward_later(b, i)) gm_backward_keep(b, !i, NULL);
}

/* normalisation */

/* Inputs x, residual, then parameters from index 2; statistics are outputs 2 and up. */
static void norm_rule(gm_backward *b, gm_op op, int n_parameters, int n_statistics)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *in[6], *out[3] = {NULL, NULL, NULL};
    gm_attrs   a = gm_attrs_default();
    bool       residual = gm_backward_input(b, 1)->ndim > 0, flags[2] = {false, false};
    a.eps = gm_backward_attrs(b)->eps;
    in[0] = gm_backward_grad_or_zeros(b, 0);
    in[1] = residual ? gm_backward_grad(b, 1) : NULL;
    in[2] = gm_backward_saved(b, residual ? OUT(1) : 0);
    in[3] = gm_backward_saved(b, 2);
    for (int i = 0; i < n_statistics; i++) in[4 + i] = gm_backward_saved(b, OUT(2 + i));
    for (int i = 0; i < n_parameters; i++)
        if (gm_backward_wants(b, 2 + i)) out[1 + i] = gm_backward_target(b, 2 + i, &flags[i]);
    if (out[1] && out[2] && flags[0] != flags[1]) { /* the kernel knows one flag: begin the other with zeros */
        gm_work_fill(w, out[flags[0] ? 2 : 1], 0);
        flags[0] = flags[1] = true;
    }
    a.accumulate = out[1] ? flags[0] : flags[1];
    out[0] = gm_backward_like(b, 0);
    gm_work_into(w, op, 4 + n_statistics, in, &a, 1 + n_parameters, out);
    if (residual) gm_backward_give(b, 1, gm_work_share(w, out[0]));
    gm_backward_give(b, 0, out[0]);
}

static void layer_norm_rule(gm_backward *b) { norm_rule(b, GM_OP_layer_norm_grad, 2, 2); }
static void rms_norm_rule(gm_backward *b) { norm_rule(b, GM_OP_rms_norm_grad, 1, 1); }

static void softmax_rule(gm_backward *b)
{
    gm_op      op = gm_backward_op(b) == GM_OP_softmax ? GM_OP_softmax_grad : GM_OP_log_softmax_grad;
    gm_tensor *in[2] = {gm_backward_saved(b, OUT(0)), gm_backward_grad(b, 0)};
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), op, 2, in, gm_backward_attrs(b)));
}

/* Turned back: positions and frequencies have no gradient. */
static void rotary_rule(gm_backward *b)
{
    gm_attrs   a = *gm_backward_attrs(b);
    gm_tensor *in[3] = {gm_backward_grad(b, 0), gm_backward_saved(b, 1), gm_backward_saved(b, 2)};
    a.inverse = !a.inverse;
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_rotary, 3, in, &a));
}

static void attention_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *in[9], *out[4] = {NULL};
    for (int i = 0; i < 4; i++) in[i] = gm_backward_saved(b, i);
    in[7] = gm_backward_saved(b, 4);
    in[8] = gm_backward_saved(b, 5);
    in[4] = gm_backward_saved(b, OUT(0));
    in[5] = gm_backward_saved(b, OUT(1));
    in[6] = gm_work_contiguous(w, gm_backward_grad(b, 0));
    for (int i = 0; i < 3; i++) out[i] = gm_backward_place(b, i);
    if (in[8] && gm_backward_wants(b, 5)) out[3] = gm_backward_like(b, 5);
    gm_work_into(w, GM_OP_attention_grad, 9, in, gm_backward_attrs(b), 4, out);
    for (int i = 0; i < 3; i++) gm_backward_give(b, i, out[i]);
    if (out[3]) gm_backward_give(b, 5, out[3]);
}

/* pooling */

static void max_pool_rule(gm_backward *b)
{
    gm_tensor *in[2] = {gm_backward_saved(b, OUT(1)), gm_backward_grad(b, 0)}, *dx = gm_backward_like(b, 0);
    gm_attrs   a = *gm_backward_attrs(b);
    a.accumulate = false;
    gm_work_into(gm_backward_work(b), GM_OP_max_pool_grad, 2, in, &a, 1, &dx);
    gm_backward_give(b, 0, dx);
}

static void avg_pool_rule(gm_backward *b)
{
    gm_tensor *g = gm_backward_grad(b, 0), *dx = gm_backward_like(b, 0);
    gm_attrs   a = *gm_backward_attrs(b);
    a.accumulate = false;
    gm_work_into(gm_backward_work(b), GM_OP_avg_pool_grad, 1, &g, &a, 1, &dx);
    gm_backward_give(b, 0, dx);
}

static void cumsum_rule(gm_backward *b)
{
    gm_attrs   a = *gm_backward_attrs(b);
    gm_tensor *g = gm_backward_grad(b, 0);
    a.inverse = !a.inverse;
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_cumsum, 1, &g, &a));
}

/* losses; tables.c has tables */

static void cross_entropy_rule(gm_backward *b)
{
    gm_tensor *in[5] = {gm_backward_saved(b, 0), gm_backward_saved(b, 1), gm_backward_saved(b, OUT(1)),
                        gm_backward_saved(b, OUT(2)), gm_backward_grad(b, 0)};
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_cross_entropy_grad, 5, in, gm_backward_attrs(b)));
}

/* The op knew what g would be, or else its gradient is multiplied row by row. */
static void cross_entropy_both_rule(gm_backward *b)
{
    gm_tensor *dx = gm_backward_take(b, OUT(1)), *in[2] = {gm_backward_saved(b, 2), gm_backward_grad(b, 0)};
    gm_work_into(gm_backward_work(b), GM_OP_rescale_rows, 2, in, NULL, 1, &dx);
    gm_backward_give(b, 0, dx);
}

/* reductions */

static void sum_rule(gm_backward *b)
{
    gm_work       *w = gm_backward_work(b);
    const gm_spec *x = gm_backward_input(b, 0);
    uint32_t       dims = gm_backward_attrs(b)->dims;
    int64_t        shape[GM_MAX_DIMS]; /* with the reduced dimensions back as size 1 */
    for (int d = 0; d < x->ndim; d++) shape[d] = !dims || dims & 1u << d ? 1 : x->shape[d];
    gm_tensor *g = gm_work_shaped(w, gm_work_contiguous(w, gm_backward_grad(b, 0)), x->ndim, shape);
    gm_backward_give(b, 0, gm_work_expand(w, g, x->ndim, x->shape));
}

static void extreme_rule(gm_backward *b)
{
    gm_work       *w = gm_backward_work(b);
    const gm_spec *x = gm_backward_input(b, 0);
    gm_tensor     *in[2] = {gm_backward_saved(b, OUT(1)), gm_backward_grad(b, 0)};
    gm_tensor     *dx = gm_work_full(w, x->dtype, x->ndim, x->shape, 0);
    gm_work_into(w, GM_OP_scatter, 2, in, gm_backward_attrs(b), 1, &dx);
    gm_backward_give(b, 0, dx);
}

/* dx[.., index] = g, one of the k at a time */
static void top_k_rule(gm_backward *b)
{
    gm_work       *w = gm_backward_work(b);
    const gm_spec *x = gm_backward_input(b, 0);
    gm_tensor     *index = gm_backward_saved(b, OUT(1)), *g = gm_backward_grad(b, 0);
    gm_tensor     *dx = gm_work_full(w, x->dtype, x->ndim, x->shape, 0);
    int            last = g->ndim - 1, mark = w->n_held;
    for (int64_t j = 0; j < g->shape[last] && w->st == GM_OK; j++) {
        gm_tensor *in[2] = {gm_work_select(w, index, last, j), gm_work_select(w, g, last, j)};
        gm_work_into(w, GM_OP_scatter, 2, in, NULL, 1, &dx);
        gm_work_drop(w, mark);
    }
    gm_backward_give(b, 0, dx);
}

static void sort_rule(gm_backward *b)
{
    gm_tensor *in[2] = {gm_backward_saved(b, OUT(1)), gm_backward_grad(b, 0)};
    gm_backward_give(b, 0, gm_work_run(gm_backward_work(b), GM_OP_unsort, 2, in, NULL));
}

static const gm_gradient gradients[GM_OP_COUNT] = {
    [GM_OP_copy] = {copy_rule, 0, 0},
    [GM_OP_affine] = {affine_rule, 0, 0},
    [GM_OP_unary] = {unary_rule, 1, 0},
    [GM_OP_binary] = {binary_rule, 3, 0},
    [GM_OP_compare] = {.stops = true},
    [GM_OP_where] = {where_rule, 1, 0},
    [GM_OP_dropout] = {dropout_rule, 0, 0},
    [GM_OP_matmul] = {matmul_rule, 3, 0, .splits = true},
    [GM_OP_linear] = {gm_linear_rule, 3, 2, .splits = true},
    [GM_OP_convolution] = {gm_convolution_rule, 3, 2, .splits = true},
    [GM_OP_transposed_convolution] = {gm_convolution_rule, 3, 2, .splits = true},
    [GM_OP_quantize] = {.stops = true},
    [GM_OP_dequantize] = {.stops = true},
    [GM_OP_linear_quantized] = {gm_linear_quantized_rule, 2, 2},
    [GM_OP_float8_scale] = {.stops = true},
    [GM_OP_float8_encode] = {.stops = true},
    [GM_OP_float8_product] = {.stops = true}, /* host/parallel/sharded/float8.c has the layer's */
    [GM_OP_float8_block_encode] = {.stops = true},
    [GM_OP_float8_block_product] = {.stops = true},
    [GM_OP_layer_norm] = {layer_norm_rule, 1 | 4, 2 | 4 | 8},
    [GM_OP_rms_norm] = {rms_norm_rule, 1 | 4, 2 | 4},
    [GM_OP_max_pool] = {max_pool_rule, 0, 2},
    [GM_OP_avg_pool] = {avg_pool_rule, 0, 0},
    [GM_OP_softmax] = {softmax_rule, 0, 1},
    [GM_OP_log_softmax] = {softmax_rule, 0, 1},
    [GM_OP_attention] = {attention_rule, 63, 3},
    [GM_OP_documents] = {.stops = true},
    [GM_OP_rotary] = {rotary_rule, 2 | 4, 0},
    [GM_OP_embedding] = {gm_embedding_rule, 2, 0, .splits = true},
    [GM_OP_embedding_bag] = {gm_embedding_bag_rule, 1 | 8, 2},
    [GM_OP_cumsum] = {cumsum_rule, 0, 0},
    [GM_OP_cross_entropy] = {cross_entropy_rule, 3, 2 | 4},
    [GM_OP_cross_entropy_both] = {cross_entropy_both_rule, 4, 2},
    [GM_OP_sum] = {sum_rule, 0, 0},
    [GM_OP_max] = {extreme_rule, 0, 2},
    [GM_OP_min] = {extreme_rule, 0, 2},
    [GM_OP_argmax] = {.stops = true},
    [GM_OP_top_k] = {top_k_rule, 0, 2},
    [GM_OP_sort] = {sort_rule, 0, 2},
    [GM_OP_sum_squares] = {.stops = true},
};

uint8_t gm_gradient_inputs(gm_op op, const gm_attrs *attrs, int n_out, gm_value *const *out)
{
    uint8_t kept = gradients[op].save_in;
    bool    is_norm = op == GM_OP_layer_norm || op == GM_OP_rms_norm;
    if (op == GM_OP_binary && (attrs->function == GM_FN_add || attrs->function == GM_FN_sub)) return 0;
    return is_norm && n_out > 1 && out[1] ? kept & (uint8_t)~1u : kept;
}

uint8_t gm_gradient_outputs(gm_op op, const gm_attrs *attrs)
{
    bool product = op == GM_OP_linear || op == GM_OP_linear_quantized || op == GM_OP_convolution ||
                   op == GM_OP_transposed_convolution;
    if (op == GM_OP_max_pool || op == GM_OP_embedding_bag) return 2;
    return product && attrs->function != GM_FN_none ? 2 : 0; /* what the activation was given */
}

const gm_gradient *gm_gradient_of(gm_op op) { return &gradients[op]; }
