/* reduce_pick_t.cuh - the first of a line in the order "NaN, then by size, then by place", for one dtype: max, min
 * (sign -1), argmax; and the first k, for top_k. A candidate is a value and its place; place GM_NOWHERE: none yet. */

/* Does u at i stand before v at k? */
GM_DEVICE bool GM_E(gm_stands_before)(GM_R u, int64_t i, GM_R v, int64_t k)
{
    if (k == GM_NOWHERE || i == GM_NOWHERE) return k == GM_NOWHERE && i != GM_NOWHERE;
    if (u != u || v != v) return u != u && (v == v || i < k);
    return u != v ? u > v : i < k;
}

GM_DEVICE void GM_E(gm_pick_warp)(GM_R *v, int64_t *k)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2) {
        GM_R    u = gm_shuffle_xor(*v, lanes);
        int64_t i = gm_shuffle_xor(*k, lanes);
        if (GM_E(gm_stands_before)(u, i, *v, *k)) {
            *v = u;
            *k = i;
        }
    }
}

/* All threads get the first of the block. places: 32, then 32 values. */
GM_DEVICE void GM_E(gm_pick_block)(GM_R *v, int64_t *k, int64_t *places)
{
    GM_R *values = (GM_R *)(places + GM_WARP);
    GM_E(gm_pick_warp)(v, k);
    GM_SYNC();
    if (gm_thread % GM_WARP == 0) {
        places[gm_thread / GM_WARP] = *k;
        values[gm_thread / GM_WARP] = *v;
    }
    GM_SYNC();
    for (int w = 0; w < gm_block_size / GM_WARP; w++)
        if (GM_E(gm_stands_before)(values[w], places[w], *v, *k)) {
            *v = values[w];
            *k = places[w];
        }
}

/* Of elements first, first + by, ... the first that stands behind (after, place). */
GM_DEVICE void GM_E(gm_pick_share)(const gm_pick_args *a, const GM_T *x, int first, int by, GM_R after, int64_t place,
                                   GM_R *v, int64_t *k)
{
    *k = GM_NOWHERE;
    *v = 0;
    for (int64_t i = first; i < a->n; i += by) {
        GM_R u = GM_AT(x, i * a->step) * (GM_R)a->sign;
        if (place != GM_NOWHERE && !GM_E(gm_stands_before)(after, place, u, i)) continue;
        if (GM_E(gm_stands_before)(u, i, *v, *k)) {
            *v = u;
            *k = i;
        }
    }
}

GM_DEVICE void GM_E(gm_pick_put)(const gm_pick_args *a, const int64_t *at, int64_t k)
{
    a->index[at[0]] = k;
    if (a->y) GM_TO(a->y, at[2]) = ((const GM_T *)a->x)[at[1] + k * a->step];
}

/* A block, or a warp, for each line. */
GM_EACH_KERNEL(gm_pick_across, gm_pick_args)
{
    GM_SHARED(int64_t, places);
    const int     by = a.whole ? gm_block_size : GM_WARP, mine = gm_thread % by;
    const int64_t line = a.whole ? gm_block_x : gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    int64_t       k = GM_NOWHERE, at[3] = {0, 0, 0};
    GM_R          v = 0;
    if (line < a.lines.n) {
        gm_map_place(&a.lines, 3, line, at);
        GM_E(gm_pick_share)(&a, (const GM_T *)a.x + at[1], mine, by, 0, GM_NOWHERE, &v, &k);
    }
    if (a.whole) GM_E(gm_pick_block)(&v, &k, places);
    else GM_E(gm_pick_warp)(&v, &k);
    if (mine == 0 && line < a.lines.n) GM_E(gm_pick_put)(&a, at, k);
}

/* Lines side by side: a line a thread, eight lines of threads down each. */
GM_EACH_KERNEL(gm_pick_down, gm_pick_args)
{
    GM_SHARED(int64_t, places);
    GM_R         *values = (GM_R *)(places + GM_REDUCE_THREADS);
    const int     lane = gm_thread % GM_WARP, row = gm_thread / GM_WARP;
    const int64_t line = gm_block_x * GM_WARP + lane;
    int64_t       k = GM_NOWHERE, at[3] = {0, 0, 0};
    GM_R          v = 0;
    if (line < a.lines.n) {
        gm_map_place(&a.lines, 3, line, at);
        GM_E(gm_pick_share)(&a, (const GM_T *)a.x + at[1], row, GM_REDUCE_LINES, 0, GM_NOWHERE, &v, &k);
    }
    places[gm_thread] = k;
    values[gm_thread] = v;
    GM_SYNC();
    if (row > 0 || line >= a.lines.n) return;
    for (int i = lane + GM_WARP; i < GM_REDUCE_THREADS; i += GM_WARP)
        if (GM_E(gm_stands_before)(values[i], places[i], v, k)) {
            v = values[i];
            k = places[i];
        }
    GM_E(gm_pick_put)(&a, at, k);
}

/* A block for each line. Each thread keeps the best of its share; who gave the last one looks for its next. */
GM_EACH_KERNEL(gm_top_k, gm_pick_args)
{
    GM_SHARED(int64_t, places);
    int64_t at[3], mine, k;
    GM_R    best, v;
    gm_map_place(&a.lines, 3, gm_block_x, at);
    const GM_T *x = (const GM_T *)a.x + at[1];
    GM_E(gm_pick_share)(&a, x, gm_thread, gm_block_size, 0, GM_NOWHERE, &best, &mine);
    for (int64_t i = 0; i < a.k; i++) {
        v = best;
        k = mine;
        GM_E(gm_pick_block)(&v, &k, places);
        if (gm_thread == 0) {
            a.index[at[0] + i * a.index_step] = k;
            GM_TO(a.y, at[2] + i * a.y_step) = x[k * a.step];
        }
        if (k == mine) GM_E(gm_pick_share)(&a, x, gm_thread, gm_block_size, v, k, &best, &mine);
    }
}
