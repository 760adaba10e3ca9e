/* gemm_pairs.c - packs matrices of bf16 for vdpbf16ps, which multiplies pairs of bf16 and adds to sums in f32.
 *
 * A pair is two numbers that follow each other along k, in 32 bits, the first in the lower half. Slivers and panels of
 * pairs have the layout of those of f32 (gemm_tile_t.h) and stand in memory of floats, so that the blocking is the
 * same. They are half as many bytes. Where k is odd, the last pair has a zero. Inputs are exact, and each of the two
 * products joins the sum with one rounding, the second one first.
 *
 * The trap: the instruction takes numbers and sums below 2^-126 as zeros. So a result lacks the products of which one
 * factor is that small, and may be off by 2^-126 for each number along k besides; 0 times infinity of such a factor is
 * NaN. Part of gemm.c. */
/* Are both operands bf16 that is multiplied as it is? Sums are in f32 then. */
static bool gemm_takes_pairs(const gm_call *call)
{
    return GEMM_PAIRS && call->in[0]->dtype == GM_BF16 && call->in[1]->dtype == GM_BF16;
}

#if GEMM_PAIRS

typedef bits2 pairs_word;

/* n <= 32 numbers from x on, as pairs; zeros follow. */
CPU_INLINE vf32 pairs_load(const pairs_word *x, int64_t n)
{
    if (n >= 32) return (vf32)_mm512_loadu_si512(x);
    return (vf32)_mm512_maskz_loadu_epi16((__mmask32)((1ull << (n < 0 ? 0 : n)) - 1), x);
}

/* Pairs of up to 16 columns: their numbers are neighbours at x, and those behind them along k at y (NULL: none). */
CPU_INLINE vf32 pairs_join(const pairs_word *x, const pairs_word *y, int64_t n)
{
    const __mmask16 first = FIRST16(n);
    const __m512i   low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, x));
    if (!y) return (vf32)low;
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, y));
    return (vf32)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Numbers x and those behind them along k, y, as pairs, rounded to the nearest bf16. */
CPU_INLINE vf32 pairs_of(vf32 x, vf32 y)
{
    static const int16_t order[32] __attribute__((aligned(64))) = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
    };
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x); /* x in its lower half */
    return (vf32)_mm512_permutexvar_epi16(_mm512_load_si512(order), both);
}

/* The same of one vector, as numbers that follow each other. */
CPU_INLINE void pairs_store(pairs_word *to, vf32 x)
{
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
}

/* Columns are neighbours, whole panels: two rows become pairs by two permutations. */
static void pairs_copy_panel(float *dst, const pairs_word *src, int64_t along, int64_t pairs)
{
    __m512i first, last = _mm512_set1_epi16(16);
    int16_t order[32];
    for (int i = 0; i < 32; i++) order[i] = (int16_t)(i / 2 + i % 2 * 32);
    first = _mm512_loadu_si512(order);
    last = _mm512_add_epi16(first, last);
    for (int64_t p = 0; p < pairs; p++, src += 2 * along, dst += 32) {
        const __m512i x = _mm512_loadu_si512(src), y = _mm512_loadu_si512(src + along);
        _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(x, first, y));
        _mm512_storeu_si512(dst + 16, _mm512_permutex2var_epi16(x, last, y));
    }
}

/* Columns are neighbours. */
static void pairs_copy(float *dst, int64_t width, const pairs_word *src, int64_t along, int64_t count, int64_t numbers)
{
    const int64_t k = (numbers + 1) / 2;
    int64_t       p = 0;
    if (count == 32 && width == 32) pairs_copy_panel(dst, src, along, p = numbers / 2);
    for (; p < k; p++)
        for (int64_t i = 0; i < width; i += 16) {
            const int64_t     have = count - i < 0 ? 0 : count - i < 16 ? count - i : 16;
            const pairs_word *x = src + 2 * p * along + i;
            store_over_f32(dst + p * width + i, (k - p) * width - i,
                           pairs_join(x, 2 * p + 1 < numbers ? x + along : NULL, have));
        }
}

/* Transposes 16 rows of 16 words of 32 bits, `side` bytes apart at src, which may be anywhere. Word 4 l + c of row r
 * goes to dst[l * four + c * one + r]. Quarters of rows are loaded to where they are wanted, so that only words of a
 * quarter are left to be shuffled. */
CPU_INLINE void pairs_turn(float *dst, int64_t one, int64_t four, const void *src, int64_t side)
{
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) {
        __m512i v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const char *at = (const char *)src + i * side + 16 * l;
            v[i] = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)at));
            v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(at + 4 * side)), 1);
            v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(at + 8 * side)), 2);
            v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(at + 12 * side)), 3);
        }
        const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpacklo_epi32(v[2], v[3]);
        const __m512i c = _mm512_unpackhi_epi32(v[0], v[1]), d = _mm512_unpackhi_epi32(v[2], v[3]);
        store_f32(dst + l * four, (vf32)_mm512_unpacklo_epi64(a, b));
        store_f32(dst + l * four + one, (vf32)_mm512_unpackhi_epi64(a, b));
        store_f32(dst + l * four + 2 * one, (vf32)_mm512_unpacklo_epi64(c, d));
        store_f32(dst + l * four + 3 * one, (vf32)_mm512_unpackhi_epi64(c, d));
    }
}

/* Numbers of a column are neighbours: pairs are 32 bits, which are transposed. */
static void pairs_transpose(float *dst, int64_t width, const pairs_word *src, int64_t side, int64_t count,
                            int64_t numbers)
{
    const int64_t k = (numbers + 1) / 2;
    for (int64_t i = 0; i < width; i += 16)
        for (int64_t p = 0; p < k; p += 16) {
            const int64_t     left = numbers - 2 * p, is = count - i;
            const pairs_word *x = src + i * side + 2 * p;
            vf32              r[16];
            if (left >= 32 && is >= 16) {
                pairs_turn(dst + p * width + i, width, 4 * width, x, 2 * side);
                continue;
            }
            for (int j = 0; j < 16; j++) r[j] = j < is ? pairs_load(x + j * side, left) : (vf32){0};
            pack_square_f32(dst, width, i, p, k, r);
        }
}

/* Any strides. */
static void pairs_gather(float *dst, int64_t width, const pairs_word *src, int64_t side, int64_t along, int64_t count,
                         int64_t numbers)
{
    bits4 *to = (bits4 *)dst;
    for (int64_t p = 0; p < numbers; p += 2)
        for (int64_t i = 0; i < width; i++, to++) {
            const pairs_word *x = src + i * side + p * along;
            *to = i < count ? x[0] | (p + 1 < numbers ? (uint32_t)x[along] << 16 : 0) : 0;
        }
}

/* As pack_f32, dst[p * width + i] = the pair (src[i * side + 2 p * along], and the number behind it), i < count,
 * 2 p < numbers; zero for i >= count. */
static void pairs_pack(float *dst, int64_t width, const pairs_word *src, int64_t side, int64_t along, int64_t count,
                       int64_t numbers)
{
    if (along == 1) pairs_transpose(dst, width, src, side, count, numbers);
    else if (side == 1 || count == 1) pairs_copy(dst, width, src, along, count, numbers);
    else pairs_gather(dst, width, src, side, along, count, numbers);
}

#endif
