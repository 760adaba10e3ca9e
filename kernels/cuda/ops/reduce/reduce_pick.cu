/* reduce_pick.cu - max, min, argmax and top_k. Of equal elements they take the first one, and NaN comes before numbers.
 * The limit is the bandwidth of reads. In top_k each further element costs one thread n / threads more reads, from the
 * cache. */
#include "../../common/map.cuh"
#include "reduce_args.h"

constexpr int64_t NOWHERE = INT64_MAX; /* the place of no candidate */

/* The first of a line in the order "NaN, then by size, then by place": max, min (sign -1), argmax; and the first k, for
 * top_k. A candidate is a value and its place. */

/* Does u at i stand before v at k? */
template <class R> GM_DEVICE bool gm_stands_before(R u, int64_t i, R v, int64_t k)
{
    if (k == NOWHERE || i == NOWHERE) return k == NOWHERE && i != NOWHERE;
    if (u != u || v != v) return u != u && (v == v || i < k);
    return u != v ? u > v : i < k;
}

template <class R> GM_DEVICE void gm_pick_warp(R *v, int64_t *k)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2) {
        R       u = gm_shuffle_xor(*v, lanes);
        int64_t i = gm_shuffle_xor(*k, lanes);
        if (gm_stands_before(u, i, *v, *k)) {
            *v = u;
            *k = i;
        }
    }
}

/* All threads get the first of the block. places: 32, then 32 values. */
template <class R> GM_DEVICE void gm_pick_block(R *v, int64_t *k, int64_t *places)
{
    R *values = (R *)(places + GM_WARP);
    gm_pick_warp(v, k);
    GM_SYNC();
    if (gm_thread % GM_WARP == 0) {
        places[gm_thread / GM_WARP] = *k;
        values[gm_thread / GM_WARP] = *v;
    }
    GM_SYNC();
    for (int w = 0; w < gm_block_size / GM_WARP; w++)
        if (gm_stands_before(values[w], places[w], *v, *k)) {
            *v = values[w];
            *k = places[w];
        }
}

/* Of elements first, first + by, ... the first that stands behind (after, place). */
template <class T, class R = gm_real<T>>
GM_DEVICE void gm_pick_share(const gm_pick_args *a, const T *x, int first, int by, gm_real<T> after, int64_t place,
                             gm_real<T> *v, int64_t *k)
{
    *k = NOWHERE;
    *v = 0;
    for (int64_t i = first; i < a->n; i += by) {
        R u = gm_at<T>(x, i * a->step) * (R)a->sign;
        if (place != NOWHERE && !gm_stands_before(after, place, u, i)) continue;
        if (gm_stands_before(u, i, *v, *k)) {
            *v = u;
            *k = i;
        }
    }
}

template <class T> GM_DEVICE void gm_pick_put(const gm_pick_args *a, const int64_t *at, int64_t k)
{
    a->index[at[0]] = k;
    if (a->y) ((T *)a->y)[at[2]] = ((const T *)a->x)[at[1] + k * a->step];
}

/* A block, or a warp, for each line. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_pick_across(const gm_pick_args a)
{
    GM_SHARED(int64_t, places);
    const int     by = a.whole ? gm_block_size : GM_WARP, mine = gm_thread % by;
    const int64_t line = a.whole ? gm_block_x : gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    int64_t       k = NOWHERE, at[3] = {0, 0, 0};
    R             v = 0;
    if (line < a.lines.n) {
        gm_map_place(&a.lines, 3, line, at);
        gm_pick_share<T>(&a, (const T *)a.x + at[1], mine, by, 0, NOWHERE, &v, &k);
    }
    if (a.whole) gm_pick_block(&v, &k, places);
    else gm_pick_warp(&v, &k);
    if (mine == 0 && line < a.lines.n) gm_pick_put<T>(&a, at, k);
}

/* Lines side by side: a line a thread, eight lines of threads down each. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_pick_down(const gm_pick_args a)
{
    GM_SHARED(int64_t, places);
    R            *values = (R *)(places + GM_REDUCE_THREADS);
    const int     lane = gm_thread % GM_WARP, row = gm_thread / GM_WARP;
    const int64_t line = gm_block_x * GM_WARP + lane;
    int64_t       k = NOWHERE, at[3] = {0, 0, 0};
    R             v = 0;
    if (line < a.lines.n) {
        gm_map_place(&a.lines, 3, line, at);
        gm_pick_share<T>(&a, (const T *)a.x + at[1], row, GM_REDUCE_LINES, 0, NOWHERE, &v, &k);
    }
    places[gm_thread] = k;
    values[gm_thread] = v;
    GM_SYNC();
    if (row > 0 || line >= a.lines.n) return;
    for (int i = lane + GM_WARP; i < GM_REDUCE_THREADS; i += GM_WARP)
        if (gm_stands_before(values[i], places[i], v, k)) {
            v = values[i];
            k = places[i];
        }
    gm_pick_put<T>(&a, at, k);
}

/* A block for each line. Each thread keeps the best of its share; who gave the last one looks for its next. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_top_k(const gm_pick_args a)
{
    GM_SHARED(int64_t, places);
    int64_t at[3], mine, k;
    R       best, v;
    gm_map_place(&a.lines, 3, gm_block_x, at);
    const T *x = (const T *)a.x + at[1];
    gm_pick_share<T>(&a, x, gm_thread, gm_block_size, 0, NOWHERE, &best, &mine);
    for (int64_t i = 0; i < a.k; i++) {
        v = best;
        k = mine;
        gm_pick_block(&v, &k, places);
        if (gm_thread == 0) {
            a.index[at[0] + i * a.index_step] = k;
            ((T *)a.y)[at[2] + i * a.y_step] = x[k * a.step];
        }
        if (k == mine) gm_pick_share<T>(&a, x, gm_thread, gm_block_size, v, k, &best, &mine);
    }
}

GM_KERNELS(gm_pick_across, gm_pick_args)
GM_KERNELS(gm_pick_down, gm_pick_args)
GM_KERNELS(gm_top_k, gm_pick_args)
