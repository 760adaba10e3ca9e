/* gemm_thin.c - y = f(x w' + b) for a few rows of x: what a model does when it writes one token after the other.
 *
 * Each weight is read once and used for all rows. The limit is the memory that the weights come from, so weights of
 * bf16 and f16 are read as they are and widened in registers: half the bytes are half the time. One row of x reads the
 * rows of w one after the other, as they lie in memory, and fetches nothing ahead: the processor sees what comes.
 * (Measured on a Zen 3: 14 and 18 GB/s of bf16 and f32 where plain reading gave 18 to 21.) More rows of x read four or
 * two rows of w side by side; what they want next comes in the order of addresses (Zen 4: 21 GB/s, 14 where each row
 * was fetched by itself). Sums are in f32, in an order that depends on k, and on whether x has one row or more.
 *
 * Where the instruction set multiplies bf16 (gemm_pairs.c), x stays bf16 too, nothing is widened, and one row of x does
 * fetch ahead: a Zen 4 with other work beside it reads 32 GB/s so, and 28 to 30 without. Part of gemm.c. */

#define THIN_ROWS     16   /* more rows than that are a product like any other */
#define THIN_AMX_ROWS 6    /* likewise, where tiles of AMX take bf16: they multiply 16 rows in the time of one */
#define THIN_GROUP    6    /* rows of x at a time */
#define THIN_DEPTH    1024 /* k at a time: four rows of weights stay in the first-level cache for all rows of x */
#define CPU_LANES_F32 (CPU_VECTOR / 4)
/* Likewise, of f32 by f32: gemm_turned_t.h takes more rows. */
#define THIN_F32_ROWS (CPU_VECTOR == 64 ? 12 : CPU_VECTOR == 32 ? 7 : THIN_ROWS)
#if CPU_VECTOR == 64
#define THIN_COLUMNS(rows) 4 /* 24 sums, 4 vectors of weights, one of x: 29 of 32 registers */
#else
#define THIN_COLUMNS(rows) ((rows) <= 2 ? 4 : 2) /* 12 sums, 2 vectors of weights, one of x: 15 of 16 */
#endif

typedef struct gemm_thin {
    int64_t      m, n, k, w_row; /* w_row: elements from row to row of w */
    const float *x;              /* (m, k) */
    const bits2 *x_bf16;         /* the same in bf16, for thin_part_pairs; x is NULL then */
    const void  *w;
    const float *bias; /* (n) or NULL */
    gm_function  f;
    float       *y, *pre; /* (m, n); pre may be NULL */
} gemm_thin;

/* Sums of row i from column j on, as many as `count`, become results. They are overwritten. */
CPU_INLINE void thin_finish(const gemm_thin *g, int64_t i, int64_t j, int64_t count, float *sums)
{
    float *y = g->y + i * g->n + j;
    for (int64_t c = 0; g->bias && c < count; c++) sums[c] += g->bias[j + c];
    if (g->pre) memcpy(g->pre + i * g->n + j, sums, sizeof(float) * (size_t)count);
    if (g->f != GM_FN_none) activation_row_f32(g->f, count, sums, sums);
    for (; count >= 4; count -= 4, y += 4, sums += 4) memcpy(y, sums, 16);
    for (int64_t c = 0; c < count; c++) y[c] = sums[c];
}

/* The sums across lanes of four vectors. */
CPU_INLINE void thin_sums(const vf32 *four, float *sums)
{
#if CPU_VECTOR == 32
    const __m256 a = _mm256_hadd_ps((__m256)four[0], (__m256)four[1]);
    const __m256 b = _mm256_hadd_ps((__m256)four[2], (__m256)four[3]), all = _mm256_hadd_ps(a, b);
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
#elif CPU_VECTOR == 64
    const __m512 a = (__m512)four[0], b = (__m512)four[1], c = (__m512)four[2], d = (__m512)four[3];
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee)); /* a b c d */
    const __m256 two = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1)));
#else
    for (int c = 0; c < 4; c++) sums[c] = sum_v_f32(four[c]);
#endif
}

CPU_INLINE vf32 thin_load_bf16(const uint16_t *w, int64_t k)
{
    typedef uint16_t half __attribute__((vector_size(CPU_VECTOR / 2), aligned(2), may_alias));
    return (vf32)(__builtin_convertvector(*(const half *)(w + k), unsigned_f32) << 16);
}

/* 2 LANES elements, those with even numbers first: half the work of two loads that are widened. */
CPU_INLINE void thin_two_bf16(const uint16_t *w, int64_t k, vf32 *two)
{
    typedef unsigned_f32 words __attribute__((aligned(2), may_alias));
    const unsigned_f32   both = *(const words *)(w + k);
    two[0] = (vf32)(both << 16);
    two[1] = (vf32)(both & 0xffff0000);
}

#if GEMM_PAIRS
/* 64 elements; those 4 KB behind them come into the second-level cache, mostly of the next rows. */
CPU_INLINE void thin_two_pairs(const bits2 *w, int64_t k, vf32 *two)
{
    __builtin_prefetch(w + k + 2048, 0, 2);
    __builtin_prefetch(w + k + 2080, 0, 2);
    two[0] = pairs_load(w + k, 32);
    two[1] = pairs_load(w + k + 32, 32);
}
#endif

/* x (k) as weights of bf16 meet it, where it is the only row: in each 4 LANES numbers, those with even places in each
 * half come first. */
static void thin_turned(int64_t k, const float *x, float *y)
{
    const int64_t wide = 2 * CPU_LANES_F32, whole = k / (2 * wide) * 2 * wide;
    for (int64_t p = 0; p < whole; p += wide)
        for (int64_t i = 0; i < wide; i++) y[p + i % 2 * CPU_LANES_F32 + i / 2] = x[p + i];
    memcpy(y + whole, x + whole, (size_t)(k - whole) * sizeof *x);
}

CPU_INLINE vf32 thin_load_f16(const uint16_t *w, int64_t k)
{
#if CPU_VECTOR == 64
    return (vf32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + k)));
#elif CPU_VECTOR == 32
    return (vf32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + k)));
#else
    vf32 v;
    for (int i = 0; i < CPU_LANES_F32; i++) v[i] = gm_f16_to_f32(w[k + i]);
    return v;
#endif
}

/* The last n elements of a row, fewer than a vector has. */
CPU_INLINE vf32 thin_tail(const uint16_t *w, int64_t k, int64_t n, float (*widen_one)(uint16_t))
{
    vf32 v = {0};
    for (int64_t i = 0; i < n; i++) v[i] = widen_one(w[k + i]);
    return v;
}

#define THIN(name)           thin_##name##_f32
#define THIN_W               float
#define THIN_LINE            16
#define THIN_LOAD(w, k)      load_f32((w) + (k))
#define THIN_LOAD_N(w, k, n) load_n_f32((w) + (k), n)
#define THIN_TWO(w, k, b)    ((b)[0] = load_f32((w) + (k)), (b)[1] = load_f32((w) + (k) + CPU_LANES_F32))
#include "gemm_thin_t.h"
#if GEMM_PAIRS
#define THIN(name)           thin_##name##_pairs
#define THIN_W               bits2
#define THIN_LINE            32
#define THIN_LOAD(w, k)      pairs_load((w) + (k), 32)
#define THIN_LOAD_N(w, k, n) pairs_load((w) + (k), n)
#define THIN_TWO(w, k, b)    thin_two_pairs(w, k, b)
#define THIN_X               bits2
#define THIN_X_OF(g)         (g)->x_bf16
#define THIN_WIDE            32
#define THIN_LOAD_X(x)       pairs_load(x, 32)
#define THIN_LOAD_X_N(x, n)  pairs_load(x, n)
#define THIN_ADD(sum, x, w)  ((vf32)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(x), (__m512bh)(w)))
#define THIN_NEAR            1
#define THIN_AT_ONCE(rows)   ((rows) <= 3 ? 4 : 2) /* 4 to 6 rows from memory: 1.2 times as fast as with 4 (Zen 4) */
#include "gemm_thin_t.h"
#endif
#define THIN(name)           thin_##name##_bf16
#define THIN_W               uint16_t
#define THIN_LINE            32
#define THIN_LOAD(w, k)      thin_load_bf16(w, k)
#define THIN_LOAD_N(w, k, n) thin_tail(w, k, n, gm_bf16_to_f32)
#define THIN_TWO(w, k, b)    thin_two_bf16(w, k, b)
#include "gemm_thin_t.h"
#define THIN(name)           thin_##name##_f16
#define THIN_W               uint16_t
#define THIN_LINE            32
#define THIN_LOAD(w, k)      thin_load_f16(w, k)
#define THIN_LOAD_N(w, k, n) thin_tail(w, k, n, gm_f16_to_f32)
#define THIN_TWO(w, k, b)    ((b)[0] = thin_load_f16(w, k), (b)[1] = thin_load_f16(w, (k) + CPU_LANES_F32))
#include "gemm_thin_t.h"

/* Rows of x, at most, that make a product with weights of this dtype a thin one. amx not NULL: tiles take more rows. */
static int64_t thin_most(gm_dtype weights, const amx_kind *amx)
{
    return weights == GM_F32 ? THIN_F32_ROWS : amx ? THIN_AMX_ROWS : THIN_ROWS;
}

/* Is this call of `linear` a thin product? */
static bool gemm_is_thin(const gm_call *call, const amx_kind *amx)
{
    const gm_tensor *x = call->in[0], *w = call->in[1];
    int64_t          rows = 1;
    for (int d = 0; d < x->ndim - 1; d++) rows *= x->shape[d];
    return w->dtype != GM_F64 && rows >= 1 && rows <= thin_most(w->dtype, amx) && w->shape[0] > 0 && w->shape[1] > 0 &&
           (w->stride[1] == 1 || w->shape[1] == 1);
}

static gm_job thin_part(const gm_tensor *w, const gemm_thin *g)
{
#if GEMM_PAIRS
    if (g->x_bf16) return thin_part_pairs;
#else
    (void)g;
#endif
    return w->dtype == GM_F32 ? thin_part_f32 : w->dtype == GM_BF16 ? thin_part_bf16 : thin_part_f16;
}

static gm_status thin_run(gm_device *dev, const gm_tensor *w, gemm_thin *g)
{
    gm_block *block = NULL;
    gm_job    job = thin_part(w, g);
    int64_t   bytes = 4 * g->k * (int64_t)gm_dtype_size(w->dtype);
    g->w = gm_tensor_data(w);
    g->w_row = w->stride[0];
    if (g->m == 1 && job == thin_part_bf16) {
        float *turned;
        GM_TRY(cpu_scratch(dev, (size_t)g->k * sizeof *turned, &turned, &block));
        thin_turned(g->k, g->x, turned);
        g->x = turned;
    }
    gemm_parallel(dev->threads, (g->n + 3) / 4, bytes * (1 + g->m / 8), job, g);
    if (block) gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status thin_linear(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = NULL, *b = NULL, *y = NULL, *pre = NULL, *w = call->in[1];
    gm_status  st;
    gemm_thin  g = {.m = 1, .n = w->shape[0], .k = w->shape[1], .f = call->attrs->function};
    gm_dtype   dtype = gemm_takes_pairs(call) ? GM_BF16 : GM_F32;
    GM_TRY_OR(cpu_plain(dev, dtype, call->in[0], true, &x), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, cpu_in(call, 2), true, &b), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, call->out[0], false, &y), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, cpu_out(call, 1), false, &pre), st, done);
    for (int d = 0; d < x->ndim - 1; d++) g.m *= x->shape[d];
    if (dtype == GM_BF16) g.x_bf16 = gm_tensor_data(x);
    else g.x = gm_tensor_data(x);
    g.bias = b ? gm_tensor_data(b) : NULL;
    g.y = gm_tensor_data(y);
    g.pre = pre ? gm_tensor_data(pre) : NULL;
    st = thin_run(dev, w, &g);
done:
    gm_tensor_release(x);
    gm_tensor_release(b);
    st = cpu_home(dev, y, call->out[0], st);
    return cpu_home(dev, pre, cpu_out(call, 1), st);
}
