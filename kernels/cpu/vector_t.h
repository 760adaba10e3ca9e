/* vector_t.h - the numeric functions of vector.c for one element type (as.h). */

CPU_INLINE V    F(load)(const T *p) { return *(const F(any) *)p; }
CPU_INLINE void F(store)(T *p, V v) { *(F(any) *)p = v; }
/* Whole vectors of p at i, or the first m lanes: the loops below step by LANES with m = n - i. */
CPU_INLINE V F(at)(const T *p, int64_t i, int64_t m)
{
    return __builtin_expect(m < LANES, 0) ? F(load_n)(p + i, m) : F(load)(p + i);
}

CPU_INLINE void F(put)(T *p, int64_t i, int64_t m, V v)
{
    if (__builtin_expect(m < LANES, 0)) F(store_n)(p + i, m, v);
    else F(store)(p + i, v);
}

/* put, past the caches (base.c) if `past`; whole vectors then go to addresses that vectors divide. The idiom is
 *     for (i = 0, m = F(first_step)(y, n, past); i < n; i += m < LANES ? m : LANES, m = n - i)
 *         F(put_past)(y, i, m, f(F(at)(x, i, m)), past); */
CPU_INLINE void F(put_past)(T *p, int64_t i, int64_t m, V v, bool past)
{
    if (__builtin_expect(m < LANES, 0)) F(store_n)(p + i, m, v);
    else if (past) F(store_past)(p + i, v);
    else F(store)(p + i, v);
}

CPU_INLINE int64_t F(first_step)(const T *y, int64_t n, bool past)
{
    int64_t head = (int64_t)(-(uintptr_t)y % CPU_VECTOR / sizeof(T));
    return past && head > 0 && head < n ? head : n;
}

CPU_INLINE V F(abs_v)(V x) { return (V)((VI)x & (VI) ~(VI)F(splat)((T)-0.0)); }
CPU_INLINE V F(copysign_v)(V x, V sign) /* x >= 0 */ { return (V)((VI)x | ((VI)sign & (VI)F(splat)((T)-0.0))); }

CPU_INLINE T F(sum_v)(V v)
{
    T s = 0;
    for (int i = 0; i < LANES / 2; i++) s += v[i] + v[i + LANES / 2];
    return s;
}

/* Lane j: the sum across lanes of r[j]. r is used up. */
CPU_INLINE V F(sums_v)(V r[LANES])
{
    VI lane;
    for (int j = 0; j < LANES; j++) lane[j] = j;
#pragma GCC unroll 4
    for (int d = LANES / 2; d > 0; d /= 2) {
        VI odd = (lane & d) != 0, low = lane + (odd & (LANES - d)), high = low + d;
#pragma GCC unroll 8
        for (int i = 0; i < d; i++)
            r[i] = __builtin_shuffle(r[i], r[i + d], low) + __builtin_shuffle(r[i], r[i + d], high);
    }
    return r[0];
}

CPU_INLINE T F(max_of)(V v)
{
    T m = v[0];
    for (int i = 1; i < LANES; i++) m = v[i] > m ? v[i] : m;
    return m;
}

#if T_BITS == 32
#define MAGIC    12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
#define MANTISSA 23
#define BIAS     127
#define LN2_HIGH 0.693359375f /* few bits: its products with small integers are exact */
#define LN2_LOW  -2.12194440054690583e-4f
#define EXP_LOW  -105.0f
#define EXP_HIGH 89.0f
#else
#define MAGIC    6755399441055744.0
#define MANTISSA 52
#define BIAS     1023
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW  1.90821492927058770002e-10
#define EXP_LOW  -746.0
#define EXP_HIGH 710.0
#endif

/* y 2^n for an integer n, in two factors so that results may be subnormal or infinite */
#if CPU_VECTOR != 64
CPU_INLINE V F(scale_v)(V y, V n)
{
    V half = (n * (T)0.5 + MAGIC) - MAGIC, rest = n - half;
    V a = (V)(((VI)(half + MAGIC) + BIAS) << MANTISSA), b = (V)(((VI)(rest + MAGIC) + BIAS) << MANTISSA);
    return y * a * b;
}
#endif

/* exp(x + low), low far below x's ulp or 0: exp(r) = 1 + r + r^2 P(r), |r| <= ln(2) / 2 */
CPU_INLINE V F(exp_low_v)(V x, V low)
{
    x = F(max_v)(F(splat)(EXP_LOW), F(min_v)(F(splat)(EXP_HIGH), x)); /* NaN passes: it is the second operand */
    V n = (x * (T)1.44269504088896340736 + MAGIC) - MAGIC;
    V r = (x - n * LN2_HIGH) - n * LN2_LOW + low;
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
    return F(scale_v)((p * (r * r) + r) + 1, n);
}

CPU_INLINE V F(exp_v)(V x) { return F(exp_low_v)(x, F(splat)(0)); }

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
    const V  tiny = F(splat)(0x1p-1022), up = F(splat)(0x1p52);
    const TI root = 0x3fe6a09e667f3bcd;
    const V  one23 = F(splat)(4503599627370496.0);
    const T  up_log2 = 52;
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
    V        p = F(splat)(0.131007213835034914);
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

CPU_INLINE V F(sigmoid_v)(V x) { return 1 / (1 + F(exp_v)(-x)); }

/* s = sigmoid(x) and its slope s (1 - s) = e / (1 + e)^2, e = exp(-|x|): neither cancels */
CPU_INLINE V F(sigmoid_slope_v)(V x, V *slope)
{
    V e = F(exp_v)(-F(abs_v)(x)), r = 1 / (1 + e);
    *slope = e * (r * r);
    return F(if_less)(x, F(splat)(0), e * r, r);
}

#include "gelu_t.h"

CPU_INLINE V F(silu_v)(V x) { return x / (1 + F(exp_v)(-x)); }

CPU_INLINE V F(silu_grad_v)(V x)
{
    V slope, s = F(sigmoid_slope_v)(x, &slope);
    return s + slope * x;
}

CPU_INLINE V F(sigmoid_grad_v)(V x)
{
    V slope;
    F(sigmoid_slope_v)(x, &slope);
    return slope;
}

/* 1 - tanh^2(x) = 4 s (1 - s) at 2 x */
CPU_INLINE V F(tanh_grad_v)(V x) { return F(sigmoid_grad_v)(x + x) * 4; }

CPU_INLINE V F(relu_v)(V x) { return F(max_v)(F(splat)(0), x); }                                  /* NaN stays NaN */
CPU_INLINE V F(relu_grad_v)(V x) { return F(if_most)(x, F(splat)(0), F(splat)(0), F(splat)(1)); } /* of NaN: 1 */

/* y = f(x) and dx = g f'(x) over `rows` rows of n contiguous elements; the tail goes through the same code. */
#define MAP_ROWS(f)                                                                \
    for (int64_t r_ = 0; r_ < rows; r_++, x += x_row, y += y_row) {                \
        int64_t i_ = 0;                                                            \
        for (; i_ + LANES <= n; i_ += LANES) F(store)(y + i_, f(F(load)(x + i_))); \
        if (i_ < n) F(store_n)(y + i_, n - i_, f(F(load_n)(x + i_, n - i_)));      \
    }
#define MAP_GRAD_ROWS(f)                                                                                   \
    for (int64_t r_ = 0; r_ < rows; r_++, x += x_row, g += g_row, dx += dx_row) {                          \
        int64_t i_ = 0;                                                                                    \
        for (; i_ + LANES <= n; i_ += LANES) F(store)(dx + i_, F(load)(g + i_) * f(F(load)(x + i_)));      \
        if (i_ < n) F(store_n)(dx + i_, n - i_, F(load_n)(g + i_, n - i_) * f(F(load_n)(x + i_, n - i_))); \
    }

static inline void F(activation_rows)(gm_function f, int64_t rows, int64_t n, const T *x, int64_t x_row, T *y,
                                      int64_t y_row)
{
    switch (f) {
    case GM_FN_relu: MAP_ROWS(F(relu_v)) break;
    case GM_FN_gelu: MAP_ROWS(F(gelu_v)) break;
    case GM_FN_gelu_tanh: MAP_ROWS(F(gelu_tanh_v)) break;
    case GM_FN_silu: MAP_ROWS(F(silu_v)) break;
    case GM_FN_sigmoid: MAP_ROWS(F(sigmoid_v)) break;
    case GM_FN_tanh: MAP_ROWS(F(tanh_v)) break;
    default: /* none */
        for (; x != y && rows > 0; rows--, x += x_row, y += y_row) memmove(y, x, (size_t)n * sizeof(T));
    }
}

static inline void F(activation_grad_rows)(gm_function f, int64_t rows, int64_t n, const T *x, int64_t x_row,
                                           const T *g, int64_t g_row, T *dx, int64_t dx_row)
{
    switch (f) {
    case GM_FN_relu: MAP_GRAD_ROWS(F(relu_grad_v)) break;
    case GM_FN_gelu: MAP_GRAD_ROWS(F(gelu_grad_v)) break;
    case GM_FN_gelu_tanh: MAP_GRAD_ROWS(F(gelu_tanh_grad_v)) break;
    case GM_FN_silu: MAP_GRAD_ROWS(F(silu_grad_v)) break;
    case GM_FN_sigmoid: MAP_GRAD_ROWS(F(sigmoid_grad_v)) break;
    case GM_FN_tanh: MAP_GRAD_ROWS(F(tanh_grad_v)) break;
    default: /* none */
        for (; dx != g && rows > 0; rows--, g += g_row, dx += dx_row) memmove(dx, g, (size_t)n * sizeof(T));
    }
}

static inline void F(activation_row)(gm_function f, int64_t n, const T *x, T *y)
{
    F(activation_rows)(f, 1, n, x, n, y, n);
}

static inline void F(activation_grad_row)(gm_function f, int64_t n, const T *x, const T *g, T *dx)
{
    F(activation_grad_rows)(f, 1, n, x, n, g, n, dx, n);
}

static inline T F(max_row)(int64_t n, const T *x)
{
    V       m0 = F(splat)((T)-INFINITY), m1 = m0, m2 = m0, m3 = m0; /* a NaN element leaves the other operand */
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        m0 = F(max_v)(F(load)(x + i), m0);
        m1 = F(max_v)(F(load)(x + i + LANES), m1);
        m2 = F(max_v)(F(load)(x + i + 2 * LANES), m2);
        m3 = F(max_v)(F(load)(x + i + 3 * LANES), m3);
    }
    for (; i + LANES <= n; i += LANES) m0 = F(max_v)(F(load)(x + i), m0);
    T m = F(max_of)(F(max_v)(F(max_v)(m0, m1), F(max_v)(m2, m3)));
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* What a vector adds to two accumulators in double. */
CPU_INLINE void F(add_wide)(vf64 *a, vf64 *b, V v)
{
#if T_BITS == 32
    *a += widen(low_half(v));
    *b += widen(high_half(v));
#else
    (void)b;
    *a += v;
#endif
}

static inline double F(sum_row)(int64_t n, const T *x)
{
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        F(add_wide)(&a, &b, F(load)(x + i));
        F(add_wide)(&c, &d, F(load)(x + i + LANES));
    }
    for (; i + LANES <= n; i += LANES) F(add_wide)(&a, &b, F(load)(x + i));
    if (i < n) F(add_wide)(&c, &d, F(load_n)(x + i, n - i));
    return sum_v_wide((a + b) + (c + d));
}

CPU_INLINE void F(mul_wide)(vf64 *a, vf64 *b, V v, V w)
{
#if T_BITS == 32
    *a += widen(low_half(v)) * widen(low_half(w));
    *b += widen(high_half(v)) * widen(high_half(w));
#else
    (void)b;
    *a += v * w;
#endif
}

static inline double F(dot_row)(int64_t n, const T *x, const T *y)
{
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        F(mul_wide)(&a, &b, F(load)(x + i), F(load)(y + i));
        F(mul_wide)(&c, &d, F(load)(x + i + LANES), F(load)(y + i + LANES));
    }
    for (; i + LANES <= n; i += LANES) F(mul_wide)(&a, &b, F(load)(x + i), F(load)(y + i));
    if (i < n) F(mul_wide)(&c, &d, F(load_n)(x + i, n - i), F(load_n)(y + i, n - i));
    return sum_v_wide((a + b) + (c + d));
}

/* y = exp(scale x - shift); returns the sum, added in 4 LANES columns: at worst n eps / (4 LANES). next: read soon */
static inline T F(exp_row)(int64_t n, const T *x, T scale, T shift, T *y, const T *next)
{
    V       s0 = F(splat)(0), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        V a = F(exp_v)(F(load)(x + i) * scale - shift), b = F(exp_v)(F(load)(x + i + LANES) * scale - shift);
        V c = F(exp_v)(F(load)(x + i + 2 * LANES) * scale - shift);
        V d = F(exp_v)(F(load)(x + i + 3 * LANES) * scale - shift);
        for (int k = 0; k < 4; k++) __builtin_prefetch(next + i + k * LANES);
        F(store)(y + i, a);
        F(store)(y + i + LANES, b);
        F(store)(y + i + 2 * LANES, c);
        F(store)(y + i + 3 * LANES, d);
        s0 += a;
        s1 += b;
        s2 += c;
        s3 += d;
    }
    for (; i + LANES <= n; i += LANES) {
        V a = F(exp_v)(F(load)(x + i) * scale - shift);
        F(store)(y + i, a);
        s0 += a;
    }
    T sum = F(sum_v)((s0 + s1) + (s2 + s3));
    if (i < n) {
        V a = F(exp_v)(F(load_n)(x + i, n - i) * scale - shift);
        F(store_n)(y + i, n - i, a);
        for (int64_t k = 0; k < n - i; k++) sum += a[k];
    }
    return sum;
}

static inline void F(scale_row)(int64_t n, T a, const T *x, T *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) F(store)(y + i, F(load)(x + i) * a);
    if (i < n) F(store_n)(y + i, n - i, F(load_n)(x + i, n - i) * a);
}

/* The same past the caches (base.c). */
static inline void F(scale_past)(int64_t n, T a, const T *x, T *y)
{
    for (int64_t i = 0, m = F(first_step)(y, n, true); i < n; i += m < LANES ? m : LANES, m = n - i)
        F(put_past)(y, i, m, F(at)(x, i, m) * a, true);
}

static inline void F(axpy_row)(int64_t n, T a, const T *x, T *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) F(store)(y + i, F(load)(y + i) + F(load)(x + i) * a);
    if (i < n) F(store_n)(y + i, n - i, F(load_n)(y + i, n - i) + F(load_n)(x + i, n - i) * a);
}

#undef MAGIC
#undef MANTISSA
#undef BIAS
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_LOW
#undef EXP_HIGH
