/* normal.c - normal numbers for random.c: gm_sample_normal of sample.h, with vectors of pairs where there is a fused
 * product. Each step is that of sample.h, so the bits are the same. The trap: a compiler may make one operation of
 * a * b + c, but need not; such a step is fused() here, and no other sum has a product in it. */

#define NORMAL_PAIRS 64 /* made at a time */

#if CPU_VECTOR >= 32
CPU_INLINE vf64 fused(vf64 a, vf64 b, vf64 c)
{
#if CPU_VECTOR == 64
    return (vf64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#else
    return (vf64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#endif
}

CPU_INLINE vf64 polynomial7_wide(const double c[8], vf64 x)
{
    vf64 y = splat_f64(c[7]);
#pragma GCC unroll 7
    for (int i = 6; i >= 0; i--) y = fused(y, x, splat_f64(c[i]));
    return y;
}

/* Whole numbers from 0 to 2^52 as doubles */
CPU_INLINE vf64 double_wide(vu64 n) { return (vf64)(n | (vu64)splat_f64(0x1p52)) - 0x1p52; }

CPU_INLINE vf64 sample_log_wide(vf64 u)
{
    static const double fit[8] = GM_LOG_FIT;
    const vu64          bits = (vu64)u - (GM_ROOT_HALF - ((uint64_t)1023 << 52));
    const vf64          k = double_wide(bits >> 52) - 1023;
    const vf64          m = (vf64)((bits & (((uint64_t)1 << 52) - 1)) + GM_ROOT_HALF), s = (m - 1) / (m + 1);
    const vf64          log_m = s * polynomial7_wide(fit, s * s);
    return fused(k, splat_f64(GM_LOG2_HIGH), fused(k, splat_f64(GM_LOG2_LOW), log_m));
}

/* A vector of pairs */
CPU_INLINE void sample_normal_wide(double mean, double std, vu64 words, double *even, double *odd)
{
    static const double sines[8] = GM_SIN_FIT, cosines[8] = GM_COS_FIT;
    const vf64          u = double_wide(((words & 0xffffffffu) >> 8) + 1) * 0x1p-24;
    const vf64          r = std * sqrt_v_f64(-2 * sample_log_wide(u));
    const vu64          part = words >> 40, quarter = (part + (1u << 21)) >> 22;
    const vf64          f = (double_wide(part) - double_wide(quarter << 22)) * 0x1p-22, z = f * f;
    const vf64          s = f * polynomial7_wide(sines, z), c = polynomial7_wide(cosines, z);
    const vu64          turned = -(quarter & 1), both = ((vu64)s ^ (vu64)c) & turned; /* where they change places */
    const vf64          x = (vf64)((vu64)c ^ both ^ ((quarter + 1) & 2) << 62);
    const vf64          y = (vf64)((vu64)s ^ both ^ (quarter & 2) << 62);
    store_f64(even, fused(r, x, splat_f64(mean)));
    store_f64(odd, fused(r, y, splat_f64(mean)));
}
#endif

/* Pairs that two words each make, the first ones of them at `words`. */
static void normal_pairs(double mean, double std, const uint32_t *words, int64_t pairs, double *even, double *odd)
{
    int64_t i = 0;
#if CPU_VECTOR >= 32
    for (; i + BLOCK_LANES <= pairs; i += BLOCK_LANES)
        sample_normal_wide(mean, std, *(const any_u64 *)(words + 2 * i), even + i, odd + i);
#endif
    for (; i < pairs; i++) gm_sample_normal(mean, std, words[2 * i], words[2 * i + 1], even + i, odd + i);
}
