/* random.cu - uniform, normal and dropout: functions of the stream and of each element's index in the global tensor
 * (kernels/sample.h). Initial values are drawn only once, so a thread draws one element in f64. Dropout runs in every
 * step, so it works on items of 16 bytes, with one philox block (10 rounds, some 60 instructions) for four elements.
 * These are 15 instructions for each element. At full bandwidth an element has time for 49 instructions in f32, and for
 * 24 in 16 bits. */
#include "../../common/map.cuh"
#include "random_args.h"

/* The two of a pair share their words: elements 2k and 2k + 1. */
GM_DEVICE double gm_random_normal(const gm_random_args *a, uint64_t index, uint64_t step)
{
    uint64_t  pair = index & ~(uint64_t)1;
    double    even, odd;
    gm_philox w = gm_philox_at(a->key, pair / 4, step);
    gm_sample_normal(a->mean, a->std, pair % 4 ? w.v[2] : w.v[0], pair % 4 ? w.v[3] : w.v[1], &even, &odd);
    return index & 1 ? odd : even;
}

/* y = draw(a, index, step): doubles, rounded as kernels/dtype.c does: to f32, then 16 bits. */
template <class T, class F> GM_DEVICE void gm_draws(const gm_random_args &a, F draw)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        const uint64_t index = a.first + (uint64_t)at[2];
        gm_set<T>(a.y, at[0], (gm_real<T>)draw(a, index, step));
    }
}

template <class T> GM_DEVICE void gm_uniform(const gm_random_args a)
{
    gm_draws<T>(a, [](const gm_random_args &a, uint64_t index, uint64_t step) {
        return gm_sample_uniform(a.low, a.high, gm_philox_word(a.key, index, step));
    });
}

template <class T> GM_DEVICE void gm_draw_truncated(const gm_random_args a)
{
    gm_draws<T>(a, [](const gm_random_args &a, uint64_t index, uint64_t step) {
        return gm_sample_truncated(&a.cut, gm_philox_word(a.key, index, step));
    });
}

template <class T> GM_DEVICE void gm_normal(const gm_random_args a)
{
    gm_draws<T>(
        a, [](const gm_random_args &a, uint64_t index, uint64_t step) { return gm_random_normal(&a, index, step); });
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_dropout_any(const gm_random_args a)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    const R        scale = (R)a.scale;
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        bool dropped = gm_philox_word(a.key, a.first + (uint64_t)at[2], step) < a.threshold;
        gm_set<T>(a.y, at[0], dropped ? 0 : gm_at<T>(a.x, at[1]) * scale);
    }
}

/* Items whose indices follow each other: a block of words for four elements, where the first index begins one. */
template <int V, class R> GM_DEVICE void gm_drop(const gm_random_args *a, uint64_t index, uint64_t step, R *x)
{
    const R scale = (R)a->scale;
    if (index % 4 == 0 && V % 4 == 0) {
        GM_UNROLL for (int b = 0; b < V / 4; b++)
        {
            gm_philox w = gm_philox_at(a->key, index / 4 + (uint64_t)b, step);
            GM_UNROLL for (int k = 0; k < 4; k++) x[4 * b + k] = w.v[k] < a->threshold ? 0 : x[4 * b + k] * scale;
        }
        return;
    }
    GM_ROLLED for (int k = 0; k < V; k++)
    {
        bool dropped = gm_philox_word(a->key, index + (uint64_t)k, step) < a->threshold;
        gm_push<V>(x, dropped ? 0 : x[0] * scale);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_dropout(const gm_random_args a)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    GM_GRID_LOOP(i, a.map.n) {
        R       x[V];
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        gm_take<T>(a.x, at[1], a.map.step[1], x);
        gm_drop<V>(&a, a.first + (uint64_t)at[2], step, x);
        gm_give<T>(a.y, at[0], x);
    }
    int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * V + first;
    if (first < a.map.tail) {
        bool dropped = gm_philox_word(a.key, a.first + (uint64_t)i, step) < a.threshold;
        gm_set<T>(a.y, i, dropped ? 0 : gm_at<T>(a.x, i * a.map.step[1]) * (R)a.scale);
    }
}

GM_KERNELS(gm_uniform, gm_random_args)
GM_KERNELS_AS(gm_truncated, gm_draw_truncated, gm_random_args) /* its own name is a type's */
GM_KERNELS(gm_normal, gm_random_args)
GM_KERNELS(gm_dropout_any, gm_random_args)
GM_KERNELS(gm_dropout, gm_random_args)
