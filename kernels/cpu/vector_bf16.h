/* vector_bf16.h - bf16 in memory as vectors of f32: load, store and the other accesses that vector.c lists, for the
 * element type bf16 (AS 16 of as.h). A load widens, which is exact. A store rounds to the nearest, ties to even, once,
 * and has the bits of gm_f32_to_bf16: NaN stays NaN, and numbers below the normal range stay.
 *
 * AVX512-BF16 has an instruction that rounds, but it takes what is below the normal range as zero. It is not used. */

#define BF16_LANES (CPU_VECTOR / 4)
typedef uint16_t vbf16 __attribute__((vector_size(CPU_VECTOR / 2)));
typedef vbf16    any_bf16 __attribute__((aligned(1), may_alias));

/* GCC 12 converts vectors of 64 bytes in two halves. */
CPU_INLINE vf32 from_bf16(vbf16 a)
{
#if CPU_VECTOR == 64
    return (vf32)((unsigned_f32)_mm512_cvtepu16_epi32((__m256i)a) << 16);
#else
    return (vf32)(__builtin_convertvector(a, unsigned_f32) << 16);
#endif
}

/* The upper half of each lane. */
CPU_INLINE vbf16 upper_bf16(vf32 v)
{
#if CPU_VECTOR == 64
    typedef uint16_t all __attribute__((vector_size(64)));
    const all        odd = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    return (vbf16)_mm512_castsi512_si256(_mm512_permutexvar_epi16((__m512i)odd, (__m512i)v));
#else
    return __builtin_convertvector((unsigned_f32)v >> 16, vbf16);
#endif
}

CPU_INLINE vbf16 to_bf16(vf32 v)
{
    unsigned_f32 u = (unsigned_f32)v;
    vf32         rounded = (vf32)(u + ((u >> 16 & 1) + 0x7fff)), quiet = (vf32)(u | 0x400000);
    return upper_bf16(if_most_f32(v, v, rounded, quiet)); /* no NaN is <= */
}

CPU_INLINE vf32 load_bf16(const bits2 *p) { return from_bf16(*(const any_bf16 *)p); }
CPU_INLINE void store_bf16(bits2 *p, vf32 v) { *(any_bf16 *)p = to_bf16(v); }

/* The first n < BF16_LANES elements; missing lanes read 0. */
CPU_INLINE vf32 load_n_bf16(const bits2 *p, int64_t n)
{
#if CPU_VECTOR == 64
    return from_bf16((vbf16)_mm256_maskz_loadu_epi16(FIRST16(n), p));
#else
    vbf16 a = {0};
    for (int64_t i = 0; i < n; i++) a[i] = p[i];
    return from_bf16(a);
#endif
}

CPU_INLINE void store_n_bf16(bits2 *p, int64_t n, vf32 v)
{
    vbf16 a = to_bf16(v);
    for (int64_t i = 0; i < n; i++) p[i] = a[i];
}

/* past the caches (base.c), to an address that half vectors divide */
CPU_INLINE void store_past_bf16(bits2 *p, vf32 v)
{
#if CPU_VECTOR == 64
    _mm256_stream_si256((__m256i *)p, (__m256i)to_bf16(v));
#elif CPU_VECTOR == 32
    _mm_stream_si128((__m128i *)p, (__m128i)to_bf16(v));
#else
    store_bf16(p, v);
#endif
}

/* One element. */
CPU_INLINE float get_bf16(const bits2 *p) { return gm_bf16_to_f32(*p); }
CPU_INLINE void  set_bf16(bits2 *p, float v) { *p = gm_f32_to_bf16(v); }

/* A vector as doubles: the first half, the second. */
CPU_INLINE void load_wide_bf16(const bits2 *p, vf64 *low, vf64 *high)
{
    vf32 v = load_bf16(p);
    *low = widen(low_half(v));
    *high = widen(high_half(v));
}
