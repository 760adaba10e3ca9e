/* vector_bf16.h - vectors of bf16 and of f32, for vector_narrow_t.h. To widen is exact. To round is to the nearest,
 * ties to even, and has the bits of gm_f32_to_bf16: NaN stays NaN, and numbers below the normal range stay.
 *
 * AVX512-BF16 has an instruction that rounds, but it takes what is below the normal range as zero. It is not used. */

/* GCC 12 converts vectors of 64 bytes in two halves. */
CPU_INLINE vf32 from_bf16(vnarrow a)
{
#if CPU_VECTOR == 64
    return (vf32)((unsigned_f32)_mm512_cvtepu16_epi32((__m256i)a) << 16);
#else
    return (vf32)(__builtin_convertvector(a, unsigned_f32) << 16);
#endif
}

/* The upper half of each lane. */
CPU_INLINE vnarrow upper_bf16(vf32 v)
{
#if CPU_VECTOR == 64
    typedef uint16_t all __attribute__((vector_size(64)));
    const all        odd = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    return (vnarrow)_mm512_castsi512_si256(_mm512_permutexvar_epi16((__m512i)odd, (__m512i)v));
#else
    return __builtin_convertvector((unsigned_f32)v >> 16, vnarrow);
#endif
}

CPU_INLINE vnarrow to_bf16(vf32 v)
{
    unsigned_f32 u = (unsigned_f32)v;
    vf32         rounded = (vf32)(u + ((u >> 16 & 1) + 0x7fff)), quiet = (vf32)(u | 0x400000);
    return upper_bf16(if_most_f32(v, v, rounded, quiet)); /* no NaN is <= */
}

/* One element. */
CPU_INLINE float get_bf16(const bits2 *p) { return gm_bf16_to_f32(*p); }
CPU_INLINE void  set_bf16(bits2 *p, float v) { *p = gm_f32_to_bf16(v); }

/* Half of the sum of each pair of neighbours, of two vectors of them. Halves of bf16 are exact in f32, so no sum
 * overflows; a sum is exact where the exponents of both differ by at most 15. */
CPU_INLINE vf32 half_sums_bf16(const bits2 *p)
{
    typedef unsigned_f32 any_words __attribute__((aligned(1), may_alias));
    unsigned_f32         words = *(const any_words *)p;
    return (vf32)(words << 16) * 0.5f + (vf32)(words & 0xffff0000) * 0.5f;
}
