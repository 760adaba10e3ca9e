/* functions_t.cuh - the functions of functions.def and their slopes, in GM_R (float or double) with names
 * that end in GM_S (f32 or f64): gm_fn_gelu_f32(x, value), gm_slope_gelu_f32(x, value). Their meaning is that of
 * kernels/ref/elementwise.c. GM_M(exp): the function of the C library for that type. */

GM_DEVICE void GM_N(gm_ignore)(GM_R unused) { (void)unused; }

GM_DEVICE GM_R GM_N(gm_sigmoid)(GM_R x)
{
    GM_R e = GM_M(exp)(x >= 0 ? -x : x);
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
GM_DEVICE GM_R GM_N(gm_normal_cdf)(GM_R x) { return (GM_R)0.5 * (1 + GM_M(erf)(x * (GM_R)0.70710678118654752440)); }
GM_DEVICE GM_R GM_N(gm_tanh_argument)(GM_R x)
{
    return (GM_R)0.79788456080286535588 * (x + (GM_R)0.044715 * x * x * x);
}

#define GM_FUNCTION(name, value_of, slope_of)                                                 \
    GM_DEVICE GM_R GM_N(gm_fn_##name)(GM_R x, GM_R value) { return (void)value, (value_of); } \
    GM_DEVICE GM_R GM_N(gm_slope_##name)(GM_R x, GM_R value) { return (void)value, (void)x, (slope_of); }

GM_DEVICE GM_R GM_N(gm_gelu_tanh_slope)(GM_R x)
{
    GM_R t = GM_M(tanh)(GM_N(gm_tanh_argument)(x));
    GM_R inner = (GM_R)0.79788456080286535588 * (1 + 3 * (GM_R)0.044715 * x * x);
    return (GM_R)0.5 * (1 + t) + (GM_R)0.5 * x * (1 - t * t) * inner;
}
GM_DEVICE GM_R GM_N(gm_gelu_slope)(GM_R x)
{
    return GM_N(gm_normal_cdf)(x) + x * (GM_R)0.39894228040143267794 * GM_M(exp)((GM_R)-0.5 * x * x);
}
GM_DEVICE GM_R GM_N(gm_silu_slope)(GM_R x)
{
    GM_R s = GM_N(gm_sigmoid)(x);
    return s * (1 + x * (1 - s));
}
GM_DEVICE GM_R GM_N(gm_sigmoid_slope)(GM_R x)
{
    GM_R s = GM_N(gm_sigmoid)(x);
    return s * (1 - s);
}
GM_DEVICE GM_R GM_N(gm_tanh_slope)(GM_R x)
{
    GM_R t = GM_M(tanh)(x);
    return 1 - t * t;
}

GM_FUNCTION(none, x, 1)
GM_FUNCTION(relu, x > 0 || x != x ? x : 0, x <= 0 ? 0 : 1)
GM_FUNCTION(gelu, x *GM_N(gm_normal_cdf)(x), GM_N(gm_gelu_slope)(x))
GM_FUNCTION(gelu_tanh, (GM_R)0.5 * x * (1 + GM_M(tanh)(GM_N(gm_tanh_argument)(x))), GM_N(gm_gelu_tanh_slope)(x))
GM_FUNCTION(silu, x *GM_N(gm_sigmoid)(x), GM_N(gm_silu_slope)(x))
GM_FUNCTION(sigmoid, GM_N(gm_sigmoid)(x), GM_N(gm_sigmoid_slope)(x))
GM_FUNCTION(tanh, GM_M(tanh)(x), GM_N(gm_tanh_slope)(x))
GM_FUNCTION(neg, -x, -1)
GM_FUNCTION(exp, GM_M(exp)(x), GM_M(exp)(x))
GM_FUNCTION(log, GM_M(log)(x), 1 / x)
GM_FUNCTION(sqrt, GM_M(sqrt)(x), (GM_R)0.5 / GM_M(sqrt)(x))
GM_FUNCTION(rsqrt, 1 / GM_M(sqrt)(x), (GM_R)-0.5 / (x * GM_M(sqrt)(x)))
GM_FUNCTION(square, x *x, 2 * x)
GM_FUNCTION(reciprocal, 1 / x, -1 / (x * x))
GM_FUNCTION(abs, GM_M(fabs)(x), x > 0 ? 1 : x < 0 ? -1 : 0)
GM_FUNCTION(sin, GM_M(sin)(x), GM_M(cos)(x))
GM_FUNCTION(cos, GM_M(cos)(x), -GM_M(sin)(x))
GM_FUNCTION(power, GM_M(pow)(x, value), value == 0 ? 0 : value * GM_M(pow)(x, value - 1))
#undef GM_FUNCTION

#define GM_FUNCTION(name, value_of) \
    GM_DEVICE GM_R GM_N(gm_fn_##name)(GM_R u, GM_R v) { return (value_of); }
GM_FUNCTION(add, u + v)
GM_FUNCTION(sub, u - v)
GM_FUNCTION(mul, u *v)
GM_FUNCTION(div, u / v)
GM_FUNCTION(maximum, u != u ? u : v != v ? v : u > v ? u : v)
GM_FUNCTION(minimum, u != u ? u : v != v ? v : u < v ? u : v)
GM_FUNCTION(pow, GM_M(pow)(u, v))
#undef GM_FUNCTION

/* By number, where the function is known at run time only. */
#define GM_COMPARE(name)
#define GM_BINARY(name)
#define GM_UNARY(name) \
    case GM_FN_##name: return GM_N(gm_fn_##name)(x, value);
GM_DEVICE GM_R GM_N(gm_unary)(int function, GM_R x, GM_R value)
{
    switch (function) {
#include "../../functions.def"
    }
    return x;
}
#undef GM_UNARY

#define GM_UNARY(name) \
    case GM_FN_##name: return GM_N(gm_slope_##name)(x, value);
GM_DEVICE GM_R GM_N(gm_unary_slope)(int function, GM_R x, GM_R value)
{
    switch (function) {
#include "../../functions.def"
    }
    return 1;
}
#undef GM_UNARY
#undef GM_BINARY

#define GM_UNARY(name)
#define GM_BINARY(name) \
    case GM_FN_##name: return GM_N(gm_fn_##name)(u, v);
GM_DEVICE GM_R GM_N(gm_binary)(int function, GM_R u, GM_R v)
{
    switch (function) {
#include "../../functions.def"
    }
    return u;
}
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE

GM_DEVICE int GM_N(gm_compare)(int function, GM_R u, GM_R v)
{
    switch (function) {
    case GM_FN_eq: return u == v;
    case GM_FN_ne: return u != v;
    case GM_FN_lt: return u < v;
    case GM_FN_le: return u <= v;
    case GM_FN_gt: return u > v;
    default: return u >= v;
    }
}
