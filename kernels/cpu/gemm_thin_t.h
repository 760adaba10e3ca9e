/* gemm_thin_t.h - the loops of gemm_thin.c for one kind of weights. THIN(name): its functions; THIN_W: what its rows
 * are made of; THIN_LINE: as many of them have 64 bytes; THIN_LOAD(w, k), THIN_LOAD_N(w, k, n): elements k .. k + LANES
 * of a row as floats, or only n of them; THIN_TWO(w, k, b): 2 LANES of them, in the order of thin_turned.
 * x is floats, unless THIN_X is defined: the type of its numbers. Then THIN_X_OF(g) is where they are, THIN_WIDE is how
 * many of them, and of w, a vector has, THIN_LOAD_X(x) and THIN_LOAD_X_N(x, n) are vectors of them, and
 * THIN_ADD(sum, x, w) is the sum with the products of two vectors. THIN_AT_ONCE(rows): rows of w at a time, 4 or 2, if
 * these are all rows of x; THIN_COLUMNS(rows) by default. THIN_NEAR: if they are not all, arithmetic is the limit, and
 * weights come into the first-level cache, each row by itself. */
#ifndef THIN_X
#define THIN_X              float
#define THIN_X_OF(g)        (g)->x
#define THIN_WIDE           CPU_LANES_F32
#define THIN_LOAD_X(x)      load_f32(x)
#define THIN_LOAD_X_N(x, n) load_n_f32(x, n)
#define THIN_ADD(sum, x, w) add_product_f32(sum, x, w)
#endif
#ifndef THIN_NEAR
#define THIN_NEAR 0
#endif
#ifndef THIN_AT_ONCE
#define THIN_AT_ONCE(rows) THIN_COLUMNS(rows)
#endif

/* sums[c][i] += x_i w_c over k elements from `first`: `columns` rows of w, `rows` rows of x. next: as many bytes are
 * fetched into the second-level cache meanwhile, in the order of addresses. near: four rows of w further on instead. */
#define THIN_STEP(load_w, load_x)                                                       \
    do {                                                                                \
        vf32 b[4];                                                                      \
        for (int c = 0; c < columns; c++) b[c] = load_w;                                \
        for (int i = 0; i < rows; i++) {                                                \
            vf32 a = load_x;                                                            \
            for (int c = 0; c < columns; c++) sum[c][i] = THIN_ADD(sum[c][i], a, b[c]); \
        }                                                                               \
    } while (0)

CPU_INLINE void THIN(block)(int columns, int rows, bool near, int64_t first, int64_t k, const THIN_X *x, int64_t x_row,
                            const THIN_W *const *w, const char *next, vf32 (*sums)[THIN_ROWS])
{
    vf32    sum[4][THIN_GROUP];
    int64_t p = first, end = first + k;
    for (int c = 0; c < columns; c++)
        for (int i = 0; i < rows; i++) sum[c][i] = sums[c][i];
    for (; p + THIN_LINE <= end; p += THIN_LINE) {
        for (int c = 0; c < columns; c++, next += 64) {
            if (near) __builtin_prefetch(w[c] + p + 4 * (w[1] - w[0]));
            else __builtin_prefetch(next, 0, 2);
        }
        for (int64_t q = p; q < p + THIN_LINE; q += THIN_WIDE)
            THIN_STEP(THIN_LOAD(w[c], q), THIN_LOAD_X(x + i * x_row + q));
    }
    for (; p + THIN_WIDE <= end; p += THIN_WIDE) THIN_STEP(THIN_LOAD(w[c], p), THIN_LOAD_X(x + i * x_row + p));
    if (p < end) THIN_STEP(THIN_LOAD_N(w[c], p, end - p), THIN_LOAD_X_N(x + i * x_row + p, end - p));
    for (int c = 0; c < columns; c++)
        for (int i = 0; i < rows; i++) sums[c][i] = sum[c][i];
}

/* The same for four rows of w, some of them at a time. many: others of x meet them, too. */
#define THIN_RUN(n, some, near)                   \
    for (int c = 0; c < 4; c += some) THIN(block) \
    (some, n, near, first, k, x, x_row, w + c, next + c * k * (int64_t)sizeof(THIN_W), (vf32(*)[THIN_ROWS])(sums + c))
#define THIN_CASE(n)                                               \
    case n:                                                        \
        if (many && THIN_NEAR) THIN_RUN(n, THIN_COLUMNS(n), true); \
        else THIN_RUN(n, THIN_AT_ONCE(n), false);                  \
        break;

static void THIN(group)(int64_t rows, bool many, int64_t first, int64_t k, const THIN_X *x, int64_t x_row,
                        const THIN_W *const *w, const char *next, vf32 (*sums)[THIN_ROWS])
{
    switch (rows) {
        THIN_CASE(1)
        THIN_CASE(2)
        THIN_CASE(3)
        THIN_CASE(4)
        THIN_CASE(5)
        THIN_CASE(6)
    }
}

/* The sums of the only row of x with a row of w, by lanes. x: as thin_turned gives it. */
CPU_INLINE vf32 THIN(dot)(int64_t k, const THIN_X *x, const THIN_W *w)
{
    vf32    sum[4] = {{0}, {0}, {0}, {0}}, b[4];
    int64_t p = 0;
    for (; p + 4 * THIN_WIDE <= k; p += 4 * THIN_WIDE) {
        THIN_TWO(w, p, b);
        THIN_TWO(w, p + 2 * THIN_WIDE, b + 2);
        for (int i = 0; i < 4; i++) sum[i] = THIN_ADD(sum[i], THIN_LOAD_X(x + p + i * THIN_WIDE), b[i]);
    }
    for (; p + THIN_WIDE <= k; p += THIN_WIDE) sum[0] = THIN_ADD(sum[0], THIN_LOAD_X(x + p), THIN_LOAD(w, p));
    if (p < k) sum[0] = THIN_ADD(sum[0], THIN_LOAD_X_N(x + p, k - p), THIN_LOAD_N(w, p, k - p));
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Four columns of the result of one row of x. The rows of w are read one after the other, as they lie in memory. */
static void THIN(alone)(const gemm_thin *g, int64_t column, int count)
{
    vf32  four[4] = {{0}, {0}, {0}, {0}};
    float all[4];
    for (int c = 0; c < count; c++)
        four[c] = THIN(dot)(g->k, THIN_X_OF(g), (const THIN_W *)g->w + (column + c) * g->w_row);
    thin_sums(four, all);
    thin_finish(g, 0, column, count, all);
}

/* Four columns of the result, of all rows of x; at the end of w only `count` of them. */
static void THIN(columns)(const gemm_thin *g, int64_t column, int count)
{
    const THIN_W *w[4];
    vf32          sums[4][THIN_ROWS];
    const char   *next = (const char *)((const THIN_W *)g->w + (column + 4) * g->w_row);
    const int64_t groups = (g->m + THIN_GROUP - 1) / THIN_GROUP;
    const int64_t group = (g->m + groups - 1) / groups;
    memset(sums, 0, sizeof sums);
    for (int c = 0; c < 4; c++) w[c] = (const THIN_W *)g->w + (column + (c < count ? c : 0)) * g->w_row;
    for (int64_t p = 0; p < g->k; p += THIN_DEPTH) {
        int64_t depth = g->k - p < THIN_DEPTH ? g->k - p : THIN_DEPTH;
        for (int64_t i = 0; i < g->m; i += group) {
            int64_t rows = g->m - i < group ? g->m - i : group;
            THIN(group)
            (rows, groups > 1, p, depth, THIN_X_OF(g) + i * g->k, g->k, w, next, (vf32(*)[THIN_ROWS]) & sums[0][i]);
        }
        next += 4 * depth * (int64_t)sizeof(THIN_W);
    }
    for (int64_t i = 0; i < g->m; i++) {
        const vf32 four[4] = {sums[0][i], sums[1][i], sums[2][i], sums[3][i]};
        float      all[4];
        thin_sums(four, all);
        thin_finish(g, i, column, count, all);
    }
}

static void THIN(part)(void *context, int64_t begin, int64_t end, int thread)
{
    const gemm_thin *g = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t column = 4 * u, left = g->n - column;
        if (g->m == 1) THIN(alone)(g, column, left < 4 ? (int)left : 4);
        else THIN(columns)(g, column, left < 4 ? (int)left : 4);
    }
}
#undef THIN_STEP
#undef THIN_CASE
#undef THIN_RUN
#undef THIN
#undef THIN_W
#undef THIN_LINE
#undef THIN_LOAD
#undef THIN_LOAD_N
#undef THIN_TWO
#undef THIN_X
#undef THIN_X_OF
#undef THIN_WIDE
#undef THIN_LOAD_X
#undef THIN_LOAD_X_N
#undef THIN_ADD
#undef THIN_AT_ONCE
#undef THIN_NEAR
