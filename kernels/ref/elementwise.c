/* elementwise.c - the scalar functions and the ops that work element by element. */
#include <string.h>

#include "loops.h"

#define ROOT_2_OVER_PI 0.79788456080286535588
#define ROOT_HALF      0.70710678118654752440
#define DENSITY_AT_0   0.39894228040143267794 /* 1 / sqrt(2 pi) */

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double normal_cdf(double x) { return 0.5 * erfc(-x * ROOT_HALF); }
static double tanh_argument(double x) { return ROOT_2_OVER_PI * (x + 0.044715 * x * x * x); }

double ref_unary(gm_function f, double x, double value)
{
    switch (f) {
    case GM_FN_none: return x;
    case GM_FN_relu: return x > 0 || isnan(x) ? x : 0;
    case GM_FN_gelu: return x * normal_cdf(x);
    case GM_FN_gelu_tanh: return 0.5 * x * (1 + tanh(tanh_argument(x)));
    case GM_FN_silu: return x * sigmoid(x);
    case GM_FN_sigmoid: return sigmoid(x);
    case GM_FN_tanh: return tanh(x);
    case GM_FN_neg: return -x;
    case GM_FN_exp: return exp(x);
    case GM_FN_log: return log(x);
    case GM_FN_softplus: return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    case GM_FN_sqrt: return sqrt(x);
    case GM_FN_rsqrt: return 1 / sqrt(x);
    case GM_FN_square: return x * x;
    case GM_FN_reciprocal: return 1 / x;
    case GM_FN_abs: return fabs(x);
    case GM_FN_sin: return sin(x);
    case GM_FN_cos: return cos(x);
    case GM_FN_power: return pow(x, value);
    default: return NAN;
    }
}

static double gelu_tanh_slope(double x)
{
    double t = tanh(tanh_argument(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
}

double ref_unary_slope(gm_function f, double x, double value)
{
    double s;
    switch (f) {
    case GM_FN_none: return 1;
    case GM_FN_relu: return x <= 0 ? 0 : 1; /* NaN: 1 */
    case GM_FN_gelu: return normal_cdf(x) + x * DENSITY_AT_0 * exp(-0.5 * x * x);
    case GM_FN_gelu_tanh: return gelu_tanh_slope(x);
    case GM_FN_silu: return s = sigmoid(x), s * (1 + x * (1 - s));
    case GM_FN_sigmoid: return s = sigmoid(x), s * (1 - s);
    case GM_FN_tanh: return s = tanh(x), 1 - s * s;
    case GM_FN_neg: return -1;
    case GM_FN_exp: return exp(x);
    case GM_FN_log: return 1 / x;
    case GM_FN_softplus: return sigmoid(x);
    case GM_FN_sqrt: return 0.5 / sqrt(x);
    case GM_FN_rsqrt: return -0.5 / (x * sqrt(x));
    case GM_FN_square: return 2 * x;
    case GM_FN_reciprocal: return -1 / (x * x);
    case GM_FN_abs: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case GM_FN_sin: return cos(x);
    case GM_FN_cos: return -sin(x);
    case GM_FN_power: return value == 0 ? 0 : value * pow(x, value - 1);
    default: return NAN;
    }
}

gm_function ref_gate(gm_function f)
{
    switch (f) {
    case GM_FN_reglu: return GM_FN_relu;
    case GM_FN_geglu: return GM_FN_gelu;
    case GM_FN_geglu_tanh: return GM_FN_gelu_tanh;
    default: return GM_FN_silu;
    }
}

static double binary(gm_function f, double a, double b)
{
    switch (f) {
    case GM_FN_add: return a + b;
    case GM_FN_sub: return a - b;
    case GM_FN_mul: return a * b;
    case GM_FN_div: return a / b;
    case GM_FN_maximum: return isnan(a) ? a : isnan(b) ? b : a > b ? a : b;
    case GM_FN_minimum: return isnan(a) ? a : isnan(b) ? b : a < b ? a : b;
    case GM_FN_reglu:
    case GM_FN_geglu:
    case GM_FN_geglu_tanh:
    case GM_FN_swiglu: return ref_unary(ref_gate(f), a, 0) * b;
    case GM_FN_pow: return pow(a, b);
    case GM_FN_eq: return a == b;
    case GM_FN_ne: return a != b;
    case GM_FN_lt: return a < b;
    case GM_FN_le: return a <= b;
    case GM_FN_gt: return a > b;
    case GM_FN_ge: return a >= b;
    default: return NAN;
    }
}

gm_status gm_ref_fill(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *y = call->out[0];
    ref_walk         to = {.t = y};
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++, ref_next(&to))
        gm_store(y->dtype, gm_tensor_data(y), to.offset, call->attrs->value);
    return GM_OK;
}

/* Same dtype: the bits. Otherwise through double, as dtype.h says. Specs copy more than they do anything else, so what
 * is contiguous is copied at once. */
gm_status gm_ref_copy(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *y = call->out[0];
    bool             same = x->dtype == y->dtype;
    size_t           size = gm_dtype_size(x->dtype);
    char            *to = gm_tensor_data(y), *from = gm_tensor_data(x);
    int64_t          n = gm_tensor_numel(x);
    if (same && n > 0 && gm_tensor_is_contiguous(x) && gm_tensor_is_contiguous(y)) {
        memmove(to, from, (size_t)n * size);
        return GM_OK;
    }
    ref_walk at_x = {.t = x}, at_y = {.t = y};
    for (int64_t i = 0; i < n; i++, ref_next(&at_x), ref_next(&at_y))
        if (same) memcpy(to + (size_t)at_y.offset * size, from + (size_t)at_x.offset * size, size);
        else gm_store(y->dtype, to, at_y.offset, gm_element(x->dtype, from, at_x.offset));
    return GM_OK;
}

gm_status gm_ref_axpy(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *y = call->out[0];
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++)
        ref_set(y, i, ref_get(y, i) + call->attrs->alpha * ref_get(x, i));
    return GM_OK;
}

gm_status gm_ref_affine(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0];
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++)
        ref_set(call->out[0], i, call->attrs->alpha * ref_get(x, i) + call->attrs->beta);
    return GM_OK;
}

gm_status gm_ref_scale(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *y = call->out[0];
    double           s = ref_get(call->in[1], 0);
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) ref_put(y, i, s * ref_get(x, i), call->attrs->accumulate);
    return GM_OK;
}

/* clamp has two numbers beside x, all others one. */
static double unary(const gm_attrs *at, double x)
{
    if (at->function != GM_FN_clamp) return ref_unary(at->function, x, at->value);
    return x <= at->low ? at->low : x >= at->high ? at->high : x;
}

static double unary_slope(const gm_attrs *at, double x)
{
    if (at->function != GM_FN_clamp) return ref_unary_slope(at->function, x, at->value);
    return x <= at->low || x >= at->high ? 0 : 1;
}

gm_status gm_ref_unary(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0];
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) ref_set(call->out[0], i, unary(call->attrs, ref_get(x, i)));
    return GM_OK;
}

gm_status gm_ref_unary_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *g = call->in[1];
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++)
        ref_set(call->out[0], i, ref_get(g, i) * unary_slope(call->attrs, ref_get(x, i)));
    return GM_OK;
}

/* Element of t, broadcast, that stands at the i-th element of y. */
static double broadcast_get(const gm_tensor *t, const gm_tensor *y, int64_t i)
{
    int64_t at[GM_MAX_DIMS];
    ref_coordinates(y->ndim, y->shape, i, at);
    return gm_element(t->dtype, gm_elements(t), ref_broadcast_offset(t, y->ndim, at));
}

gm_status gm_ref_binary(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *y = call->out[0];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++)
        ref_set(y, i,
                binary(call->attrs->function, broadcast_get(call->in[0], y, i), broadcast_get(call->in[1], y, i)));
    return GM_OK;
}

gm_status gm_ref_gate_grad(gm_device *dev, const gm_call *call)
{
    gm_function      f = ref_gate(call->attrs->function);
    const gm_tensor *da = call->out[0], *db = call->out[1];
    (void)dev;
    for (int64_t i = 0, n = gm_tensor_numel(call->in[0]); i < n; i++) {
        double g = ref_get(call->in[0], i), a = ref_get(call->in[1], i), b = ref_get(call->in[2], i);
        if (da) ref_set(da, i, g * b * ref_unary_slope(f, a, 0));
        if (db) ref_set(db, i, g * ref_unary(f, a, 0));
    }
    return GM_OK;
}

gm_status gm_ref_compare(gm_device *dev, const gm_call *call) { return gm_ref_binary(dev, call); }

gm_status gm_ref_where(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *y = call->out[0];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        bool condition = broadcast_get(call->in[0], y, i) != 0;
        ref_set(y, i, broadcast_get(call->in[condition ? 1 : 2], y, i));
    }
    return GM_OK;
}
