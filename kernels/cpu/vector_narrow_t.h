/* vector_narrow_t.h - elements of 16 bits in memory as vectors of f32, for bf16 (AS 16 of as.h) and f16 (AS 17): load,
 * store and the other accesses that vector.c lists. They are made of M(from), which widens, and of M(to), which rounds
 * once (vector_bf16.h, vector_f16.h). */

CPU_INLINE vf32 M(load)(const bits2 *p) { return M(from)(*(const any_narrow *)p); }
CPU_INLINE void M(store)(bits2 *p, vf32 v) { *(any_narrow *)p = M(to)(v); }

/* The first n < NARROW_LANES elements; missing lanes read 0. */
CPU_INLINE vf32 M(load_n)(const bits2 *p, int64_t n)
{
#if CPU_VECTOR == 64
    return M(from)((vnarrow)_mm256_maskz_loadu_epi16(FIRST16(n), p));
#else
    vnarrow a = {0};
    for (int64_t i = 0; i < n; i++) a[i] = p[i];
    return M(from)(a);
#endif
}

CPU_INLINE void M(store_n)(bits2 *p, int64_t n, vf32 v)
{
    vnarrow a = M(to)(v);
    for (int64_t i = 0; i < n; i++) p[i] = a[i];
}

/* past the caches (base.c), to an address that half vectors divide */
CPU_INLINE void M(store_past)(bits2 *p, vf32 v)
{
#if CPU_VECTOR == 64
    _mm256_stream_si256((__m256i *)p, (__m256i)M(to)(v));
#elif CPU_VECTOR == 32
    _mm_stream_si128((__m128i *)p, (__m128i)M(to)(v));
#else
    M(store)(p, v);
#endif
}

/* A vector as doubles: the first half, the second. */
CPU_INLINE void M(load_wide)(const bits2 *p, vf64 *low, vf64 *high)
{
    vf32 v = M(load)(p);
    *low = widen(low_half(v));
    *high = widen(high_half(v));
}
