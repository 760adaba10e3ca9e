/* map.cuh - loops of kernels over a map (map.h), in items of 16 bytes or in elements, for T, the type of elements
 * (dtype.cuh).
 *
 *     template <class T> GM_DEVICE void gm_axpy(const gm_map_args &a)
 *     {
 *         const gm_real<T> alpha = (gm_real<T>)a.alpha;
 *         gm_map_items<T, 2>(a, [=](auto x, auto y) { return y + alpha * x; });
 *     }
 *
 * A thread has two items of each operand under way. With 64 registers for each thread, a multiprocessor runs 1,024
 * threads, which makes 32 KiB of loads for each operand. Bandwidth times latency of an H200 is about 29 KiB. */
#ifndef GM_CUDA_MAP_CUH
#define GM_CUDA_MAP_CUH

#include "dtype.cuh"
#include "map.h"

/* Element i, to read in the type of arithmetic; to write. */
template <class T> GM_DEVICE gm_real<T> gm_at(const void *p, int64_t i) { return gm_get(((const T *)p)[i]); }
template <class T> GM_DEVICE void       gm_set(void *p, int64_t i, gm_real<T> v) { ((T *)p)[i] = gm_put<T>(v); }

/* An item as it is loaded: its lanes (step 1), or one element shown again and again (step 0). */
template <class T> GM_DEVICE gm_vector gm_fetch(const void *p, int64_t at, int step)
{
    gm_real<T> x[gm_lanes<T>];
    if (step) return gm_load_vector((const T *)p + at);
    GM_UNROLL for (int k = 0; k < gm_lanes<T>; k++) x[k] = gm_at<T>(p, at);
    return gm_pack<T>(x);
}

template <class T> GM_DEVICE void gm_take(const void *p, int64_t at, int step, gm_real<T> *x)
{
    gm_unpack<T>(gm_fetch<T>(p, at, step), x);
}

template <class T> GM_DEVICE void gm_give(void *p, int64_t at, const gm_real<T> *y)
{
    gm_store_vector((T *)p + at, gm_pack<T>(y));
}

/* As many bytes, V: conditions and results of comparisons. The host has seen to it that they are aligned to V. */
template <int V> struct GM_ALIGNED(V) gm_bytes {
    uint8_t byte[V];
};

template <int V> GM_DEVICE void gm_take_u8(const void *p, int64_t at, int step, uint8_t (&x)[V])
{
    const uint8_t *from = (const uint8_t *)p + at;
    gm_bytes<V>    b;
    if (step) b = *(const gm_bytes<V> *)from;
    GM_UNROLL for (int k = 0; k < V; k++) x[k] = step ? b.byte[k] : from[0];
}

template <int V> GM_DEVICE void gm_give_u8(void *p, int64_t at, const uint8_t (&y)[V])
{
    gm_bytes<V> b;
    GM_UNROLL for (int k = 0; k < V; k++) b.byte[k] = y[k];
    *(gm_bytes<V> *)((uint8_t *)p + at) = b;
}

/* f(u), or f(u, v) where there are two inputs. */
template <int inputs, class F, class R> GM_DEVICE R gm_map_call(F f, R u, R v)
{
    if constexpr (inputs == 1) return f(u);
    else return f(u, v);
}

/* out = f(u) or f(u, v) of the elements of `inputs` (1 or 2) inputs, in items; then the tail. Both items of a turn are
 * loaded before the first is worked on; the loop over them stays a loop, for the code's size. */
template <class T, int inputs, class F, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_map_items(const gm_map_args &a, F f)
{
    const int64_t step = gm_grid_x * gm_block_size, first = gm_block_x * gm_block_size + gm_thread;
    for (int64_t i = first; i < a.map.n; i += 2 * step) {
        gm_vector now[inputs], then[inputs];
        int64_t   at[inputs + 1], then_at[inputs + 1];
        const int both = i + step < a.map.n;
        gm_map_place(&a.map, inputs + 1, i, at);
        gm_map_place(&a.map, inputs + 1, both ? i + step : i, then_at);
        GM_UNROLL for (int o = 0; o < inputs; o++)
        {
            now[o] = gm_fetch<T>(a.in[o], at[o + 1], a.map.step[o + 1]);
            then[o] = gm_fetch<T>(a.in[o], then_at[o + 1], a.map.step[o + 1]);
        }
        GM_ROLLED for (int b = 0; b <= both; b++)
        {
            R x[inputs][V], y[V];
            GM_UNROLL for (int o = 0; o < inputs; o++) gm_unpack<T>(b ? then[o] : now[o], x[o]);
            GM_UNROLL for (int k = 0; k < V; k++) y[k] = gm_map_call<inputs>(f, x[0][k], x[inputs - 1][k]);
            gm_give<T>(a.out, b ? then_at[0] : at[0], y);
        }
    }
    if (first < a.map.tail) {
        const int64_t i = a.map.n * V + first;
        const R       u = gm_at<T>(a.in[0], i * a.map.step[1]), v = gm_at<T>(a.in[inputs - 1], i * a.map.step[inputs]);
        gm_set<T>(a.out, i, gm_map_call<inputs>(f, u, v));
    }
}

/* The same one element at a time, of any strides. */
template <class T, int inputs, class F, class R = gm_real<T>> GM_DEVICE void gm_map_elements(const gm_map_args &a, F f)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[inputs + 1];
        gm_map_place(&a.map, inputs + 1, i, at);
        const R u = gm_at<T>(a.in[0], at[1]), v = gm_at<T>(a.in[inputs - 1], at[inputs]);
        gm_set<T>(a.out, at[0], gm_map_call<inputs>(f, u, v));
    }
}

#endif
