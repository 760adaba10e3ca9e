/* gemm_amx.c - products of bf16 in tiles of AMX, which multiply 16 rows by 16 columns over 32 numbers in one
 * instruction: what is packed for it, its innermost loops (gemm_amx_t.h), and what becomes of the sums. The plan around
 * them is gemm_amx_run.c.
 *
 * A unit is AMX_SIDE rows of a or as many columns of b, and a step is AMX_NUMBERS numbers along k. Packed, a step of a
 * unit has 2 KB. Of rows these are two tiles: rows 0 to 15, then rows 16 to 31, 32 numbers in each row of 64 bytes. Of
 * columns they have the layout of panels of pairs (gemm_pairs.c): 16 rows of 128 bytes, each a pair of all columns, so
 * that two tiles lie beside each other. What is missing along k is zero, and so are missing rows and columns of a tile;
 * a tile that is missing as a whole is neither packed nor multiplied. All tiles are whole, so that one configuration
 * serves all.
 *
 * A block is the sums of a unit of rows and a unit of columns, 32 x 32 numbers in f32. It stays in memory while k is
 * summed over AMX_DEPTH numbers at a time, and is rounded once, when all is added and the function has been applied.
 *
 * Numbers and sums below 2^-126 count as zeros, as in gemm_pairs.c. Sums of the first and of the second numbers of
 * pairs are apart within 16 pairs, so bits differ from those of other tables. They depend on the length of k alone, not
 * on rows, columns or threads. Part of gemm.c. */
#if GEMM_PAIRS
#include "amx_tiles.h"

#define AMX_SIDE    32                                  /* rows, or columns, of a unit */
#define AMX_NUMBERS 32                                  /* along k, of a step */
#define AMX_STEP    (AMX_SIDE * AMX_NUMBERS / 2)        /* floats that a step of a unit has room in */
#define AMX_BLOCK   (AMX_SIDE * AMX_SIDE)               /* sums of a block */
#define AMX_ROW     (AMX_SIDE * (int64_t)sizeof(float)) /* bytes from row to row of a block, and of columns packed */
#define AMX_STREAM  (1 << 20)                           /* bytes of results that are written past the caches */
#define AMX_TILE    (AMX_STEP / 2 * (int64_t)sizeof(float)) /* bytes of a tile */

CPU_INLINE int64_t amx_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

/* What will be read soon: `rows` rows of `lines` lines of 64 bytes, `stride` bytes apart. Steps of blocks ask for
 * `each` lines of it. */
typedef struct amx_soon {
    const char *at;
    int64_t     rows, stride, lines, each;
    int64_t     line; /* of the row at hand that were asked for */
} amx_soon;

/* The instructions, or plain C in their place. */
struct amx_kind {
    void (*begin)(void), (*end)(void); /* around the use of tiles, on the thread that uses them */
    /* Adds `steps` steps of a unit of rows at a and one of columns at b to a block of sums, or, `fresh`, makes it their
     * sum. [1 or 2 tiles of rows - 1][of columns - 1]; other tiles of the block are left as they are. */
    void (*block[2][2])(const float *a, const float *b, int64_t steps, float *sums, bool fresh, amx_soon *soon);
    /* The sum of row i of a unit of rows at a, of one tile or two, over `steps` steps: sums[16 i]. */
    void (*row_sums)(const float *a, int64_t steps, float *sums, bool two);
};

/* Asks for the next lines. */
CPU_INLINE void amx_ask(amx_soon *s)
{
    for (int64_t n = s->each; n > 0 && s->rows > 0; n--) {
        __builtin_prefetch(s->at + 64 * s->line, 0, 2);
        if (++s->line < s->lines) continue;
        s->line = 0;
        s->at += s->stride;
        s->rows--;
    }
}

#define AMX(name) amx_real_##name
#define AMX_IN    AMX_TARGET
#include "gemm_amx_t.h"
#define AMX(name) amx_plain_##name
#define AMX_IN
#include "gemm_amx_t.h"

/* ---- packing ---- */

/* One tile of rows: `rows` rows from src on, at most 16, and `numbers` numbers of each, at most 32. */
static void amx_pack_tile(float *dst, const pairs_word *src, int64_t side, int64_t along, int64_t rows, int64_t numbers)
{
    vf32 v[16];
    if (along == 1) {
        for (int i = 0; i < 16; i++) v[i] = i < rows ? pairs_load(src + i * side, numbers) : (vf32){0};
    } else if (side == 1 || rows == 1) {
        for (int p = 0; p < 16; p++) {
            const pairs_word *x = src + 2 * p * along;
            v[p] = 2 * p < numbers ? pairs_join(x, 2 * p + 1 < numbers ? x + along : NULL, rows) : (vf32){0};
        }
        transpose_f32(v);
    } else {
        bits4 *to = (bits4 *)dst;
        memset(dst, 0, (size_t)AMX_TILE);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t p = 0; p < numbers; p++)
                to[16 * i + p / 2] |= (uint32_t)src[i * side + p * along] << (p % 2 * 16);
        return;
    }
    for (int i = 0; i < 16; i++) store_f32(dst + 16 * i, v[i]);
}

/* A step of a whole unit of rows that are neighbours, each of their numbers `along` behind the one before. */
static void amx_turn_step(float *dst, const pairs_word *src, int64_t along)
{
    float pairs[2][16 * 16] __attribute__((aligned(64))); /* of rows 0 to 3, 8 to 11, ..., and of the others */
    for (int p = 0; p < 16; p++, src += 2 * along) {
        const __m512i x = _mm512_loadu_si512(src), y = _mm512_loadu_si512(src + along);
        store_f32(pairs[0] + 16 * p, (vf32)_mm512_unpacklo_epi16(x, y));
        store_f32(pairs[1] + 16 * p, (vf32)_mm512_unpackhi_epi16(x, y));
    }
    for (int i = 0; i < 2; i++) pairs_turn(dst + i * 4 * 16, 16, 8 * 16, pairs[i], 64);
}

/* Whole steps of `count` rows whose numbers are neighbours. Row by row, because the processor fetches ahead in lines
 * that follow each other. Rows of a tile that are missing are zeros. */
static void amx_copy_steps(float *dst, const pairs_word *src, int64_t side, int64_t count, int64_t steps)
{
    for (int64_t i = 0; i < amx_up(count, 16) * 16; i++)
        for (int64_t s = 0; s < steps; s++) {
            const pairs_word *row = src + i * side + s * AMX_NUMBERS;
            store_f32(dst + s * AMX_STEP + i * 16, i < count ? (vf32)_mm512_loadu_si512(row) : (vf32){0});
        }
}

/* A unit of rows: `count` of them, `numbers` numbers of each. */
static void amx_pack_rows(float *dst, const pairs_word *src, int64_t side, int64_t along, int64_t count,
                          int64_t numbers)
{
    int64_t p = 0;
    for (; side == 1 && count == AMX_SIDE && p + AMX_NUMBERS <= numbers; p += AMX_NUMBERS, dst += AMX_STEP)
        amx_turn_step(dst, src + p * along, along);
    if (along == 1) {
        const int64_t steps = numbers / AMX_NUMBERS;
        amx_copy_steps(dst, src, side, count, steps);
        p = steps * AMX_NUMBERS;
        dst += steps * AMX_STEP;
    }
    for (; p < numbers; p += AMX_NUMBERS, dst += AMX_STEP)
        for (int64_t i = 0; i < count; i += 16)
            amx_pack_tile(dst + 16 * i, src + i * side + p * along, side, along, count - i < 16 ? count - i : 16,
                          numbers - p < AMX_NUMBERS ? numbers - p : AMX_NUMBERS);
}

/* A unit of columns: columns j .. j + count, `numbers` numbers of each from p on, which is even. */
static void amx_pack_columns(const gemm *g, float *dst, int64_t j, int64_t count, int64_t p, int64_t numbers)
{
    const int64_t     pairs = (numbers + 1) / 2, more = -pairs & (AMX_NUMBERS / 2 - 1);
    const pairs_word *b = (const pairs_word *)g->b + j * g->b_column + p * g->b_k;
    if (g->panel) g->panel(g, dst, j, count, p / 2, pairs);
    else pairs_pack(dst, AMX_SIDE, b, g->b_column, g->b_k, count, numbers);
    memset(dst + pairs * AMX_SIDE, 0, (size_t)(more * AMX_ROW));
}

/* ---- what becomes of sums ---- */

/* Two vectors of sums as 32 bf16. */
CPU_INLINE __m512i amx_rounded(const float *sums)
{
    const vf32 low = load_f32(sums), high = load_f32(sums + LANES);
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Rows of n <= AMX_SIDE numbers of a block, rounded to bf16. stream: past the caches, where rows are whole lines. */
static void amx_put_narrow(pairs_word *to, int64_t to_row, const float *block, int64_t rows, int64_t n, bool stream)
{
    if (n < AMX_SIDE) {
        for (int64_t i = 0; i < rows; i++) {
            const __m512i all = amx_rounded(block + i * AMX_SIDE);
            memcpy(to + i * to_row, &all, (size_t)n * sizeof *to);
        }
    } else if (stream && (uintptr_t)to % 64 == 0 && to_row % AMX_SIDE == 0) {
        for (int64_t i = 0; i < rows; i++)
            _mm512_stream_si512((__m512i *)(to + i * to_row), amx_rounded(block + i * AMX_SIDE));
    } else {
        for (int64_t i = 0; i < rows; i++) _mm512_storeu_si512(to + i * to_row, amx_rounded(block + i * AMX_SIDE));
    }
}

/* Rows of n <= AMX_SIDE numbers between a block and a matrix of f32, or, g->narrow, of bf16. */
static void amx_put(const gemm *g, void *to, int64_t to_row, const float *block, int64_t rows, int64_t n)
{
    if (g->narrow) {
        amx_put_narrow(to, to_row, block, rows, n, g->m * g->n >= AMX_STREAM / 2);
        return;
    }
    for (int64_t i = 0; i < rows; i++, block += AMX_SIDE) {
        float *row = (float *)to + i * to_row;
        put_f32(row, 0, n, load_f32(block));
        if (n > LANES) put_f32(row, LANES, n - LANES, load_f32(block + LANES));
    }
}

static void amx_get(const gemm *g, const void *from, int64_t from_row, float *block, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++, block += AMX_SIDE) {
        if (g->narrow) cast_bf16_f32(n, (const pairs_word *)from + i * from_row, block);
        else memcpy(block, (const float *)from + i * from_row, (size_t)n * sizeof *block);
    }
}

static void *amx_at(const gemm *g, const void *matrix, int64_t element)
{
    return (char *)(uintptr_t)matrix + element * (g->narrow ? 2 : (int64_t)sizeof(float));
}

/* sums = alpha sums + biases + what c has. */
static void amx_add(const gemm *g, float *sums, int64_t i, int64_t rows, int64_t j, int64_t n, const void *c)
{
    float        has[AMX_BLOCK] __attribute__((aligned(64)));
    const float *bias = g->bias ? (const float *)g->bias + j : NULL;
    if (g->accumulate) amx_get(g, c, g->c_row, has, rows, n);
    for (int64_t r = 0; r < rows; r++, sums += AMX_SIDE) {
        const vf32 each = splat_f32(g->row_bias ? ((const float *)g->row_bias)[i + r] : 0);
        for (int64_t at = 0; at < n; at += LANES) {
            vf32 v = load_f32(sums + at) * (float)g->alpha;
            if (g->accumulate) v += load_f32(has + r * AMX_SIDE + at);
            else if (bias) v += at_f32(bias, at, n - at);
            store_f32(sums + at, g->row_bias ? v + each : v);
        }
    }
}

/* A block of sums is complete: rows i .. i + rows of columns j .. j + n, which lie in one image if columns are images.
 * As gemm_finish. Changes the sums. */
static void amx_finish(const gemm *g, float *sums, int64_t i, int64_t rows, int64_t j, int64_t n)
{
    float         near[AMX_BLOCK] __attribute__((aligned(64)));
    const int64_t first = g->image ? j / g->image * g->c_image + j % g->image : j;
    void         *c = amx_at(g, g->c, i * g->c_row + first), *y = amx_at(g, g->y, i * g->y_row + first);
    if (g->alpha != 1 || g->bias || g->row_bias || g->accumulate) amx_add(g, sums, i, rows, j, n, c);
    if (!g->finish || (!g->pre && c != y)) amx_put(g, c, g->c_row, sums, rows, n);
    if (!g->finish) return;
    if (g->pre) {
        amx_get(g, amx_at(g, g->pre, i * g->pre_row + j), g->pre_row, near, rows, n);
        activation_grad_rows_f32(g->f, rows, n, near, AMX_SIDE, sums, AMX_SIDE, sums, AMX_SIDE);
    } else {
        activation_rows_f32(g->f, rows, n, sums, AMX_SIDE, sums, AMX_SIDE);
    }
    amx_put(g, y, g->y_row, sums, rows, n);
}

/* The same of a block whose rows are columns: element (i, j) is at sums[j * AMX_SIDE + i]. */
static void amx_finish_turned(const gemm *g, const float *sums, int64_t i, int64_t rows, int64_t j, int64_t n)
{
    float block[AMX_BLOCK] __attribute__((aligned(64)));
    for (int64_t r = 0; r < rows; r += 16)
        for (int64_t c = 0; c < n; c += 16)
            pairs_turn(block + r * AMX_SIDE + c, AMX_SIDE, 4 * AMX_SIDE, sums + c * AMX_SIDE + r, AMX_ROW);
    amx_finish(g, block, i, rows, j, n);
}

/* The same where columns j .. j + columns may lie in several images. */
static void amx_finish_images(const gemm *g, float *sums, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    for (int64_t at = 0, n; at < columns; at += n) {
        const int64_t left = g->image ? g->image - (j + at) % g->image : columns;
        float         part[AMX_BLOCK] __attribute__((aligned(64)));
        n = left < columns - at ? left : columns - at;
        if (n == columns) {
            amx_finish(g, sums, i, rows, j, n);
            continue;
        }
        for (int64_t r = 0; r < rows; r++)
            memcpy(part + r * AMX_SIDE, sums + r * AMX_SIDE + at, (size_t)n * sizeof *part);
        amx_finish(g, part, i, rows, j + at, n);
    }
}
#endif
