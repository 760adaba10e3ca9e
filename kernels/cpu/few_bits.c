/* few_bits.c - weights of 8 or 4 bits (../few_bits.h): quantize, dequantize, and the product that reads them.
 *
 * A few rows of x, which is how a model writes a token, are limited by memory, if arithmetic keeps up. So x becomes
 * whole numbers of 16 bits, in units of 32 with a scale each, and products of whole numbers are summed exactly over a
 * unit. The rounding of x is at most 1/65278 of the largest of its unit. AVX-512 (VNNI: few_bits_bytes.c) and AVX2
 * (two rows and more: few_bits_words.c) do this for up to 16 rows; without them four rows of weights at a time become
 * f32 (gemm_thin_t.h). More than 16 rows are a product like any other, whose panels of weights become numbers as they
 * are packed (gemm_block_t.h), and so is f64.
 *
 * Measured (Zen 4, one thread, weights of 576 columns in cache, 10^9 weights a second): one row 25 with 8 bits, 28 with
 * 4; weights in f32, 8 for their making alone. Widening a unit to 64 bytes took 18 and 20. */
#include "../few_bits.h"

#define FEW_UNIT GM_FEW_UNIT
#define FEW_WIDE 1024 /* numbers of a row in f32 at a time */

typedef struct few_weights {
    const uint8_t *data;
    int64_t        rows, columns, step; /* step: bytes from row to row */
    int64_t        bits, group, block;  /* block: bytes of one */
} few_weights;

static few_weights few_of(const gm_tensor *codes, const gm_attrs *at, int64_t columns)
{
    return (few_weights){gm_tensor_data(codes),
                         codes->shape[0],
                         columns,
                         codes->stride[0],
                         at->bits,
                         at->group,
                         gm_few_block_bytes(at->bits, at->group)};
}

/* ---- numbers ---- */

/* The 32 numbers of a unit whose codes begin at c. */
#if CPU_VECTOR >= 32
CPU_INLINE void few_eight(__m256i codes, __m256 scale, float *y)
{
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_cvtepi32_ps(codes), scale));
}

CPU_INLINE void few_unit(int64_t bits, const uint8_t *c, float scale, float *y)
{
    const __m256  s = _mm256_set1_ps(scale);
    const __m256i eight = _mm256_set1_epi32(8);
    if (bits == 8) {
        for (int i = 0; i < FEW_UNIT; i += 8)
            few_eight(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(c + i))), s, y + i);
        return;
    }
    for (int i = 0; i < FEW_UNIT / 2; i += 8) {
        __m256i two = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(c + i)));
        few_eight(_mm256_sub_epi32(_mm256_and_si256(two, _mm256_set1_epi32(15)), eight), s, y + i);
        few_eight(_mm256_sub_epi32(_mm256_srli_epi32(two, 4), eight), s, y + FEW_UNIT / 2 + i);
    }
}
#else
CPU_INLINE void few_unit(int64_t bits, const uint8_t *c, float scale, float *y)
{
    for (int i = 0; i < FEW_UNIT; i++) y[i] = (float)gm_few_code(bits, c - 2, i) * scale;
}
#endif

CPU_INLINE const uint8_t *few_at(const few_weights *w, const uint8_t *row, int64_t i, float *scale)
{
    const uint8_t *block = row + i / w->group * w->block;
    *scale = gm_f16_to_f32(gm_few_scale(block));
    return block + 2 + i % w->group * w->bits / 8;
}

/* Whole units of numbers from `first`, a multiple of 32, until n are there: y has room for them. */
CPU_INLINE void few_numbers(int64_t bits, const few_weights *w, const uint8_t *row, int64_t first, int64_t n, float *y)
{
    float scale;
    for (int64_t i = 0; i < n; i += FEW_UNIT) {
        const uint8_t *c = few_at(w, row, first + i, &scale);
        few_unit(bits, c, scale, y + i);
    }
}

static void few_row(const few_weights *w, const uint8_t *row, int64_t first, int64_t n, float *y)
{
    if (w->bits == 8) few_numbers(8, w, row, first, n, y);
    else few_numbers(4, w, row, first, n, y);
}

/* ---- quantize, dequantize ---- */

typedef struct few_job {
    few_weights w;
    cpu_rows    index, y; /* index without data: row i is row i */
    bool        indexed;
} few_job;

static void few_quantize_part(void *context, int64_t begin, int64_t end, int thread)
{
    const few_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = cpu_row_at(&j->y, r);
        uint8_t     *block = (uint8_t *)j->w.data + r * j->w.step;
        for (int64_t i = 0; i < j->w.columns; i += j->w.group, block += j->w.block) {
            int64_t left = j->w.columns - i, n = left < j->w.group ? left : j->w.group;
            GM_FEW_ENCODE(gm_f32_to_f16, j->w.bits, j->w.group, x + i, n, 1, block);
        }
    }
}

static gm_status cpu_quantize(gm_device *dev, const gm_call *call)
{
    gm_tensor *codes = call->out[0], *w = NULL;
    few_job    j = {.w = few_of(codes, call->attrs, call->in[0]->shape[1])};
    GM_TRY(cpu_plain(dev, GM_F32, call->in[0], true, &w));
    j.y = cpu_rows_of(w);
    cpu_parallel(dev, j.w.columns ? j.w.rows : 0, 8 * j.w.columns, few_quantize_part, &j);
    gm_tensor_release(w);
    return GM_OK;
}

static void few_dequantize_part(void *context, int64_t begin, int64_t end, int thread)
{
    const few_job *j = context;
    float          room[FEW_WIDE];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = j->indexed ? load_index(&j->index, i) : i;
        char   *y = cpu_row_at(&j->y, i);
        for (int64_t k = 0; k < j->w.columns; k += FEW_WIDE) {
            int64_t n = j->w.columns - k < FEW_WIDE ? j->w.columns - k : FEW_WIDE;
            if (inside(r, j->w.rows)) few_row(&j->w, j->w.data + r * j->w.step, k, n, room);
            else memset(room, 0, sizeof room);
            if (j->y.size == 4) memcpy(y + 4 * k, room, 4 * (size_t)n);
            else
                for (int64_t e = 0; e < n; e++) ((double *)y)[k + e] = (double)room[e];
        }
    }
}

static gm_status few_dequantize(gm_device *dev, const gm_call *call)
{
    gm_tensor *codes = call->in[0], *y = call->out[0];
    int64_t    columns = call->attrs->columns;
    few_job    j = {.w = few_of(codes, call->attrs, columns), .y = cpu_rows_of(y), .indexed = call->in[1] != NULL};
    if (j.indexed) {
        j.index = cpu_scalars_of(call->in[1]);
        GM_TRY(check_indices("dequantize", &j.index, j.w.rows, call->attrs->part));
    }
    cpu_parallel(dev, columns ? gm_tensor_numel(y) / columns : 0, 6 * columns, few_dequantize_part, &j);
    return GM_OK;
}

static gm_status cpu_dequantize(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, -1, 0, few_dequantize);
}

#include "few_bits_product.c"
