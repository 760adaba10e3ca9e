/* elementwise_binary.cu - binary, compare, where, axpy and affine: gm_<op>[_<function>]_<dtype> for items of 16 bytes,
 * gm_<op>_any_<dtype> for the rest. Operands that are broadcast are not expanded; a row that is used for all rows is
 * read from the cache. The limit is bandwidth. */
#include "../../common/functions.cuh"
#include "../../common/map.cuh"

#define GM_UNARY(name)
#define GM_COMPARE(name)
#define GM_BINARY(name)                                                           \
    template <class T> GM_DEVICE void gm_binary_##name(const gm_map_args a)       \
    {                                                                             \
        gm_map_items<T, 2>(a, [](auto u, auto v) { return gm_fn_##name(u, v); }); \
    }                                                                             \
    GM_KERNELS(gm_binary_##name, gm_map_args)
#include "../../../functions.def"

template <class T, class R = gm_real<T>> GM_DEVICE void gm_binary_any(const gm_map_args a)
{
    const int function = a.function;
    gm_map_elements<T, 2>(a, [=](R u, R v) { return gm_binary_of(function, u, v); });
}
GM_KERNELS(gm_binary_any, gm_map_args)

/* ---- axpy and affine; of axpy in[1] is y, which is out ---- */

template <class T, class R = gm_real<T>> GM_DEVICE void gm_axpy(const gm_map_args a)
{
    const R alpha = (R)a.alpha;
    gm_map_items<T, 2>(a, [=](R x, R y) { return y + alpha * x; });
}
GM_KERNELS(gm_axpy, gm_map_args)

template <class T, class R = gm_real<T>> GM_DEVICE void gm_axpy_any(const gm_map_args a)
{
    const R alpha = (R)a.alpha;
    gm_map_elements<T, 2>(a, [=](R x, R y) { return y + alpha * x; });
}
GM_KERNELS(gm_axpy_any, gm_map_args)

template <class T, class R = gm_real<T>> GM_DEVICE void gm_affine(const gm_map_args a)
{
    const R alpha = (R)a.alpha, beta = (R)a.beta;
    gm_map_items<T, 1>(a, [=](R x) { return alpha * x + beta; });
}
GM_KERNELS(gm_affine, gm_map_args)

template <class T, class R = gm_real<T>> GM_DEVICE void gm_affine_any(const gm_map_args a)
{
    const R alpha = (R)a.alpha, beta = (R)a.beta;
    gm_map_elements<T, 1>(a, [=](R x) { return alpha * x + beta; });
}
GM_KERNELS(gm_affine_any, gm_map_args)

/* ---- compare: out is u8 ---- */

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_compare(const gm_map_args a)
{
    uint8_t *out = (uint8_t *)a.out;
    GM_GRID_LOOP(i, a.map.n) {
        R       u[V], v[V];
        uint8_t y[V];
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        gm_take<T>(a.in[0], at[1], a.map.step[1], u);
        gm_take<T>(a.in[1], at[2], a.map.step[2], v);
        GM_UNROLL for (int k = 0; k < V; k++) y[k] = gm_compare_of(a.function, u[k], v[k]);
        gm_give_u8(out, at[0], y);
    }
    const int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * V + first;
    if (first < a.map.tail)
        out[i] = gm_compare_of(a.function, gm_at<T>(a.in[0], i * a.map.step[1]), gm_at<T>(a.in[1], i * a.map.step[2]));
}
GM_KERNELS(gm_compare, gm_map_args)

template <class T> GM_DEVICE void gm_compare_any(const gm_map_args a)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[3];
        gm_map_place(&a.map, 3, i, at);
        ((uint8_t *)a.out)[at[0]] = gm_compare_of(a.function, gm_at<T>(a.in[0], at[1]), gm_at<T>(a.in[1], at[2]));
    }
}
GM_KERNELS(gm_compare_any, gm_map_args)

/* ---- where: in[0] is the condition, u8 ---- */

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_where(const gm_map_args a)
{
    GM_GRID_LOOP(i, a.map.n) {
        uint8_t c[V];
        R       u[V], v[V];
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        gm_take_u8(a.in[0], at[1], a.map.step[1], c);
        gm_take<T>(a.in[1], at[2], a.map.step[2], u);
        gm_take<T>(a.in[2], at[3], a.map.step[3], v);
        GM_UNROLL for (int k = 0; k < V; k++) u[k] = c[k] ? u[k] : v[k];
        gm_give<T>(a.out, at[0], u);
    }
    const int64_t first = gm_block_x * gm_block_size + gm_thread, i = a.map.n * V + first;
    if (first < a.map.tail) {
        const int c = ((const uint8_t *)a.in[0])[i * a.map.step[1]];
        ((T *)a.out)[i] = c ? ((const T *)a.in[1])[i * a.map.step[2]] : ((const T *)a.in[2])[i * a.map.step[3]];
    }
}
GM_KERNELS(gm_where, gm_map_args)

template <class T> GM_DEVICE void gm_where_any(const gm_map_args a)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[4];
        gm_map_place(&a.map, 4, i, at);
        const int c = ((const uint8_t *)a.in[0])[at[1]];
        ((T *)a.out)[at[0]] = c ? ((const T *)a.in[1])[at[2]] : ((const T *)a.in[2])[at[3]];
    }
}
GM_KERNELS(gm_where_any, gm_map_args)
