/* random.cu - uniform, normal and dropout: functions of the stream and of each element's index in the global tensor
 * (kernels/sample.h). Initial values are drawn only once, so a thread draws one element in f64. Dropout runs in every
 * step (kernels/drop.h), so it works on items of 16 bytes, with one block of Philox (7 rounds, 28 instructions) for
 * each. These are 7 instructions for an element of f32, and 4 for one of 16 bits. At full bandwidth they have time for
 * 49 and 24. */
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

/* What dropout makes of x, the element with this index. */
template <class R> GM_DEVICE R gm_kept(const gm_random_args *a, uint64_t index, uint64_t step, R x)
{
    return gm_is_dropped(a->drop.round_keys, a->drop.threshold, index, step) ? 0 : x * (R)a->keep;
}

template <class T> GM_DEVICE void gm_dropout_any(const gm_random_args a)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        gm_set<T>(a.y, at[0], gm_kept(&a, a.first + (uint64_t)at[2], step, gm_at<T>(a.x, at[1])));
    }
}

/* The same for an item, V elements whose indices follow each other; one block has their numbers, if the first index is
 * a multiple of V. */
template <int V, class R> GM_DEVICE void gm_keep_item(const gm_random_args *a, uint64_t index, uint64_t step, R *x)
{
    static_assert(GM_DROP_EACH % V == 0 && V % 2 == 0, "an item must not reach over a block's end");
    if (index % V == 0) {
        const gm_philox block = gm_drop_block(a->drop.round_keys, index / GM_DROP_EACH, step);
        const int       word = (int)(index % GM_DROP_EACH / V) * (V / 2); /* the item's first */
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            const uint32_t two = V == GM_DROP_EACH ? block.v[k / 2] : gm_philox_pick(block, word + k / 2);
            x[k] = (two >> (k % 2 * 16) & 0xffffu) < a->drop.threshold ? 0 : x[k] * (R)a->keep;
        }
        return;
    }
    GM_ROLLED for (int k = 0; k < V; k++) gm_push<V>(x, gm_kept(a, index + (uint64_t)k, step, x[0]));
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_dropout(const gm_random_args a)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    GM_GRID_LOOP(i, a.map.n) {
        R       x[V];
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        gm_take<T>(a.x, at[1], a.map.step[1], x);
        gm_keep_item<V>(&a, a.first + (uint64_t)at[2], step, x);
        gm_give<T>(a.y, at[0], x);
    }
    int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * V + first;
    if (first < a.map.tail)
        gm_set<T>(a.y, i, gm_kept(&a, a.first + (uint64_t)i, step, gm_at<T>(a.x, i * a.map.step[1])));
}

GM_KERNELS(gm_uniform, gm_random_args)
GM_KERNELS_AS(gm_truncated, gm_draw_truncated, gm_random_args) /* its own name is a type's */
GM_KERNELS(gm_normal, gm_random_args)
GM_KERNELS(gm_dropout_any, gm_random_args)
GM_KERNELS(gm_dropout, gm_random_args)
