/* vector_f16.h - vectors of f16 and of f32, for vector_narrow_t.h. To widen is exact. To round is to the nearest, ties
 * to even, and has the bits of gm_f32_to_f16. */

CPU_INLINE vf32 from_f16(vnarrow a)
{
#if CPU_VECTOR == 64
    return (vf32)_mm512_cvtph_ps((__m256i)a);
#elif CPU_VECTOR == 32
    return (vf32)_mm256_cvtph_ps((__m128i)a);
#else
    vf32 v;
    for (int i = 0; i < NARROW_LANES; i++) v[i] = gm_f16_to_f32(a[i]);
    return v;
#endif
}

/* Each NaN has the same bits but for its sign. */
CPU_INLINE vnarrow to_f16(vf32 v)
{
#if CPU_VECTOR >= 32
    vf32 quiet = (vf32)(((unsigned_f32)v & 0x80000000) | 0x7fc00000);
    v = if_most_f32(v, v, v, quiet); /* no NaN is <= */
#endif
#if CPU_VECTOR == 64
    return (vnarrow)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif CPU_VECTOR == 32
    return (vnarrow)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#else
    vnarrow a;
    for (int i = 0; i < NARROW_LANES; i++) a[i] = gm_f32_to_f16(v[i]);
    return a;
#endif
}

/* One element. */
CPU_INLINE float get_f16(const bits2 *p) { return gm_f16_to_f32(*p); }
CPU_INLINE void  set_f16(bits2 *p, float v) { *p = gm_f32_to_f16(v); }
