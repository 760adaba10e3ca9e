/* reduce_t.cuh - sums of one dtype. */

/* The sum of a thread's share of items first, first + by, ... below last, and of the tail. */
GM_DEVICE GM_R GM_E(gm_sum_items)(const gm_sum_args *a, const GM_T *x, int64_t first, int64_t last, int by, int tail)
{
    GM_R    s[GM_V], sum;
    int64_t at[1];
    GM_UNROLL for (int k = 0; k < GM_V; k++) s[k] = 0;
    GM_UNROLLED(4) for (int64_t i = first; i < last; i += by)
    {
        GM_R v[GM_V];
        at[0] = i * GM_V;
        if (a->reduced.ndim > 1) gm_map_place(&a->reduced, 1, i, at);
        GM_E(gm_unpack)(gm_load_vector(x + at[0]), v);
        GM_UNROLL for (int k = 0; k < GM_V; k++) s[k] += v[k];
    }
    sum = tail < a->reduced.tail ? GM_AT(x, a->reduced.n * GM_V + tail) : 0;
    GM_UNROLL for (int k = 0; k < GM_V; k++) sum += s[k];
    return sum;
}

GM_DEVICE GM_R GM_E(gm_sum_elements)(const gm_sum_args *a, const GM_T *x, int64_t first, int64_t last, int by)
{
    GM_R    sum = 0;
    int64_t step = a->reduced.stride[0][0];
    if (a->reduced.ndim == 1) {
        GM_UNROLLED(4) for (int64_t i = first; i < last; i += by) sum += GM_AT(x, i * step);
        return sum;
    }
    for (int64_t i = first; i < last; i += by) {
        int64_t at[1];
        gm_map_place(&a->reduced, 1, i, at);
        sum += GM_AT(x, at[0]);
    }
    return sum;
}

GM_DEVICE void GM_E(gm_sum_put)(const gm_sum_args *a, int64_t k, int64_t y, GM_R sum)
{
    if (a->partial) ((GM_R *)a->partial)[k * a->chunks + gm_block_y] = sum;
    else GM_TO(a->y, y) = GM_E(gm_put)(sum);
}

/* Neighbours in memory are added: a block, or a warp, for each output and chunk. */
GM_EACH_KERNEL(gm_sum_across, gm_sum_args)
{
    GM_SHARED(GM_R, scratch);
    const int     by = a.whole ? gm_block_size : GM_WARP, mine = gm_thread % by;
    const int64_t k = a.whole ? gm_block_x : gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    const int64_t first = gm_block_y * a.chunk, end = first + a.chunk < a.reduced.n ? first + a.chunk : a.reduced.n;
    int64_t       at[2] = {0, 0};
    GM_R          sum = 0;
    if (k < a.kept.n) {
        gm_map_place(&a.kept, 2, k, at);
        const GM_T *x = (const GM_T *)a.x + at[1];
        int         tail = gm_block_y == a.chunks - 1 ? mine : GM_V;
        sum = a.vectors ? GM_E(gm_sum_items)(&a, x, first + mine, end, by, tail)
                        : GM_E(gm_sum_elements)(&a, x, first + mine, end, by);
    }
    sum = a.whole ? GM_N(gm_block_sum)(sum, scratch) : GM_N(gm_warp_sum)(sum);
    if (mine == 0 && k < a.kept.n) GM_E(gm_sum_put)(&a, k, at[0], sum);
}

/* Neighbours in memory belong to different outputs: a column a thread, eight lines of threads down each. */
GM_EACH_KERNEL(gm_sum_down, gm_sum_args)
{
    GM_SHARED(GM_R, sums);
    const int     lane = gm_thread % GM_WARP, line = gm_thread / GM_WARP;
    const int64_t k = gm_block_x * GM_WARP + lane;
    const int64_t first = gm_block_y * a.chunk, end = first + a.chunk < a.reduced.n ? first + a.chunk : a.reduced.n;
    int64_t       at[2] = {0, 0};
    GM_R          sum = 0;
    if (k < a.kept.n) {
        gm_map_place(&a.kept, 2, k, at);
        sum = GM_E(gm_sum_elements)(&a, (const GM_T *)a.x + at[1], first + line, end, GM_REDUCE_LINES);
    }
    sums[gm_thread] = sum;
    GM_SYNC();
    if (line > 0 || k >= a.kept.n) return;
    for (int i = 1; i < GM_REDUCE_LINES; i++) sum += sums[i * GM_WARP + lane];
    GM_E(gm_sum_put)(&a, k, at[0], sum);
}

/* The chunks of an output, a warp each. */
GM_EACH_KERNEL(gm_sum_finish, gm_sum_args)
{
    const int64_t k = gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    const int     lane = gm_thread % GM_WARP;
    GM_R          sum = 0;
    if (k < a.kept.n)
        for (int i = lane; i < a.chunks; i += GM_WARP) sum += ((const GM_R *)a.partial)[k * a.chunks + i];
    sum = GM_N(gm_warp_sum)(sum);
    if (lane == 0 && k < a.kept.n) {
        int64_t at[2];
        gm_map_place(&a.kept, 2, k, at);
        GM_TO(a.y, at[0]) = GM_E(gm_put)(sum);
    }
}

/* Each line has one index, so no two threads meet at an element of dx. */
GM_EACH_KERNEL(gm_scatter, gm_scatter_args)
{
    GM_GRID_LOOP(i, a.lines.n)
    {
        int64_t at[4];
        gm_map_place(&a.lines, 4, i, at);
        int64_t k = a.wide ? ((const int64_t *)a.index)[at[1]] : ((const int32_t *)a.index)[at[1]];
        if (k < 0 || k >= a.n) {
            gm_refuse(a.refusal, a.op, k, at[3], a.n);
        } else {
            int64_t to = at[0] + k * a.step;
            GM_TO(a.dx, to) = GM_E(gm_put)(GM_AT(a.dx, to) + GM_AT(a.g, at[2]));
        }
    }
}
