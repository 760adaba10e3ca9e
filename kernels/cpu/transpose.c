/* transpose.c - copies of 4 or 8 byte elements whose output is contiguous along one dimension and whose input is
 * contiguous along another.
 *
 * Elements change places in registers, 4 x 4, 2 x 2, 8 x 8 with AVX2, or 16 x 16 where vectors have 64 bytes. An output
 * that no cache holds is written in whole cache lines, past the caches, if its rows begin at cache lines; else tiles of
 * TILE_ROWS x TILE_COLS go through the caches. */

typedef float   quad32 __attribute__((vector_size(16), aligned(1), may_alias)); /* of what may be wider elements */
typedef double  pair64 __attribute__((vector_size(16), aligned(1), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));
typedef int64_t pair_index __attribute__((vector_size(16)));

/* y[r][c] = x[c][r] for 4 x 4 floats; xs and ys: elements between rows */
CPU_INLINE void transpose4(float *y, int64_t ys, const float *x, int64_t xs)
{
    quad32     a = *(const quad32 *)x, b = *(const quad32 *)(x + xs);
    quad32     c = *(const quad32 *)(x + 2 * xs), d = *(const quad32 *)(x + 3 * xs);
    quad_index low = {0, 4, 1, 5}, high = {2, 6, 3, 7};
    quad32     ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
    quad32     AB = __builtin_shuffle(a, b, high), CD = __builtin_shuffle(c, d, high);
    *(quad32 *)y = __builtin_shuffle(ab, cd, (quad_index){0, 1, 4, 5});
    *(quad32 *)(y + ys) = __builtin_shuffle(ab, cd, (quad_index){2, 3, 6, 7});
    *(quad32 *)(y + 2 * ys) = __builtin_shuffle(AB, CD, (quad_index){0, 1, 4, 5});
    *(quad32 *)(y + 3 * ys) = __builtin_shuffle(AB, CD, (quad_index){2, 3, 6, 7});
}

CPU_INLINE void transpose2(double *y, int64_t ys, const double *x, int64_t xs)
{
    pair64 a = *(const pair64 *)x, b = *(const pair64 *)(x + xs);
    *(pair64 *)y = __builtin_shuffle(a, b, (pair_index){0, 2});
    *(pair64 *)(y + ys) = __builtin_shuffle(a, b, (pair_index){1, 3});
}

#define TILE_ROWS 16 /* of y: one cache line of x */
#define TILE_COLS 64

/* rows x columns of y from columns x rows of x, both with contiguous inner elements of `size` bytes. */
static void transpose_tile(int64_t size, int64_t rows, int64_t cols, char *y, int64_t ys, const char *x, int64_t xs)
{
    int64_t step = size == 4 ? 4 : 2, r = 0;
    for (; r + step <= rows; r += step) {
        int64_t c = 0;
        if (size == 4)
            for (; c + 4 <= cols; c += 4) transpose4((float *)y + r * ys + c, ys, (const float *)x + c * xs + r, xs);
        else
            for (; c + 2 <= cols; c += 2) transpose2((double *)y + r * ys + c, ys, (const double *)x + c * xs + r, xs);
        for (int64_t k = 0; k < step; k++)
            copy_strided(size, cols - c, y + ((r + k) * ys + c) * size, 1, x + (c * xs + r + k) * size, xs);
    }
    for (; r < rows; r++) copy_strided(size, cols, y + r * ys * size, 1, x + r * size, xs);
}

#if CPU_VECTOR == 64
typedef float   line32 __attribute__((vector_size(64)));
typedef line32  any_line32 __attribute__((aligned(1), may_alias));
typedef double  line64 __attribute__((vector_size(64)));
typedef int32_t line_index __attribute__((vector_size(64)));
typedef int64_t wide_index __attribute__((vector_size(64)));

/* a and b, c and d: first their elements in turns, then pairs of these, within each 128 bits: r[k] gets column k of
 * each 4 x 4. */
CPU_INLINE void transpose_quads(line32 *r)
{
    line_index low = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}, high = low + 2;
    wide_index first = {0, 8, 2, 10, 4, 12, 6, 14}, second = first + 1;
    line64     ab = (line64)__builtin_shuffle(r[0], r[1], low), cd = (line64)__builtin_shuffle(r[2], r[3], low);
    line64     AB = (line64)__builtin_shuffle(r[0], r[1], high), CD = (line64)__builtin_shuffle(r[2], r[3], high);
    r[0] = (line32)__builtin_shuffle(ab, cd, first);
    r[1] = (line32)__builtin_shuffle(ab, cd, second);
    r[2] = (line32)__builtin_shuffle(AB, CD, first);
    r[3] = (line32)__builtin_shuffle(AB, CD, second);
}

static void transpose_line32(float *room, const float *x, int64_t xs)
{
    line32     r[16];
    wide_index front = {0, 1, 2, 3, 8, 9, 10, 11}, back = front + 4;
    wide_index even = {0, 1, 4, 5, 8, 9, 12, 13}, odd = even + 2;
#pragma GCC unroll 16
    for (int k = 0; k < 16; k++) r[k] = *(const any_line32 *)(x + k * xs);
#pragma GCC unroll 4
    for (int k = 0; k < 16; k += 4) transpose_quads(r + k);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { /* the four 4 x 4 of r[k], r[4 + k], r[8 + k], r[12 + k] change places */
        line64  a = (line64)r[k], b = (line64)r[4 + k], c = (line64)r[8 + k], d = (line64)r[12 + k];
        line64  f = __builtin_shuffle(a, b, front), F = __builtin_shuffle(c, d, front);
        line64  g = __builtin_shuffle(a, b, back), G = __builtin_shuffle(c, d, back);
        line64 *to = (line64 *)(room + 16 * k);
        to[0] = __builtin_shuffle(f, F, even);
        to[4] = __builtin_shuffle(f, F, odd);
        to[8] = __builtin_shuffle(g, G, even);
        to[12] = __builtin_shuffle(g, G, odd);
    }
}
#endif

#if CPU_VECTOR == 32
/* Elements of y that one row gets at a time: 4 lines. On a Zen 3, single lines far apart are written at a third of
 * memory's rate, and 4 neighbours at the whole. */
#define RUN_BYTES 256
#define RUN_PITCH (RUN_BYTES + 64) /* of the rows of a buffer, so that 8 of them have different places in a cache */
#define RUN_ROWS  256 /* of y in the buffer: so many elements of 8 rows of x are read one after the other */

/* y[r][c] = x[c][r] for 8 x 8 floats or 4 x 4 doubles; y is aligned, its pitch RUN_PITCH; xs: bytes between rows. */
CPU_INLINE void transpose8_32(char *y, const char *x, int64_t xs)
{
    __m256 r[8], t[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { /* rows k and k + 4 are halves of a vector: columns 0 to 3, then 4 to 7 */
        const float *a = (const float *)(x + k * xs), *b = (const float *)(x + (k + 4) * xs);
        r[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1);
        r[k + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a + 4)), _mm_loadu_ps(b + 4), 1);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) {
        char *to = y + h * RUN_PITCH;
        t[0] = _mm256_unpacklo_ps(r[h], r[h + 1]), t[1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        t[2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]), t[3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        *(vf64 *)to = (vf64)_mm256_unpacklo_pd((__m256d)t[0], (__m256d)t[2]);
        *(vf64 *)(to + RUN_PITCH) = (vf64)_mm256_unpackhi_pd((__m256d)t[0], (__m256d)t[2]);
        *(vf64 *)(to + 2 * RUN_PITCH) = (vf64)_mm256_unpacklo_pd((__m256d)t[1], (__m256d)t[3]);
        *(vf64 *)(to + 3 * RUN_PITCH) = (vf64)_mm256_unpackhi_pd((__m256d)t[1], (__m256d)t[3]);
    }
}

CPU_INLINE void transpose4_64(char *y, const char *x, int64_t xs)
{
    __m256d r[4];
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        const double *a = (const double *)(x + k * xs), *b = (const double *)(x + (k + 2) * xs);
        r[k] = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(a)), _mm_loadu_pd(b), 1);
        r[k + 2] = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(a + 2)), _mm_loadu_pd(b + 2), 1);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 4; h += 2) {
        *(vf64 *)(y + h * RUN_PITCH) = (vf64)_mm256_unpacklo_pd(r[h], r[h + 1]);
        *(vf64 *)(y + (h + 1) * RUN_PITCH) = (vf64)_mm256_unpackhi_pd(r[h], r[h + 1]);
    }
}

/* `rows` rows of y, whole squares, RUN_BYTES of each, into room. Along the rows of x lines ahead are asked for. */
static void transpose_runs(int64_t size, int64_t rows, char *room, const char *x, int64_t xs)
{
    int64_t square = CPU_VECTOR / size;
    for (int64_t c = 0; c < RUN_BYTES / size; c += square)
        for (int64_t r = 0; r < rows; r += square) {
            const char *from = x + c * xs + r * size;
            char       *to = room + r * RUN_PITCH + c * size;
            for (int64_t k = 0; r % (2 * square) == 0 && k < square; k++) __builtin_prefetch(from + k * xs + 256);
            if (size == 4) transpose8_32(to, from, xs);
            else transpose4_64(to, from, xs);
        }
}
#endif

typedef struct transpose_job {
    cpu_walk w; /* without the two dimensions that are swapped */
    int64_t  rows, cols, strip, strips, ys, xs;
    bool     stream; /* whole lines of y go past the caches; a strip is as wide as a line, with AVX2 as 4 of them */
} transpose_job;

#if CPU_VECTOR == 32
#define STREAM_BYTES RUN_BYTES
/* The strip of RUN_BYTES of columns of y that starts at c. x is read along its contiguous dimension, and y written in
 * runs of whole lines. */
static void transpose_lines(const transpose_job *j, char *y, const char *x, int64_t c)
{
    char    room[RUN_ROWS * RUN_PITCH] __attribute__((aligned(64)));
    int64_t size = j->w.size[0], n = RUN_BYTES / size, square = CPU_VECTOR / size;
    int64_t cols = j->cols - c < n ? j->cols - c : n, whole = cols < n ? 0 : j->rows / square * square;
    y += c * size;
    x += c * j->xs * size;
    for (int64_t r = 0; r < whole; r += RUN_ROWS) {
        int64_t rows = whole - r < RUN_ROWS ? whole - r : RUN_ROWS;
        transpose_runs(size, rows, room, x + r * size, j->xs * size);
        for (int64_t k = 0; k < rows; k++) gm_stream_out(y + (r + k) * j->ys * size, room + k * RUN_PITCH, RUN_BYTES);
    }
    transpose_tile(size, j->rows - whole, cols, y + whole * j->ys * size, j->ys, x + whole * size, j->xs);
}
#else
#define STREAM_BYTES 64
/* As many rows and columns of y as a line has elements, into room. x as in transpose_tile. */
static void transpose_line(int64_t size, char *room, const char *x, int64_t xs)
{
    int64_t n = 64 / size;
#if CPU_VECTOR == 64
    if (size == 4) {
        transpose_line32((float *)room, (const float *)x, xs);
        return;
    }
#endif
    transpose_tile(size, n, n, room, n, x, xs);
}

/* The strip of a line's columns of y that starts at c: x is read along its contiguous dimension, in as many streams
 * as a line has elements, and each line of y is written once. */
static void transpose_lines(const transpose_job *j, char *y, const char *x, int64_t c)
{
    char    room[64 * 16] __attribute__((aligned(64)));
    int64_t size = j->w.size[0], n = 64 / size, whole = j->cols - c < n ? 0 : j->rows / n * n;
    int64_t cols = j->cols - c < n ? j->cols - c : n;
    y += c * size;
    x += c * j->xs * size;
    for (int64_t r = 0; r < whole; r += n) {
        transpose_line(size, room, x + r * size, j->xs);
        for (int64_t k = 0; k < n; k++) gm_stream_out(y + (r + k) * j->ys * size, room + k * 64, 64);
    }
    transpose_tile(size, j->rows - whole, cols, y + whole * j->ys * size, j->ys, x + whole * size, j->xs);
}

#endif

/* The strip of TILE_COLS columns of y that starts at c, over all its rows: x is read along its contiguous
 * dimension; the pieces of y lie far apart, where no hardware looks ahead, so the next are asked for here. */
static void transpose_strip(const transpose_job *j, char *y, const char *x, int64_t c)
{
    int64_t size = j->w.size[0], cols = j->cols - c < TILE_COLS ? j->cols - c : TILE_COLS;
    for (int64_t r = 0; r < j->rows; r += TILE_ROWS) {
        int64_t rows = j->rows - r < TILE_ROWS ? j->rows - r : TILE_ROWS;
        for (int64_t k = r + TILE_ROWS; k < r + 2 * TILE_ROWS && k < j->rows; k++)
            for (int64_t line = 0; line < cols * size; line += 64)
                __builtin_prefetch(y + (k * j->ys + c) * size + line, 1);
        transpose_tile(size, rows, cols, y + (r * j->ys + c) * size, j->ys, x + (c * j->xs + r) * size, j->xs);
    }
}

static void transpose_part(void *context, int64_t begin, int64_t end, int thread)
{
    const transpose_job *j = context;
    int64_t              at[GM_MAX_DIMS];
    char                *p[CPU_WALK];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        walk_seek(&j->w, i / j->strips, at, p);
        if (j->stream) transpose_lines(j, p[0], p[1], i % j->strips * j->strip);
        else transpose_strip(j, p[0], p[1], i % j->strips * j->strip);
    }
    gm_stream_end();
}

/* Does each row of the output begin at a cache line? */
static bool rows_at_lines(const cpu_walk *w)
{
    uint64_t bits = (uintptr_t)w->data[0];
    for (int d = 0; d < w->ndim - 1; d++) bits |= (uint64_t)(w->stride[0][d] * w->size[0]);
    return bits % 64 == 0;
}

/* Where y is contiguous along its last dimension and x along another one: true if done. */
static bool copy_transposed(gm_device *dev, const cpu_walk *w)
{
    int last = w->ndim - 1, e = 0;
    if ((w->size[0] != 4 && w->size[0] != 8) || w->stride[0][last] != 1 || w->stride[1][last] < 4) return false;
    while (e < last && !(w->stride[1][e] == 1 && w->shape[e] >= 4)) e++;
    if (e == last || w->shape[last] < 4) return false;
    transpose_job j = {.w = *w, .rows = w->shape[e], .cols = w->shape[last]};
    j.ys = w->stride[0][e];
    j.xs = w->stride[1][last];
    j.stream = cpu_streams(w->numel * w->size[0]) && rows_at_lines(w);
    j.strip = j.stream ? STREAM_BYTES / w->size[0] : TILE_COLS;
    j.strips = (j.cols + j.strip - 1) / j.strip;
    j.w.rows = w->rows / j.rows;
    walk_drop(&j.w, e); /* the last stays where walk_seek expects the row */
    cpu_parallel(dev, j.w.rows * j.strips, 4 * j.strip * j.rows * w->size[0], transpose_part, &j);
    return true;
}
