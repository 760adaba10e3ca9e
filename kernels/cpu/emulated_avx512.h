/* emulated_avx512.h - the intrinsics of AVX-512, VNNI and AVX512-BF16 that kernels use, by AVX2 and plain C.
 *
 * For tests on CPUs that lack these instructions (GANYMEDE_EMULATE_AVX512 in CMakeLists.txt): the tables cpu-avx512,
 * cpu-avx512bf16 and cpu-amx-emulated are then compiled from the same lines of C. Each intrinsic has the name that it
 * has in immintrin.h. It does what Intel's manual says (Software Developer's Manual, volume 2), also with NaN,
 * infinities, numbers below the normal range, and masks. It touches nothing that a mask leaves out. It ends the program
 * where an address must be a multiple of 64 and is not. Part of cpu.c.
 *
 * The trap: if an intrinsic is missing here, gcc finds that of immintrin.h and says "target specific option mismatch".
 * Add it here. A build without optimization does not compile, because constants of instructions pass through inline
 * functions. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__) || defined(__AVX512F__)
#error "AVX-512 is emulated by AVX2, FMA and F16C, and only where it is not compiled for"
#endif

#undef _mm512_setr_epi32 /* macros of immintrin.h */
#undef _mm_dpbusd_epi32

#define EMULATED static inline __attribute__((always_inline))

typedef uint8_t  wide_u8 __attribute__((vector_size(64)));
typedef uint16_t wide_u16 __attribute__((vector_size(64)));
typedef uint32_t wide_u32 __attribute__((vector_size(64)));

/* A vector and its parts. */
typedef union wide {
    __m512   ps;
    __m512d  pd;
    __m512i  si;
    __m256   half_ps[2];
    __m256d  half_pd[2];
    __m256i  half_si[2];
    __m128   quarter_ps[4];
    __m128i  quarter_si[4];
    float    f32[16];
    double   f64[8];
    int32_t  i32[16];
    uint16_t u16[32];
    int8_t   i8[64];
    uint8_t  u8[64];
} wide;

/* ---- the same instruction for each half ---- */

#define HALVES_1(name, type, part, half)                                       \
    EMULATED type name(type a)                                                 \
    {                                                                          \
        wide x = {.part = a};                                                  \
        for (int h = 0; h < 2; h++) x.half_##part[h] = half(x.half_##part[h]); \
        return x.part;                                                         \
    }
#define HALVES_2(name, type, part, half)                                                         \
    EMULATED type name(type a, type b)                                                           \
    {                                                                                            \
        wide x = {.part = a}, y = {.part = b};                                                   \
        for (int h = 0; h < 2; h++) x.half_##part[h] = half(x.half_##part[h], y.half_##part[h]); \
        return x.part;                                                                           \
    }
#define HALVES_3(name, type, part, half)                                                                           \
    EMULATED type name(type a, type b, type c)                                                                     \
    {                                                                                                              \
        wide x = {.part = a}, y = {.part = b}, z = {.part = c};                                                    \
        for (int h = 0; h < 2; h++) x.half_##part[h] = half(x.half_##part[h], y.half_##part[h], z.half_##part[h]); \
        return x.part;                                                                                             \
    }

#define _mm512_min_ps         emulated_min_ps
#define _mm512_max_ps         emulated_max_ps
#define _mm512_sqrt_ps        emulated_sqrt_ps
#define _mm512_fmadd_ps       emulated_fmadd_ps
#define _mm512_fmsub_ps       emulated_fmsub_ps
#define _mm512_unpacklo_ps    emulated_unpacklo_ps
#define _mm512_unpackhi_ps    emulated_unpackhi_ps
#define _mm512_min_pd         emulated_min_pd
#define _mm512_max_pd         emulated_max_pd
#define _mm512_sqrt_pd        emulated_sqrt_pd
#define _mm512_fmadd_pd       emulated_fmadd_pd
#define _mm512_unpacklo_epi16 emulated_unpacklo_epi16
#define _mm512_unpackhi_epi16 emulated_unpackhi_epi16
#define _mm512_unpacklo_epi32 emulated_unpacklo_epi32
#define _mm512_unpackhi_epi32 emulated_unpackhi_epi32
#define _mm512_unpacklo_epi64 emulated_unpacklo_epi64
#define _mm512_unpackhi_epi64 emulated_unpackhi_epi64
#define _mm512_fmsub_pd       emulated_fmsub_pd
#define _mm512_mul_epu32      emulated_mul_epu32
HALVES_2(_mm512_min_ps, __m512, ps, _mm256_min_ps)
HALVES_2(_mm512_max_ps, __m512, ps, _mm256_max_ps)
HALVES_1(_mm512_sqrt_ps, __m512, ps, _mm256_sqrt_ps)
HALVES_3(_mm512_fmadd_ps, __m512, ps, _mm256_fmadd_ps)
HALVES_3(_mm512_fmsub_ps, __m512, ps, _mm256_fmsub_ps)
HALVES_2(_mm512_unpacklo_ps, __m512, ps, _mm256_unpacklo_ps)
HALVES_2(_mm512_unpackhi_ps, __m512, ps, _mm256_unpackhi_ps)
HALVES_2(_mm512_unpacklo_epi16, __m512i, si, _mm256_unpacklo_epi16)
HALVES_2(_mm512_unpackhi_epi16, __m512i, si, _mm256_unpackhi_epi16)
HALVES_2(_mm512_unpacklo_epi32, __m512i, si, _mm256_unpacklo_epi32)
HALVES_2(_mm512_unpackhi_epi32, __m512i, si, _mm256_unpackhi_epi32)
HALVES_2(_mm512_unpacklo_epi64, __m512i, si, _mm256_unpacklo_epi64)
HALVES_2(_mm512_unpackhi_epi64, __m512i, si, _mm256_unpackhi_epi64)
HALVES_2(_mm512_min_pd, __m512d, pd, _mm256_min_pd)
HALVES_2(_mm512_max_pd, __m512d, pd, _mm256_max_pd)
HALVES_1(_mm512_sqrt_pd, __m512d, pd, _mm256_sqrt_pd)
HALVES_3(_mm512_fmadd_pd, __m512d, pd, _mm256_fmadd_pd)
HALVES_3(_mm512_fmsub_pd, __m512d, pd, _mm256_fmsub_pd)
HALVES_2(_mm512_mul_epu32, __m512i, si, _mm256_mul_epu32)

#define _mm512_shuffle_ps emulated_shuffle_ps
EMULATED __m512 _mm512_shuffle_ps(__m512 a, __m512 b, const int order)
{
    wide x = {.ps = a}, y = {.ps = b};
    for (int h = 0; h < 2; h++) x.half_ps[h] = _mm256_shuffle_ps(x.half_ps[h], y.half_ps[h], order);
    return x.ps;
}

#define _mm512_shuffle_epi32 emulated_shuffle_epi32
EMULATED __m512i _mm512_shuffle_epi32(__m512i a, const int order)
{
    wide x = {.si = a};
    for (int h = 0; h < 2; h++) x.half_si[h] = _mm256_shuffle_epi32(x.half_si[h], order);
    return x.si;
}

/* ---- operators of gcc's vectors ---- */

#define _mm512_setzero_ps()     ((__m512){0})
#define _mm512_setzero_si512()  ((__m512i){0})
#define _mm512_set1_ps(a)       ((float)(a) - (__m512){0})
#define _mm512_set1_epi8(a)     ((__m512i)((wide_u8){0} + (uint8_t)(a)))
#define _mm512_set1_epi16(a)    ((__m512i)((wide_u16){0} + (uint16_t)(a)))
#define _mm512_set1_epi32(a)    ((__m512i)((wide_u32){0} + (uint32_t)(a)))
#define _mm512_setr_epi32(...)  ((wide){.i32 = {__VA_ARGS__}}.si)
#define _mm512_add_ps(a, b)     ((__m512)((a) + (b)))
#define _mm512_mul_ps(a, b)     ((__m512)((a) * (b)))
#define _mm512_add_epi16(a, b)  ((__m512i)((wide_u16)(a) + (wide_u16)(b)))
#define _mm512_add_epi32(a, b)  ((__m512i)((wide_u32)(a) + (wide_u32)(b)))
#define _mm512_and_si512(a, b)  ((__m512i)((a) & (b)))
#define _mm512_or_si512(a, b)   ((__m512i)((a) | (b)))
#define _mm512_xor_si512(a, b)  ((__m512i)((a) ^ (b)))
#define _mm512_slli_epi32(a, n) ((__m512i)((wide_u32)(a) << (n))) /* n < 32 */
#define _mm512_srli_epi16(a, n) ((__m512i)((wide_u16)(a) >> (n))) /* n < 16 */

#define _mm512_srai_epi16 emulated_srai_epi16
EMULATED __m512i _mm512_srai_epi16(__m512i a, const int n)
{
    wide x = {.si = a};
    for (int h = 0; h < 2; h++) x.half_si[h] = _mm256_srai_epi16(x.half_si[h], n);
    return x.si;
}

/* Bit k of `table` is the result where the bits of a, b and c are those of k, a's the highest. */
#define _mm512_ternarylogic_epi64 emulated_ternarylogic
EMULATED __m512i _mm512_ternarylogic_epi64(__m512i a, __m512i b, __m512i c, const int table)
{
    __m512i r = {0};
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return r;
}

/* ---- parts and permutations ---- */

/* What a cast to a larger vector leaves open is zero here. */
#define _mm512_castps128_ps512(a)       ((wide){.quarter_ps = {a}}.ps)
#define _mm512_castps256_ps512(a)       ((wide){.half_ps = {a}}.ps)
#define _mm512_castsi128_si512(a)       ((wide){.quarter_si = {a}}.si)
#define _mm512_castps512_ps256(a)       ((wide){.ps = (a)}.half_ps[0])
#define _mm512_extractf32x8_ps(a, part) ((wide){.ps = (a)}.half_ps[part])

#define _mm512_insertf32x8 emulated_insertf32x8
EMULATED __m512 _mm512_insertf32x8(__m512 a, __m256 b, const int part)
{
    wide x = {.ps = a};
    x.half_ps[part] = b;
    return x.ps;
}

#define _mm512_inserti32x4 emulated_inserti32x4
EMULATED __m512i _mm512_inserti32x4(__m512i a, __m128i b, const int part)
{
    wide x = {.si = a};
    x.quarter_si[part] = b;
    return x.si;
}

#define _mm512_broadcast_i32x4 emulated_broadcast_i32x4
EMULATED __m512i _mm512_broadcast_i32x4(__m128i a) { return (wide){.quarter_si = {a, a, a, a}}.si; }

/* The instructions and gcc's function alike look at the lower bits of an index alone. */
#define _mm512_permutexvar_ps(index, a)    ((__m512)__builtin_shuffle((wide_u32)(a), (wide_u32)(index)))
#define _mm512_permutexvar_epi16(index, a) ((__m512i)__builtin_shuffle((wide_u16)(a), (wide_u16)(index)))
#define _mm512_permutex2var_epi16(a, index, b) \
    ((__m512i)__builtin_shuffle((wide_u16)(a), (wide_u16)(b), (wide_u16)(index)))

/* ---- masks ---- */

/* Lanes of half h whose bits are set in k: all ones. */
EMULATED __m256i emulated_lanes_32(unsigned k, int h)
{
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(k >> 8 * h)), bits), bits);
}

EMULATED __m256i emulated_lanes_64(unsigned k, int h)
{
    const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
    return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(k >> 4 * h), bits), bits);
}

#define _mm512_movepi32_mask emulated_movepi32_mask
EMULATED __mmask16 _mm512_movepi32_mask(__m512i a)
{
    const wide x = {.si = a};
    return (__mmask16)(_mm256_movemask_ps(x.half_ps[0]) | _mm256_movemask_ps(x.half_ps[1]) << 8);
}

#define _mm512_movepi64_mask emulated_movepi64_mask
EMULATED __mmask8 _mm512_movepi64_mask(__m512i a)
{
    const wide x = {.si = a};
    return (__mmask8)(_mm256_movemask_pd(x.half_pd[0]) | _mm256_movemask_pd(x.half_pd[1]) << 4);
}

#define _mm512_cmp_ps_mask emulated_cmp_ps_mask
EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, const int predicate)
{
    wide x = {.ps = a}, y = {.ps = b};
    for (int h = 0; h < 2; h++) x.half_ps[h] = _mm256_cmp_ps(x.half_ps[h], y.half_ps[h], predicate);
    return _mm512_movepi32_mask(x.si);
}

#define _mm512_cmp_pd_mask emulated_cmp_pd_mask
EMULATED __mmask8 _mm512_cmp_pd_mask(__m512d a, __m512d b, const int predicate)
{
    wide x = {.pd = a}, y = {.pd = b};
    for (int h = 0; h < 2; h++) x.half_pd[h] = _mm256_cmp_pd(x.half_pd[h], y.half_pd[h], predicate);
    return _mm512_movepi64_mask(x.si);
}

#define _mm512_mask_blend_ps emulated_mask_blend_ps
EMULATED __m512 _mm512_mask_blend_ps(__mmask16 k, __m512 unset, __m512 set)
{
    wide x = {.ps = unset}, y = {.ps = set};
    for (int h = 0; h < 2; h++)
        x.half_ps[h] = _mm256_blendv_ps(x.half_ps[h], y.half_ps[h], (__m256)emulated_lanes_32(k, h));
    return x.ps;
}

#define _mm512_mask_blend_pd emulated_mask_blend_pd
EMULATED __m512d _mm512_mask_blend_pd(__mmask8 k, __m512d unset, __m512d set)
{
    wide x = {.pd = unset}, y = {.pd = set};
    for (int h = 0; h < 2; h++)
        x.half_pd[h] = _mm256_blendv_pd(x.half_pd[h], y.half_pd[h], (__m256d)emulated_lanes_64(k, h));
    return x.pd;
}

/* ---- memory ---- */

EMULATED void emulated_store(void *p, wide x) { memcpy(p, &x, sizeof x); }

EMULATED void emulated_store_aligned(void *p, wide x)
{
    if ((uintptr_t)p % 64) __builtin_trap(); /* #GP */
    emulated_store(p, x);
}

#define _mm512_storeu_ps(p, a)    emulated_store(p, (wide){.ps = (a)})
#define _mm512_storeu_si512(p, a) emulated_store(p, (wide){.si = (a)})
#define _mm512_stream_ps(p, a)    emulated_store_aligned(p, (wide){.ps = (a)})
#define _mm512_stream_pd(p, a)    emulated_store_aligned(p, (wide){.pd = (a)})
#define _mm512_stream_si512(p, a) emulated_store_aligned(p, (wide){.si = (a)})

#define _mm512_loadu_si512 emulated_loadu_si512
EMULATED __m512i _mm512_loadu_si512(const void *p)
{
    wide x;
    memcpy(&x, p, sizeof x);
    return x.si;
}

#define _mm512_load_si512 emulated_load_si512
EMULATED __m512i _mm512_load_si512(const void *p)
{
    if ((uintptr_t)p % 64) __builtin_trap(); /* #GP */
    return _mm512_loadu_si512(p);
}

#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 k, const float *p)
{
    wide x;
    for (int h = 0; h < 2; h++) x.half_ps[h] = _mm256_maskload_ps(p + 8 * h, emulated_lanes_32(k, h));
    return x.ps;
}

#define _mm512_maskz_loadu_pd emulated_maskz_loadu_pd
EMULATED __m512d _mm512_maskz_loadu_pd(__mmask8 k, const double *p)
{
    wide x;
    for (int h = 0; h < 2; h++) x.half_pd[h] = _mm256_maskload_pd(p + 4 * h, emulated_lanes_64(k, h));
    return x.pd;
}

#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
EMULATED void _mm512_mask_storeu_ps(float *p, __mmask16 k, __m512 a)
{
    const wide x = {.ps = a};
    for (int h = 0; h < 2; h++) _mm256_maskstore_ps(p + 8 * h, emulated_lanes_32(k, h), x.half_ps[h]);
}

#define _mm512_mask_storeu_pd emulated_mask_storeu_pd
EMULATED void _mm512_mask_storeu_pd(double *p, __mmask8 k, __m512d a)
{
    const wide x = {.pd = a};
    for (int h = 0; h < 2; h++) _mm256_maskstore_pd(p + 4 * h, emulated_lanes_64(k, h), x.half_pd[h]);
}

#define _mm512_maskz_loadu_epi16 emulated_maskz_loadu_epi16
EMULATED __m512i _mm512_maskz_loadu_epi16(__mmask32 k, const void *p)
{
    wide x = {.si = {0}};
    for (int i = 0; i < 32; i++)
        if (k >> i & 1) memcpy(x.u16 + i, (const char *)p + 2 * i, 2);
    return x.si;
}

#define _mm256_maskz_loadu_epi16(k, p) ((wide){.si = _mm512_maskz_loadu_epi16(k, p)}.half_si[0])

/* ---- numbers ---- */

#define _mm512_cvtps_pd emulated_cvtps_pd
EMULATED __m512d _mm512_cvtps_pd(__m256 a)
{
    return (wide){.half_pd = {_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))}}
        .pd;
}

#define _mm512_cvtpd_ps emulated_cvtpd_ps
EMULATED __m256 _mm512_cvtpd_ps(__m512d a)
{
    const wide x = {.pd = a};
    return _mm256_set_m128(_mm256_cvtpd_ps(x.half_pd[1]), _mm256_cvtpd_ps(x.half_pd[0]));
}

#define _mm512_cvtph_ps emulated_cvtph_ps
EMULATED __m512 _mm512_cvtph_ps(__m256i a)
{
    return (wide){
        .half_ps = {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))}}
        .ps;
}

#define _mm512_cvtps_ph(a, how) emulated_cvtps_ph(a) /* to the nearest, as all ask for */
EMULATED __m256i emulated_cvtps_ph(__m512 a)
{
    const wide x = {.ps = a};
    return _mm256_set_m128i(_mm256_cvtps_ph(x.half_ps[1], 0), _mm256_cvtps_ph(x.half_ps[0], 0));
}

#define _mm512_castsi512_si256(a) ((wide){.si = (a)}.half_si[0])
#define _mm512_cvtepu16_epi32     emulated_cvtepu16_epi32
EMULATED __m512i _mm512_cvtepu16_epi32(__m256i a)
{
    return (wide){.half_si = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1))}}
        .si;
}

#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
EMULATED __m512 _mm512_cvtepi32_ps(__m512i a)
{
    wide x = {.si = a};
    for (int h = 0; h < 2; h++) x.half_ps[h] = _mm256_cvtepi32_ps(x.half_si[h]);
    return x.ps;
}

/* The lower bytes. */
#define _mm512_cvtepi16_epi8 emulated_cvtepi16_epi8
EMULATED __m256i _mm512_cvtepi16_epi8(__m512i a)
{
    const wide x = {.si = a};
    wide       r;
    for (int i = 0; i < 32; i++) r.u8[i] = (uint8_t)x.u16[i];
    return r.half_si[0];
}

/* y 2^floor(n), rounded once. Where n is infinite, a NaN y gives infinity or zero, and 0 times infinity is NaN. */
EMULATED double emulated_scale(double y, double n)
{
    const double whole = floor(n);
    if (fabs(whole) < 1000) { /* a power of 2 in the normal range: its product is rounded once */
        const uint64_t bits = (uint64_t)((int64_t)whole + 1023) << 52;
        double         power;
        memcpy(&power, &bits, sizeof power);
        return y * power;
    }
    if (isnan(n)) return isnan(y) ? y : n;
    if (isinf(n) && n > 0) return isnan(y) ? INFINITY : y * INFINITY;
    if (isinf(n)) return isnan(y) ? 0 : y * 0;
    return scalbn(y, (int)fmax(-4096, fmin(whole, 4096)));
}

#define _mm512_scalef_ps emulated_scalef_ps
EMULATED __m512 _mm512_scalef_ps(__m512 a, __m512 b)
{
    wide x = {.ps = a}, y = {.ps = b};
    for (int i = 0; i < 16; i++) x.f32[i] = (float)emulated_scale(x.f32[i], y.f32[i]);
    return x.ps;
}

#define _mm512_scalef_pd emulated_scalef_pd
EMULATED __m512d _mm512_scalef_pd(__m512d a, __m512d b)
{
    wide x = {.pd = a}, y = {.pd = b};
    for (int i = 0; i < 8; i++) x.f64[i] = emulated_scale(x.f64[i], y.f64[i]);
    return x.pd;
}

/* ---- VNNI ---- */

/* Four bytes of a, without sign, by four of b, with sign, and c: sums wrap. */
#define _mm512_dpbusd_epi32 emulated_dpbusd
EMULATED __m512i _mm512_dpbusd_epi32(__m512i c, __m512i a, __m512i b)
{
    const wide x = {.si = a}, y = {.si = b};
    wide       sum = {.si = c};
    for (int i = 0; i < 16; i++) {
        int32_t dot = 0;
        for (int k = 4 * i; k < 4 * i + 4; k++) dot += x.u8[k] * y.i8[k];
        sum.i32[i] = (int32_t)((uint32_t)sum.i32[i] + (uint32_t)dot);
    }
    return sum.si;
}

#define _mm_dpbusd_epi32 emulated_dpbusd_16
EMULATED __m128i _mm_dpbusd_epi32(__m128i c, __m128i a, __m128i b)
{
    const wide x = {.quarter_si = {c}}, y = {.quarter_si = {a}}, z = {.quarter_si = {b}};
    return (wide){.si = _mm512_dpbusd_epi32(x.si, y.si, z.si)}.quarter_si[0];
}

/* ---- AVX512-BF16: numbers and sums below the normal range count as zeros of their sign ---- */

EMULATED __m256 emulated_normal(__m256 a)
{
    const __m256 sign = _mm256_and_ps(a, _mm256_set1_ps(-0.0f)), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
    return _mm256_blendv_ps(a, sign, _mm256_cmp_ps(size, _mm256_set1_ps(0x1p-126f), _CMP_LT_OQ));
}

EMULATED __m256 emulated_add_bf16(__m256 c, __m256i a, __m256i b) /* the upper halves of words of a and b */
{
    const __m256i upper = _mm256_set1_epi32((int32_t)0xffff0000);
    const __m256  x = emulated_normal((__m256)_mm256_and_si256(a, upper));
    const __m256  y = emulated_normal((__m256)_mm256_and_si256(b, upper));
    return emulated_normal(_mm256_fmadd_ps(x, y, c));
}

/* The second numbers of pairs come first. */
#define _mm512_dpbf16_ps emulated_dpbf16
EMULATED __m512 _mm512_dpbf16_ps(__m512 c, __m512bh a, __m512bh b)
{
    const wide x = {.si = (__m512i)a}, y = {.si = (__m512i)b};
    wide       sum = {.ps = c};
    for (int h = 0; h < 2; h++) {
        const __m256i x1 = x.half_si[h], y1 = y.half_si[h];
        sum.half_ps[h] = emulated_add_bf16(emulated_normal(sum.half_ps[h]), x1, y1);
        sum.half_ps[h] = emulated_add_bf16(sum.half_ps[h], _mm256_slli_epi32(x1, 16), _mm256_slli_epi32(y1, 16));
    }
    return sum.ps;
}

/* To the nearest bf16, of two as near the even one. */
EMULATED uint16_t emulated_to_bf16(float a)
{
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    if (isnan(a)) return (uint16_t)(bits >> 16 | 0x40);
    if (fabsf(a) < 0x1p-126f) return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define _mm512_cvtneps_pbh emulated_cvtneps_pbh
EMULATED __m256bh _mm512_cvtneps_pbh(__m512 a)
{
    const wide x = {.ps = a};
    wide       r;
    for (int i = 0; i < 16; i++) r.u16[i] = emulated_to_bf16(x.f32[i]);
    return (__m256bh)r.half_si[0];
}

#define _mm512_cvtne2ps_pbh emulated_cvtne2ps_pbh
EMULATED __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low)
{
    return (__m512bh)(wide){.half_si = {(__m256i)_mm512_cvtneps_pbh(low), (__m256i)_mm512_cvtneps_pbh(high)}}.si;
}
