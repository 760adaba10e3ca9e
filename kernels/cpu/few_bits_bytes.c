/* few_bits_bytes.c - y = f(x w' + b) with weights of 8 or 4 bits, where AVX-512 multiplies bytes (VNNI). Part of
 * few_bits.c.
 *
 * x becomes whole numbers of 16 bits as in few_bits_product.c, and these are 256 high + low, two signed bytes. Codes
 * are taken as unsigned bytes, 8 or 128 above what they mean, so that four products and their sum are one instruction.
 * What is too much is known from x alone, and sums begin with it. Four rows of w lie in the four parts of a vector,
 * each with sums of its own. So all sums of a unit are exact. With more than two rows of x the loads of x are the
 * limit, and two such vectors share them.
 *
 * Rows of w lie one behind the other in memory, so what comes next is fetched in the order of its addresses. Measured
 * (Zen 4, one thread of a busy machine, weights of 4 bits, 576 and 1536 columns, GB/s where plain reading gave 18): 15
 * and 18; with each of four rows fetched by itself 10 and 9, with eight rows at a time 4 and 5. */

#define BYTES_MOST  32639 /* 127 * 256 + 127: the largest that two signed bytes hold */
#define BYTES_ROWS  6     /* rows of x at a time: 12 sums, 4 vectors of weights, 2 of scales, 5 of one row of x */
#define BYTES_WIDE  8     /* rows of w at a time, or half as many */
#define BYTES_AHEAD 4096  /* bytes of w from where they are used to where they are fetched */
/* Vectors of rows of w. All groups of rows of x of a call have as many. */
#define BYTES_STRIPS(rows) ((rows) <= 2 ? 1 : 2)

/* 32 numbers of x: the low bytes and the high bytes, each of the first and the last 16, and what sums begin with. */
typedef struct bytes_unit {
    int8_t  low[2][16], high[2][16];
    int32_t begin[4];
    float   scale, none[11]; /* two lines of the cache in all */
} bytes_unit;

#if defined(GM_EMULATED_AVX512)
#define BYTES_TARGET
static bool few_has_bytes(void) { return true; }
#else
#define BYTES_TARGET __attribute__((target("avx512vnni")))
static bool few_has_bytes(void) { return __builtin_cpu_supports("avx512vnni"); }
#endif

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

/* The scales of the blocks of four rows, each four times. */
CPU_INLINE __m512 bytes_scales(const uint8_t *const *w)
{
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    uint16_t      s[4];
    for (int c = 0; c < 4; c++) memcpy(&s[c], w[c], 2);
    __m128i four = _mm_insert_epi16(_mm_cvtsi32_si128(s[0]), s[1], 1);
    four = _mm_insert_epi16(_mm_insert_epi16(four, s[2], 2), s[3], 3);
    return _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(_mm_cvtph_ps(four)));
}

/* The four sums of each of four rows of w, put together. */
CPU_INLINE void bytes_finish(__m512 sum, float *sums)
{
    float all[16];
    _mm512_storeu_ps(all, sum);
    for (int c = 0; c < 4; c++) sums[c] = (all[4 * c] + all[4 * c + 1]) + (all[4 * c + 2] + all[4 * c + 3]);
}

/* sums[i][c] of some rows of w and `rows` rows of x, from row `first` on. */
BYTES_TARGET CPU_INLINE void bytes_block(int64_t bits, int rows, int64_t per_block, const few_product *p, int64_t first,
                                         const uint8_t *const *at, float (*sums)[BYTES_WIDE])
{
    const bytes_unit *x = p->bytes + first * p->units;
    const int         strips = BYTES_STRIPS(rows), wide = 4 * strips;
    const int64_t     size = FEW_UNIT * bits / 8, each = wide * p->w.block / per_block;
    const uint8_t    *w[BYTES_WIDE], *next = at[0] + BYTES_AHEAD;
    __m512            sum[BYTES_ROWS][2];
    for (int c = 0; c < wide; c++) w[c] = at[c];
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int64_t u = 0; u < p->units; u += per_block) {
        __m512  scale[2];
        int64_t end = p->units - u < per_block ? p->units - u : per_block;
        for (int s = 0; s < strips; s++) scale[s] = bytes_scales(w + 4 * s);
        for (int64_t v = 0; v < end; v++) {
            __m512i codes[2][2];
            for (int s = 0; s < strips; s++) bytes_codes(bits, w + 4 * s, 2 + v * size, codes[s]);
            for (int64_t b = 0; b < each; b += 64) __builtin_prefetch(next + b);
            next += each;
            for (int i = 0; i < rows; i++) {
                const bytes_unit *unit = x + i * p->units + u + v;
                const __m512      by = _mm512_set1_ps(unit->scale);
                for (int s = 0; s < strips; s++)
                    sum[i][s] = _mm512_fmadd_ps(bytes_dot(unit, codes[s]), _mm512_mul_ps(scale[s], by), sum[i][s]);
            }
        }
        for (int c = 0; c < wide; c++) w[c] += p->w.block;
    }
    for (int i = 0; i < rows; i++)
        for (int s = 0; s < strips; s++) bytes_finish(sum[i][s], sums[i] + 4 * s);
}

#define BYTES_CASE(bits, n)                                              \
    case n:                                                              \
        if (per_block == 1) bytes_block(bits, n, 1, p, first, at, sums); \
        else bytes_block(bits, n, per_block, p, first, at, sums);        \
        break;
#define BYTES_CASES(bits) \
    BYTES_CASE(bits, 1)   \
    BYTES_CASE(bits, 2) BYTES_CASE(bits, 3) BYTES_CASE(bits, 4) BYTES_CASE(bits, 5) BYTES_CASE(bits, 6)

BYTES_TARGET static void bytes_rows_of(const few_product *p, int rows, int64_t first, const uint8_t *const *at,
                                       float (*sums)[BYTES_WIDE])
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

/* Rows of x at a time. */
static int64_t bytes_group(const few_product *p)
{
    const int64_t groups = (p->g.m + BYTES_ROWS - 1) / BYTES_ROWS;
    return (p->g.m + groups - 1) / groups;
}

static void few_bytes_part(void *context, int64_t begin, int64_t end, int thread)
{
    const few_product *p = context;
    const int64_t      group = bytes_group(p), wide = 4 * BYTES_STRIPS(group);
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t        column = wide * u, left = p->w.rows - column;
        const uint8_t *at[BYTES_WIDE];
        float          sums[BYTES_ROWS][BYTES_WIDE];
        for (int c = 0; c < wide; c++) at[c] = p->w.data + (column + (c < left ? c : 0)) * p->w.step;
        for (int64_t i = 0; i < p->g.m; i += group) {
            int rows = p->g.m - i < group ? (int)(p->g.m - i) : (int)group;
            bytes_rows_of(p, rows, i, at, sums);
            for (int r = 0; r < rows; r++) thin_finish(&p->g, i + r, column, left < wide ? left : wide, sums[r]);
        }
    }
}

static gm_status few_bytes(gm_device *dev, few_product *p)
{
    gm_block *block;
    char     *room;
    int64_t   n = p->g.m * p->units, wide = 4 * BYTES_STRIPS(bytes_group(p));
    GM_TRY(cpu_scratch(dev, (size_t)n * sizeof(bytes_unit), &room, &block));
    bytes_round_rows(p, (bytes_unit *)(void *)room);
    gemm_parallel(dev->threads, (p->w.rows + wide - 1) / wide, 2 * wide * p->w.step, few_bytes_part, p);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}
