/* order.cu - sort along the last dimension, by a bitonic network (Batcher 1968) over lines padded to a power of two:
 * each step is a launch, in which a thread compares two elements. Places make equals differ, so that they stay in their
 * order. */
#include "../../common/map.cuh"
#include "../../common/whole.cuh"
#include "order_args.h"

constexpr int64_t NO_PLACE = INT64_MAX; /* of padding, which stands behind all */

/* Does u, from place i, stand before v, from place k? NaN counts as the largest number. */
template <class R> GM_DEVICE bool gm_order_before(bool descending, R u, int64_t i, R v, int64_t k)
{
    if (i == NO_PLACE || k == NO_PLACE) return i < k;
    if (u != u || v != v) {
        if (u != u && v != v) return i < k;
        return descending ? u != u : v != v;
    }
    if (u == v) return i < k;
    return descending ? u > v : u < v;
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_order_load(const gm_order_args a)
{
    GM_GRID_LOOP(i, a.lines.n * a.width) {
        int64_t       at[3];
        const int64_t line = i / a.width, k = i - line * a.width;
        gm_map_place(&a.lines, 3, line, at);
        ((R *)a.value)[i] = k < a.n ? gm_at<T>(a.x, at[0] + k * a.x_step) : 0;
        a.place[i] = k < a.n ? k : NO_PLACE;
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_order_step(const gm_order_args a)
{
    GM_GRID_LOOP(i, a.lines.n * (a.width / 2)) {
        const int64_t line = i / (a.width / 2), t = i - line * (a.width / 2), block = t / a.apart;
        const int64_t k = block * 2 * a.apart + (t - block * a.apart), m = line * a.width + k, n = m + a.apart;
        R            *value = (R *)a.value;
        const R       u = value[m], v = value[n];
        const int64_t p = a.place[m], q = a.place[n];
        const bool    up = (k & a.span) == 0;
        if (up ? gm_order_before<R>(a.descending, v, q, u, p) : gm_order_before<R>(a.descending, u, p, v, q)) {
            value[m] = v;
            value[n] = u;
            a.place[m] = q;
            a.place[n] = p;
        }
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_order_store(const gm_order_args a)
{
    GM_GRID_LOOP(i, a.lines.n * a.n) {
        int64_t       at[3];
        const int64_t line = i / a.n, k = i - line * a.n, from = line * a.width + k;
        gm_map_place(&a.lines, 3, line, at);
        ((int64_t *)a.index)[at[1] + k * a.index_step] = a.place[from];
        gm_set<T>(a.y, at[2] + k * a.y_step, ((const R *)a.value)[from]);
    }
}

template <class T> GM_DEVICE void gm_order_undo(const gm_order_args a)
{
    GM_GRID_LOOP(i, a.lines.n * a.n) {
        int64_t       at[3];
        const int64_t line = i / a.n, k = i - line * a.n;
        gm_map_place(&a.lines, 3, line, at);
        const int64_t from = at[1] + k * a.index_step;
        const int64_t to = a.wide ? ((const int64_t *)a.index)[from] : ((const int32_t *)a.index)[from];
        gm_set<T>(a.y, at[2] + to * a.y_step, gm_at<T>(a.x, at[0] + k * a.x_step));
    }
}

/* The same of lines of whole packs of 16 bytes in all operands, with an index of i64: a block puts a line in order in
 * shared memory. */
template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_order_undo_even(const gm_order_args a)
{
    GM_SHARED(T, room);
    const int packs = (int)(a.n / V);
    int64_t   at[3];
    gm_map_place(&a.lines, 3, gm_block_x, at);
    const T       *x = (const T *)a.x + at[0];
    const int64_t *index = (const int64_t *)a.index + at[1];
    T             *y = (T *)a.y + at[2];
    for (int i = gm_thread; i < packs; i += gm_block_size) {
        gm_pack_of<T> u;
        gm_vector     pair[V / 2];
        u.v = gm_load_vector(x + (int64_t)i * V);
        GM_UNROLL for (int j = 0; j < V / 2; j++) pair[j] = gm_load_vector(index + (int64_t)i * V + 2 * j);
        GM_UNROLL for (int j = 0; j < V; j++) room[pair[j / 2].word[2 * (j % 2)]] = u.x[j];
    }
    GM_SYNC();
    for (int i = gm_thread; i < packs; i += gm_block_size) gm_store_whole(y + (int64_t)i * V, ((gm_vector *)room)[i]);
}

GM_KERNELS(gm_order_undo_even, gm_order_args)
GM_KERNELS(gm_order_load, gm_order_args)
GM_KERNELS(gm_order_step, gm_order_args)
GM_KERNELS(gm_order_store, gm_order_args)
GM_KERNELS(gm_order_undo, gm_order_args)
