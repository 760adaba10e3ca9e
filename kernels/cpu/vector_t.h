/* vector_t.h - vectors, and functions of them, of vector.c for one element type (as.h). */

CPU_INLINE V    F(load)(const T *p) { return *(const F(any) *)p; }
CPU_INLINE void F(store)(T *p, V v) { *(F(any) *)p = v; }
CPU_INLINE T    F(get)(const T *p) { return *p; }
CPU_INLINE void F(set)(T *p, T v) { *p = v; }

/* A vector as doubles: the first half, the second; of f64 there is no second. */
CPU_INLINE void F(load_wide)(const T *p, vf64 *low, vf64 *high)
{
#if T_BITS == 32
    *low = widen(*(const any_half *)p);
    *high = widen(*(const any_half *)(p + LANES / 2));
#else
    *low = F(load)(p);
    *high = (vf64){0};
#endif
}

CPU_INLINE V F(abs_v)(V x) { return (V)((VI)x & (VI) ~(VI)F(splat)((T)-0.0)); }
CPU_INLINE V F(copysign_v)(V x, V sign) /* x >= 0 */ { return (V)((VI)x | ((VI)sign & (VI)F(splat)((T)-0.0))); }

#if T_BITS == 32
#define MAGIC    12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
#define MANTISSA 23
#define BIAS     127
#define LN2_HIGH 0.693359375f /* few bits: its products with small integers are exact */
#define LN2_LOW  -2.12194440054690583e-4f
#define EXP_LOW  -105.0f
#define EXP_HIGH 89.0f
#define EXP_ZERO -88.0f /* rounds to 2^-127, whose bits are those of 0 */
#define TANH_ONE 10.0f
#else
#define MAGIC    6755399441055744.0
#define MANTISSA 52
#define BIAS     1023
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW  1.90821492927058770002e-10
#define EXP_LOW  -746.0
#define EXP_HIGH 710.0
#define EXP_ZERO -709.0 /* likewise 2^-1023 */
#define TANH_ONE 20.0
#endif

/* P of exp(r) = 1 + r + r^2 P(r), |r| <= ln(2) / 2 */
CPU_INLINE V F(exp_rest_v)(V r)
{
#if T_BITS == 32
    V p = F(splat)(0.00139269266140219065f);
    p = p * r + 0.0083637738744055735f;
    p = p * r + 0.0416665501103051244f;
    p = p * r + 0.16666573381900846f;
    p = p * r + 0.5f;
#else
    V p = F(splat)(2.09154422977801152e-9);
    p = p * r + 2.51062747335732947e-8;
    p = p * r + 2.75572718102197996e-7;
    p = p * r + 2.75572528335169097e-6;
    p = p * r + 0.0000248015873270071867;
    p = p * r + 0.000198412698768643549;
    p = p * r + 0.00138888888888833267;
    p = p * r + 0.0083333333333255447;
    p = p * r + 0.0416666666666666701;
    p = p * r + 0.166666666666666714;
    p = p * r + 0.5;
#endif
    return p;
}

#define LOG2_E ((T)1.44269504088896340736)
#if CPU_VECTOR == 64
CPU_INLINE V F(exp_v)(V x)
{
    x = F(max_v)(F(splat)(EXP_LOW), F(min_v)(F(splat)(EXP_HIGH), x)); /* NaN passes: it is the second operand */
    V n = (x * LOG2_E + MAGIC) - MAGIC;
    V r = (x - n * LN2_HIGH) - n * LN2_LOW;
    return F(scale_v)((F(exp_rest_v)(r) * (r * r) + r) + 1, n);
}
#else
/* n is added to a number in whose low bits it then stands, with what the exponent field of 2^n needs. exp_v multiplies
 * by 2^n in two factors, so that results may be subnormal or infinite. */
CPU_INLINE V F(exp_v)(V x)
{
    x = F(max_v)(F(splat)(EXP_LOW), F(min_v)(F(splat)(EXP_HIGH), x)); /* NaN passes: it is the second operand */
    V k = x * LOG2_E + (MAGIC + 2 * BIAS), n = k - (MAGIC + 2 * BIAS);
    V r = (x - n * LN2_HIGH) - n * LN2_LOW, y = (F(exp_rest_v)(r) * (r * r) + r) + 1;
    F(unsigned) both = (F(unsigned))k, half = both >> 1;
    return y * (V)(half << MANTISSA) * (V)((both - half) << MANTISSA);
}
#endif

/* exp(x + *low) for x <= 0, *low far below x's ulp, NULL for 0: one factor is enough. Below the normal range the result
 * is 0 as a rule. Intel's processors take 70 ns for a vector with a subnormal result, in place of 2, and scores that a
 * mask hides are -inf. */
CPU_INLINE V F(exp_below)(V x, const V *low)
{
    x = F(max_v)(F(splat)(EXP_ZERO), x);
    V k = x * LOG2_E + (MAGIC + BIAS), n = k - (MAGIC + BIAS), r = (x - n * LN2_HIGH) - n * LN2_LOW;
    if (low) r += *low;
    return ((F(exp_rest_v)(r) * (r * r) + r) + 1) * (V)((VI)k << MANTISSA);
}

CPU_INLINE V F(exp_low_v)(V x, V low) { return F(exp_below)(x, &low); }
CPU_INLINE V F(exp_down_v)(V x) { return F(exp_below)(x, NULL); }

/* log(2^k m), m in [sqrt(1/2), sqrt(2)): with f = m - 1, h = f^2 / 2 and s = f / (2 + f),
 * log(m) = f - (h - s (h + s^2 P(s^2))) */
CPU_INLINE V F(log_v)(V x)
{
#if T_BITS == 32
    const V  tiny = F(splat)(0x1p-126f), up = F(splat)(0x1p23f);
    const TI root = 0x3f3504f3;
    const V  one23 = F(splat)(8388608.0f);
    const T  up_log2 = 23;
#else
    const V tiny = F(splat)(0x1p-1022), up = F(splat)(0x1p52);
    const TI root = 0x3fe6a09e667f3bcd;
    const V one23 = F(splat)(4503599627370496.0);
    const T up_log2 = 52;
#endif
    VI small = x < tiny;
    V  y = F(select)(small, x * up, x);
    VI shift = (VI){0} + (root - ((TI)BIAS << MANTISSA));
    VI bits = (VI)((F(unsigned))y - (F(unsigned))shift); /* exponent field: BIAS + k; without a sign NaN may wrap */
    V  k = (V)((VI)((F(unsigned))bits >> MANTISSA) | (VI)one23) - (one23 + BIAS);
    V  m = (V)((bits & (((TI)1 << MANTISSA) - 1)) + root);
    k = F(select)(small, k - up_log2, k);
    V f = m - 1, s = f / (f + 2), z = s * s, h = f * f * (T)0.5;
#if T_BITS == 32
    V p = F(splat)(0.233419433887145609f);
    p = p * z + 0.285503969596180136f;
    p = p * z + 0.400001255945543671f;
    p = p * z + 0.666666665498831766f;
#else
    V p = F(splat)(0.131007213835034914);
    p = p * z + 0.132674185964748834;
    p = p * z + 0.15386290534658992;
    p = p * z + 0.181817947008977996;
    p = p * z + 0.222222224005477573;
    p = p * z + 0.285714285707644501;
    p = p * z + 0.400000000000009413;
    p = p * z + 0.666666666666666664;
#endif
    V r = k * LN2_HIGH - ((h - (s * (h + z * p) + k * LN2_LOW)) - f);
    r = F(select)(x == INFINITY, x, r);
    r = F(select)(x == 0, F(splat)((T)-INFINITY), r);
    return F(select)((x >= 0), r, F(splat)((T)NAN)); /* negative or NaN */
}

#if CPU_VECTOR == 64
CPU_INLINE V F(tanh_v)(V x)
{
    V a = F(abs_v)(x), z = x * x;
    V large = F(copysign_v)(1 - 2 / (F(exp_v)(2 * a) + 1), x);
#if T_BITS == 32
    V p = F(splat)(0.002291770456256263f);
    p = p * z + -0.00834308521883248262f;
    p = p * z + 0.0217686558037632168f;
    p = p * z + -0.0539592272619683242f;
    p = p * z + 0.133333034203876063f;
    p = p * z + -0.333333331712396978f;
#else
    V p = F(splat)(6.47965258390945874e-6);
    p = p * z + -0.0000311897743443133427;
    p = p * z + 0.0000925611288660400516;
    p = p * z + -0.000237585639808842535;
    p = p * z + 0.000589659108363505604;
    p = p * z + -0.00145577510509642376;
    p = p * z + 0.00359212171222664072;
    p = p * z + -0.00886323510017403319;
    p = p * z + 0.0218694885188679212;
    p = p * z + -0.053968253967893711;
    p = p * z + 0.133333333333330386;
    p = p * z + -0.333333333333333329;
#endif
    return F(if_less)(a, F(splat)((T)0.625), x + x * (z * p), large);
}
#else
/* tanh(a) = m / (m + 2), m = exp(2 a) - 1 = 2^n (exp(r) - 1) + (2^n - 1): where n is 0 nothing cancels. */
CPU_INLINE V F(tanh_v)(V x)
{
    V a = F(min_v)(F(splat)(TANH_ONE), F(abs_v)(x)), k = (a + a) * LOG2_E + (MAGIC + BIAS), n = k - (MAGIC + BIAS);
    V r = ((a + a) - n * LN2_HIGH) - n * LN2_LOW, s = (V)((VI)k << MANTISSA);
    V m = (F(exp_rest_v)(r) * (r * r) + r) * s + (s - 1);
    return F(copysign_v)(m / (m + 2), x);
}
#endif

CPU_INLINE V F(sigmoid_v)(V x) { return 1 / (1 + F(exp_v)(-x)); }

/* s = sigmoid(x) and its slope s (1 - s) = e / (1 + e)^2, e = exp(-|x|): neither cancels */
CPU_INLINE V F(sigmoid_slope_v)(V x, V *slope)
{
    V e = F(exp_down_v)(-F(abs_v)(x)), r = 1 / (1 + e);
    *slope = e * (r * r);
    return F(if_less)(x, F(splat)(0), e * r, r);
}

#include "gelu_t.h"

CPU_INLINE V F(silu_v)(V x) { return x / (1 + F(exp_v)(-x)); }

CPU_INLINE V F(silu_both_v)(V x, V *slope)
{
    V d, s = F(sigmoid_slope_v)(x, &d);
    *slope = s + d * x;
    return x * s;
}

CPU_INLINE V F(silu_grad_v)(V x)
{
    V slope;
    F(silu_both_v)(x, &slope);
    return slope;
}

CPU_INLINE V F(sigmoid_grad_v)(V x)
{
    V slope;
    F(sigmoid_slope_v)(x, &slope);
    return slope;
}

/* 1 - tanh^2(x) = 4 s (1 - s) at 2 x */
CPU_INLINE V F(tanh_grad_v)(V x) { return F(sigmoid_grad_v)(x + x) * 4; }

/* x^(1/2): a root of -0 is 0, and one of -inf is inf */
CPU_INLINE V F(root_v)(V x) { return F(select)(x == (T)-INFINITY, F(splat)((T)INFINITY), F(sqrt_v)(x + 0)); }

/* max(x, 0) + log(1 + e), e = exp(-|x|): what rounding 1 + e takes comes back as a share of it */
CPU_INLINE V F(softplus_v)(V x)
{
    V e = F(exp_down_v)(-F(abs_v)(x)), one = e + 1;
    return F(max_v)(F(splat)(0), x) + (F(log_v)(one) + (e - (one - 1)) / one);
}

CPU_INLINE V F(relu_v)(V x) { return F(max_v)(F(splat)(0), x); }                                  /* NaN stays NaN */
CPU_INLINE V F(relu_grad_v)(V x) { return F(if_most)(x, F(splat)(0), F(splat)(0), F(splat)(1)); } /* of NaN: 1 */
CPU_INLINE V F(relu_both_v)(V x, V *slope)
{
    *slope = F(relu_grad_v)(x);
    return F(relu_v)(x);
}

#undef MAGIC
#undef MANTISSA
#undef BIAS
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_LOW
#undef EXP_HIGH
#undef EXP_ZERO
#undef TANH_ONE
#undef LOG2_E
