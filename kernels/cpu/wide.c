/* wide.c - sin, cos and powers of vectors of floats, worked out in double and rounded once: within 0.6 units in the
 * last place, on every instruction set, for all arguments; inf, NaN, signs of zero and results below the normal range
 * are those of the C library.
 *
 *   vf32 sin_v_f32(vf32 x)   cos_v_f32(vf32 x)
 *   vf32 pow_v_f32(vf32 x, vf32 y)
 *   vf32 power_v_f32(vf32 x, const wide_power *p)       times x^y; p = wide_power_of(y, times), both of type double
 *
 * The polynomials are Chebyshev fits of our own. The trap: where |x| >= TURN_END, sin and cos call libm lane by lane;
 * below it, x less a multiple of pi is exact up to 2^-60, because that multiple has at most 20 bits. */

CPU_INLINE vf32 join_f32(vh32 low, vh32 high)
{
#if CPU_VECTOR == 64
    return (vf32)_mm512_insertf32x8(_mm512_castps256_ps512((__m256)low), (__m256)high, 1);
#elif CPU_VECTOR == 32
    return (vf32)_mm256_set_m128((__m128)high, (__m128)low);
#else
    return (vf32){low[0], low[1], high[0], high[1]};
#endif
}

/* Is bound <= a in any lane? */
CPU_INLINE bool any_most_f32(vf32 bound, vf32 a)
{
#if CPU_VECTOR == 64
    return _mm512_cmp_ps_mask((__m512)bound, (__m512)a, _CMP_LE_OQ) != 0;
#elif CPU_VECTOR == 32
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)bound, (__m256)a, _CMP_LE_OQ)) != 0;
#else
    const vi64 some = (vi64)(bound <= a);
    return (some[0] | some[1]) != 0;
#endif
}

#define WIDE_MAGIC 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to an integer, kept in the low bits */
#define TURN_END   1048576.0f
#define PI_HIGH    3.14159265346825122833252 /* 33 bits */
#define PI_LOW     1.2154201013012385203e-10
#define PI_INVERSE 0.31830988618379067154

/* sin(x - m pi), with the sign of sin(x), or with `cosine` cos(x) = sin(x + pi / 2): m is a whole number and a half */
CPU_INLINE vf64 turn_wide(vf64 x, bool cosine)
{
    const double half = cosine ? 0.5 : 0;
    vf64         k = (x * PI_INVERSE + half) + WIDE_MAGIC, m = k - WIDE_MAGIC - half;
    vf64         r = (x - m * PI_HIGH) - m * PI_LOW, z = r * r;
    vf64         p = splat_f64(-2.40800950871216883e-8);
    p = p * z + 2.75364594436460702e-6;
    p = p * z + -0.000198410865070005689;
    p = p * z + 0.0083333327685293582;
    p = p * z + -0.166666666638798514;
    return (vf64)((vi64)(r * (p * z + 1)) ^ ((vi64)k << 63)); /* odd multiples turn the sign; -0 stays -0 */
}

/* y = sin or cos of those x that turn_wide cannot take */
static __attribute__((noinline, cold)) void turn_far(const float *x, bool cosine, float *y)
{
    cpu_clean();
    for (int i = 0; i < CPU_VECTOR / 4; i++)
        if (fabsf(x[i]) >= TURN_END) y[i] = (float)(cosine ? cos((double)x[i]) : sin((double)x[i]));
}

CPU_INLINE vf32 turn_v_f32(vf32 x, bool cosine)
{
    vf32 y = join_f32(narrow(turn_wide(widen(low_half(x)), cosine)), narrow(turn_wide(widen(high_half(x)), cosine)));
    if (__builtin_expect(any_most_f32(splat_f32(TURN_END), abs_v_f32(x)), 0)) {
        float from[CPU_VECTOR / 4], to[CPU_VECTOR / 4];
        store_f32(from, x);
        store_f32(to, y);
        turn_far(from, cosine, to);
        y = load_f32(to);
    }
    return y;
}

CPU_INLINE vf32 sin_v_f32(vf32 x) { return turn_v_f32(x, false); }
CPU_INLINE vf32 cos_v_f32(vf32 x) { return turn_v_f32(x, true); }

#undef TURN_END
#undef PI_HIGH
#undef PI_LOW
#undef PI_INVERSE

/* log2(a) for a >= 0 that was a float, or NaN: a = 2^k m, m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1),
 * log2(m) = s P(s^2). Floats below the normal range are normal as doubles. */
CPU_INLINE vf64 log2_wide(vf64 a)
{
    const int64_t root = 0x3fe6a09e667f3bcd, shift = root - ((int64_t)1023 << 52);
    vi64          bits = (vi64)((unsigned_f64)a - (uint64_t)shift);
    vf64          k = (vf64)((vi64)((unsigned_f64)bits >> 52) | (vi64)splat_f64(4503599627370496.0)) -
             (4503599627370496.0 + 1023);
    vf64 m = (vf64)((bits & (((int64_t)1 << 52) - 1)) + root), s = (m - 1) / (m + 1), z = s * s;
    vf64 p = splat_f64(0.282887182631459708);
    p = p * z + 0.319906660889088814;
    p = p * z + 0.412209227330526165;
    p = p * z + 0.577077942630261776;
    p = p * z + 0.961796694112359449;
    p = p * z + 2.88539008177785058;
    vf64 y = if_less_f64(splat_f64(0), a, s * p + k, splat_f64(-INFINITY));
    return if_less_f64(a, splat_f64(INFINITY), y, a); /* inf, NaN */
}

/* 2^t, exact in its exponent from -200 to 200, which floats do not reach */
CPU_INLINE vf64 exp2_wide(vf64 t)
{
    t = max_v_f64(splat_f64(-200), min_v_f64(splat_f64(200), t)); /* NaN passes: it is the second operand */
    vf64 k = t + (WIDE_MAGIC + 1023), f = t - (k - (WIDE_MAGIC + 1023));
    vf64 p = splat_f64(0.000154614446985691291);
    p = p * f + 0.00134004281776158379;
    p = p * f + 0.00961805667852463808;
    p = p * f + 0.0555032722667030206;
    p = p * f + 0.240226509222887581;
    p = p * f + 0.693147206702832596;
    return (p * f + 1) * (vf64)((vi64)k << 52);
}

/* How far a is from an even number, 0 <= a <= 2^24: 0 where a is even, 1 where it is odd. */
CPU_INLINE vf32 parity_v_f32(vf32 a) { return abs_v_f32(a - ((a + 16777216.0f) - 16777216.0f)); }

/* times x^y from r = times |x|^y: times where y is 0 or |x| is 1, and what the sign of x makes of it. */
CPU_INLINE vf32 pow_signs(vf32 x, vf32 a, vf32 r, vf32 y, vf32 parity, float times)
{
    const vf32 one = splat_f32(1), zero = splat_f32(0), same = splat_f32(times);
    r = if_most_f32(abs_v_f32(y), zero, same, r);
    r = if_most_f32(one, a, if_most_f32(a, one, same, r), r);
    vf32 minus = (vf32)((vi32)r ^ ((vi32)x & (vi32)splat_f32(-0.0f)));
    vf32 root = if_less_f32(splat_f32(-INFINITY), x, splat_f32(NAN), r); /* of a negative number; -inf has roots */
    vf32 below = if_most_f32(parity, zero, r, if_most_f32(one, parity, minus, root));
    return if_less_f32(x, zero, below, if_most_f32(one, parity, minus, r)); /* -0 has a sign, too */
}

CPU_INLINE vf32 pow_v_f32(vf32 x, vf32 y)
{
    vf32 a = abs_v_f32(x), most = splat_f32(16777216.0f); /* floats from there on are even */
    vf64 low = exp2_wide(log2_wide(widen(low_half(a))) * widen(low_half(y)));
    vf64 high = exp2_wide(log2_wide(widen(high_half(a))) * widen(high_half(y)));
    return pow_signs(x, a, join_f32(narrow(low), narrow(high)), y, parity_v_f32(min_v_f32(most, abs_v_f32(y))), 1);
}

/* An exponent and a factor, as power_v_f32 wants them. */
typedef struct wide_power {
    double value, times;
    float  y, parity; /* y: 0 only where value is; parity: 0 of even, 1 of odd exponents, 1/2 of all others */
} wide_power;

static inline wide_power wide_power_of(double value, double times)
{
    const double a = fmin(fabs(value), 0x1p53), off = fabs(a - 2 * nearbyint(a / 2)); /* from an even number */
    wide_power   p = {value, times, value == 0 ? 0 : 1, 0.5f};
    if (value == value && (off == 0 || off == 1)) p.parity = (float)off;
    return p;
}

CPU_INLINE vf32 power_v_f32(vf32 x, const wide_power *p)
{
    vf32 a = abs_v_f32(x);
    vf64 low = exp2_wide(log2_wide(widen(low_half(a))) * p->value) * p->times;
    vf64 high = exp2_wide(log2_wide(widen(high_half(a))) * p->value) * p->times;
    vf32 r = join_f32(narrow(low), narrow(high));
    return pow_signs(x, a, r, splat_f32(p->y), splat_f32(p->parity), (float)p->times);
}

#undef WIDE_MAGIC
