/* few_bits_bytes.c - y = f(x w' + b) with weights of 8 or 4 bits, where AVX-512 multiplies bytes (VNNI). Part of
 * few_bits.c.
 *
 * x becomes whole numbers of 16 bits as in few_bits_product.c, and these are 256 high + low, two signed bytes. Codes are
 * taken as unsigned bytes, 8 or 128 above what they mean, so that four products and their sum are one instruction; what
 * is too much is known from x alone, and sums begin with it. Four rows of w lie in the four parts of a vector, each with
 * sums of its own. So all sums of a unit are exact. */

#if CPU_VECTOR == 64
#define BYTES_TARGET __attribute__((target("avx512vnni")))
#define BYTES_MOST   32639 /* 127 * 256 + 127: the largest that two signed bytes hold */
#define BYTES_ROWS   8     /* rows of x at a time: as many sums, 2 vectors of weights, the scales, 4 for one row of x */

/* 32 numbers of x: the low bytes and the high bytes, each of the first and the last 16, and what sums begin with. */
typedef struct bytes_unit {
    int8_t  low[2][16], high[2][16];
    int32_t begin[4];
    float   scale, none[11]; /* two lines of the cache in all */
} bytes_unit;

static bool few_has_bytes(void) { return __builtin_cpu_supports("avx512vnni"); }

/* The sums of four neighbours of 16 bytes. */
BYTES_TARGET CPU_INLINE __m128i bytes_sums(__m128i sum, const int8_t *b)
{
    return _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), _mm_loadu_si128((const __m128i *)b));
}

/* q: 32 numbers of 16 bits. too_much: how far codes lie above what they mean. */
BYTES_TARGET static void bytes_split(const int16_t *q, int too_much, bytes_unit *out)
{
    __m512i all = _mm512_loadu_si512(q), high = _mm512_srai_epi16(_mm512_add_epi16(all, _mm512_set1_epi16(128)), 8);
    _mm256_storeu_si256((__m256i *)out->low, _mm512_cvtepi16_epi8(all));
    _mm256_storeu_si256((__m256i *)out->high, _mm512_cvtepi16_epi8(high));
    __m128i low = bytes_sums(bytes_sums(_mm_setzero_si128(), out->low[0]), out->low[1]);
    __m128i sum = bytes_sums(bytes_sums(_mm_setzero_si128(), out->high[0]), out->high[1]);
    sum = _mm_mullo_epi32(_mm_add_epi32(low, _mm_slli_epi32(sum, 8)), _mm_set1_epi32(-too_much));
    _mm_storeu_si128((__m128i *)out->begin, sum);
}

static void bytes_round_rows(few_product *p, bytes_unit *unit)
{
    float   tail[FEW_UNIT], unused;
    int16_t q[FEW_UNIT];
    p->bytes = unit;
    for (int64_t i = 0; i < p->g.m; i++)
        for (int64_t u = 0; u < p->units; u++, unit++) {
            few_round_unit(few_unit_of(p, i, u, tail), BYTES_MOST, q, &unit->scale, &unused);
            bytes_split(q, p->w.bits == 8 ? 128 : 8, unit);
        }
}

/* Four rows of codes, 16 bytes of each. */
CPU_INLINE __m512i bytes_rows(const uint8_t *const *w, int64_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(w[0] + at)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(w[1] + at)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(w[2] + at)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(w[3] + at)), 3);
}

CPU_INLINE void bytes_codes(int64_t bits, const uint8_t *const *w, int64_t at, __m512i *codes)
{
    codes[0] = bytes_rows(w, at);
    if (bits == 8) {
        codes[0] = _mm512_xor_si512(codes[0], _mm512_set1_epi8(-128));
        codes[1] = _mm512_xor_si512(bytes_rows(w, at + 16), _mm512_set1_epi8(-128));
        return;
    }
    codes[1] = _mm512_and_si512(_mm512_srli_epi16(codes[0], 4), _mm512_set1_epi8(15));
    codes[0] = _mm512_and_si512(codes[0], _mm512_set1_epi8(15));
}

CPU_INLINE __m512i bytes_four(const void *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)); }

/* The sums of a unit of x with the codes of four rows. */
BYTES_TARGET CPU_INLINE __m512 bytes_dot(const bytes_unit *x, const __m512i *codes)
{
    __m512i low = _mm512_dpbusd_epi32(bytes_four(x->begin), codes[0], bytes_four(x->low[0]));
    __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[0], bytes_four(x->high[0]));
    low = _mm512_dpbusd_epi32(low, codes[1], bytes_four(x->low[1]));
    high = _mm512_dpbusd_epi32(high, codes[1], bytes_four(x->high[1]));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_slli_epi32(high, 8)));
}

/* sums[i][c] of four rows of w and `rows` rows of x, from row `first` on. */
BYTES_TARGET CPU_INLINE void bytes_block(int64_t bits, int rows, int64_t per_block, const few_product *p, int64_t first,
                                         const uint8_t *const *at, float (*sums)[4])
{
    const __m512i     spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const bytes_unit *x = p->bytes + first * p->units;
    const uint8_t    *w[4] = {at[0], at[1], at[2], at[3]};
    const int64_t     size = FEW_UNIT * bits / 8, ahead = 4 * p->w.step;
    __m512            sum[BYTES_ROWS];
    for (int i = 0; i < rows; i++) sum[i] = _mm512_setzero_ps();
    for (int64_t u = 0; u < p->units; u += per_block) {
        __m512  scale = _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(few_scales(w)));
        int64_t end = p->units - u < per_block ? p->units - u : per_block;
        for (int64_t v = 0; v < end; v++) {
            __m512i codes[2];
            bytes_codes(bits, w, 2 + v * size, codes);
            for (int c = 0; c < 4; c++) __builtin_prefetch(w[c] + v * size + ahead);
            for (int i = 0; i < rows; i++) {
                const bytes_unit *unit = x + i * p->units + u + v;
                __m512            by = _mm512_mul_ps(scale, _mm512_set1_ps(unit->scale));
                sum[i] = _mm512_fmadd_ps(bytes_dot(unit, codes), by, sum[i]);
            }
        }
        for (int c = 0; c < 4; c++) w[c] += p->w.block;
    }
    for (int i = 0; i < rows; i++) {
        float all[16];
        _mm512_storeu_ps(all, sum[i]);
        for (int c = 0; c < 4; c++) sums[i][c] = (all[4 * c] + all[4 * c + 1]) + (all[4 * c + 2] + all[4 * c + 3]);
    }
}

#define BYTES_CASE(bits, n)                                              \
    case n:                                                              \
        if (per_block == 1) bytes_block(bits, n, 1, p, first, at, sums); \
        else bytes_block(bits, n, per_block, p, first, at, sums);        \
        break;
#define BYTES_CASES(bits)                                                                           \
    BYTES_CASE(bits, 1) BYTES_CASE(bits, 2) BYTES_CASE(bits, 3) BYTES_CASE(bits, 4) BYTES_CASE(bits, 5) \
        BYTES_CASE(bits, 6) BYTES_CASE(bits, 7) BYTES_CASE(bits, 8)

BYTES_TARGET static void bytes_rows_of(const few_product *p, int rows, int64_t first, const uint8_t *const *at,
                                       float (*sums)[4])
{
    const int64_t per_block = p->w.group / FEW_UNIT;
    if (p->w.bits == 8) {
        switch (rows) {
            BYTES_CASES(8)
        }
    } else {
        switch (rows) {
            BYTES_CASES(4)
        }
    }
}

static void few_bytes_part(void *context, int64_t begin, int64_t end, int thread)
{
    const few_product *p = context;
    const int64_t      groups = (p->g.m + BYTES_ROWS - 1) / BYTES_ROWS, group = (p->g.m + groups - 1) / groups;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t        column = 4 * u, left = p->w.rows - column;
        const uint8_t *at[4];
        float          sums[BYTES_ROWS][4];
        for (int c = 0; c < 4; c++) at[c] = p->w.data + (column + (c < left ? c : 0)) * p->w.step;
        for (int64_t i = 0; i < p->g.m; i += group) {
            int rows = p->g.m - i < group ? (int)(p->g.m - i) : (int)group;
            bytes_rows_of(p, rows, i, at, sums);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < 4 && c < left; c++) thin_finish(&p->g, i + r, column + c, sums[r][c]);
        }
    }
}

static gm_status few_bytes(gm_device *dev, few_product *p)
{
    gm_block *block;
    char     *room;
    int64_t   n = p->g.m * p->units;
    GM_TRY(cpu_scratch(dev, (size_t)n * sizeof(bytes_unit), &room, &block));
    bytes_round_rows(p, (bytes_unit *)(void *)room);
    gemm_parallel(dev->threads, (p->w.rows + 3) / 4, 8 * p->w.step, few_bytes_part, p);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}
#endif
