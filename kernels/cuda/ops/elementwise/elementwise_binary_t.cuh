/* elementwise_binary_t.cuh - two inputs, and the ops with factors, of one dtype. */

#define GM_UNARY(name)
#define GM_COMPARE(name)
#define GM_BINARY(name) \
    GM_EACH_KERNEL(gm_binary_##name, gm_map_args) { GM_MAP_ITEMS(2, GM_N(gm_fn_##name)(u, v)) }
#include "../../../functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE
GM_EACH_KERNEL(gm_binary_any, gm_map_args) { GM_MAP_ELEMENTS(2, GM_N(gm_binary)(a.function, u, v)) }

/* in[1] is y, which is out. */
GM_EACH_KERNEL(gm_axpy, gm_map_args)
{
    const GM_R alpha = (GM_R)a.alpha;
    GM_MAP_ITEMS(2, v + alpha * u)
}
GM_EACH_KERNEL(gm_axpy_any, gm_map_args) { GM_MAP_ELEMENTS(2, v + (GM_R)a.alpha * u) }

GM_EACH_KERNEL(gm_affine, gm_map_args)
{
    const GM_R alpha = (GM_R)a.alpha, beta = (GM_R)a.beta;
    GM_MAP_ITEMS(1, alpha * u + beta)
}
GM_EACH_KERNEL(gm_affine_any, gm_map_args) { GM_MAP_ELEMENTS(1, (GM_R)a.alpha * u + (GM_R)a.beta) }

/* out is u8. */
GM_EACH_KERNEL(gm_compare, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n)
    {
        GM_R    u[GM_V], v[GM_V];
        uint8_t y[GM_V];
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        GM_E(gm_take)(a.in[0], at[1], a.map.step[1], u);
        GM_E(gm_take)(a.in[1], at[2], a.map.step[2], v);
        GM_UNROLL for (int k = 0; k < GM_V; k++) y[k] = (uint8_t)GM_N(gm_compare)(a.function, u[k], v[k]);
        GM_E(gm_give_u8)(a.out, at[0], y);
    }
    int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * GM_V + first;
    if (first < a.map.tail)
        ((uint8_t *)a.out)[i] = (uint8_t)GM_N(gm_compare)(a.function, GM_AT(a.in[0], i * a.map.step[1]),
                                                          GM_AT(a.in[1], i * a.map.step[2]));
}

GM_EACH_KERNEL(gm_compare_any, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n)
    {
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        ((uint8_t *)a.out)[at[0]] =
            (uint8_t)GM_N(gm_compare)(a.function, GM_AT(a.in[0], at[1]), GM_AT(a.in[1], at[2]));
    }
}

/* in[0] is the condition, u8. */
GM_EACH_KERNEL(gm_where, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n)
    {
        uint8_t c[GM_V];
        GM_R    u[GM_V], v[GM_V];
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        GM_E(gm_take_u8)(a.in[0], at[1], a.map.step[1], c);
        GM_E(gm_take)(a.in[1], at[2], a.map.step[2], u);
        GM_E(gm_take)(a.in[2], at[3], a.map.step[3], v);
        GM_UNROLL for (int k = 0; k < GM_V; k++) u[k] = c[k] ? u[k] : v[k];
        GM_E(gm_give)(a.out, at[0], u);
    }
    int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * GM_V + first;
    if (first < a.map.tail) {
        int c = ((const uint8_t *)a.in[0])[i * a.map.step[1]];
        GM_TO(a.out, i) = c ? GM_TO(a.in[1], i * a.map.step[2]) : GM_TO(a.in[2], i * a.map.step[3]);
    }
}

GM_EACH_KERNEL(gm_where_any, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n)
    {
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        GM_TO(a.out, at[0]) = ((const uint8_t *)a.in[0])[at[1]] ? GM_TO(a.in[1], at[2]) : GM_TO(a.in[2], at[3]);
    }
}
