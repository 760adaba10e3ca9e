/* random_t.cuh - random ops of one dtype. Draws are doubles, rounded as kernels/dtype.c does: to f32, then 16 bits. */

#define GM_DRAWS(name, expression)                                \
    GM_EACH_KERNEL(name, gm_random_args)                          \
    {                                                             \
        const uint64_t step = a.step_at ? *a.step_at : a.step;    \
        GM_GRID_LOOP(i, a.map.n)                                  \
        {                                                         \
            int64_t at[3];                                        \
            gm_map_place(&a.map, 3, i, at);                       \
            uint64_t index = a.first + (uint64_t)at[2];           \
            GM_TO(a.y, at[0]) = GM_E(gm_put)((GM_R)(expression)); \
        }                                                         \
    }

GM_DRAWS(gm_uniform, gm_sample_uniform(a.low, a.high, gm_philox_word(a.key, index, step)))
GM_DRAWS(gm_truncated, gm_sample_truncated(&a.cut, gm_philox_word(a.key, index, step)))
GM_DRAWS(gm_normal, gm_random_normal(&a, index, step))
#undef GM_DRAWS

GM_EACH_KERNEL(gm_dropout_any, gm_random_args)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    const GM_R     scale = (GM_R)a.scale;
    GM_GRID_LOOP(i, a.map.n)
    {
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        bool dropped = gm_philox_word(a.key, a.first + (uint64_t)at[2], step) < a.threshold;
        GM_TO(a.y, at[0]) = GM_E(gm_put)(dropped ? 0 : GM_AT(a.x, at[1]) * scale);
    }
}

/* Items whose indices follow each other: a block of words for four elements, where the first index begins one. */
GM_DEVICE void GM_E(gm_drop)(const gm_random_args *a, uint64_t index, uint64_t step, GM_R *x)
{
    const GM_R scale = (GM_R)a->scale;
    if (index % 4 == 0 && GM_V % 4 == 0) {
        GM_UNROLL for (int b = 0; b < GM_V / 4; b++)
        {
            gm_philox w = gm_philox_at(a->key, index / 4 + (uint64_t)b, step);
            GM_UNROLL for (int k = 0; k < 4; k++) x[4 * b + k] = w.v[k] < a->threshold ? 0 : x[4 * b + k] * scale;
        }
        return;
    }
    GM_ROLLED for (int k = 0; k < GM_V; k++)
    {
        bool dropped = gm_philox_word(a->key, index + (uint64_t)k, step) < a->threshold;
        GM_TURN(x, GM_V, dropped ? 0 : x[0] * scale);
    }
}

GM_EACH_KERNEL(gm_dropout, gm_random_args)
{
    const uint64_t step = a.step_at ? *a.step_at : a.step;
    GM_GRID_LOOP(i, a.map.n)
    {
        GM_R    x[GM_V];
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        GM_E(gm_take)(a.x, at[1], a.map.step[1], x);
        GM_E(gm_drop)(&a, a.first + (uint64_t)at[2], step, x);
        GM_E(gm_give)(a.y, at[0], x);
    }
    int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * GM_V + first;
    if (first < a.map.tail) {
        bool dropped = gm_philox_word(a.key, a.first + (uint64_t)i, step) < a.threshold;
        GM_TO(a.y, i) = GM_E(gm_put)(dropped ? 0 : GM_AT(a.x, i * a.map.step[1]) * (GM_R)a.scale);
    }
}
