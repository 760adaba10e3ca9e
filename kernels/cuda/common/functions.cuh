/* functions.cuh - the functions of functions.def and their derivatives on the device, as templates over R, float or
 * double: gm_fn_gelu(x, value), gm_slope_gelu(x, value), gm_fn_add(u, v). clamp alone has two numbers beside x, low in
 * the place of value, and high. If the function is known only at run time, gm_unary_of, gm_unary_slope_of, gm_binary_of
 * and gm_compare_of take its number. kernels/ref/elementwise.c defines what the functions compute. 16-bit values go
 * through f32.
 *
 * The trap: these are the accurate functions of the CUDA library (1 or 2 units in the last place), some 20 to 40
 * instructions each. At the bandwidth of an H200 a multiprocessor has issue slots for about 49 instructions an element
 * in f32 and 24 in bf16 (read and written once): erf and tanh in bf16 are near that limit, pow is past it. */
#ifndef GM_CUDA_FUNCTIONS_CUH
#define GM_CUDA_FUNCTIONS_CUH

#include "kernel.cuh"
#include "../../op.h"

template <class R> GM_DEVICE R gm_sigmoid(R x)
{
    R e = exp(x >= 0 ? -x : x);
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}
template <class R> GM_DEVICE R gm_normal_cdf(R x) { return (R)0.5 * (1 + erf(x * (R)0.70710678118654752440)); }
template <class R> GM_DEVICE R gm_tanh_argument(R x)
{
    return (R)0.79788456080286535588 * (x + (R)0.044715 * x * x * x);
}

#define GM_FUNCTION(name, value_of, slope_of)                                \
    template <class R> GM_DEVICE R gm_fn_##name(R x, R value, R high = 0)    \
    {                                                                        \
        return (void)value, (void)high, (value_of);                          \
    }                                                                        \
    template <class R> GM_DEVICE R gm_slope_##name(R x, R value, R high = 0) \
    {                                                                        \
        return (void)value, (void)high, (void)x, (slope_of);                 \
    }

template <class R> GM_DEVICE R gm_gelu_tanh_slope(R x)
{
    R t = tanh(gm_tanh_argument(x));
    R inner = (R)0.79788456080286535588 * (1 + 3 * (R)0.044715 * x * x);
    return (R)0.5 * (1 + t) + (R)0.5 * x * (1 - t * t) * inner;
}
template <class R> GM_DEVICE R gm_gelu_slope(R x)
{
    return gm_normal_cdf(x) + x * (R)0.39894228040143267794 * exp((R)-0.5 * x * x);
}
template <class R> GM_DEVICE R gm_silu_slope(R x)
{
    R s = gm_sigmoid(x);
    return s * (1 + x * (1 - s));
}
template <class R> GM_DEVICE R gm_sigmoid_slope(R x)
{
    R s = gm_sigmoid(x);
    return s * (1 - s);
}
template <class R> GM_DEVICE R gm_tanh_slope(R x)
{
    R t = tanh(x);
    return 1 - t * t;
}

GM_FUNCTION(none, x, 1)
GM_FUNCTION(relu, x > 0 || x != x ? x : 0, x <= 0 ? 0 : 1)
GM_FUNCTION(gelu, x *gm_normal_cdf(x), gm_gelu_slope(x))
GM_FUNCTION(gelu_tanh, (R)0.5 * x * (1 + tanh(gm_tanh_argument(x))), gm_gelu_tanh_slope(x))
GM_FUNCTION(silu, x *gm_sigmoid(x), gm_silu_slope(x))
GM_FUNCTION(sigmoid, gm_sigmoid(x), gm_sigmoid_slope(x))
GM_FUNCTION(tanh, tanh(x), gm_tanh_slope(x))
GM_FUNCTION(neg, -x, -1)
GM_FUNCTION(exp, exp(x), exp(x))
GM_FUNCTION(log, log(x), 1 / x)
GM_FUNCTION(softplus, (x > 0 ? x : 0) + log1p(exp(-fabs(x))), gm_sigmoid(x))
GM_FUNCTION(sqrt, sqrt(x), (R)0.5 / sqrt(x))
GM_FUNCTION(rsqrt, 1 / sqrt(x), (R)-0.5 / (x * sqrt(x)))
GM_FUNCTION(square, x *x, 2 * x)
GM_FUNCTION(reciprocal, 1 / x, -1 / (x * x))
GM_FUNCTION(abs, fabs(x), x > 0 ? 1 : x < 0 ? -1 : 0)
GM_FUNCTION(sin, sin(x), cos(x))
GM_FUNCTION(cos, cos(x), -sin(x))
GM_FUNCTION(clamp, x <= value ? value : x >= high ? high : x, x <= value || x >= high ? 0 : 1)
GM_FUNCTION(power, pow(x, value), value == 0 ? 0 : value * pow(x, value - 1))
#undef GM_FUNCTION

#define GM_FUNCTION(name, value_of) \
    template <class R> GM_DEVICE R gm_fn_##name(R u, R v) { return (value_of); }
GM_FUNCTION(add, u + v)
GM_FUNCTION(sub, u - v)
GM_FUNCTION(mul, u *v)
GM_FUNCTION(div, u / v)
GM_FUNCTION(maximum, u != u ? u : v != v ? v : u > v ? u : v)
GM_FUNCTION(minimum, u != u ? u : v != v ? v : u < v ? u : v)
GM_FUNCTION(reglu, gm_fn_relu(u, (R)0) * v)
GM_FUNCTION(geglu, gm_fn_gelu(u, (R)0) * v)
GM_FUNCTION(geglu_tanh, gm_fn_gelu_tanh(u, (R)0) * v)
GM_FUNCTION(swiglu, gm_fn_silu(u, (R)0) * v)
GM_FUNCTION(pow, pow(u, v))
#undef GM_FUNCTION

/* By number, where the function is known at run time only. */
#define GM_COMPARE(name)
#define GM_BINARY(name)
#define GM_UNARY(name) \
    case GM_FN_##name: return gm_fn_##name(x, value, high);
template <class R> GM_DEVICE R gm_unary_of(int function, R x, R value, R high = 0)
{
    switch (function) {
#include "../../functions.def"
    }
    return x;
}
#undef GM_UNARY

#define GM_UNARY(name) \
    case GM_FN_##name: return gm_slope_##name(x, value, high);
template <class R> GM_DEVICE R gm_unary_slope_of(int function, R x, R value, R high = 0)
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
    case GM_FN_##name: return gm_fn_##name(u, v);
template <class R> GM_DEVICE R gm_binary_of(int function, R u, R v)
{
    switch (function) {
#include "../../functions.def"
    }
    return u;
}
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE

template <class R> GM_DEVICE bool gm_compare_of(int function, R u, R v)
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

#endif
