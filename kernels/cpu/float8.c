/* float8.c - floats of 8 bits with a scale for a whole tensor (../float8.h): scales, codes, and their product.
 *
 * No CPU multiplies such numbers. The product is one of f32 (or f64), whose operands become numbers as they are read:
 * a as a whole, panels of b as they are packed (gemm_block_t.h). So results are those of a GPU up to the order of sums,
 * and a run that trains in 8 bits can be tried and checked here; it is slower than one in f32. */
#include "../float8.h"

#define FLOAT8_TILE 64 /* rows and columns that are turned together */

typedef struct float8_job {
    const char *x; /* rows of k */
    int64_t     rows, k;
    gm_dtype    dtype; /* of x: f32 or f64 */
    int         format;
    double      inverse;
    uint8_t    *codes, *turned; /* NULL: not wanted */
    uint32_t   *largest;        /* of each thread: bits of magnitudes; NULL: not wanted */
} float8_job;

CPU_INLINE uint32_t float8_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

CPU_INLINE uint32_t float8_bits_f64(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return gm_float8_narrow(u);
}

/* ---- scales ---- */

static void float8_largest(void *context, int64_t begin, int64_t end, int thread)
{
    const float8_job *j = context;
    uint32_t          largest = j->largest[thread];
    if (j->dtype == GM_F32) {
        const bits4 *x = (const bits4 *)j->x;
        for (int64_t i = begin; i < end; i++) largest = (x[i] & 0x7fffffffu) > largest ? x[i] & 0x7fffffffu : largest;
    } else {
        const bits8 *x = (const bits8 *)j->x;
        for (int64_t i = begin; i < end; i++) {
            uint32_t size = gm_float8_narrow(x[i]) & 0x7fffffffu;
            if (size > largest) largest = size;
        }
    }
    j->largest[thread] = largest;
}

static float float8_number(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void float8_put(const gm_tensor *t, double v)
{
    if (t->dtype == GM_F32) *(float *)gm_tensor_data(t) = (float)v;
    else *(double *)gm_tensor_data(t) = v;
}

static double float8_get(const gm_tensor *t)
{
    return t->dtype == GM_F32 ? (double)*(const float *)gm_tensor_data(t) : *(const double *)gm_tensor_data(t);
}

/* Zeros in which threads leave the largest magnitudes that they have found. */
static gm_status float8_watch(gm_device *dev, float8_job *j, gm_block **block)
{
    size_t size = (size_t)gm_threads_count(dev->threads) * sizeof *j->largest;
    GM_TRY(cpu_scratch(dev, size, &j->largest, block));
    memset(j->largest, 0, size);
    return GM_OK;
}

/* The scale of the largest magnitude that a thread has found. */
static double float8_found(gm_device *dev, const float8_job *j)
{
    uint32_t most = 0;
    for (int t = 0; t < gm_threads_count(dev->threads); t++)
        if (j->largest[t] > most) most = j->largest[t];
    return (double)float8_number(gm_float8_scale(j->format, most));
}

static gm_status cpu_float8_scale(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = NULL;
    gm_block  *block;
    float8_job j = {.dtype = call->in[0]->dtype, .format = (int)call->attrs->format};
    GM_TRY(float8_watch(dev, &j, &block));
    gm_status st = cpu_plain(dev, j.dtype, call->in[0], true, &x);
    if (st == GM_OK) {
        j.x = gm_tensor_data(x);
        cpu_parallel(dev, gm_tensor_numel(x), (int64_t)gm_dtype_size(j.dtype), float8_largest, &j);
        float8_put(call->out[0], float8_found(dev, &j));
    }
    gm_tensor_release(x);
    gm_pool_release(dev->pool, block);
    return st;
}

/* ---- codes ---- */

/* An infinite number is none of those that become the largest: 0 times it is NaN then. */
static void float8_codes(const float8_job *j, int format, const char *from, int64_t n, uint8_t *to)
{
    const float   by = (float)j->inverse, *x = (const float *)from;
    const double *wide = (const double *)from;
    if (j->dtype == GM_F32)
        for (int64_t i = 0; i < n; i++) to[i] = gm_float8_code(format, float8_bits(x[i] * by + 0 * x[i]));
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = gm_float8_code(format, float8_bits_f64(wide[i] * j->inverse + 0 * wide[i]));
}

/* n codes of row r from column c on; the format is known where the loop is compiled. */
static void float8_piece(const float8_job *j, int64_t r, int64_t c, int64_t n, uint8_t *to)
{
    const char *x = j->x + (r * j->k + c) * (int64_t)gm_dtype_size(j->dtype);
    if (j->format == GM_FLOAT8_E4M3) float8_codes(j, GM_FLOAT8_E4M3, x, n, to);
    else float8_codes(j, GM_FLOAT8_E5M2, x, n, to);
}

/* Rows [begin, end) in tiles. */
static void float8_encode_part(void *context, int64_t begin, int64_t end, int thread)
{
    const float8_job *j = context;
    uint8_t           tile[FLOAT8_TILE][FLOAT8_TILE];
    begin *= FLOAT8_TILE;
    end = end * FLOAT8_TILE < j->rows ? end * FLOAT8_TILE : j->rows;
    for (int64_t r = begin; r < end; r += FLOAT8_TILE)
        for (int64_t c = 0; c < j->k; c += FLOAT8_TILE) {
            int64_t high = end - r < FLOAT8_TILE ? end - r : FLOAT8_TILE;
            int64_t wide = j->k - c < FLOAT8_TILE ? j->k - c : FLOAT8_TILE;
            for (int64_t i = 0; i < high; i++) {
                int64_t from = (r + i) * j->k + c;
                float8_piece(j, r + i, c, wide, tile[i]);
                if (j->largest) float8_largest(context, from, from + wide, thread);
                if (j->codes) memcpy(j->codes + from, tile[i], (size_t)wide);
            }
            for (int64_t d = 0; j->turned && d < wide; d++)
                for (int64_t i = 0; i < high; i++) j->turned[(c + d) * j->rows + r + i] = tile[i][d];
        }
}

static gm_status cpu_float8_encode(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = NULL, *codes = NULL, *turned = NULL, *needed = cpu_out(call, 2);
    gm_block  *block = NULL;
    gm_status  st;
    double     scale = float8_get(call->in[1]);
    float8_job j = {.dtype = call->in[0]->dtype,
                    .format = (int)call->attrs->format,
                    .inverse = scale > 0 ? 1 / scale : 0,
                    .k = call->in[0]->shape[call->in[0]->ndim - 1]};
    GM_TRY_OR(cpu_plain(dev, j.dtype, call->in[0], true, &x), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_U8, cpu_out(call, 0), false, &codes), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_U8, cpu_out(call, 1), false, &turned), st, done);
    if (needed) GM_TRY_OR(float8_watch(dev, &j, &block), st, done);
    if (!gm_tensor_numel(x)) goto found;
    j.x = gm_tensor_data(x);
    j.rows = gm_tensor_numel(x) / j.k;
    j.codes = codes ? gm_tensor_data(codes) : NULL;
    j.turned = turned ? gm_tensor_data(turned) : NULL;
    cpu_parallel(dev, (j.rows + FLOAT8_TILE - 1) / FLOAT8_TILE, 8 * FLOAT8_TILE * j.k, float8_encode_part, &j);
found:
    if (needed) {
        double found = float8_found(dev, &j), before = call->attrs->accumulate ? float8_get(needed) : 0;
        float8_put(needed, before > found ? before : found);
    }
done:
    gm_tensor_release(x);
    if (block) gm_pool_release(dev->pool, block);
    st = cpu_home(dev, codes, cpu_out(call, 0), st);
    return cpu_home(dev, turned, cpu_out(call, 1), st);
}

/* ---- products ---- */

/* The numbers of all codes, times a scale. */
typedef struct float8_table {
    double  number[256];
    float   narrow[256];
    int64_t step; /* bytes from row to row of codes */
} float8_table;

static float8_table float8_table_of(int format, double scale, int64_t step)
{
    float8_table t = {.step = step};
    for (int c = 0; c < 256; c++) {
        t.number[c] = (double)float8_number(gm_float8_value(format, (uint8_t)c)) * scale;
        t.narrow[c] = (float)t.number[c];
    }
    return t;
}

static void float8_widen_f32(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    const float8_table *t = g->form;
    const uint8_t      *codes = (const uint8_t *)g->b + j * t->step + p;
    for (int64_t i = 0; i < k; i++) ((float *)to)[i] = t->narrow[codes[i]];
}

static void float8_widen_f64(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    const float8_table *t = g->form;
    const uint8_t      *codes = (const uint8_t *)g->b + j * t->step + p;
    for (int64_t i = 0; i < k; i++) ((double *)to)[i] = t->number[codes[i]];
}

typedef struct float8_decode {
    const uint8_t      *codes;
    const float8_table *table;
    float              *narrow; /* NULL: to wide */
    double             *wide;
} float8_decode;

static void float8_decode_part(void *context, int64_t begin, int64_t end, int thread)
{
    const float8_decode *j = context;
    (void)thread;
    if (j->narrow)
        for (int64_t i = begin; i < end; i++) j->narrow[i] = j->table->narrow[j->codes[i]];
    else
        for (int64_t i = begin; i < end; i++) j->wide[i] = j->table->number[j->codes[i]];
}

/* *out: a new tensor of the numbers of a's codes. */
static gm_status float8_numbers(gm_device *dev, gm_tensor *a, const float8_table *t, gm_dtype dtype, gm_tensor **out)
{
    gm_tensor *codes;
    GM_TRY(cpu_plain(dev, GM_U8, a, true, &codes));
    gm_status st = gm_tensor_new(dev, dtype, a->ndim, a->shape, out);
    if (st == GM_OK) {
        void         *to = gm_tensor_data(*out);
        float8_decode j = {gm_tensor_data(codes), t, dtype == GM_F32 ? to : NULL, dtype == GM_F32 ? NULL : to};
        cpu_parallel(dev, gm_tensor_numel(a), 8, float8_decode_part, &j);
    }
    gm_tensor_release(codes);
    return st;
}

/* widen: makes numbers of b's codes, which form describes (gemm_block_t.h). a: numbers. */
static gm_status float8_gemm(gm_device *dev, const gm_call *call, gm_tensor *b, gm_tensor *a, gm_tensor *bias,
                             gm_tensor  *y, void (*widen)(const gemm *, int64_t, int64_t, int64_t, void *),
                             const void *form)
{
    gm_dtype dtype = y->dtype;
    gemm     g = {.m = b->shape[0] ? gm_tensor_numel(y) / b->shape[0] : 0,
                  .n = b->shape[0],
                  .k = b->shape[1],
                  .a = gm_tensor_data(a),
                  .a_row = b->shape[1],
                  .a_k = 1,
                  .b = gm_tensor_data(b),
                  .b_column = b->shape[1],
                  .b_bits = 8,
                  .widen = widen,
                  .form = form,
                  .c = gm_tensor_data(y),
                  .c_row = b->shape[0],
                  .alpha = 1,
                  .accumulate = call->attrs->accumulate,
                  .bias = bias ? gm_tensor_data(bias) : NULL};
    return g.m && g.n ? gemm_whole(dev, dtype, &g) : GM_OK;
}

static gm_status cpu_float8_product(gm_device *dev, const gm_call *call)
{
    gm_tensor   *a = NULL, *b = NULL, *bias = NULL, *y = NULL, *to = call->out[0];
    gm_status    st;
    float8_table t = float8_table_of((int)call->attrs->format, float8_get(call->in[2]), 0);
    GM_TRY_OR(cpu_plain(dev, GM_U8, call->in[1], true, &b), st, done);
    GM_TRY_OR(cpu_plain(dev, to->dtype, cpu_in(call, 4), true, &bias), st, done);
    GM_TRY_OR(cpu_plain(dev, to->dtype, to, call->attrs->accumulate, &y), st, done);
    GM_TRY_OR(float8_numbers(dev, call->in[0], &t, to->dtype, &a), st, done);
    float8_table of_b = float8_table_of(GM_FLOAT8_E4M3, float8_get(call->in[3]), b->shape[1]);
    st = float8_gemm(dev, call, b, a, bias, y, to->dtype == GM_F32 ? float8_widen_f32 : float8_widen_f64, &of_b);
done:
    gm_tensor_release(a);
    gm_tensor_release(b);
    gm_tensor_release(bias);
    return cpu_home(dev, y, to, st);
}
