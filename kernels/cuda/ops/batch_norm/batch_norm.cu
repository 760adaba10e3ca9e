/* batch_norm.cu - batch norm in steps. Sums: a block for each channel and chunk of its places; chunks are then joined
 * by a warp for each channel, in one order. Each element is read once: squares are taken around the mean of the few
 * numbers that a thread holds, and means and squares are joined. Numbers are taken less the first one of the channel,
 * so that a mean far from zero costs no digits. */
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

/* y = (x - mean) by + add of a channel; and dx = (g - h - (x - mean) hh) by of its gradient. */
template <class R> struct gm_channel_line {
    R mean, by, add;
};
template <class R> struct gm_channel_grad_line {
    R mean, by, h, hh;
};

template <class T, class R = gm_real<T>> GM_DEVICE gm_channel_line<R> gm_line_of(const gm_batch_norm_args &a, int64_t c)
{
    return {gm_channel_number<R>(a.mean, c), gm_channel_number<R>(a.rstd, c) * gm_channel_at<T>(a.w, c, 1),
            gm_channel_at<T>(a.b, c, 0)};
}

template <class T, class R = gm_real<T>>
GM_DEVICE gm_channel_grad_line<R> gm_grad_line_of(const gm_batch_norm_args &a, int64_t c)
{
    const R rstd = gm_channel_number<R>(a.rstd, c);
    return {gm_channel_number<R>(a.mean, c), rstd * gm_channel_at<T>(a.w, c, 1),
            a.mean_h.data ? gm_channel_number<R>(a.mean_h, c) * rstd : 0,
            a.mean_h_hat.data ? gm_channel_number<R>(a.mean_h_hat, c) * rstd * rstd : 0};
}

/* Of an element of contiguous tensors: its channel, how many elements of the plane are left, and the channel behind. */
typedef struct gm_channel_place {
    int32_t channel, left, next;
} gm_channel_place;

GM_DEVICE gm_channel_place gm_channel_place_of(const gm_batch_norm_args &a, uint32_t element)
{
    const uint32_t plane = element / (uint32_t)a.inner;
    const int32_t  c = (int32_t)(plane % (uint32_t)a.channels);
    return {c, a.inner - (int32_t)(element - plane * (uint32_t)a.inner), c + 1 < a.channels ? c + 1 : 0};
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_apply_packs(const gm_batch_norm_args &a)
{
    GM_GRID_LOOP(i, a.packs) {
        const gm_channel_place at = gm_channel_place_of(a, (uint32_t)i * V);
        R                      x[V];
        gm_take<T>(a.x, i * V, 1, x);
        const gm_channel_line<R> one = gm_line_of<T>(a, at.channel);
        const gm_channel_line<R> two = gm_line_of<T>(a, at.left < V ? at.next : at.channel);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            const bool behind = k >= at.left;
            x[k] = (x[k] - (behind ? two.mean : one.mean)) * (behind ? two.by : one.by) + (behind ? two.add : one.add);
        }
        gm_give<T>(a.y, i * V, x);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_grad_apply_packs(const gm_batch_norm_args &a)
{
    GM_GRID_LOOP(i, a.packs) {
        const gm_channel_place at = gm_channel_place_of(a, (uint32_t)i * V);
        const int              moves = a.mean_h_hat.data != NULL;
        R                      x[V], g[V];
        gm_take<T>(a.x, i * V, 1, x);
        gm_take<T>(a.g, i * V, 1, g);
        const gm_channel_grad_line<R> one = gm_grad_line_of<T>(a, at.channel);
        const gm_channel_grad_line<R> two = gm_grad_line_of<T>(a, at.left < V ? at.next : at.channel);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            const bool behind = k >= at.left;
            const R    moved = moves ? (x[k] - (behind ? two.mean : one.mean)) * (behind ? two.hh : one.hh) : 0;
            x[k] = g[k] * (behind ? two.by : one.by) - (behind ? two.h : one.h) - moved;
        }
        gm_give<T>(a.y, i * V, x);
    }
}

/* y = (x - mean) rstd w + b */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_apply(const gm_batch_norm_args a)
{
    if (a.packs) return gm_batch_norm_apply_packs<T>(a);
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

/* dx = (g w - mean_h - hat mean_h_hat) rstd; without these means g rstd w */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_grad_apply(const gm_batch_norm_args a)
{
    if (a.packs) return gm_batch_norm_grad_apply_packs<T>(a);
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        const int64_t c = at[3];
        const R       mean = gm_channel_number<R>(a.mean, c), rstd = gm_channel_number<R>(a.rstd, c);
        const R       by = rstd * gm_channel_at<T>(a.w, c, 1);
        const R       h = a.mean_h.data ? gm_channel_number<R>(a.mean_h, c) * rstd : 0;
        const int     moves = a.mean_h_hat.data != NULL;
        const R       hh = moves ? gm_channel_number<R>(a.mean_h_hat, c) * rstd * rstd : 0;
        if (a.vectors) {
            R x[V], g[V];
            gm_take<T>(a.x, at[1], 1, x);
            gm_take<T>(a.g, at[2], 1, g);
            GM_UNROLL for (int k = 0; k < V; k++) x[k] = g[k] * by - h - (moves ? (x[k] - mean) * hh : 0);
            gm_give<T>(a.y, at[0], x);
        } else {
            const R d = moves ? (gm_at<T>(a.x, at[1]) - mean) * hh : 0;
            gm_set<T>(a.y, at[0], gm_at<T>(a.g, at[2]) * by - h - d);
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

constexpr int ITEMS = GM_BATCH_NORM_ITEMS, BY = GM_BATCH_NORM_THREADS;

/* ---- items of L elements: 16 bytes, 8 bytes, or an element each, as the places of a channel allow. L = 0: elements
 * whose places need the whole map, not just images and what is in them. ---- */

template <class T, int L> struct GM_ALIGNED(sizeof(T) * (L ? L : 1)) gm_channel_item {
    T x[L ? L : 1];
};

/* x less `by`, which is taken away from each element */
template <class T, int L, class R = gm_real<T>>
GM_DEVICE void gm_channel_unpack(const gm_channel_item<T, L> &item, R by, R *x)
{
    GM_UNROLL for (int j = 0; j < (L ? L : 1); j++) x[j] = gm_get(item.x[j]) - by;
}

/* N items i, i + BY, ... of a channel of x, and of g. All loads start before the first is waited for. */
template <class T, int L, int N, int operands>
GM_DEVICE void gm_channel_load(const gm_batch_norm_sums_args *a, const T *x, const T *g, int64_t i,
                               gm_channel_item<T, L> (&held)[operands][N])
{
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        int64_t at[2];
        if constexpr (L == 0) {
            gm_map_place(&a->rest, operands, i + n * BY, at);
        } else {
            const uint32_t j = (uint32_t)(i + n * BY);
            const int32_t  image = (int32_t)((uint32_t)(((uint64_t)j * a->by.multiply >> 32) + j) >> a->by.shift);
            const int32_t  k = (int32_t)j - image * a->items;
            for (int o = 0; o < operands; o++) at[o] = (int64_t)image * a->image_step[o] + (int64_t)k * a->item_step[o];
        }
        held[0][n] = *(const gm_channel_item<T, L> *)(x + at[0]);
        if constexpr (operands > 1) held[1][n] = *(const gm_channel_item<T, L> *)(g + at[1]);
    }
}

/* turn, a call with N and i, for the items of this thread: GM_BATCH_NORM_ITEMS at once, and what is left one by one. */
#define GM_CHANNEL_EACH(turn)                                             \
    const int64_t first = gm_block_y * a->chunk, last = first + a->chunk; \
    const int64_t end = last < a->rest.n ? last : a->rest.n;              \
    int64_t       i = first + gm_thread;                                  \
    GM_ROLLED for (; i + (ITEMS - 1) * BY < end; i += ITEMS * BY)         \
    {                                                                     \
        constexpr int N = ITEMS;                                          \
        turn;                                                             \
    }                                                                     \
    GM_ROLLED for (; i < end; i += BY)                                    \
    {                                                                     \
        constexpr int N = 1;                                              \
        turn;                                                             \
    }

/* ---- mean and squares around it: numbers are joined as Chan, Golub and LeVeque (1979) do ---- */

template <class R> struct gm_moments {
    R count, mean, m2;
};

template <class R> GM_DEVICE void gm_moments_join(gm_moments<R> &a, const gm_moments<R> &b)
{
    const R all = a.count + b.count, share = all > 0 ? b.count / all : 0, d = b.mean - a.mean;
    a.mean += d * share;
    a.m2 += b.m2 + d * (a.count * share) * d;
    a.count = all;
}

template <class R> GM_DEVICE void gm_moments_warp(gm_moments<R> &a)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2)
        gm_moments_join(a,
                        {gm_shuffle_xor(a.count, lanes), gm_shuffle_xor(a.mean, lanes), gm_shuffle_xor(a.m2, lanes)});
}

/* Numbers are taken less `pivot`, one of the channel. */
template <class T, int L, int N, class R = gm_real<T>>
GM_DEVICE void gm_moments_turn(const gm_batch_norm_sums_args *a, const T *x, R pivot, int64_t i, gm_moments<R> &all)
{
    constexpr int         lanes = L ? L : 1;
    gm_channel_item<T, L> held[1][N];
    R                     sum[N], m2[N], v[lanes], mean = 0, around = 0;
    gm_channel_load<T, L, N, 1>(a, x, x, i, held);
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        gm_channel_unpack<T, L>(held[0][n], pivot, v);
        sum[n] = v[0];
        GM_UNROLL for (int j = 1; j < lanes; j++) sum[n] += v[j];
    }
    GM_UNROLL for (int n = 0; n < N; n++) mean += sum[n];
    mean *= (R)1 / (N * lanes);
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        gm_channel_unpack<T, L>(held[0][n], pivot, v);
        m2[n] = 0;
        GM_UNROLL for (int j = 0; j < lanes; j++) m2[n] += (v[j] - mean) * (v[j] - mean);
    }
    GM_UNROLL for (int n = 0; n < N; n++) around += m2[n];
    gm_moments_join(all, {(R)(N * lanes), mean, around});
}

template <class T, int L, class R = gm_real<T>>
GM_DEVICE gm_moments<R> gm_moments_share(const gm_batch_norm_sums_args *a, const T *x, R pivot)
{
    gm_moments<R> all = {0, 0, 0};
    GM_CHANNEL_EACH((gm_moments_turn<T, L, N>(a, x, pivot, i, all)))
    return all;
}

/* The first number of a channel, if there is one and it is finite. */
template <class T, class R = gm_real<T>> GM_DEVICE R gm_batch_norm_pivot(const gm_batch_norm_sums_args *a, int64_t c)
{
    const R first = a->rest.n ? gm_at<T>(a->x, c * a->x_step) : 0;
    return first - first == 0 ? first : 0;
}

#define GM_CHANNEL_ITEMS(share)                       \
    if (a.lanes == V) share(V);                       \
    else if (V > 2 && a.lanes == V / 2) share(V / 2); \
    else if (a.lanes) share(1);                       \
    else share(0)

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_sums(const gm_batch_norm_sums_args a)
{
    GM_SHARED(gm_moments<R>, room);
    const T      *x = (const T *)a.x + gm_block_x * a.x_step;
    const R       pivot = gm_batch_norm_pivot<T>(&a, gm_block_x);
    gm_moments<R> all;
#define GM_SHARE(lanes) all = gm_moments_share<T, lanes>(&a, x, pivot)
    GM_CHANNEL_ITEMS(GM_SHARE);
#undef GM_SHARE
    gm_moments_warp(all);
    if (gm_thread % GM_WARP == 0) room[gm_thread / GM_WARP] = all;
    GM_SYNC();
    if (gm_thread > 0) return;
    for (int w = 1; w < GM_BATCH_NORM_THREADS / GM_WARP; w++) gm_moments_join(all, room[w]);
    gm_batch_norm_put<R>(a, gm_block_x, gm_block_y, all.mean + (a.partial ? 0 : pivot), all.m2);
}

/* ---- of gradients: h, the sum of g, and the sum of g (x - mean), which times rstd is h_hat ---- */

template <class T, int L, int N, class R = gm_real<T>>
GM_DEVICE void gm_gradients_turn(const gm_batch_norm_sums_args *a, const T *x, const T *g, R mean, int64_t i,
                                 R (&h)[ITEMS], R (&h_hat)[ITEMS])
{
    gm_channel_item<T, L> held[2][N];
    R                     u[L ? L : 1], v[L ? L : 1];
    gm_channel_load<T, L, N, 2>(a, x, g, i, held);
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        gm_channel_unpack<T, L>(held[0][n], mean, u);
        gm_channel_unpack<T, L>(held[1][n], (R)0, v);
        GM_UNROLL for (int j = 0; j < (L ? L : 1); j++)
        {
            h[n] += v[j];
            h_hat[n] += v[j] * u[j];
        }
    }
}

template <class T, int L, class R = gm_real<T>>
GM_DEVICE void gm_gradients_share(const gm_batch_norm_sums_args *a, const T *x, const T *g, R mean, R *h, R *h_hat)
{
    R s[ITEMS], t[ITEMS];
    GM_UNROLL for (int n = 0; n < ITEMS; n++) s[n] = t[n] = 0;
    GM_CHANNEL_EACH((gm_gradients_turn<T, L, N>(a, x, g, mean, i, s, t)))
    GM_UNROLL for (int n = 1; n < ITEMS; n++)
    {
        s[0] += s[n];
        t[0] += t[n];
    }
    *h = s[0];
    *h_hat = t[0];
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_batch_norm_grad_sums(const gm_batch_norm_sums_args a)
{
    GM_SHARED(R, scratch);
    const int64_t c = gm_block_x;
    const T      *x = (const T *)a.x + c * a.x_step, *g = (const T *)a.g + c * a.g_step;
    const R       mean = gm_channel_number<R>(a.mean, c), rstd = gm_channel_number<R>(a.rstd, c);
    R             h, h_hat;
#define GM_SHARE(lanes) gm_gradients_share<T, lanes>(&a, x, g, mean, &h, &h_hat)
    GM_CHANNEL_ITEMS(GM_SHARE);
#undef GM_SHARE
    h = gm_block_sum(h, scratch);
    h_hat = gm_block_sum(h_hat, scratch) * rstd;
    if (gm_thread == 0) gm_batch_norm_put<R>(a, c, gm_block_y, h, h_hat);
}

/* Joins the chunks of a channel, a warp for each channel. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_batch_norm_join(const gm_batch_norm_sums_args a)
{
    const int64_t c = gm_block_x;
    const R      *from = (const R *)a.partial + c * a.chunks * 2;
    gm_moments<R> all = {0, 0, 0};
    for (int64_t k = gm_thread; k < a.chunks; k += GM_WARP) {
        const int64_t left = a.rest.n - k * a.chunk, items = left < a.chunk ? left : a.chunk;
        if (a.gradient) {
            all.mean += from[2 * k];
            all.m2 += from[2 * k + 1];
        } else {
            gm_moments_join(all, {(R)(items * (a.lanes ? a.lanes : 1)), from[2 * k], from[2 * k + 1]});
        }
    }
    if (a.gradient) {
        all.mean = gm_warp_sum(all.mean);
        all.m2 = gm_warp_sum(all.m2);
    } else {
        gm_moments_warp(all);
        all.mean += gm_batch_norm_pivot<T>(&a, c);
    }
    if (gm_thread > 0) return;
    ((R *)a.first.data)[c * a.first.step] = all.mean;
    ((R *)a.second.data)[c * a.second.step] = all.m2;
}

GM_KERNELS(gm_batch_norm_apply, gm_batch_norm_args)
GM_KERNELS(gm_batch_norm_grad_apply, gm_batch_norm_args)
GM_KERNELS(gm_batch_norm_sums, gm_batch_norm_sums_args)
GM_KERNELS(gm_batch_norm_grad_sums, gm_batch_norm_sums_args)
GM_KERNELS(gm_batch_norm_join, gm_batch_norm_sums_args)
