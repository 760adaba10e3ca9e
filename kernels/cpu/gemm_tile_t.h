/* gemm_tile_t.h - the innermost loops of matrix multiplication for one element type (as.h): packing and
 * the register tile. The plan around them is gemm_block_t.h.
 *
 * A sliver is up to GEMM_ROWS rows of a, stored k-major without gaps: element (i, p) at [p * rows + i].
 * A panel is up to GEMM_COLUMNS columns of b, stored k-major: element (p, j) at [p * GEMM_COLUMNS + j],
 * missing columns zero. The tile multiplies one by the other with every accumulator in a register
 * (the scheme of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). */

#define GEMM_COLUMNS (2 * LANES)

/* One call of the register tile: c = alpha a b + init. */
typedef struct F(tile) {
    const T    *a, *b;
    int64_t     a_step, b_step; /* from one k to the next */
    int64_t     a_side;         /* from one row of a to the next; 1 in a sliver */
    int64_t     k;
    T          *c;
    int64_t     c_row, columns; /* columns <= GEMM_COLUMNS */
    const T    *init;           /* NULL: zero. c itself: accumulate. A bias: init_row = 0 */
    int64_t     init_row;
    T           alpha;
    bool        pairs; /* f32 of an instruction set that multiplies bf16: a and b hold pairs (gemm_pairs.c) */
    const char *fetch; /* what to bring into the second-level cache meanwhile, every GEMM_FETCH k .. */
    int64_t     fetch_step, fetch_lines; /* .. 1, 2 or 4 lines that follow each other; the step is in bytes */
    const T    *also; /* fetched like c, if tile_spreads: what comes after the tile reads or writes; NULL: none */
    int64_t     also_row;
} F(tile);

/* Does a tile fetch what it will write row by row, while it runs? The same for its result and for `also`. */
CPU_INLINE bool F(tile_spreads)(int64_t rows, int64_t k) { return GEMM_SPREAD && k >= GEMM_FETCH * rows; }

CPU_INLINE void F(tile_write)(const F(tile) * t, V acc[][2], const int rows, const int vectors)
{
    int64_t  rest = t->columns - (vectors - 1) * LANES;
    T       *c = t->c;
    const T *init = t->init;
    if (rest == LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++, c += t->c_row) {
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) {
                V v = acc[i][j] * t->alpha;
                if (init) v += F(load)(init + j * LANES);
                F(store)(c + j * LANES, v);
            }
            if (init) init += t->init_row;
        }
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++, c += t->c_row) {
            V v = acc[i][vectors - 1] * t->alpha;
            if (init) v += F(load_n)(init + (vectors - 1) * LANES, rest);
            F(store_n)(c + (vectors - 1) * LANES, rest, v);
            if (vectors > 1) {
                v = acc[i][0] * t->alpha;
                if (init) v += F(load)(init);
                F(store)(c, v);
            }
            if (init) init += t->init_row;
        }
    }
}

/* c + a[0] b, in every lane. */
CPU_INLINE V F(tile_add)(V c, const T *a, V b) { return F(add_product)(c, F(splat)(*a), b); }

typedef V (*F(tile_step))(V c, const T *a, V b);

/* One k. A row of a lies `side` after the one before, and every third one is known. So the address of a row is that of
 * a third one and a multiple of `side` that an instruction can have (0, 1, 2). */
CPU_INLINE void F(tile_one)(V acc[][2], const T *const *third, int64_t side, const T *b, const int rows,
                            const int vectors, const F(tile_step) add)
{
    V b0 = F(load)(b), b1 = vectors > 1 ? F(load)(b + LANES) : b0;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const T *at = third[i / 3] + i % 3 * side;
        acc[i][0] = add(acc[i][0], at, b0);
        if (vectors > 1) acc[i][1] = add(acc[i][1], at, b1);
    }
}

/* Brings the next row of c, and of what is read or written besides, unless *row is the end. */
CPU_INLINE void F(tile_spread)(const F(tile) * t, const T **row, const T *end, const T **also, const int vectors)
{
    if (*row == end) return;
    __builtin_prefetch(*row, 1, 2);
    __builtin_prefetch(*row + (vectors - 1) * LANES, 1, 2);
    *row += t->c_row;
    if (!*also) return;
    __builtin_prefetch(*also, 1, 2);
    __builtin_prefetch(*also + (vectors - 1) * LANES, 1, 2);
    *also += t->also_row;
}

/* Brings 1, 2 or 4 lines without a branch: where next or pair are 0, a line is asked for again. */
CPU_INLINE void F(tile_fetch)(const char *at, int64_t next, int64_t pair)
{
    __builtin_prefetch(at, 0, 2);
    if (GEMM_FETCH_LINES == 1) return;
    __builtin_prefetch(at + next, 0, 2);
    __builtin_prefetch(at + pair, 0, 2);
    __builtin_prefetch(at + next + pair, 0, 2);
}

/* add: F(tile_add), or what takes its place where a and b hold something else. What `kind` says of the steps is known
 * when this is compiled. Then GEMM_FETCH k at a time need hardly an instruction besides loads and products. */
CPU_INLINE void F(tile_body)(const F(tile) * t, const int rows, const int vectors, const int kind,
                             const F(tile_step) add)
{
    V             acc[GEMM_ROWS][2];
    const T      *b = t->b, *third[(GEMM_ROWS + 2) / 3];
    const char   *fetch = t->fetch;
    const int64_t side = kind == KIND_PACKED || kind == KIND_BESIDE ? 1 : t->a_side;
    const int64_t a_step = kind == KIND_PACKED ? rows : kind == KIND_ROWS ? 1 : t->a_step;
    const int64_t b_step = kind == KIND_PACKED ? GEMM_COLUMNS : t->b_step;
    int64_t       k = t->k, fetch_step = t->fetch_step;
    const int64_t next = t->fetch_lines > 1 ? 64 : 0, pair = t->fetch_lines > 2 ? 128 : 0; /* bytes */
    const bool    spread = F(tile_spreads)(rows, k);
    const T      *row = t->c, *also = t->also, *end = spread ? row + rows * t->c_row : row;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        if (!spread) {
            __builtin_prefetch(t->c + i * t->c_row, 1, 3);
            __builtin_prefetch(t->c + i * t->c_row + (vectors - 1) * LANES, 1, 3);
        }
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) acc[i][j] = F(splat)(0);
    }
#pragma GCC unroll 16
    for (int i = 0; i < (rows + 2) / 3; i++) third[i] = t->a + 3 * i * side;
    for (; kind != KIND_ANY && k >= GEMM_FETCH; k -= GEMM_FETCH) {
        F(tile_fetch)(fetch, next, pair);
        fetch += fetch_step;
        F(tile_spread)(t, &row, end, &also, vectors);
#pragma GCC unroll 16
        for (int u = 0; u < GEMM_FETCH; u++) {
            F(tile_one)(acc, third, side, b, rows, vectors, add);
#pragma GCC unroll 16
            for (int i = 0; i < (rows + 2) / 3; i++) third[i] += a_step;
            b += b_step;
        }
    }
    while (k > 0) {
        int64_t steps = k < GEMM_FETCH ? k : GEMM_FETCH;
        k -= steps;
        F(tile_fetch)(fetch, next, pair);
        fetch += fetch_step;
        F(tile_spread)(t, &row, end, &also, vectors);
        do {
            F(tile_one)(acc, third, side, b, rows, vectors, add);
#pragma GCC unroll 16
            for (int i = 0; i < (rows + 2) / 3; i++) third[i] += a_step;
            b += b_step;
        } while (--steps > 0);
    }
    F(tile_write)(t, acc, rows, vectors);
}

#define GEMM_TILE_OF(name, rows, vectors, kind) \
    CPU_IN_REGISTERS static void F(name)(const F(tile) * t) { F(tile_body)(t, rows, vectors, kind, F(tile_add)); }
#if GEMM_KINDS > 1
#define GEMM_TILE(rows)                                   \
    GEMM_TILE_OF(packed_##rows##x1, rows, 1, KIND_PACKED) \
    GEMM_TILE_OF(packed_##rows##x2, rows, 2, KIND_PACKED) \
    GEMM_TILE_OF(rows_##rows##x1, rows, 1, KIND_ROWS)     \
    GEMM_TILE_OF(rows_##rows##x2, rows, 2, KIND_ROWS)     \
    GEMM_TILE_OF(beside_##rows##x1, rows, 1, KIND_BESIDE) \
    GEMM_TILE_OF(beside_##rows##x2, rows, 2, KIND_BESIDE)
#else
#define GEMM_TILE(rows)                              \
    GEMM_TILE_OF(tile_##rows##x1, rows, 1, KIND_ANY) \
    GEMM_TILE_OF(tile_##rows##x2, rows, 2, KIND_ANY)
#endif
GEMM_EACH_ROWS(GEMM_TILE)
#undef GEMM_TILE
#undef GEMM_TILE_OF

static void (*const F(tiles)[GEMM_KINDS][GEMM_ROWS + 1][2])(const F(tile) *) = {
#if GEMM_KINDS > 1
#define GEMM_TILE(rows) {F(packed_##rows##x1), F(packed_##rows##x2)},
    {{NULL, NULL}, GEMM_EACH_ROWS(GEMM_TILE)},
#undef GEMM_TILE
#define GEMM_TILE(rows) {F(rows_##rows##x1), F(rows_##rows##x2)},
    {{NULL, NULL}, GEMM_EACH_ROWS(GEMM_TILE)},
#undef GEMM_TILE
#define GEMM_TILE(rows) {F(beside_##rows##x1), F(beside_##rows##x2)},
#else
#define GEMM_TILE(rows) {F(tile_##rows##x1), F(tile_##rows##x2)},
#endif
    {{NULL, NULL}, GEMM_EACH_ROWS(GEMM_TILE)},
#undef GEMM_TILE
};

#if T_BITS == 32 && GEMM_PAIRS
/* acc + the two products of a pair and those of b. */
CPU_INLINE vf32 tile_add_pairs(vf32 c, const float *a, vf32 b)
{
    const __m512i both = _mm512_set1_epi32((int32_t) * (const bits4 *)a);
    return (vf32)_mm512_dpbf16_ps((__m512)c, (__m512bh)both, (__m512bh)b);
}

#define GEMM_TILE(rows)                                              \
    CPU_IN_REGISTERS static void pairs_##rows##x1(const tile_f32 *t) \
    {                                                                \
        tile_body_f32(t, rows, 1, KIND_ANY, tile_add_pairs);         \
    }                                                                \
    CPU_IN_REGISTERS static void pairs_##rows##x2(const tile_f32 *t) \
    {                                                                \
        tile_body_f32(t, rows, 2, KIND_ANY, tile_add_pairs);         \
    }
GEMM_EACH_ROWS(GEMM_TILE)
#undef GEMM_TILE

static void (*const pairs_tiles[GEMM_ROWS + 1][2])(const tile_f32 *) = {{NULL, NULL},
#define GEMM_TILE(rows) {pairs_##rows##x1, pairs_##rows##x2},
                                                                        GEMM_EACH_ROWS(GEMM_TILE)
#undef GEMM_TILE
};
#endif

CPU_INLINE void F(tile_run)(const F(tile) * t, int64_t rows)
{
    const int wide = t->columns > LANES;
#if T_BITS == 32 && GEMM_PAIRS
    if (t->pairs) {
        pairs_tiles[rows][wide](t);
        return;
    }
#endif
    const bool packed = t->a_side == 1 && t->a_step == rows && t->b_step == GEMM_COLUMNS;
    const int  kind = GEMM_KINDS == 1 || packed ? 0 : t->a_step == 1 ? KIND_ROWS : KIND_BESIDE;
    F(tiles)[kind][rows][wide](t);
}

/* ---- packing: dst[p * width + i] = src[i * side + p * along], i < count, p < k; zero for i >= count ---- */

/* Transposes LANES vectors in place. */
CPU_INLINE void F(transpose)(V r[LANES])
{
#if T_BITS == 32 && CPU_VECTOR == 32 /* 24 shuffles of one instruction each; exchanges take 40, and more registers */
    const VI low = {0, 8, 1, 9, 4, 12, 5, 13}, first = {0, 1, 8, 9, 4, 5, 12, 13}, front = {0, 1, 2, 3, 8, 9, 10, 11};
    V        t[LANES];
#pragma GCC unroll 4
    for (int k = 0; k < LANES; k += 2) { /* elements of two rows in turns */
        t[k] = __builtin_shuffle(r[k], r[k + 1], low);
        t[k + 1] = __builtin_shuffle(r[k], r[k + 1], low + 2);
    }
#pragma GCC unroll 4
    for (int k = 0; k < LANES / 2; k++) { /* r[k], r[k + 4]: column k of the first and of the last four rows */
        const int at = k / 2;
        r[k] = __builtin_shuffle(t[at], t[at + 2], k % 2 ? first + 2 : first);
        r[k + 4] = __builtin_shuffle(t[at + 4], t[at + 6], k % 2 ? first + 2 : first);
    }
#pragma GCC unroll 4
    for (int k = 0; k < LANES / 2; k++) { /* beside each, column k + 4 */
        const V a = r[k], b = r[k + 4];
        r[k] = __builtin_shuffle(a, b, front);
        r[k + 4] = __builtin_shuffle(a, b, front + 4);
    }
#else /* exchanges blocks of 1, 2, 4, ... */
    VI lane;
    for (int j = 0; j < LANES; j++) lane[j] = j;
#pragma GCC unroll 4
    for (int d = 1; d < LANES; d *= 2) {
        VI odd = (lane & d) != 0, low = lane + (odd & (LANES - d)), high = low + d;
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & d)) {
                V x = r[i], y = r[i + d];
                r[i] = __builtin_shuffle(x, y, low);
                r[i + d] = __builtin_shuffle(x, y, high);
            }
    }
#endif
}

/* Stores LANES elements of which only the first `count` matter, if the rest will be overwritten or is ours. */
CPU_INLINE void F(store_over)(T *dst, int64_t room, V v)
{
    if (room >= LANES) F(store)(dst, v);
    else F(store_n)(dst, room, v);
}

/* Side unit stride: every k is a copy. width <= GEMM_COLUMNS. */
static void F(pack_copy)(T *dst, int64_t width, const T *src, int64_t along, int64_t count, int64_t k)
{
    if (count == GEMM_COLUMNS && width == GEMM_COLUMNS) {
        for (int64_t p = 0; p < k; p++) {
            F(store)(dst + p * GEMM_COLUMNS, F(load)(src + p * along));
            F(store)(dst + p * GEMM_COLUMNS + LANES, F(load)(src + p * along + LANES));
        }
        return;
    }
    int64_t p = 0;
    if (count == width && width <= LANES) /* what spills into the next k is overwritten */
        for (; p < k && (k - p) * width >= LANES; p++) F(store)(dst + p * width, F(load_n)(src + p * along, width));
    for (; p < k; p++)
        for (int64_t i = 0; i < width; i += LANES) {
            int64_t have = count - i < 0 ? 0 : count - i < LANES ? count - i : LANES;
            F(store_over)
            (dst + p * width + i, (k - p) * width - i,
             have == LANES ? F(load)(src + p * along + i) : F(load_n)(src + p * along + i, have));
        }
}

/* dst[p * width + i] = src[i * side + p], i < count, p < LANES, in registers. Whole vectors are written, with zeros for
 * i >= count: what spills into the next p is overwritten. */
CPU_INLINE void F(turn_square)(T *dst, int64_t width, const T *src, int64_t side, const int64_t count)
{
    V r[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) r[j] = j < count ? F(load)(src + j * side) : F(splat)(0);
    F(transpose)(r);
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) F(store)(dst + j * width, r[j]);
}

/* dst[c * row + r] = src[r * from + c], r < rows, c < columns; src may be read up to whole vectors. */
static void F(turn)(T *dst, int64_t row, const T *src, int64_t from, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r += LANES)
        for (int64_t c = 0; c < columns; c += LANES) {
            int64_t have = rows - r < LANES ? rows - r : LANES, wide = columns - c < LANES ? columns - c : LANES;
            if (CPU_VECTOR == 32 && have == LANES && wide == LANES) {
                F(turn_square)(dst + c * row + r, row, src + r * from + c, from, LANES);
                continue;
            }
            V x[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) x[i] = i < have ? F(load)(src + (r + i) * from + c) : F(splat)(0);
            F(transpose)(x);
            if (have == LANES && wide == LANES) {
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++) F(store)(dst + (c + i) * row + r, x[i]);
            } else {
                for (int i = 0; i < wide; i++) F(store_over)(dst + (c + i) * row + r, have, x[i]);
            }
        }
}

/* One square of pack_transpose: r, the numbers from p on of the columns from i on, is transposed and stored. The last
 * lanes of a row that is no multiple of LANES spill into the next row, which is written after it. */
CPU_INLINE void F(pack_square)(T *dst, int64_t width, int64_t i, int64_t p, int64_t k, V r[LANES])
{
    int64_t ks = k - p < LANES ? k - p : LANES;
    F(transpose)(r);
    if (i + LANES <= width && ks == LANES) {
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++) F(store)(dst + (p + j) * width + i, r[j]);
    } else {
        for (int j = 0; j < ks; j++) {
            int64_t room = i + LANES <= width || i == 0 ? (k - p - j) * width - i : width - i;
            F(store_over)(dst + (p + j) * width + i, room, r[j]);
        }
    }
}

/* k unit stride: transposed in squares of LANES. */
static void F(pack_transpose)(T *dst, int64_t width, const T *src, int64_t side, int64_t count, int64_t k)
{
    for (int64_t i = 0; i < width; i += LANES)
        for (int64_t p = 0; p < k; p += LANES) {
            int64_t ks = k - p < LANES ? k - p : LANES, is = count - i < LANES ? count - i : LANES;
            if (CPU_VECTOR == 32 && is == LANES && ks == LANES && i + LANES <= width) {
                F(turn_square)(dst + p * width + i, width, src + i * side + p, side, LANES);
                continue;
            }
            if (CPU_VECTOR == 32 && is == GEMM_ROWS && width == GEMM_ROWS && p + LANES + LANES / GEMM_ROWS < k) {
                F(turn_square)(dst + p * width, width, src + p, side, GEMM_ROWS); /* a sliver with others behind it */
                continue;
            }
            V r[LANES];
            if (ks == LANES && is == LANES) {
#pragma GCC unroll 16
                for (int j = 0; j < LANES; j++) r[j] = F(load)(src + (i + j) * side + p);
            } else if (ks == LANES) {
#pragma GCC unroll 16
                for (int j = 0; j < LANES; j++) r[j] = j < is ? F(load)(src + (i + j) * side + p) : F(splat)(0);
            } else {
                for (int j = 0; j < LANES; j++) r[j] = j < is ? F(load_n)(src + (i + j) * side + p, ks) : F(splat)(0);
            }
            F(pack_square)(dst, width, i, p, k, r);
        }
}

static void F(pack)(T *dst, int64_t width, const T *src, int64_t side, int64_t along, int64_t count, int64_t k)
{
    if (along == 1 && width == 1) {
        memcpy(dst, src, (size_t)k * sizeof(T));
    } else if (side == 1 || count == 1) {
        F(pack_copy)(dst, width, src, along, count, k);
    } else if (along == 1) {
        F(pack_transpose)(dst, width, src, side, count, k);
    } else {
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i++) dst[p * width + i] = i < count ? src[i * side + p * along] : 0;
    }
}
