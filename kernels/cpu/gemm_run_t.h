/* gemm_run_t.h - one product for one element type: which way it takes, and the blocks of the plan (gemm_block_t.h). */

/* Elements of scratch that gemm_run needs. */
static int64_t F(gemm_scratch)(const gemm *g, int threads)
{
#if T_BITS == 32 && GEMM_PAIRS
    if (g->amx) return amx_scratch(g, threads);
#endif
    const bool rows_resident = g->m <= g->n;
    int64_t    side = rows_resident ? g->m : F(gemm_panels)(g->n) * GEMM_COLUMNS;
    int64_t    whole = side * g->k, resident = whole < GEMM_RESIDENT ? whole : GEMM_RESIDENT;
    int64_t    blocks = resident + (int64_t)threads * GEMM_OWN + LANES, turned = F(gemm_turned_scratch)(g, threads);
    return blocks > turned ? blocks : turned;
}

/* Job: panels [begin, end) of the only row of c = alpha x b', rows of b contiguous: dot products, nothing is packed. */
static void F(gemm_row)(void *context, int64_t begin, int64_t end, int thread)
{
    const F(gemm_block) *w = context;
    const gemm *g = w->g;
    const T    *x = w->resident;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t first = u * GEMM_COLUMNS, last = first + GEMM_COLUMNS < g->n ? first + GEMM_COLUMNS : g->n;
        for (int64_t j = first; j < last; j += 4) {
            const T *b[4];
            V        sum[4];
            for (int c = 0; c < 4; c++) { /* behind the last column: that one again */
                b[c] = (const T *)g->b + (j + c < last ? j + c : last - 1) * g->b_column;
                sum[c] = F(splat)(0);
            }
            int64_t p = 0;
            for (; p + LANES <= g->k; p += LANES)
                for (int c = 0; c < 4; c++) sum[c] += F(load)(x + p) * F(load)(b[c] + p);
            if (p < g->k)
                for (int c = 0; c < 4; c++) sum[c] += F(load_n)(x + p, g->k - p) * F(load_n)(b[c] + p, g->k - p);
            for (int c = 0; c < 4 && j + c < last; c++) {
                T *y = (T *)g->c + j + c, init = g->accumulate ? *y : g->bias ? ((const T *)g->bias)[j + c] : 0;
                *y = F(sum_v)(sum[c]) * (T)g->alpha + init;
            }
        }
        if (g->finish) F(gemm_finish)(g, 0, 1, first, last - first);
    }
}

/* scratch: gemm_scratch(g, threads) elements, aligned to 64 bytes. m or n = 0: nothing; k = 0: c = 0 or stays. */
static void F(gemm_run)(gm_threads *threads, const gemm *g, T *scratch)
{
    if (g->m <= 0 || g->n <= 0) return;
#if T_BITS == 32 && GEMM_PAIRS
    if (g->amx) {
        amx_run(threads, g, scratch);
        return;
    }
#endif
    if (F(gemm_turns)(g)) {
        F(gemm_turned)(threads, g, scratch);
        return;
    }
    bool    rows_resident = g->m <= g->n;
    int64_t side = rows_resident ? g->m : F(gemm_panels)(g->n) * GEMM_COLUMNS, unit = rows_resident ? 1 : GEMM_COLUMNS;
    int     count = threads ? gm_threads_count(threads) : 1;
    F(gemm_block) w = {.g = g, .own = scratch, .resident = scratch + count * GEMM_OWN};
    if (g->m == 1 && !g->row_sums && !g->widen && !g->panel && g->b_k == 1 && !g->numbers && g->k > 0 &&
        g->k <= GEMM_RESIDENT) {
        F(pack)(w.resident, 1, g->a, g->a_row, g->a_k, 1, g->k);
        F(gemm_job)(threads, F(gemm_panels)(g->n), 4.0 * LANES * (double)g->n * (double)g->k / 4, F(gemm_row), &w);
        return;
    }
    /* depth first: a longer k is fewer passes over c; then as much of the side as fits */
    int64_t least = side < GEMM_SIDE(rows_resident) ? side : GEMM_SIDE(rows_resident);
    int64_t depth = GEMM_RESIDENT / least / GEMM_DEPTH * GEMM_DEPTH;
    if (depth < GEMM_DEPTH) depth = GEMM_DEPTH;
    if (depth > g->k) depth = g->k;
    int64_t step = depth > 0 ? GEMM_RESIDENT / depth / unit * unit : side;
    int64_t pieces = (side + step - 1) / step;
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = F(cut)(side / unit, pieces, piece) * unit, last = F(cut)(side / unit, pieces, piece + 1) * unit;
        w.i0 = rows_resident ? first : 0;
        w.i1 = rows_resident && last < g->m ? last : g->m;
        w.j0 = rows_resident ? 0 : first;
        w.j1 = rows_resident ? g->n : last < g->n ? last : g->n;
        for (int64_t p = 0; p < g->k || p == 0; p += depth) {
            w.p0 = p;
            w.p1 = g->k - p < depth ? g->k : p + depth;
            F(gemm_block_run)(threads, &w, rows_resident);
            if (depth == 0) break;
        }
    }
}
