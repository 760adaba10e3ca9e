/* gemm_turned_t.h - c = alpha a b for a few rows of a and many columns of b that lie one after the other in memory (the
 * weights of `linear`), for one element type: computed as c' = b' a', so that the columns of b are rows of a tile, read
 * where they lie, pairs of bf16 as well as numbers. Only a is packed. gemm_block_t.h would pack all of b, which costs
 * as much as tiles of some 20 rows.
 *
 * Sums begin with the same number and go along k in the same order as in gemm_block_t.h, so the bits are the same. */

#define TURNED_SLIVERS 4                            /* of columns of b that meet a panel of a while it is near */
#define TURNED_UNIT    (TURNED_SLIVERS * GEMM_ROWS) /* columns of c */

/* Elements of a, packed. */
CPU_INLINE int64_t F(gemm_turned_a)(const gemm *g) { return F(gemm_panels)(g->m) * GEMM_COLUMNS * g->k; }

/* Is g such a product? Fewer rows waste too much of a vector, most of all pairs, whose packing costs half as much. */
CPU_INLINE bool F(gemm_turns)(const gemm *g)
{
    const int64_t whole = (g->m + LANES - 1) / LANES * LANES;
    if (F(gemm_turned_a)(g) > GEMM_RESIDENT || g->row_sums) return false;
    if (g->numbers && (g->m > GEMM_TURNED_PAIRS || 5 * g->m < 4 * whole)) return false;
    return g->m >= GEMM_TURNED_LEAST && g->m <= GEMM_TURNED && g->n >= 8 * g->m && g->b_k == 1 && g->k > 0 &&
           !g->widen && !g->panel && !g->image && !g->row_bias && F(gemm_whole_pairs)(g, g->b, g->b_column);
}

/* Of each thread, elements. */
static int64_t F(gemm_turned_own)(const gemm *g) { return TURNED_UNIT * F(gemm_panels)(g->m) * GEMM_COLUMNS; }

/* Elements of scratch that gemm_turned needs at most for g, or for one of a shorter k. */
static int64_t F(gemm_turned_scratch)(const gemm *g, int threads)
{
    if (g->m > GEMM_TURNED) return 0;
    int64_t packed = F(gemm_turned_a)(g) < GEMM_RESIDENT ? F(gemm_turned_a)(g) : GEMM_RESIDENT;
    return packed + (int64_t)threads * F(gemm_turned_own)(g) + LANES;
}

/* What columns j .. j + width of c begin with (c or a bias): column j + n, row i at own[n * step + i]. -> is it any? */
static bool F(gemm_turned_in)(const gemm *g, T *own, int64_t step, int64_t j, int64_t width)
{
    for (int64_t i = 0; i < g->m && g->accumulate; i++)
        for (int64_t n = 0; n < width; n++) own[n * step + i] = ((const T *)g->c)[i * g->c_row + j + n];
    for (int64_t n = 0; n < width && g->bias && !g->accumulate; n++) {
        const V all = F(splat)(((const T *)g->bias)[j + n]);
        for (int64_t i = 0; i < step; i += LANES) F(store)(own + n * step + i, all);
    }
    return g->accumulate || g->bias;
}

/* These columns of c become what is in `own`. */
static void F(gemm_turned_out)(const gemm *g, const T *own, int64_t step, int64_t j, int64_t width)
{
    F(turn)((T *)g->c + j, g->c_row, own, step, width, g->m);
    if (g->finish) F(gemm_finish)(g, 0, g->m, j, width);
}

/* Job: units [begin, end) of TURNED_UNIT columns of c. */
static void F(gemm_turned_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm   *g = w->g;
    const int64_t step = w->panels * GEMM_COLUMNS;
    T            *own = w->own + thread * F(gemm_turned_own)(g);
    F(tile)
    t = {.alpha = (T)g->alpha,
         .a_step = 1,
         .a_side = F(gemm_words)(g, g->b_column),
         .c_row = step,
         .init_row = step,
         .pairs = g->numbers > 0};
    for (int64_t u = begin; u < end; u++) {
        const int64_t j = u * TURNED_UNIT, width = g->n - j < TURNED_UNIT ? g->n - j : TURNED_UNIT;
        const bool    begun = F(gemm_turned_in)(g, own, step, j, width);
        for (int64_t p = 0; p < g->k; p += GEMM_DEPTH) {
            t.k = g->k - p < GEMM_DEPTH ? g->k - p : GEMM_DEPTH;
            t.b_step = GEMM_COLUMNS;
            const bool deeper = p + GEMM_DEPTH < g->k;
            F(gemm_ahead)
            next = F(gemm_next)(g, F(gemm_b)(g, deeper ? j : j + width), g->b_column, 1, width,
                                deeper ? p + GEMM_DEPTH : 0, t.k);
            for (int64_t s = 0, x = 0; s < w->panels; s++) {
                const int64_t i = s * GEMM_COLUMNS;
                t.columns = g->m - i < GEMM_COLUMNS ? g->m - i : GEMM_COLUMNS;
                t.b = w->resident + step * p + i * t.k;
                for (int64_t n = 0; n < width; n += GEMM_ROWS, x++) {
                    t.a = (const T *)g->b + (j + n) * t.a_side + p;
                    t.c = own + n * step + i;
                    t.init = begun || p > 0 ? t.c : NULL;
                    F(gemm_fetch)(&t, &next, x, w->panels * TURNED_SLIVERS, t.k);
                    F(tile_run)(&t, width - n < GEMM_ROWS ? width - n : GEMM_ROWS);
                }
            }
        }
        F(gemm_turned_out)(g, own, step, j, width);
    }
}

/* Job: packs units [begin, end) of a; a unit is one panel of its rows at one depth. */
static void F(gemm_turned_pack)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm *g = w->g;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const int64_t i = u % w->panels * GEMM_COLUMNS, rows = g->m - i < GEMM_COLUMNS ? g->m - i : GEMM_COLUMNS;
        const int64_t p = u / w->panels * GEMM_DEPTH, k = g->k - p < GEMM_DEPTH ? g->k - p : GEMM_DEPTH;
        F(gemm_pack)
        (g, w->resident + w->panels * GEMM_COLUMNS * p + i * k, GEMM_COLUMNS, F(gemm_a)(g, i), g->a_row, g->a_k, rows,
         p, k);
    }
}

/* scratch: as of gemm_run, gemm_turned_scratch elements. */
static void F(gemm_turned)(gm_threads *threads, const gemm *g, T *scratch)
{
    const int64_t units = (g->n + TURNED_UNIT - 1) / TURNED_UNIT, panels = F(gemm_panels)(g->m);
    const int64_t room = (threads ? gm_threads_count(threads) : 1) * F(gemm_turned_own)(g);
    const double  numbers = (double)g->m * (double)g->k;
    F(gemm_block) w = {.g = g, .own = scratch, .resident = scratch + room, .panels = panels};
    F(gemm_job)(threads, panels * F(gemm_depths)(g->k), 2 * LANES * numbers, F(gemm_turned_pack), &w);
    F(gemm_job)(threads, units, 2.0 * (double)g->n * numbers, F(gemm_turned_part), &w);
}

#undef TURNED_SLIVERS
#undef TURNED_UNIT
