/* reduce.cu - sums over any dimensions, and scatter. A sum goes across if the elements of a sum lie side by side, and
 * else down. If there are too few outputs to fill the GPU, there are two passes: one sums chunks, the other adds up
 * these partial sums. The order of additions depends only on shapes, strides and the size of the GPU, so the bits are
 * the same each time. Each element is read once; the limit is the bandwidth of reads. */
#include "../../common/map.cuh"
#include "reduce_args.h"

/* The sum of a thread's share of items first, first + by, ... below last, and of the tail. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE R gm_sum_items(const gm_sum_args *a, const T *x, int64_t first, int64_t last, int by, int tail)
{
    R       s[V], sum;
    int64_t at[1];
    GM_UNROLL for (int k = 0; k < V; k++) s[k] = 0;
    GM_UNROLLED(4) for (int64_t i = first; i < last; i += by)
    {
        R v[V];
        at[0] = i * V;
        if (a->reduced.ndim > 1) gm_map_place(&a->reduced, 1, i, at);
        gm_unpack<T>(gm_load_vector(x + at[0]), v);
        GM_UNROLL for (int k = 0; k < V; k++) s[k] += v[k];
    }
    sum = tail < a->reduced.tail ? gm_at<T>(x, a->reduced.n * V + tail) : 0;
    GM_UNROLL for (int k = 0; k < V; k++) sum += s[k];
    return sum;
}

template <class T, class R = gm_real<T>>
GM_DEVICE R gm_sum_elements(const gm_sum_args *a, const T *x, int64_t first, int64_t last, int by)
{
    R       sum = 0;
    int64_t step = a->reduced.stride[0][0];
    if (a->reduced.ndim == 1) {
        GM_UNROLLED(4) for (int64_t i = first; i < last; i += by) sum += gm_at<T>(x, i * step);
        return sum;
    }
    for (int64_t i = first; i < last; i += by) {
        int64_t at[1];
        gm_map_place(&a->reduced, 1, i, at);
        sum += gm_at<T>(x, at[0]);
    }
    return sum;
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_sum_put(const gm_sum_args *a, int64_t k, int64_t y, R sum)
{
    if (a->partial) ((R *)a->partial)[k * a->chunks + gm_block_y] = sum;
    else gm_set<T>(a->y, y, sum);
}

/* Neighbours in memory are added: a block, or a warp, for each output and chunk. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_sum_across(const gm_sum_args a)
{
    GM_SHARED(R, scratch);
    const int     by = a.whole ? gm_block_size : GM_WARP, mine = gm_thread % by;
    const int64_t k = a.whole ? gm_block_x : gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    const int64_t first = gm_block_y * a.chunk, end = first + a.chunk < a.reduced.n ? first + a.chunk : a.reduced.n;
    int64_t       at[2] = {0, 0};
    R             sum = 0;
    if (k < a.kept.n) {
        gm_map_place(&a.kept, 2, k, at);
        const T *x = (const T *)a.x + at[1];
        int      tail = gm_block_y == a.chunks - 1 ? mine : V;
        sum = a.vectors ? gm_sum_items<T>(&a, x, first + mine, end, by, tail)
                        : gm_sum_elements<T>(&a, x, first + mine, end, by);
    }
    sum = a.whole ? gm_block_sum(sum, scratch) : gm_warp_sum(sum);
    if (mine == 0 && k < a.kept.n) gm_sum_put<T>(&a, k, at[0], sum);
}

/* Neighbours in memory belong to different outputs: a column a thread, eight lines of threads down each. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_sum_down(const gm_sum_args a)
{
    GM_SHARED(R, sums);
    const int     lane = gm_thread % GM_WARP, line = gm_thread / GM_WARP;
    const int64_t k = gm_block_x * GM_WARP + lane;
    const int64_t first = gm_block_y * a.chunk, end = first + a.chunk < a.reduced.n ? first + a.chunk : a.reduced.n;
    int64_t       at[2] = {0, 0};
    R             sum = 0;
    if (k < a.kept.n) {
        gm_map_place(&a.kept, 2, k, at);
        sum = gm_sum_elements<T>(&a, (const T *)a.x + at[1], first + line, end, GM_REDUCE_LINES);
    }
    sums[gm_thread] = sum;
    GM_SYNC();
    if (line > 0 || k >= a.kept.n) return;
    for (int i = 1; i < GM_REDUCE_LINES; i++) sum += sums[i * GM_WARP + lane];
    gm_sum_put<T>(&a, k, at[0], sum);
}

/* s += N packs of 16 bytes of each of V outputs: items i, i + GM_REDUCE_LINES, ... of one dimension. */
template <class T, int N, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_sum_packs(const T *x, int64_t i, int64_t step, R (&s)[V])
{
    gm_vector held[N];
    GM_UNROLL for (int n = 0; n < N; n++) held[n] = gm_load_vector(x + (i + n * GM_REDUCE_LINES) * step);
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        R v[V];
        gm_unpack<T>(held[n], v);
        GM_UNROLL for (int k = 0; k < V; k++) s[k] += v[k];
    }
}

/* gm_sum_down where V outputs at a time have neighbours of 16 bytes: these V columns a thread. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_sum_beside(const gm_sum_args a)
{
    GM_SHARED(R, sums);
    constexpr int N = 4, by = GM_REDUCE_LINES;
    const int     lane = gm_thread % GM_WARP, line = gm_thread / GM_WARP;
    const int64_t k = (gm_block_x * GM_WARP + lane) * V, first = gm_block_y * a.chunk;
    const int64_t end = first + a.chunk < a.reduced.n ? first + a.chunk : a.reduced.n;
    int64_t       at[2] = {0, 0}, i = k < a.kept.n ? first + line : end;
    R             s[V];
    GM_UNROLL for (int j = 0; j < V; j++) s[j] = 0;
    if (k < a.kept.n) gm_map_place(&a.kept, 2, k, at);
    const T *x = (const T *)a.x + at[1];
    if (a.reduced.ndim == 1) {
        const int64_t step = a.reduced.stride[0][0];
        GM_ROLLED for (; i + (N - 1) * by < end; i += N * by) gm_sum_packs<T, N>(x, i, step, s);
        GM_ROLLED for (; i < end; i += by) gm_sum_packs<T, 1>(x, i, step, s);
    } else {
        GM_ROLLED for (; i < end; i += by)
        {
            int64_t from[1];
            gm_map_place(&a.reduced, 1, i, from);
            gm_sum_packs<T, 1>(x + from[0], 0, 0, s);
        }
    }
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        GM_SYNC();
        sums[gm_thread] = s[j];
        GM_SYNC();
        if (line > 0 || k >= a.kept.n) continue;
        for (int t = 1; t < by; t++) s[j] += sums[t * GM_WARP + lane];
        if (!a.partial) gm_map_place(&a.kept, 2, k + j, at);
        gm_sum_put<T>(&a, k + j, at[0], s[j]);
    }
}

/* The chunks of an output, a warp each. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_sum_finish(const gm_sum_args a)
{
    const int64_t k = gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    const int     lane = gm_thread % GM_WARP;
    R             sum = 0;
    if (k < a.kept.n)
        for (int i = lane; i < a.chunks; i += GM_WARP) sum += ((const R *)a.partial)[k * a.chunks + i];
    sum = gm_warp_sum(sum);
    if (lane == 0 && k < a.kept.n) {
        int64_t at[2];
        gm_map_place(&a.kept, 2, k, at);
        gm_set<T>(a.y, at[0], sum);
    }
}

/* Each line has one index, so no two threads meet at an element of dx. */
template <class T> GM_DEVICE void gm_scatter(const gm_scatter_args a)
{
    GM_GRID_LOOP(i, a.lines.n) {
        int64_t at[4];
        gm_map_place(&a.lines, 4, i, at);
        int64_t k = a.wide ? ((const int64_t *)a.index)[at[1]] : ((const int32_t *)a.index)[at[1]];
        if (k < 0 || k >= a.n) {
            gm_refuse(a.refusal, a.op, k, at[3], a.n);
        } else {
            int64_t to = at[0] + k * a.step;
            gm_set<T>(a.dx, to, gm_at<T>(a.dx, to) + gm_at<T>(a.g, at[2]));
        }
    }
}

GM_KERNELS(gm_sum_across, gm_sum_args)
GM_KERNELS(gm_sum_down, gm_sum_args)
GM_KERNELS(gm_sum_beside, gm_sum_args)
GM_KERNELS(gm_sum_finish, gm_sum_args)
GM_KERNELS(gm_scatter, gm_scatter_args)
