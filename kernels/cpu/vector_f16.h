/* vector_f16.h - f16 in memory as vectors of f32: the accesses that vector_bf16.h has, for the element type f16 (AS 17
 * of as.h). A load widens, which is exact. A store rounds to the nearest, ties to even, once, and has the bits of
 * gm_f32_to_f16. */

#define F16_LANES (CPU_VECTOR / 4)
typedef uint16_t vf16 __attribute__((vector_size(CPU_VECTOR / 2)));
typedef vf16     any_f16 __attribute__((aligned(1), may_alias));

CPU_INLINE vf32 from_f16(vf16 a)
{
#if CPU_VECTOR == 64
    return (vf32)_mm512_cvtph_ps((__m256i)a);
#elif CPU_VECTOR == 32
    return (vf32)_mm256_cvtph_ps((__m128i)a);
#else
    vf32 v;
    for (int i = 0; i < F16_LANES; i++) v[i] = gm_f16_to_f32(a[i]);
    return v;
#endif
}

/* Each NaN has the same bits but for its sign. */
CPU_INLINE vf16 to_f16(vf32 v)
{
#if CPU_VECTOR >= 32
    vf32 quiet = (vf32)(((unsigned_f32)v & 0x80000000) | 0x7fc00000);
    v = if_most_f32(v, v, v, quiet); /* no NaN is <= */
#endif
#if CPU_VECTOR == 64
    return (vf16)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif CPU_VECTOR == 32
    return (vf16)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#else
    vf16 a;
    for (int i = 0; i < F16_LANES; i++) a[i] = gm_f32_to_f16(v[i]);
    return a;
#endif
}

CPU_INLINE vf32 load_f16(const bits2 *p) { return from_f16(*(const any_f16 *)p); }
CPU_INLINE void store_f16(bits2 *p, vf32 v) { *(any_f16 *)p = to_f16(v); }

/* The first n < F16_LANES elements; missing lanes read 0. */
CPU_INLINE vf32 load_n_f16(const bits2 *p, int64_t n)
{
#if CPU_VECTOR == 64
    return from_f16((vf16)_mm256_maskz_loadu_epi16(FIRST16(n), p));
#else
    vf16 a = {0};
    for (int64_t i = 0; i < n; i++) a[i] = p[i];
    return from_f16(a);
#endif
}

CPU_INLINE void store_n_f16(bits2 *p, int64_t n, vf32 v)
{
    vf16 a = to_f16(v);
    for (int64_t i = 0; i < n; i++) p[i] = a[i];
}

/* past the caches (base.c), to an address that half vectors divide */
CPU_INLINE void store_past_f16(bits2 *p, vf32 v)
{
#if CPU_VECTOR == 64
    _mm256_stream_si256((__m256i *)p, (__m256i)to_f16(v));
#elif CPU_VECTOR == 32
    _mm_stream_si128((__m128i *)p, (__m128i)to_f16(v));
#else
    store_f16(p, v);
#endif
}

/* One element. */
CPU_INLINE float get_f16(const bits2 *p) { return gm_f16_to_f32(*p); }
CPU_INLINE void  set_f16(bits2 *p, float v) { *p = gm_f32_to_f16(v); }

/* A vector as doubles: the first half, the second. */
CPU_INLINE void load_wide_f16(const bits2 *p, vf64 *low, vf64 *high)
{
    vf32 v = load_f16(p);
    *low = widen(low_half(v));
    *high = widen(high_half(v));
}
