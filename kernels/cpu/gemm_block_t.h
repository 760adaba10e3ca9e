/* gemm_block_t.h - c = alpha a b (+ c, or + bias, then an activation) for one element type: the blocking
 * around the register tile.
 *
 * All threads together pack the smaller of the two operands, one block at a time. The block stays in their second-level
 * caches. The larger operand is read once: each thread packs a panel or sliver of it just before use. So no element is
 * packed twice while the resident operand fits, and packing needs no scratch of the problem's size. The order of
 * summation along k depends on k alone, so the bits do not depend on the number of threads. */

/* One block of the plan: rows [i0, i1) x columns [j0, j1) of c, products of k in [p0, p1). */
typedef struct F(gemm_block) {
    const gemm *g;
    T          *resident, *own; /* own: GEMM_OWN elements for each thread, a packed piece and a widened one */
    int64_t     i0, i1, j0, j1, p0, p1;
    int64_t     slivers, panels, chunks; /* chunks: pieces of the resident operand a unit of work covers */
    bool        direct_a, direct_b;      /* slivers of a, whole panels of b are read where they lie, and not packed */
} F(gemm_block);

#define GEMM_TALL  (GEMM_TOGETHER * GEMM_ROWS)
#define GEMM_PIECE ((GEMM_COLUMNS > GEMM_TALL ? GEMM_COLUMNS : GEMM_TALL) * GEMM_DEPTH)
#define GEMM_OWN   (GEMM_PIECE + GEMM_COLUMNS * GEMM_DEPTH)

/* Sliver s of rows n: [n * s / slivers, n * (s + 1) / slivers), so that none is much thinner than the rest. */
CPU_INLINE int64_t F(cut)(int64_t n, int64_t parts, int64_t s) { return n * s / parts; }

static inline int64_t F(gemm_slivers)(int64_t m) { return (m + GEMM_ROWS - 1) / GEMM_ROWS; }
static inline int64_t F(gemm_panels)(int64_t n) { return (n + GEMM_COLUMNS - 1) / GEMM_COLUMNS; }
static inline int64_t F(gemm_depths)(int64_t k) { return k > GEMM_DEPTH ? (k + GEMM_DEPTH - 1) / GEMM_DEPTH : 1; }

/* Where column j of c begins. */
CPU_INLINE int64_t F(gemm_column)(const gemm *g, int64_t j)
{
    return g->image ? j / g->image * g->c_image + j % g->image : j;
}

/* What remains to be done to c after the last k. */
static void F(gemm_finish)(const gemm *g, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    const int64_t first = F(gemm_column)(g, j);
    T            *c = (T *)g->c + i * g->c_row + first, *y = (T *)g->y + i * g->y_row + first;
    for (int64_t r = 0; g->row_bias && r < rows; r++) {
        T *row = c + r * g->c_row;
        V  b = F(splat)(((const T *)g->row_bias)[i + r]);
        for (int64_t n = 0; n < columns; n += LANES) F(put)(row, n, columns - n, F(at)(row, n, columns - n) + b);
    }
    if (g->pre) F(activation_grad_rows)
    (g->f, rows, columns, (const T *)g->pre + i * g->pre_row + j, g->pre_row, c, g->c_row, y, g->y_row);
    else F(activation_rows)(g->f, rows, columns, c, g->c_row, y, g->y_row); }

/* Brings what gemm_finish reads or writes besides c into the cache, while the tile runs: rows of it lie far apart. */
CPU_INLINE void F(gemm_fetch_finish)(const gemm *g, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    const int64_t line = 64 / (int64_t)sizeof(T);
    const bool    writes = g->y != g->c;
    for (int64_t r = i; r < i + rows; r++)
        for (int64_t n = j; n < j + columns; n += line) {
            if (g->pre) __builtin_prefetch((const T *)g->pre + r * g->pre_row + n, 0, 3);
            if (writes) __builtin_prefetch((T *)g->y + r * g->y_row + n, 1, 3);
        }
}

/* Where this begins, if a tile can bring it row by row: one of both, read or written besides c. Else NULL. */
CPU_INLINE const T *F(gemm_spread_finish)(const gemm *g, F(tile) * t, int64_t i, int64_t rows, int64_t j)
{
    const bool reads = g->pre, writes = g->y != g->c;
    if (!F(tile_spreads)(rows, t->k) || reads == writes) return NULL;
    t->also_row = g->pre ? g->pre_row : g->y_row;
    return (g->pre ? (const T *)g->pre : (const T *)g->y) + i * t->also_row + j;
}

/* A tile of c that lies in several images goes to `room` (out) or comes from there. */
static void F(gemm_images)(const gemm *g, int64_t i, int64_t rows, int64_t j, int64_t columns, T *room, bool out)
{
    for (int64_t at = 0, n; at < columns; at += n) {
        int64_t left = g->image - (j + at) % g->image;
        n = left < columns - at ? left : columns - at;
        T *c = (T *)g->c + i * g->c_row + F(gemm_column)(g, j + at);
        for (int64_t r = 0; r < rows; r++, c += g->c_row) {
            T *near = room + r * GEMM_COLUMNS + at;
            memcpy(out ? near : c, out ? c : near, (size_t)n * sizeof(T));
        }
    }
}

/* gemm_tile where columns are images. */
static void F(gemm_tile_images)(const gemm *g, F(tile) * t, int64_t i, int64_t rows, int64_t j, int64_t p)
{
    T    room[GEMM_ROWS * GEMM_COLUMNS];
    bool inside = j % g->image + t->columns <= g->image, adds = p > 0 || g->accumulate, last = p + t->k == g->k;
    t->c = inside ? (T *)g->c + i * g->c_row + F(gemm_column)(g, j) : room;
    t->c_row = t->init_row = inside ? g->c_row : GEMM_COLUMNS;
    t->init = adds ? t->c : NULL;
    if (adds && !inside) F(gemm_images)(g, i, rows, j, t->columns, room, true);
    F(tile_run)(t, rows);
    if (!inside) F(gemm_images)(g, i, rows, j, t->columns, room, false);
    for (int64_t at = 0, n; g->finish && last && at < t->columns; at += n) {
        int64_t left = g->image - (j + at) % g->image;
        n = left < t->columns - at ? left : t->columns - at;
        F(gemm_finish)(g, i, rows, j + at, n);
    }
}

/* c[i.., j..] of the products of one packed sliver (depth p0 + q..) and one packed panel. */
CPU_INLINE void F(gemm_tile)(const gemm *g, F(tile) * t, int64_t i, int64_t rows, int64_t j, int64_t p, int64_t k)
{
    t->c = (T *)g->c + i * g->c_row + j;
    t->columns = g->n - j < GEMM_COLUMNS ? g->n - j : GEMM_COLUMNS;
    t->k = k;
    if (g->image) {
        F(gemm_tile_images)(g, t, i, rows, j, p);
        return;
    }
    t->c_row = g->c_row;
    t->init = NULL;
    t->init_row = g->c_row;
    if (p > 0 || g->accumulate) {
        t->init = t->c;
    } else if (g->bias) {
        t->init = (const T *)g->bias + j;
        t->init_row = 0;
    }
    const bool finish = p + k == g->k && g->finish;
    t->also = finish ? F(gemm_spread_finish)(g, t, i, rows, j) : NULL;
    if (finish && !t->also) F(gemm_fetch_finish)(g, i, rows, j, t->columns);
    F(tile_run)(t, rows);
    if (finish) F(gemm_finish)(g, i, rows, j, t->columns);
}

/* Packs, of `count` rows or columns of a matrix, k numbers from p on. at: their first numbers, of all k. */
static void F(gemm_pack)(const gemm *g, T *dst, int64_t width, const void *at, int64_t side, int64_t along,
                         int64_t count, int64_t p, int64_t k)
{
#if T_BITS == 32 && GEMM_PAIRS
    if (g->numbers) {
        const int64_t left = g->numbers - 2 * p;
        pairs_pack(dst, width, (const pairs_word *)at + 2 * p * along, side, along, count, left < 2 * k ? left : 2 * k);
        return;
    }
#endif
    (void)g;
    F(pack)(dst, width, (const T *)at + p * along, side, along, count, k);
}

/* Row i of a, and column j of b where it lies in memory in its own form. */
CPU_INLINE const void *F(gemm_a)(const gemm *g, int64_t i)
{
    return (const char *)g->a + i * g->a_row * (g->numbers ? 2 : (int64_t)sizeof(T));
}

CPU_INLINE const void *F(gemm_b)(const gemm *g, int64_t j)
{
    return (const char *)g->b + j * g->b_column * (g->numbers ? 2 : (int64_t)sizeof(T));
}

/* A sliver of a: rows i .. i + height, k numbers from p on. */
static void F(gemm_pack_sliver)(const gemm *g, T *dst, int64_t i, int64_t height, int64_t p, int64_t k)
{
    F(gemm_pack)(g, dst, height, F(gemm_a)(g, i), g->a_row, g->a_k, height, p, k);
}

/* A panel of b: columns j .. j + width, k numbers from p on. room: of the thread, for columns that must be widened. */
static void F(gemm_pack_panel)(const gemm *g, T *dst, T *room, int64_t j, int64_t width, int64_t p, int64_t k)
{
    if (g->panel) {
        g->panel(g, dst, j, width, p, k);
        return;
    }
    if (!g->widen) {
        F(gemm_pack)(g, dst, GEMM_COLUMNS, F(gemm_b)(g, j), g->b_column, g->b_k, width, p, k);
        return;
    }
    for (int64_t c = 0; c < width; c++) g->widen(g, j + c, p, k, room + c * GEMM_DEPTH);
    F(pack)(dst, GEMM_COLUMNS, room, GEMM_DEPTH, 1, width, k);
}

/* Where what is resident of a sliver or a panel stands: its first row or column, k numbers from p on. */
CPU_INLINE T *F(gemm_resident_sliver)(const F(gemm_block) * w, int64_t i, int64_t p, int64_t k)
{
    return w->resident + (w->i1 - w->i0) * (p - w->p0) + i * k;
}

CPU_INLINE T *F(gemm_resident_panel)(const F(gemm_block) * w, int64_t j, int64_t p, int64_t k)
{
    return w->resident + w->panels * GEMM_COLUMNS * (p - w->p0) + j * k;
}

/* Elements of a matrix as words of T: pairs are two numbers. */
CPU_INLINE int64_t F(gemm_words)(const gemm *g, int64_t numbers) { return g->numbers ? numbers / 2 : numbers; }

/* Sliver of rows i .. i + height of the block, k numbers from p on: packed at `packed`, or in a itself. */
CPU_INLINE void F(gemm_sliver)(const F(gemm_block) * w, F(tile) * t, const T *packed, int64_t i, int64_t height,
                               int64_t p)
{
    const gemm   *g = w->g;
    const int64_t row = F(gemm_words)(g, g->a_row);
    t->a = w->direct_a ? (const T *)g->a + (w->i0 + i) * row + p * g->a_k : packed;
    t->a_step = w->direct_a ? g->a_k : height;
    t->a_side = w->direct_a ? row : 1;
}

CPU_INLINE V F(gemm_some_rows)(const T *a, int64_t n) { return n == LANES ? F(load)(a) : F(load_n)(a, n); }

/* Sums of those rows over these k for g->row_sums: eight in T, and these in double. Rows lie beside each other. */
static void F(gemm_sum_rows)(const F(gemm_block) * w, const T *packed, int64_t i, int64_t height, int64_t p, int64_t k)
{
    double *to = w->g->row_sums + p / GEMM_DEPTH * w->g->m + w->i0 + i;
    F(tile) t;
    F(gemm_sliver)(w, &t, packed, i, height, p);
    for (int64_t r = 0, n, q; r < height && k > 0; r += n) {
        const T *at = t.a + r;
        vf64     low = {0}, high = {0};
        n = height - r < LANES ? height - r : LANES;
        for (q = 0; q + 8 <= k; q += 8, at += 8 * t.a_step) {
            V s[4];
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++)
                s[u] = F(gemm_some_rows)(at + u * t.a_step, n) + F(gemm_some_rows)(at + (u + 4) * t.a_step, n);
            F(add_wide)(&low, &high, (s[0] + s[1]) + (s[2] + s[3]));
        }
        for (; q < k; q++, at += t.a_step) F(add_wide)(&low, &high, F(gemm_some_rows)(at, n));
        for (int64_t j = 0; j < n; j++) to[r + j] = j < CPU_VECTOR / 8 ? low[j] : high[j - CPU_VECTOR / 8];
    }
}

/* Job: packs units [begin, end) of the resident operand, unless it is read where it lies, and sums its rows where that
 * is wanted; a unit is one sliver or panel at one depth. */
static void F(gemm_pack_rows)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm *g = w->g;
    int64_t     rows = w->i1 - w->i0;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t s = u % w->slivers, p = w->p0 + u / w->slivers * GEMM_DEPTH;
        int64_t k = w->p1 - p < GEMM_DEPTH ? w->p1 - p : GEMM_DEPTH;
        int64_t i = F(cut)(rows, w->slivers, s);
        int64_t height = F(cut)(rows, w->slivers, s + 1) - i;
        T      *to = F(gemm_resident_sliver)(w, i, p, k);
        if (!w->direct_a) F(gemm_pack_sliver)(g, to, w->i0 + i, height, p, k);
        if (g->row_sums) F(gemm_sum_rows)(w, to, i, height, p, k);
    }
}

static void F(gemm_pack_columns)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    T *room = w->own + thread * GEMM_OWN + GEMM_PIECE;
    for (int64_t u = begin; u < end; u++) {
        int64_t s = u % w->panels, p = w->p0 + u / w->panels * GEMM_DEPTH;
        int64_t k = w->p1 - p < GEMM_DEPTH ? w->p1 - p : GEMM_DEPTH;
        int64_t j = w->j0 + s * GEMM_COLUMNS, width = w->j1 - j < GEMM_COLUMNS ? w->j1 - j : GEMM_COLUMNS;
        F(gemm_pack_panel)(w->g, F(gemm_resident_panel)(w, s * GEMM_COLUMNS, p, k), room, j, width, p, k);
    }
}

/* What will be packed next: rows of lines, `stride` apart, brought in while the tiles of this one run. */
typedef struct F(gemm_ahead) {
    const char *base;
    int64_t     rows, stride, lines; /* lines: of a row */
} F(gemm_ahead);

/* Arguments as of gemm_pack. */
CPU_INLINE F(gemm_ahead)
    F(gemm_next)(const gemm *g, const void *at, int64_t side, int64_t along, int64_t count, int64_t p, int64_t k)
{
    const int64_t size = g->numbers ? 2 : (int64_t)sizeof(T), each = g->numbers ? 2 : 1; /* numbers of a k */
    return (F(gemm_ahead)){.base = (const char *)at + each * p * along * size,
                           .rows = along == 1 ? count : each * k,
                           .stride = (along == 1 ? side : along) * size,
                           .lines = ((along == 1 ? each * k : count) * size + 63) / 64};
}

/* Columns j .. of b, from p on. */
CPU_INLINE F(gemm_ahead) F(gemm_next_panel)(const gemm *g, int64_t j, int64_t width, int64_t p, int64_t k)
{
    if (g->panel) return (F(gemm_ahead)){.base = g->form, .rows = 1, .lines = 1}; /* what it reads is not told */
    if (g->widen)
        return (F(gemm_ahead)){.base = (const char *)g->b + j * g->b_column + p * g->b_bits / 8,
                               .rows = width,
                               .stride = g->b_column,
                               .lines = (k * g->b_bits / 8 + 63) / 64};
    return F(gemm_next)(g, F(gemm_b)(g, j), g->b_column, g->b_k, width, p, k);
}

/* Tile number x of `tiles` takes its share: lines of each of as many rows as the tile has fetches, more than one where
 * the tiles are few. */
CPU_INLINE void F(gemm_fetch)(F(tile) * t, const F(gemm_ahead) * next, int64_t x, int64_t tiles, int64_t k)
{
    const int64_t slots = (k + GEMM_FETCH - 1) / GEMM_FETCH, turns = slots ? (next->rows + slots - 1) / slots : 1;
    const int64_t each = tiles > turns ? tiles / turns : 1; /* tiles that meet a row */
    const int64_t lines = (next->lines + each - 1) / each;
    t->fetch_lines = lines <= 2 ? lines : 4;
    if (t->fetch_lines > GEMM_FETCH_LINES) t->fetch_lines = GEMM_FETCH_LINES;
    t->fetch = next->base + x % turns * slots * next->stride + x / turns * t->fetch_lines * 64;
    t->fetch_step = next->stride;
}

/* Can rows of a matrix, `row` numbers apart, be read as they lie? No pair must begin in one row and end in the next. */
CPU_INLINE bool F(gemm_whole_pairs)(const gemm *g, const void *matrix, int64_t row)
{
    return !g->numbers || (g->numbers % 2 == 0 && row % 2 == 0 && (uintptr_t)matrix % sizeof(T) == 0);
}

/* Panel of columns j .. j + width, k numbers from p on: packed in `own`, or in b itself. */
static void F(gemm_one_panel)(const F(gemm_block) * w, F(tile) * t, T *own, int64_t j, int64_t width, int64_t p,
                              int64_t k)
{
    const gemm *g = w->g;
    if (width == GEMM_COLUMNS && w->direct_b) {
        t->b = (const T *)g->b + j + p * g->b_k;
        t->b_step = g->b_k;
        return;
    }
    F(gemm_pack_panel)(g, own, own + GEMM_PIECE, j, width, p, k);
    t->b = own;
    t->b_step = GEMM_COLUMNS;
}

/* Job: walks panels of b, all resident slivers of a for each. */
static void F(gemm_walk_panels)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm *g = w->g;
    T          *own = w->own + thread * GEMM_OWN;
    int64_t     rows = w->i1 - w->i0;
    F(tile) t = {.alpha = (T)g->alpha, .pairs = g->numbers > 0};
    for (int64_t u = begin; u < end; u++) {
        int64_t j = w->j0 + u / w->chunks * GEMM_COLUMNS, width = w->j1 - j < GEMM_COLUMNS ? w->j1 - j : GEMM_COLUMNS;
        int64_t s0 = F(cut)(w->slivers, w->chunks, u % w->chunks),
                s1 = F(cut)(w->slivers, w->chunks, u % w->chunks + 1);
        for (int64_t p = w->p0, k; p < w->p1 || p == w->p0; p += GEMM_DEPTH) {
            k = w->p1 - p < GEMM_DEPTH ? w->p1 - p : GEMM_DEPTH;
            bool deeper = p + GEMM_DEPTH < w->p1;
            F(gemm_ahead)
            next = F(gemm_next_panel)(g, deeper ? j : j + width, width, deeper ? p + GEMM_DEPTH : w->p0, k);
            F(gemm_one_panel)(w, &t, own, j, width, p, k);
            for (int64_t s = s0, i = F(cut)(rows, w->slivers, s0), height; s < s1; s++, i += height) {
                height = F(cut)(rows, w->slivers, s + 1) - i;
                F(gemm_sliver)(w, &t, F(gemm_resident_sliver)(w, i, p, k), i, height, p);
                F(gemm_fetch)(&t, &next, s - s0, s1 - s0, k);
                F(gemm_tile)(g, &t, w->i0 + i, height, j, p, k);
            }
        }
    }
}

/* `count` slivers of a, rows at[r] .. at[r + 1] of the block, one after the other in `own` or in a itself, meet panels
 * s0 .. s1 of b. A panel stays in the first-level cache while these slivers come from the second. */
CPU_INLINE void F(gemm_slivers_meet)(const F(gemm_block) * w, F(tile) * t, T *own, const int64_t *at, int64_t count,
                                     int64_t s0, int64_t s1, int64_t p, int64_t k, const F(gemm_ahead) * next)
{
    for (int64_t s = s0; s < s1; s++) {
        t->b = F(gemm_resident_panel)(w, s * GEMM_COLUMNS, p, k);
        for (int64_t r = 0; r < count; r++) {
            const int64_t height = at[r + 1] - at[r];
            F(gemm_sliver)(w, t, own + (at[r] - at[0]) * k, at[r], height, p);
            F(gemm_fetch)(t, next, (s - s0) * count + r, (s1 - s0) * count, k);
            F(gemm_tile)(w->g, t, w->i0 + at[r], height, w->j0 + s * GEMM_COLUMNS, p, k);
        }
    }
}

/* Job: walks slivers of a, GEMM_TOGETHER at a time; all resident panels of b for these. */
static void F(gemm_walk_slivers)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm *g = w->g;
    T          *own = w->own + thread * GEMM_OWN;
    int64_t     rows = w->i1 - w->i0, count, at[GEMM_TOGETHER + 1], together = GEMM_TOGETHER_OF(g->a_row == 1);
    F(tile) t = {.alpha = (T)g->alpha, .b_step = GEMM_COLUMNS, .pairs = g->numbers > 0};
    for (int64_t u = begin; u < end; u += count) {
        const int64_t sliver = u / w->chunks, chunk = u % w->chunks;
        count = w->chunks > 1 ? 1 : end - u < together ? end - u : together;
        for (int64_t r = 0; r <= count; r++) at[r] = F(cut)(rows, w->slivers, sliver + r);
        int64_t s0 = F(cut)(w->panels, w->chunks, chunk), s1 = F(cut)(w->panels, w->chunks, chunk + 1);
        for (int64_t p = w->p0, k; p < w->p1 || p == w->p0; p += GEMM_DEPTH) {
            k = w->p1 - p < GEMM_DEPTH ? w->p1 - p : GEMM_DEPTH;
            bool deeper = p + GEMM_DEPTH < w->p1;
            F(gemm_ahead)
            next = F(gemm_next)(g, F(gemm_a)(g, w->i0 + at[deeper ? 0 : count]), g->a_row, g->a_k, at[count] - at[0],
                                deeper ? p + GEMM_DEPTH : w->p0, k);
            for (int64_t r = 0; r < count && !w->direct_a; r++)
                F(gemm_pack_sliver)(g, own + (at[r] - at[0]) * k, w->i0 + at[r], at[r + 1] - at[r], p, k);
            for (int64_t r = 0; r < count && g->row_sums && w->j0 == 0 && s0 == 0; r++)
                F(gemm_sum_rows)(w, own + (at[r] - at[0]) * k, at[r], at[r + 1] - at[r], p, k);
            F(gemm_slivers_meet)(w, &t, own, at, count, s0, s1, p, k, &next);
        }
    }
}

/* threads NULL: on the caller alone. */
static void F(gemm_job)(gm_threads *threads, int64_t units, double flops, gm_job job, F(gemm_block) * w)
{
    if (threads) gemm_parallel(threads, units, (int64_t)(flops / (2 * LANES) / (double)units), job, w);
    else job(w, 0, units, 0);
}

/* Slivers of a whose rows or columns are contiguous are read where they lie if few panels meet them, and panels of b
 * whose rows are, unless they are resident or many slivers meet them. Lines that lie GEMM_CLASH bytes apart have one
 * place in the first-level cache, where they would drive each other out: 14 rows of a half as far apart get on,
 * hundreds of rows of b do not. Pairs lie in rows of bf16 as they are multiplied, if none begins in one row and ends in
 * the next. */
static void F(gemm_direct)(F(gemm_block) * w)
{
    const gemm   *g = w->g;
    const int64_t size = g->numbers ? 2 : (int64_t)sizeof(T);
    const bool    rows = w->panels <= GEMM_DIRECT && g->a_k == 1 && g->a_row * size % GEMM_CLASH != 0;
    const bool    beside = w->panels <= GEMM_DIRECT_BESIDE && g->a_row == 1;
    w->direct_a = g->numbers ? rows && F(gemm_whole_pairs)(g, g->a, g->a_row) : rows || beside;
    w->direct_b = w->slivers <= GEMM_DIRECT_SLIVERS && !g->numbers && !g->widen && !g->panel && g->b_column == 1 &&
                  2 * g->b_k * size % GEMM_CLASH != 0;
}

/* One block: pack the resident operand, then walk the other. */
static void F(gemm_block_run)(gm_threads *threads, F(gemm_block) * w, bool rows_resident)
{
    int64_t rows = w->i1 - w->i0, columns = w->j1 - w->j0, k = w->p1 - w->p0, depths = F(gemm_depths)(k);
    int     count = threads ? gm_threads_count(threads) : 1;
    double  flops = 2.0 * (double)rows * (double)columns * (double)k;
    double  cost = 2 * LANES * (double)(rows_resident ? rows : columns) * (double)k; /* of packing: a cycle a number */
    w->slivers = F(gemm_slivers)(rows);
    w->panels = F(gemm_panels)(columns);
    F(gemm_direct)(w);
    int64_t units = rows_resident ? w->panels : w->slivers, other = rows_resident ? w->slivers : w->panels;
    w->chunks = units % count && units < 8 * count && other >= count ? count : 1;
    if (rows_resident && (!w->direct_a || w->g->row_sums))
        F(gemm_job)(threads, other * depths, cost, F(gemm_pack_rows), w);
    if (!rows_resident) F(gemm_job)(threads, other * depths, cost, F(gemm_pack_columns), w);
    F(gemm_job)(threads, units * w->chunks, flops, rows_resident ? F(gemm_walk_panels) : F(gemm_walk_slivers), w);
}
