/* gradients.c - backward rules of the ops of ops.def.
 *
 * Every rule writes `=` into a fresh tensor or lets gm_backward_target say whether it is `=` or `+=`.
 * The formulas are those of the plain loops in kernels/ref; gradcheck and spec/kernels judge them. */
#include "gradients.h"

#include <string.h>
#include "apply_blocks.h"
#include "rules.h"

#define SAVED(b, i, t) GM_TRY(gm_backward_saved((b), (i), (t)))
#define OUT(j)         (GM_SLOT_OUTPUT + (j))

/* elementwise */

static gm_status unary_rule(gm_backward *b)
{
    gm_tensor *x, *dx = NULL;
    SAVED(b, 0, &x);
    GM_TRY(gm_rule_run(b, GM_OP_unary_grad, 2, (gm_tensor *[]){x, gm_backward_grad(b, 0)}, gm_backward_attrs(b), &dx));
    return gm_backward_give(b, 0, dx);
}

static gm_status affine_rule(gm_backward *b)
{
    gm_tensor *dx = NULL;
    GM_TRY(gm_rule_scale(b, gm_backward_grad(b, 0), gm_backward_attrs(b)->alpha, &dx));
    return gm_backward_give(b, 0, dx);
}

static gm_status copy_rule(gm_backward *b)
{
    gm_tensor *g = gm_backward_grad(b, 0), *dx = g;
    gm_attrs   a = gm_attrs_default();
    a.dtype = gm_backward_input(b, 0)->dtype;
    if (a.dtype == g->dtype) gm_tensor_retain(g);
    else GM_TRY(gm_rule_run(b, GM_OP_copy, 1, &g, &a, &dx));
    return gm_backward_give(b, 0, dx);
}

/* f(x, y) as a new tensor. */
static gm_status combine(gm_backward *b, gm_function f, gm_tensor *x, gm_tensor *y, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    a.function = f;
    return gm_rule_run(b, f >= GM_FN_eq ? GM_OP_compare : GM_OP_binary, 2, (gm_tensor *[]){x, y}, &a, out);
}

/* Gives t summed to the shape of input i; takes t. */
static gm_status give_summed(gm_backward *b, int i, gm_tensor *t)
{
    gm_tensor *r = NULL;
    gm_status  st = gm_rule_sum_to(b, t, gm_backward_input(b, i), &r);
    gm_tensor_release(t);
    return st == GM_OK ? gm_backward_give(b, i, r) : st;
}

/* The same for a t as large as the result; st: of the call that made it. */
static gm_status give_reduced(gm_backward *b, int i, gm_tensor *t, gm_status st)
{
    if (st != GM_OK) return st;
    if (t != gm_backward_grad(b, 0)) st = gm_backward_clear(b, t);
    if (st == GM_OK) return give_summed(b, i, t);
    gm_tensor_release(t);
    return st;
}

static gm_status where(gm_backward *b, gm_tensor *condition, gm_tensor *yes, gm_tensor *no, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    return gm_rule_run(b, GM_OP_where, 3, (gm_tensor *[]){condition, yes, no}, &a, out);
}

/* where(condition, g, 0) or where(condition, 0, g). */
static gm_status pick(gm_backward *b, gm_tensor *condition, gm_tensor *g, bool when, gm_tensor **out)
{
    gm_tensor *zero = NULL;
    gm_spec    scalar = {.dtype = g->dtype};
    GM_TRY(gm_rule_full(b, &scalar, 0, &zero));
    gm_status st = where(b, condition, when ? g : zero, when ? zero : g, out);
    gm_tensor_release(zero);
    return st;
}

/* Of maximum and minimum: g, half of it where x and y are equal, nothing where x `loses` against y. NaN does not lose:
 * where one is NaN, both get g. */
static gm_status extreme_side(gm_backward *b, gm_function loses, gm_tensor *g, gm_tensor *x, gm_tensor *y,
                              gm_tensor **out)
{
    gm_tensor *equal = NULL, *half = NULL, *shared = NULL, *lost = NULL;
    gm_status  st;
    GM_TRY(combine(b, GM_FN_eq, x, y, &equal));
    GM_TRY_OR(gm_rule_scale(b, g, 0.5, &half), st, done);
    GM_TRY_OR(where(b, equal, half, g, &shared), st, done);
    GM_TRY_OR(combine(b, loses, x, y, &lost), st, done);
    st = pick(b, lost, shared, false, out);
done:
    gm_tensor_release(equal);
    gm_tensor_release(half);
    gm_tensor_release(shared);
    gm_tensor_release(lost);
    return st;
}

/* where(f(x, 0), 0, t): of a formula whose limit there is 0, but whose terms have none. */
static gm_status zero_where(gm_backward *b, gm_function f, gm_tensor *x, gm_tensor *t, gm_tensor **out)
{
    gm_tensor *zero = NULL, *there = NULL;
    gm_spec    scalar = {.dtype = x->dtype};
    GM_TRY(gm_rule_full(b, &scalar, 0, &zero));
    gm_status st = combine(b, f, x, zero, &there);
    if (st == GM_OK) st = pick(b, there, t, false, out);
    gm_tensor_release(there);
    gm_tensor_release(zero);
    return st;
}

/* d/dx of x^y: g y x^(y-1), and 0 where y is */
static gm_status pow_base(gm_backward *b, gm_tensor *g, gm_tensor *x, gm_tensor *y, gm_tensor **out)
{
    gm_tensor *less = NULL, *power = NULL, *slope = NULL, *t = NULL;
    gm_status  st;
    GM_TRY(gm_rule_affine(b, y, 1, -1, &less));
    GM_TRY_OR(combine(b, GM_FN_pow, x, less, &power), st, done);
    GM_TRY_OR(combine(b, GM_FN_mul, power, y, &slope), st, done);
    GM_TRY_OR(combine(b, GM_FN_mul, slope, g, &t), st, done);
    st = zero_where(b, GM_FN_eq, y, t, out);
done:
    gm_tensor_release(less);
    gm_tensor_release(power);
    gm_tensor_release(slope);
    gm_tensor_release(t);
    return st;
}

/* d/dy of x^y: g x^y ln x, and 0 where x is and y is not negative */
static gm_status pow_exponent(gm_backward *b, gm_tensor *g, gm_tensor *x, gm_tensor *y, gm_tensor **out)
{
    gm_tensor *log = NULL, *power = NULL, *slope = NULL, *t = NULL, *limit = NULL, *zero = NULL, *at_0 = NULL;
    gm_spec    scalar = {.dtype = x->dtype};
    gm_attrs   a = gm_attrs_default();
    gm_status  st;
    a.function = GM_FN_log;
    GM_TRY(gm_rule_run(b, GM_OP_unary, 1, &x, &a, &log));
    GM_TRY_OR(combine(b, GM_FN_pow, x, y, &power), st, done);
    GM_TRY_OR(combine(b, GM_FN_mul, power, log, &slope), st, done);
    GM_TRY_OR(combine(b, GM_FN_mul, slope, g, &t), st, done);
    GM_TRY_OR(zero_where(b, GM_FN_ge, y, t, &limit), st, done);
    GM_TRY_OR(gm_rule_full(b, &scalar, 0, &zero), st, done);
    GM_TRY_OR(combine(b, GM_FN_eq, x, zero, &at_0), st, done);
    st = where(b, at_0, limit, t, out);
done:
    gm_tensor_release(log);
    gm_tensor_release(power);
    gm_tensor_release(slope);
    gm_tensor_release(t);
    gm_tensor_release(limit);
    gm_tensor_release(zero);
    gm_tensor_release(at_0);
    return st;
}

/* d/da of binary functions: g, g y, g / y, masks, g b a^(b-1). */
static gm_status binary_a(gm_backward *b, gm_function f, gm_tensor *g, gm_tensor *x, gm_tensor *y, gm_tensor **out)
{
    switch (f) {
    case GM_FN_mul: return combine(b, GM_FN_mul, g, y, out);
    case GM_FN_div: return combine(b, GM_FN_div, g, y, out);
    case GM_FN_maximum: return extreme_side(b, GM_FN_lt, g, x, y, out);
    case GM_FN_minimum: return extreme_side(b, GM_FN_gt, g, x, y, out);
    case GM_FN_pow: return pow_base(b, g, x, y, out);
    default: /* add, sub */ gm_tensor_retain(g); *out = g;
    }
    return GM_OK;
}

static gm_status binary_b(gm_backward *b, gm_function f, gm_tensor *g, gm_tensor *x, gm_tensor *y, gm_tensor **out)
{
    gm_tensor *t = NULL, *u = NULL;
    gm_status  st = GM_OK;
    switch (f) {
    case GM_FN_sub: return gm_rule_scale(b, g, -1, out);
    case GM_FN_mul: return combine(b, GM_FN_mul, g, x, out);
    case GM_FN_div: /* -g x / y / y */
        GM_TRY(combine(b, GM_FN_div, x, y, &t));
        GM_TRY_OR(combine(b, GM_FN_div, t, y, &u), st, done);
        gm_tensor_release(t);
        t = NULL;
        GM_TRY_OR(combine(b, GM_FN_mul, u, g, &t), st, done);
        st = gm_rule_scale(b, t, -1, out);
        break;
    case GM_FN_maximum: return extreme_side(b, GM_FN_lt, g, y, x, out);
    case GM_FN_minimum: return extreme_side(b, GM_FN_gt, g, y, x, out);
    case GM_FN_pow: return pow_exponent(b, g, x, y, out);
    default: gm_tensor_retain(g); *out = g;
    }
done:
    gm_tensor_release(t);
    gm_tensor_release(u);
    return st;
}

static gm_status binary_rule(gm_backward *b)
{
    gm_tensor  *x, *y, *t = NULL, *g = gm_backward_grad(b, 0);
    gm_function f = gm_backward_attrs(b)->function;
    SAVED(b, 0, &x);
    SAVED(b, 1, &y);
    if (gm_backward_wants(b, 0)) {
        gm_status st = binary_a(b, f, g, x, y, &t);
        GM_TRY(give_reduced(b, 0, t, st));
    }
    if (gm_backward_wants(b, 1)) {
        gm_status st = binary_b(b, f, g, x, y, &t);
        GM_TRY(give_reduced(b, 1, t, st));
    }
    return GM_OK;
}

static gm_status where_rule(gm_backward *b)
{
    gm_tensor *condition, *t = NULL, *g = gm_backward_grad(b, 0);
    SAVED(b, 0, &condition);
    for (int i = 1; i <= 2; i++)
        if (gm_backward_wants(b, i)) {
            gm_status st = pick(b, condition, g, i == 1, &t);
            GM_TRY(give_reduced(b, i, t, st));
        }
    return GM_OK;
}

static gm_status dropout_rule(gm_backward *b) /* the same mask: its stream is the forward's */
{
    gm_tensor *g = gm_backward_grad(b, 0), *dx = NULL;
    GM_TRY(gm_rule_run(b, GM_OP_dropout, 1, &g, gm_backward_attrs(b), &dx));
    return gm_backward_give(b, 0, dx);
}

/* contractions */

/* One side of y = alpha op(a) op(b): the gradient is a product of g and the other operand. */
static gm_status matmul_side(gm_backward *b, int i, gm_tensor *first, gm_tensor *second, bool ta, bool tb)
{
    gm_attrs       a = gm_attrs_default();
    gm_tensor     *t = NULL;
    const gm_spec *want = gm_backward_input(b, i);
    a.transpose_a = ta;
    a.transpose_b = tb;
    a.alpha = gm_backward_attrs(b)->alpha;
    bool same_batch = first->ndim == want->ndim && second->ndim == want->ndim;
    for (int d = 0; same_batch && d < want->ndim - 2; d++)
        same_batch = first->shape[d] == want->shape[d] && second->shape[d] == want->shape[d];
    if (same_batch) {
        GM_TRY(gm_backward_target(b, i, &t, &a.accumulate));
        return gm_rule_into(b, GM_OP_matmul, 2, (gm_tensor *[]){first, second}, &a, 1, &t);
    }
    GM_TRY(gm_rule_run(b, GM_OP_matmul, 2, (gm_tensor *[]){first, second}, &a, &t));
    return give_summed(b, i, t);
}

static gm_status matmul_rule(gm_backward *b)
{
    const gm_attrs *at = gm_backward_attrs(b);
    gm_tensor      *x, *y, *g = gm_backward_grad(b, 0);
    SAVED(b, 0, &x);
    SAVED(b, 1, &y);
    if (gm_backward_wants(b, 0)) {
        if (at->transpose_a) GM_TRY(matmul_side(b, 0, y, g, at->transpose_b, true));
        else GM_TRY(matmul_side(b, 0, g, y, false, !at->transpose_b));
    }
    if (gm_backward_wants(b, 1)) {
        if (at->transpose_b) GM_TRY(matmul_side(b, 1, g, x, true, at->transpose_a));
        else GM_TRY(matmul_side(b, 1, x, g, !at->transpose_a, false));
    }
    for (int i = 0; i < 2; i++)
        if (!gm_backward_later(b, i)) gm_backward_keep(b, !i, NULL);
    return GM_OK;
}

/* normalisation */

/* Inputs x, residual, then parameters from index 2; statistics are outputs 2 and up. */
static gm_status norm_rule(gm_backward *b, gm_op op, int n_parameters, int n_statistics)
{
    gm_tensor *in[6], *out[3] = {NULL, NULL, NULL}, *g;
    gm_attrs   a = gm_attrs_default();
    bool       residual = gm_backward_input(b, 1)->ndim > 0, flags[2] = {false, false};
    a.eps = gm_backward_attrs(b)->eps;
    GM_TRY(gm_backward_grad_or_zeros(b, 0, &g));
    in[0] = g;
    in[1] = residual ? gm_backward_grad(b, 1) : NULL;
    SAVED(b, residual ? OUT(1) : 0, &in[2]);
    SAVED(b, 2, &in[3]);
    for (int i = 0; i < n_statistics; i++) SAVED(b, OUT(2 + i), &in[4 + i]);
    for (int i = 0; i < n_parameters; i++)
        if (gm_backward_wants(b, 2 + i)) GM_TRY(gm_backward_target(b, 2 + i, &out[1 + i], &flags[i]));
    if (out[1] && out[2] && flags[0] != flags[1]) { /* the kernel knows one flag: begin the other with zeros */
        gm_attrs zero = gm_attrs_default();
        GM_TRY(gm_rule_into(b, GM_OP_fill, 0, NULL, &zero, 1, &out[flags[0] ? 2 : 1]));
        flags[0] = flags[1] = true;
    }
    a.accumulate = out[1] ? flags[0] : flags[1];
    GM_TRY(gm_backward_new(b, gm_backward_input(b, 0), &out[0]));
    gm_status st = gm_rule_into(b, op, 4 + n_statistics, in, &a, 1 + n_parameters, out);
    if (st != GM_OK) {
        gm_tensor_release(out[0]);
        return st;
    }
    if (residual) {
        gm_tensor_retain(out[0]);
        st = gm_backward_give(b, 1, out[0]);
    }
    if (st != GM_OK) {
        gm_tensor_release(out[0]);
        return st;
    }
    return gm_backward_give(b, 0, out[0]);
}

static gm_status layer_norm_rule(gm_backward *b) { return norm_rule(b, GM_OP_layer_norm_grad, 2, 2); }
static gm_status rms_norm_rule(gm_backward *b) { return norm_rule(b, GM_OP_rms_norm_grad, 1, 1); }

static gm_status softmax_rule(gm_backward *b)
{
    gm_tensor *y, *dx = NULL;
    gm_op      op = gm_backward_op(b) == GM_OP_softmax ? GM_OP_softmax_grad : GM_OP_log_softmax_grad;
    SAVED(b, OUT(0), &y);
    GM_TRY(gm_rule_run(b, op, 2, (gm_tensor *[]){y, gm_backward_grad(b, 0)}, gm_backward_attrs(b), &dx));
    return gm_backward_give(b, 0, dx);
}

static gm_status attention_rule(gm_backward *b)
{
    gm_tensor *in[7], *out[3] = {NULL, NULL, NULL}, *g = NULL;
    gm_status  st = GM_OK;
    for (int i = 0; i < 4; i++) SAVED(b, i, &in[i]);
    SAVED(b, OUT(0), &in[4]);
    SAVED(b, OUT(1), &in[5]);
    GM_TRY(gm_rule_contiguous(b, gm_backward_grad(b, 0), &g));
    in[6] = g;
    for (int i = 0; i < 3 && st == GM_OK; i++) st = gm_backward_place(b, i, &out[i]);
    if (st == GM_OK) st = gm_rule_into(b, GM_OP_attention_grad, 7, in, gm_backward_attrs(b), 3, out);
    for (int i = 0; i < 3; i++) {
        if (st == GM_OK) st = gm_backward_give(b, i, out[i]);
        else gm_tensor_release(out[i]);
    }
    gm_tensor_release(g);
    return st;
}

/* tables and losses */

static gm_status embedding_rule(gm_backward *b)
{
    gm_tensor *index, *dw;
    gm_attrs   a = *gm_backward_attrs(b);
    SAVED(b, 1, &index);
    GM_TRY(gm_backward_target(b, 0, &dw, &a.accumulate));
    return gm_rule_into(b, GM_OP_embedding_grad, 2, (gm_tensor *[]){index, gm_backward_grad(b, 0)}, &a, 1, &dw);
}

static gm_status cross_entropy_rule(gm_backward *b)
{
    gm_tensor *in[5], *dx = NULL;
    SAVED(b, 0, &in[0]);
    SAVED(b, 1, &in[1]);
    SAVED(b, OUT(1), &in[2]);
    SAVED(b, OUT(2), &in[3]);
    in[4] = gm_backward_grad(b, 0);
    GM_TRY(gm_rule_run(b, GM_OP_cross_entropy_grad, 5, in, gm_backward_attrs(b), &dx));
    return gm_backward_give(b, 0, dx);
}

/* reductions */

/* g with the reduced dimensions back as size 1. */
static gm_status keep_dims(gm_tensor *g, const gm_spec *x, uint32_t reduced, gm_tensor **out)
{
    int64_t shape[GM_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) shape[d] = reduced & 1u << d ? 1 : x->shape[d];
    return gm_tensor_reshape(g, x->ndim, shape, out);
}

static gm_status sum_rule(gm_backward *b)
{
    const gm_spec *x = gm_backward_input(b, 0);
    uint32_t       dims = gm_backward_attrs(b)->dims;
    gm_tensor     *g = NULL, *kept = NULL, *dx = NULL;
    gm_status      st;
    GM_TRY(gm_rule_contiguous(b, gm_backward_grad(b, 0), &g));
    GM_TRY_OR(keep_dims(g, x, dims ? dims : ~0u, &kept), st, done);
    GM_TRY_OR(gm_tensor_expand(kept, x->ndim, x->shape, &dx), st, done);
    st = gm_backward_give(b, 0, dx);
done:
    gm_tensor_release(kept);
    gm_tensor_release(g);
    return st;
}

static gm_status extreme_rule(gm_backward *b)
{
    gm_tensor *index, *dx = NULL;
    SAVED(b, OUT(1), &index);
    GM_TRY(gm_rule_full(b, gm_backward_input(b, 0), 0, &dx));
    gm_status st = gm_rule_into(b, GM_OP_scatter, 2, (gm_tensor *[]){index, gm_backward_grad(b, 0)},
                                gm_backward_attrs(b), 1, &dx);
    if (st == GM_OK) return gm_backward_give(b, 0, dx);
    gm_tensor_release(dx);
    return st;
}

/* dx[.., index] = g, one of the k at a time */
static gm_status top_k_rule(gm_backward *b)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *index, *g = gm_backward_grad(b, 0), *dx = NULL;
    gm_status  st = GM_OK;
    SAVED(b, OUT(1), &index);
    int last = index->ndim - 1;
    GM_TRY(gm_rule_full(b, gm_backward_input(b, 0), 0, &dx));
    for (int64_t j = 0; j < index->shape[last] && st == GM_OK; j++) {
        gm_tensor *at = NULL, *of = NULL;
        st = gm_tensor_select(index, last, j, &at);
        if (st == GM_OK) st = gm_tensor_select(g, last, j, &of);
        if (st == GM_OK) st = gm_rule_into(b, GM_OP_scatter, 2, (gm_tensor *[]){at, of}, &a, 1, &dx);
        gm_tensor_release(at);
        gm_tensor_release(of);
    }
    if (st == GM_OK) return gm_backward_give(b, 0, dx);
    gm_tensor_release(dx);
    return st;
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
    [GM_OP_linear] = {gm_rule_linear, 3, 2, .splits = true},
    [GM_OP_layer_norm] = {layer_norm_rule, 1 | 4, 2 | 4 | 8},
    [GM_OP_rms_norm] = {rms_norm_rule, 1 | 4, 2 | 4},
    [GM_OP_softmax] = {softmax_rule, 0, 1},
    [GM_OP_log_softmax] = {softmax_rule, 0, 1},
    [GM_OP_attention] = {attention_rule, 15, 3},
    [GM_OP_embedding] = {embedding_rule, 2, 0, .splits = true},
    [GM_OP_cross_entropy] = {cross_entropy_rule, 3, 2 | 4},
    [GM_OP_sum] = {sum_rule, 0, 0},
    [GM_OP_max] = {extreme_rule, 0, 2},
    [GM_OP_min] = {extreme_rule, 0, 2},
    [GM_OP_argmax] = {.stops = true},
    [GM_OP_top_k] = {top_k_rule, 0, 2},
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
    return op == GM_OP_linear && attrs->function != GM_FN_none ? 2 : 0; /* what the activation was given */
}

const gm_gradient *gm_gradient_of(gm_op op) { return &gradients[op]; }
