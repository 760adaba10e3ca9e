/* batch_norm.cu - batch norm in steps. Sums: a block for each channel and chunk of its places; chunks are then joined
 * by one thread a channel, in order. Squares are taken around the mean of the chunk, which is corrected by what is left
 * of the sum of differences, so that a mean far from zero costs no digits. */
#include "../../common/map.cuh"
#include "batch_norm_args.h"

template <class R> GM_DEVICE R gm_channel_number(const gm_channel_view &v, int64_t c)
{
    return ((const R *)v.data)[c * v.step];
}

template <class T> GM_DEVICE gm_real<T> gm_channel_at(const gm_channel_view &v, int64_t c, gm_real<T> otherwise)
{
    return v.data ? gm_at<T>(v.data, c * v.step) : otherwise;
}

/* y = (x - mean) rstd w + b */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_apply(const gm_batch_norm_args a)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        const int64_t c = at[3];
        const R       mean = gm_channel_number<R>(a.mean, c), add = gm_channel_at<T>(a.b, c, 0);
        const R       by = gm_channel_number<R>(a.rstd, c) * gm_channel_at<T>(a.w, c, 1);
        if (a.vectors) {
            R x[V];
            gm_take<T>(a.x, at[1], 1, x);
            GM_UNROLL for (int k = 0; k < V; k++) x[k] = (x[k] - mean) * by + add;
            gm_give<T>(a.y, at[0], x);
        } else {
            gm_set<T>(a.y, at[0], (gm_at<T>(a.x, at[1]) - mean) * by + add);
        }
    }
}

/* dx = (g - mean_h - hat mean_h_hat) rstd w; without these means g rstd w */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_grad_apply(const gm_batch_norm_args a)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        const int64_t c = at[3];
        const R       mean = gm_channel_number<R>(a.mean, c), rstd = gm_channel_number<R>(a.rstd, c);
        const R       by = rstd * gm_channel_at<T>(a.w, c, 1);
        const R       h = a.mean_h.data ? gm_channel_number<R>(a.mean_h, c) : 0;
        const int     moves = a.mean_h_hat.data != NULL;
        const R       hh = moves ? gm_channel_number<R>(a.mean_h_hat, c) * rstd : 0;
        if (a.vectors) {
            R x[V], g[V];
            gm_take<T>(a.x, at[1], 1, x);
            gm_take<T>(a.g, at[2], 1, g);
            GM_UNROLL for (int k = 0; k < V; k++) x[k] = (g[k] - h - (moves ? (x[k] - mean) * hh : 0)) * by;
            gm_give<T>(a.y, at[0], x);
        } else {
            const R d = moves ? (gm_at<T>(a.x, at[1]) - mean) * hh : 0;
            gm_set<T>(a.y, at[0], (gm_at<T>(a.g, at[2]) - h - d) * by);
        }
    }
}

template <class R>
GM_DEVICE void gm_batch_norm_put(const gm_batch_norm_sums_args &a, int64_t c, int64_t chunk, R first, R second)
{
    if (a.partial) {
        R *to = (R *)a.partial + (c * a.chunks + chunk) * 2;
        to[0] = first;
        to[1] = second;
    } else {
        ((R *)a.first.data)[c * a.first.step] = first;
        ((R *)a.second.data)[c * a.second.step] = second;
    }
}

#define GM_EACH_PLACE(i)                                                                                       \
    const int64_t first = gm_block_y * a.chunk, end = first + a.chunk < a.rest.n ? first + a.chunk : a.rest.n; \
    for (int64_t i = first + gm_thread; i < end; i += gm_block_size)

template <class T, class R = gm_real<T>> GM_DEVICE void gm_batch_norm_sums(const gm_batch_norm_sums_args a)
{
    GM_SHARED(R, scratch);
    const int64_t c = gm_block_x;
    const T      *x = (const T *)a.x + c * a.x_step;
    int64_t       at[1];
    R             sum = 0, m2 = 0, off = 0;
    GM_EACH_PLACE(i)
    {
        gm_map_place(&a.rest, 1, i, at);
        sum += gm_at<T>(x, at[0]);
    }
    const R count = end > first ? (R)(end - first) : 1, mean = gm_block_sum(sum, scratch) / count;
    for (int64_t i = first + gm_thread; i < end; i += gm_block_size) {
        gm_map_place(&a.rest, 1, i, at);
        const R d = gm_at<T>(x, at[0]) - mean;
        m2 += d * d;
        off += d;
    }
    m2 = gm_block_sum(m2, scratch);
    off = gm_block_sum(off, scratch) / count;
    m2 -= off * off * count;
    if (gm_thread == 0) gm_batch_norm_put<R>(a, c, gm_block_y, mean + off, m2 > 0 || m2 != m2 ? m2 : 0);
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_batch_norm_grad_sums(const gm_batch_norm_sums_args a)
{
    GM_SHARED(R, scratch);
    const int64_t c = gm_block_x;
    const T      *x = (const T *)a.x + c * a.x_step, *g = (const T *)a.g + c * a.g_step;
    const R       mean = gm_channel_number<R>(a.mean, c), rstd = gm_channel_number<R>(a.rstd, c);
    R             h = 0, h_hat = 0;
    GM_EACH_PLACE(i)
    {
        int64_t at[2];
        gm_map_place(&a.rest, 2, i, at);
        const R v = gm_at<T>(g, at[1]);
        h += v;
        h_hat += v * ((gm_at<T>(x, at[0]) - mean) * rstd);
    }
    h = gm_block_sum(h, scratch);
    h_hat = gm_block_sum(h_hat, scratch);
    if (gm_thread == 0) gm_batch_norm_put<R>(a, c, gm_block_y, h, h_hat);
}

/* Joins the chunks of a channel: sums, or means and squares as Chan, Golub and LeVeque (1979) do. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_batch_norm_join(const gm_batch_norm_sums_args a)
{
    GM_GRID_LOOP(c, a.channels) {
        const R *from = (const R *)a.partial + c * a.chunks * 2;
        R        first = from[0], second = from[1], count = (R)(a.chunk < a.rest.n ? a.chunk : a.rest.n);
        for (int64_t k = 1; k < a.chunks; k++) {
            const R u = from[2 * k], v = from[2 * k + 1];
            if (a.gradient) {
                first += u;
                second += v;
                continue;
            }
            const int64_t left = a.rest.n - k * a.chunk;
            const R       more = (R)(left < a.chunk ? left : a.chunk), d = u - first, all = count + more;
            first += d * (more / all);
            second += v + d * d * (count * more / all);
            count = all;
        }
        ((R *)a.first.data)[c * a.first.step] = first;
        ((R *)a.second.data)[c * a.second.step] = second;
    }
}

GM_KERNELS(gm_batch_norm_apply, gm_batch_norm_args)
GM_KERNELS(gm_batch_norm_grad_apply, gm_batch_norm_args)
GM_KERNELS(gm_batch_norm_sums, gm_batch_norm_sums_args)
GM_KERNELS(gm_batch_norm_grad_sums, gm_batch_norm_sums_args)
GM_KERNELS(gm_batch_norm_join, gm_batch_norm_sums_args)
