/* few_bits_words.c - y = f(x w' + b) with weights of 8 or 4 bits for 4 to 16 rows of x, where AVX2 multiplies words of
 * 16 bits. Part of few_bits.c.
 *
 * Codes are unpacked once for all rows of x: eight rows of w stand side by side in the eight parts of a vector, each
 * with two numbers, so that a product with two numbers of x adds to eight sums. No sum is added across a vector, and
 * a unit takes one conversion and one scale for eight rows of w. Which two numbers of a unit stand together is what
 * masks and shifts of four bytes give: word_order says it, and x is laid out alike. Codes of 4 bits are 8 above what
 * they mean; sums begin with what is too much. So all sums of a unit are exact: 32 * 128 * 32767 is below 2^31. */

#define WORDS_WIDE  16   /* rows of w at a time: two vectors of sums */
#define WORDS_ROWS  4    /* rows of x at a time: 8 sums, 2 vectors of weights, 1 of x: of 16 registers */
#define WORDS_PAIRS 16   /* of numbers, in a unit */
#define WORDS_LEAST 4    /* rows of x, for which unpacking pays */
#define WORDS_AHEAD 4096 /* bytes of w from where they are used to where they are fetched */

/* 32 numbers of a row of x, two by two. */
typedef struct words_unit {
    int32_t pair[WORDS_PAIRS];
} words_unit;

/* The first number of pair number t; the second is two behind it. */
static int words_order(int64_t bits, int t)
{
    return bits == 8 ? t / 2 * 4 + t % 2 : t / 4 * 4 + t % 2 * 16 + t % 4 / 2;
}

/* Unit u of row i is unit number u m + i: what a unit of w meets lies together. */
static void words_round_rows(const few_product *p, words_unit *unit, float *scale, int32_t *begin)
{
    float   tail[FEW_UNIT], eight;
    int16_t q[FEW_UNIT];
    for (int64_t u = 0; u < p->units; u++)
        for (int64_t i = 0; i < p->g.m; i++, unit++) {
            few_round_unit(few_unit_of(p, i, u, tail), 32767, q, scale++, &eight);
            int32_t sum = 0;
            for (int k = 0; k < FEW_UNIT; k++) sum += q[k];
            *begin++ = p->w.bits == 8 ? 0 : -8 * sum;
            for (int t = 0; t < WORDS_PAIRS; t++) {
                const int k = words_order(p->w.bits, t);
                unit->pair[t] = (int32_t)((uint32_t)(uint16_t)q[k] | (uint32_t)(uint16_t)q[k + 2] << 16);
            }
        }
}

/* Four bytes of each of eight rows in a vector, for 16 bytes at `at` of each row. */
CPU_INLINE void words_turn(const uint8_t *const *w, int64_t at, __m256i *out)
{
    __m256i v[4], t[4];
    for (int c = 0; c < 4; c++) {
        const __m128i low = _mm_loadu_si128((const __m128i *)(w[c] + at));
        const __m128i high = _mm_loadu_si128((const __m128i *)(w[c + 4] + at));
        v[c] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    for (int c = 0; c < 4; c += 2) {
        t[c] = _mm256_unpacklo_epi32(v[c], v[c + 1]);
        t[c + 1] = _mm256_unpackhi_epi32(v[c], v[c + 1]);
    }
    out[0] = _mm256_unpacklo_epi64(t[0], t[2]);
    out[1] = _mm256_unpackhi_epi64(t[0], t[2]);
    out[2] = _mm256_unpacklo_epi64(t[1], t[3]);
    out[3] = _mm256_unpackhi_epi64(t[1], t[3]);
}

/* The pairs of a unit of eight rows of w, in words_order: out[t][s]. */
CPU_INLINE void words_unpack(int64_t bits, const uint8_t *const *w, int64_t at, int s, __m256i (*out)[2])
{
    const __m256i low = _mm256_set1_epi32(0x000f000f);
    __m256i       four[4];
    for (int part = 0; part < (bits == 8 ? 2 : 1); part++) {
        words_turn(w, at + 16 * part, four);
        for (int d = 0; d < 4; d++) {
            if (bits == 8) {
                out[8 * part + 2 * d][s] = _mm256_srai_epi16(_mm256_slli_epi16(four[d], 8), 8);
                out[8 * part + 2 * d + 1][s] = _mm256_srai_epi16(four[d], 8);
                continue;
            }
            out[4 * d][s] = _mm256_and_si256(four[d], low);
            out[4 * d + 1][s] = _mm256_and_si256(_mm256_srli_epi32(four[d], 4), low);
            out[4 * d + 2][s] = _mm256_and_si256(_mm256_srli_epi32(four[d], 8), low);
            out[4 * d + 3][s] = _mm256_and_si256(_mm256_srli_epi32(four[d], 12), low);
        }
    }
}

/* sums of `rows` rows of x with the pairs of a unit. */
CPU_INLINE void words_rows(int rows, const __m256i (*w)[2], const words_unit *x, const float *scale,
                           const int32_t *begin, const __m256 *by, __m256 (*sums)[2])
{
    __m256i sum[WORDS_ROWS][2];
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm256_set1_epi32(begin[i]);
    for (int t = 0; t < WORDS_PAIRS; t++) {
        __m256i v[2] = {w[t][0], w[t][1]};
        __asm__("" : "+x"(v[0]), "+x"(v[1])); /* loads are the limit: each of these is one, not one for each row */
        for (int i = 0; i < rows; i++) {
            const __m256i two = _mm256_set1_epi32(x[i].pair[t]);
            for (int s = 0; s < 2; s++) sum[i][s] = _mm256_add_epi32(sum[i][s], _mm256_madd_epi16(v[s], two));
            for (int s = 0; s < 2; s++) __asm__("" : "+x"(sum[i][s])); /* in another order there are too many */
        }
    }
    for (int i = 0; i < rows; i++)
        for (int s = 0; s < 2; s++) {
            const __m256 scales = _mm256_mul_ps(by[s], _mm256_set1_ps(scale[i]));
            sums[i][s] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i][s]), scales, sums[i][s]);
        }
}

typedef struct words_product {
    few_product       p;
    const words_unit *unit;
    const float      *scale;
    const int32_t    *begin;
} words_product;

/* A unit of 16 rows of w with all rows of x. */
CPU_INLINE void words_unit_of(const words_product *w, int64_t u, const __m256i (*pairs)[2], const __m256 *by,
                              __m256 (*sums)[2])
{
    const int64_t m = w->p.g.m;
    for (int64_t i = 0; i < m; i += WORDS_ROWS) {
        const int64_t     n = u * m + i, left = m - i;
        const words_unit *x = w->unit + n;
        const float      *scale = w->scale + n;
        const int32_t    *begin = w->begin + n;
        if (left >= 4) words_rows(4, pairs, x, scale, begin, by, sums + i);
        else if (left == 3) words_rows(3, pairs, x, scale, begin, by, sums + i);
        else if (left == 2) words_rows(2, pairs, x, scale, begin, by, sums + i);
        else words_rows(1, pairs, x, scale, begin, by, sums + i);
    }
}

/* sums[i] of 16 rows of w and all rows of x. */
CPU_INLINE void words_block(int64_t bits, const words_product *w, const uint8_t *const *at, __m256 (*sums)[2])
{
    const few_product *p = &w->p;
    const int64_t      per_block = p->w.group / FEW_UNIT, size = FEW_UNIT * bits / 8;
    const int64_t      each = WORDS_WIDE * p->w.block / per_block;
    const uint8_t     *next = at[0] + WORDS_AHEAD;
    __m256i            pairs[WORDS_PAIRS][2];
    for (int64_t u = 0, block = 0; u < p->units; u += per_block, block += p->w.block) {
        const __m256  by[2] = {few_scales(at, block), few_scales(at + 8, block)};
        const int64_t end = p->units - u < per_block ? p->units - u : per_block;
        for (int64_t v = 0; v < end; v++) {
            for (int s = 0; s < 2; s++) words_unpack(bits, at + 8 * s, block + 2 + v * size, s, pairs);
            __asm__("" : "+m"(pairs)); /* or they are copied once more, for each case of how many rows there are */
            for (int64_t b = 0; b < each; b += 64) __builtin_prefetch(next + b);
            next += each;
            words_unit_of(w, u + v, pairs, by, sums);
        }
    }
}

static void few_words_part(void *context, int64_t begin, int64_t end, int thread)
{
    const words_product *w = context;
    const few_product   *p = &w->p;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t        column = WORDS_WIDE * u, left = p->w.rows - column;
        const uint8_t *at[WORDS_WIDE];
        __m256         sums[THIN_ROWS][2];
        float          all[WORDS_WIDE];
        for (int c = 0; c < WORDS_WIDE; c++) at[c] = p->w.data + (column + (c < left ? c : 0)) * p->w.step;
        memset(sums, 0, sizeof sums);
        if (p->w.bits == 8) words_block(8, w, at, sums);
        else words_block(4, w, at, sums);
        for (int64_t i = 0; i < p->g.m; i++) {
            memcpy(all, sums[i], sizeof all);
            thin_finish(&p->g, i, column, left < WORDS_WIDE ? left : WORDS_WIDE, all);
        }
    }
}

static gm_status few_in_words(gm_device *dev, const few_product *p)
{
    gm_block     *block;
    char         *room;
    const int64_t n = p->g.m * p->units, wide = WORDS_WIDE;
    GM_TRY(cpu_scratch(dev, (size_t)n * (sizeof(words_unit) + 8), &room, &block));
    words_unit   *unit = (words_unit *)(void *)room;
    float        *scale = (float *)(void *)(unit + n);
    int32_t      *begin = (int32_t *)(void *)(scale + n);
    words_product w = {.p = *p, .unit = unit, .scale = scale, .begin = begin};
    words_round_rows(p, unit, scale, begin);
    gemm_parallel(dev->threads, (p->w.rows + wide - 1) / wide, wide * p->w.step * (1 + p->g.m / 2), few_words_part, &w);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}
