/* few_bits_product.c - y = f(x w' + b) with weights of 8 or 4 bits. Part of few_bits.c, which says which loops serve
 * how many rows. */

typedef struct few_product {
    few_weights              w;
    gemm_thin                g;     /* where results go; w is not used */
    int64_t                  units; /* of 32 numbers, in a row */
    const int16_t           *q;     /* (m, units, 32): x over its scale, rounded */
    const float             *scale; /* (m, units) */
    const float             *eight; /* (m, units): 8 times the sum of q, because codes of 4 bits count from -8 */
    const struct bytes_unit *bytes; /* (m, units): the same in another form (few_bits_bytes.c) */
} few_product;

#if CPU_VECTOR >= 32
/* ---- x as whole numbers ---- */

/* The last n numbers of a row, fewer than 32, with zeros behind them. */
static void few_copy_tail(int64_t n, const float *x, float *y)
{
    memset(y, 0, FEW_UNIT * sizeof *y);
    memcpy(y, x, (size_t)n * sizeof *y);
}

/* 32 numbers, the largest of them becomes largest_whole. Where one is not finite, the scale is NaN. */
static void few_round_unit(const float *x, float largest_whole, int16_t *q, float *scale, float *eight)
{
    __m256 v[4], largest = _mm256_setzero_ps(), strange = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
        strange = _mm256_fmadd_ps(v[i], _mm256_setzero_ps(), strange);
    }
    __m128 most = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    __m128 odd = _mm_add_ps(_mm256_castps256_ps128(strange), _mm256_extractf128_ps(strange, 1));
    most = _mm_max_ps(most, _mm_movehl_ps(most, most));
    odd = _mm_add_ps(odd, _mm_movehl_ps(odd, odd));
    float size = fmaxf(most[0], most[1]), nothing = odd[0] + odd[1];
    *scale = (size > 1e-30f ? size / largest_whole : 0) + nothing;
    __m256  inverse = _mm256_set1_ps(*scale > 0 ? largest_whole / size : 0);
    __m256i whole[4], sum = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    for (int i = 0; i < 4; i++) sum = _mm256_add_epi32(sum, whole[i]);
    for (int i = 0; i < 4; i += 2) { /* packs exchanges the middle quarters */
        __m256i two = _mm256_permute4x64_epi64(_mm256_packs_epi32(whole[i], whole[i + 1]), 0xd8);
        _mm256_storeu_si256((__m256i *)(q + 8 * i), two);
    }
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    /* in floats: where x has strange numbers, the sum is one, too, and 8 of it are too many for an int */
    *eight = 8 * (float)_mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

/* Unit u of row i; tail: room for a unit that is not whole. */
static const float *few_unit_of(const few_product *p, int64_t i, int64_t u, float *tail)
{
    int64_t      left = p->g.k - u * FEW_UNIT;
    const float *x = p->g.x + i * p->g.k + u * FEW_UNIT;
    if (left >= FEW_UNIT) return x;
    few_copy_tail(left, x, tail);
    return tail;
}

static void few_round_rows(few_product *p, int16_t *q, float *scale, float *eight)
{
    float tail[FEW_UNIT];
    for (int64_t i = 0, at = 0; i < p->g.m; i++)
        for (int64_t u = 0; u < p->units; u++, at++)
            few_round_unit(few_unit_of(p, i, u, tail), 32767, q + at * FEW_UNIT, scale + at, eight + at);
    p->q = q;
    p->scale = scale;
    p->eight = eight;
}

/* ---- products of whole numbers ---- */

/* Eight rows of w at a time: their scales are a vector, and what comes next is fetched in the order of addresses. The
 * limit with AVX2 is arithmetic: a unit of 4 bits takes 3.9 cycles (llvm-mca, Zen 3), and 4.0 were measured in a step
 * that reads its weights from memory.
 *
 * In vectors of 32 bytes with AVX-512 too: the two halves of a unit are added before they become floats, so that a unit
 * takes one conversion and one product with the scale, of half the width. */
#define FEW_COLUMNS 8    /* rows of w at a time: their scales fill a vector */
#define FEW_AHEAD   4096 /* bytes of w from where they are used to where they are fetched, in the order of addresses */
#if CPU_VECTOR == 64
#define FEW_ROWS 2 /* of x: 16 sums, 2 vectors of weights, 4 of x, 2 of shifts: of 32 registers */
#else
#define FEW_ROWS 1 /* 8 sums, 2 vectors of weights, 2 of x, a shift: of 16 */
#endif
typedef struct few_words {
    __m256i low, high;
} few_words;

CPU_INLINE few_words few_words_of(int64_t bits, const uint8_t *c)
{
    const __m128i *at = (const __m128i *)c;
    if (bits == 8)
        return (few_words){_mm256_cvtepi8_epi16(_mm_loadu_si128(at)), _mm256_cvtepi8_epi16(_mm_loadu_si128(at + 1))};
    __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128(at));
    return (few_words){_mm256_and_si256(v, _mm256_set1_epi16(15)), _mm256_srli_epi16(v, 4)};
}

CPU_INLINE few_words few_words_at(const int16_t *q)
{
    return (few_words){_mm256_loadu_si256((const __m256i *)q), _mm256_loadu_si256((const __m256i *)(q + 16))};
}

CPU_INLINE __m256 few_dot(few_words a, few_words b)
{
    __m256i low = _mm256_madd_epi16(a.low, b.low), high = _mm256_madd_epi16(a.high, b.high);
    return _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));
}

CPU_INLINE float few_sum(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return s[0] + s[1];
}

/* The scales of eight blocks, at `at` of each row. */
CPU_INLINE __m256 few_scales(const uint8_t *const *w, int64_t at)
{
    uint16_t s[8];
    for (int c = 0; c < 8; c++) memcpy(&s[c], w[c] + at, 2);
    __m128i all = _mm_cvtsi32_si128(s[0]);
#define FEW_PUT(c) all = _mm_insert_epi16(all, s[c], c)
    FEW_PUT(1), FEW_PUT(2), FEW_PUT(3), FEW_PUT(4), FEW_PUT(5), FEW_PUT(6), FEW_PUT(7);
#undef FEW_PUT
    return _mm256_cvtph_ps(all);
}

#define FEW_EACH_COLUMN _Pragma("GCC unroll 8") for (int c = 0; c < FEW_COLUMNS; c++)
#define FEW_EACH_ROW    _Pragma("GCC unroll 2") for (int i = 0; i < rows; i++)

/* sums[i][c] of eight rows of w and `rows` rows of x, from row `first` on. */
CPU_INLINE void few_block(int64_t bits, int rows, int64_t per_block, const few_product *p, int64_t first,
                          const uint8_t *const *w, float (*sums)[FEW_COLUMNS])
{
    const int64_t  size = FEW_UNIT * bits / 8, bytes = 2 + per_block * size, each = FEW_COLUMNS * bytes / per_block;
    const uint8_t *next = w[0] + FEW_AHEAD;
    __m256         sum[FEW_ROWS][FEW_COLUMNS], shift[FEW_ROWS];
    FEW_EACH_ROW   shift[i] = _mm256_setzero_ps();
    FEW_EACH_ROW FEW_EACH_COLUMN sum[i][c] = _mm256_setzero_ps();
    for (int64_t u = 0, block = 0; u < p->units; u += per_block, block += bytes) {
        const __m256  scales = few_scales(w, block);
        const int64_t end = p->units - u < per_block ? p->units - u : per_block;
        for (int64_t v = 0; v < end; v++) {
            float     by[FEW_ROWS][FEW_COLUMNS];
            few_words x[FEW_ROWS];
            FEW_EACH_ROW
            {
                const int64_t n = (first + i) * p->units + u + v;
                const __m256  s = _mm256_mul_ps(scales, _mm256_set1_ps(p->scale[n]));
                _mm256_storeu_ps(by[i], s);
                __asm__("" : "+m"(by[i])); /* read it back: loads are idle, and shuffles, which also do it, are not */
                if (bits == 4) shift[i] = _mm256_fmadd_ps(s, _mm256_set1_ps(p->eight[n]), shift[i]);
                x[i] = few_words_at(p->q + n * FEW_UNIT);
            }
            for (int64_t b = 0; b < each; b += 64) __builtin_prefetch(next + b);
            next += each;
            FEW_EACH_COLUMN
            {
                const few_words words = few_words_of(bits, w[c] + block + 2 + v * size);
                FEW_EACH_ROW    sum[i][c] = _mm256_fmadd_ps(few_dot(words, x[i]), _mm256_set1_ps(by[i][c]), sum[i][c]);
            }
        }
    }
    FEW_EACH_ROW
    {
        float less[FEW_COLUMNS];
        _mm256_storeu_ps(less, shift[i]);
        FEW_EACH_COLUMN sums[i][c] = few_sum(sum[i][c]) - less[c];
    }
}

#define FEW_CASE(bits, n)                                              \
    case n:                                                            \
        if (per_block == 1) few_block(bits, n, 1, p, first, at, sums); \
        else few_block(bits, n, per_block, p, first, at, sums);        \
        break;
#if FEW_ROWS == 2
#define FEW_CASES(bits) FEW_CASE(bits, 1) FEW_CASE(bits, 2)
#else
#define FEW_CASES(bits) FEW_CASE(bits, 1)
#endif

static void few_rows_of(const few_product *p, int rows, int64_t first, const uint8_t *const *at,
                        float (*sums)[FEW_COLUMNS])
{
    const int64_t per_block = p->w.group / FEW_UNIT;
    if (p->w.bits == 8) {
        switch (rows) {
            FEW_CASES(8)
        }
    } else {
        switch (rows) {
            FEW_CASES(4)
        }
    }
}

static void few_whole_part(void *context, int64_t begin, int64_t end, int thread)
{
    const few_product *p = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const int64_t  column = FEW_COLUMNS * u, left = p->w.rows - column;
        const int64_t  count = left < FEW_COLUMNS ? left : FEW_COLUMNS;
        const uint8_t *at[FEW_COLUMNS];
        float          sums[FEW_ROWS][FEW_COLUMNS];
        for (int c = 0; c < FEW_COLUMNS; c++) at[c] = p->w.data + (column + (c < count ? c : 0)) * p->w.step;
        for (int64_t i = 0; i < p->g.m; i += FEW_ROWS) {
            int rows = p->g.m - i < FEW_ROWS ? (int)(p->g.m - i) : FEW_ROWS;
            few_rows_of(p, rows, i, at, sums);
            for (int r = 0; r < rows; r++) thin_finish(&p->g, i + r, column, count, sums[r]);
        }
    }
}

static gm_status few_whole(gm_device *dev, few_product *p)
{
    gm_block *block;
    char     *room;
    int64_t   n = p->g.m * p->units, wide = FEW_COLUMNS;
    GM_TRY(cpu_scratch(dev, (size_t)(n * (2 * FEW_UNIT + 8)), &room, &block));
    few_round_rows(p, (int16_t *)room, (float *)(room + n * 2 * FEW_UNIT), (float *)(room + n * (2 * FEW_UNIT + 4)));
    gemm_parallel(dev->threads, (p->w.rows + wide - 1) / wide, 2 * wide * p->w.step, few_whole_part, p);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}
#if CPU_VECTOR == 64
#include "few_bits_bytes.c"
static gm_status few_run(gm_device *dev, few_product *p)
{
    return few_has_bytes() ? few_bytes(dev, p) : few_whole(dev, p);
}
#else
#include "few_bits_words.c"
static gm_status few_run(gm_device *dev, few_product *p)
{
    return p->g.m >= WORDS_LEAST ? few_in_words(dev, p) : few_whole(dev, p);
}
#endif
#else
/* ---- weights in f32, a few at a time ---- */

/* Four columns of the result for up to 16 rows of x. */
static void few_columns(const few_product *p, int64_t column, int count)
{
    const gemm_thin *g = &p->g;
    float            room[4][FEW_WIDE];
    const float     *w[4] = {room[0], room[1], room[2], room[3]};
    vf32             sums[4][THIN_ROWS];
    const int64_t    groups = (g->m + THIN_GROUP - 1) / THIN_GROUP, group = (g->m + groups - 1) / groups;
    memset(sums, 0, sizeof sums);
    for (int64_t at = 0; at < g->k; at += FEW_WIDE) {
        int64_t n = g->k - at < FEW_WIDE ? g->k - at : FEW_WIDE;
        for (int c = 0; c < 4; c++)
            few_row(&p->w, p->w.data + (column + (c < count ? c : 0)) * p->w.step, at, n, room[c]);
        for (int64_t i = 0; i < g->m; i += group) {
            int64_t rows = g->m - i < group ? g->m - i : group;
            thin_group_f32(rows, true, 0, n, g->x + i * g->k + at, g->k, w, (const char *)room,
                           (vf32(*)[THIN_ROWS]) & sums[0][i]);
        }
    }
    for (int64_t i = 0; i < g->m; i++) {
        const vf32 four[4] = {sums[0][i], sums[1][i], sums[2][i], sums[3][i]};
        float      all[4];
        thin_sums(four, all);
        thin_finish(g, i, column, count, all);
    }
}

static void few_columns_part(void *context, int64_t begin, int64_t end, int thread)
{
    const few_product *p = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t left = p->w.rows - 4 * u;
        few_columns(p, 4 * u, left < 4 ? (int)left : 4);
    }
}

static gm_status few_run(gm_device *dev, few_product *p)
{
    gemm_parallel(dev->threads, (p->g.n + 3) / 4, 8 * p->g.k * (1 + p->g.m / 4), few_columns_part, p);
    return GM_OK;
}
#endif

/* ---- the op ---- */

static gm_status few_thin(gm_device *dev, const gm_call *call, int64_t rows)
{
    gm_tensor  *x = NULL, *b = NULL, *y = NULL, *pre = NULL;
    gm_status   st;
    few_product p = {.g = {.m = rows, .n = call->in[1]->shape[0], .f = call->attrs->function}};
    GM_TRY_OR(cpu_plain(dev, GM_F32, call->in[0], true, &x), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, cpu_in(call, 2), true, &b), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, call->out[0], false, &y), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, cpu_out(call, 1), false, &pre), st, done);
    p.g.k = x->shape[x->ndim - 1];
    p.w = few_of(call->in[1], call->attrs, p.g.k);
    p.units = (p.g.k + FEW_UNIT - 1) / FEW_UNIT;
    p.g.x = gm_tensor_data(x);
    p.g.bias = b ? gm_tensor_data(b) : NULL;
    p.g.y = gm_tensor_data(y);
    p.g.pre = pre ? gm_tensor_data(pre) : NULL;
    st = few_run(dev, &p);
done:
    gm_tensor_release(x);
    gm_tensor_release(b);
    st = cpu_home(dev, y, call->out[0], st);
    return cpu_home(dev, pre, cpu_out(call, 1), st);
}

/* For products of many rows: columns of b are rows of codes. */
static void few_widen_f32(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    const few_weights *w = g->form;
    few_row(w, w->data + j * w->step, p, k, to); /* whole units: GEMM_DEPTH is a multiple of them */
}

static void few_widen_f64(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    const few_weights *w = g->form;
    float              room[GEMM_DEPTH];
    double            *y = to;
    few_row(w, w->data + j * w->step, p, k, room);
    for (int64_t i = 0; i < k; i++) y[i] = (double)room[i];
}

static int64_t few_call_rows(const gm_call *call)
{
    int64_t rows = 1;
    for (int d = 0; d < call->in[0]->ndim - 1; d++) rows *= call->in[0]->shape[d];
    return rows;
}

static bool few_is_thin(const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    return few_call_rows(call) <= THIN_ROWS && x->shape[x->ndim - 1] > 0 && x->dtype != GM_F64;
}

static gm_status cpu_linear_quantized(gm_device *dev, const gm_call *call)
{
    const gm_tensor  *x = call->in[0];
    const few_weights w = few_of(call->in[1], call->attrs, x->shape[x->ndim - 1]);
    gemm g = {.alpha = 1, .n = w.rows, .k = w.columns, .b = w.data, .b_column = w.step, .b_bits = w.bits, .form = &w};
    if (few_call_rows(call) == 0 || g.n == 0) return GM_OK;
    if (few_is_thin(call)) return few_thin(dev, call, few_call_rows(call));
    g.widen = x->dtype == GM_F64 ? few_widen_f64 : few_widen_f32;
    return x->dtype == GM_F64 ? linear_product(dev, call, g) : linear_in_f32(dev, call, g);
}
