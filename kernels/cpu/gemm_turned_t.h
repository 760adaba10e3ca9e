/* gemm_turned_t.h - c = alpha a b for a few rows of a and many columns of b that lie one after the other in memory (the
 * weights of `linear`), for one element type: computed as c' = b' a', so that the columns of b are rows of a tile, read
 * where they lie. Only a is packed. gemm_block_t.h would pack all of b, which costs as much as tiles of some 20 rows.
 *
 * Sums begin with the same number and go along k in the same order as in gemm_block_t.h, so the bits are the same. */

#define TURNED_SLIVERS 4                            /* of columns of b that meet a panel of a while it is near */
#define TURNED_UNIT    (TURNED_SLIVERS * GEMM_ROWS) /* columns of c */

/* Elements of a, packed. */
CPU_INLINE int64_t F(gemm_turned_a)(const gemm *g) { return F(gemm_panels)(g->m) * GEMM_COLUMNS * g->k; }

/* Is g such a product? */
CPU_INLINE bool F(gemm_turns)(const gemm *g)
{
    if (F(gemm_turned_a)(g) > GEMM_RESIDENT) return false;
    return g->m > 1 && g->m <= GEMM_TURNED && g->n >= 8 * g->m && g->b_k == 1 && g->k > 0 && !g->numbers && !g->widen &&
           !g->panel && !g->image && !g->row_bias;
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
    for (int64_t i = 0; i < g->m && (g->accumulate || g->bias); i++) {
        const T *from = g->accumulate ? (const T *)g->c + i * g->c_row + j : (const T *)g->bias + j;
        for (int64_t n = 0; n < width; n++) own[n * step + i] = from[n];
    }
    return g->accumulate || g->bias;
}

/* These columns of c become what is in `own`. */
static void F(gemm_turned_out)(const gemm *g, const T *own, int64_t step, int64_t j, int64_t width)
{
    for (int64_t i = 0; i < g->m; i++) {
        T *c = (T *)g->c + i * g->c_row + j;
        for (int64_t n = 0; n < width; n++) c[n] = own[n * step + i];
    }
    if (g->finish) F(gemm_finish)(g, 0, g->m, j, width);
}

/* Job: units [begin, end) of TURNED_UNIT columns of c. */
static void F(gemm_turned_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm   *g = w->g;
    const int64_t step = w->panels * GEMM_COLUMNS;
    T            *own = w->own + thread * F(gemm_turned_own)(g);
    F(tile) t = {.alpha = (T)g->alpha, .a_step = 1, .a_side = g->b_column, .c_row = step, .init_row = step};
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
                    t.a = (const T *)g->b + (j + n) * g->b_column + p;
                    t.c = own + n * step + i;
                    t.init = begun || p > 0 ? t.c : NULL;
                    F(gemm_fetch)(&t, &next, x, t.k);
                    F(tile_run)(&t, width - n < GEMM_ROWS ? width - n : GEMM_ROWS);
                }
            }
        }
        F(gemm_turned_out)(g, own, step, j, width);
    }
}

/* scratch: as of gemm_run, gemm_turned_scratch elements. */
static void F(gemm_turned)(gm_threads *threads, const gemm *g, T *scratch)
{
    const int64_t units = (g->n + TURNED_UNIT - 1) / TURNED_UNIT, panels = F(gemm_panels)(g->m);
    const int64_t room = (threads ? gm_threads_count(threads) : 1) * F(gemm_turned_own)(g);
    F(gemm_block) w = {.g = g, .own = scratch, .resident = scratch + room, .panels = panels};
    for (int64_t p = 0; p < g->k; p += GEMM_DEPTH)
        for (int64_t s = 0; s < panels; s++) {
            const int64_t i = s * GEMM_COLUMNS, k = g->k - p < GEMM_DEPTH ? g->k - p : GEMM_DEPTH;
            F(pack)
            (w.resident + panels * GEMM_COLUMNS * p + i * k, GEMM_COLUMNS, (const T *)g->a + i * g->a_row + p * g->a_k,
             g->a_row, g->a_k, g->m - i < GEMM_COLUMNS ? g->m - i : GEMM_COLUMNS, k);
        }
    F(gemm_job)(threads, units, 2.0 * (double)g->m * (double)g->n * (double)g->k, F(gemm_turned_part), &w);
}

#undef TURNED_SLIVERS
#undef TURNED_UNIT
