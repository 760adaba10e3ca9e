/* columns.cu - sums over rows (columns_args.h). In the first pass a warp has 32 packs of columns and every eighth row
 * of its block's set. The sums of the warps are then added in order. */
#include "../../common/rows.cuh"
#include "../../common/whole.cuh"
#include "columns_args.h"
#include "../../common/functions.cuh"

/* f'(x) of what gm_function_is_activation allows, by number. */
template <class R> GM_DEVICE R gm_activation_slope(int function, R x)
{
    switch (function) {
    case GM_FN_relu: return gm_slope_relu(x, (R)0);
    case GM_FN_gelu: return gm_slope_gelu(x, (R)0);
    case GM_FN_gelu_tanh: return gm_slope_gelu_tanh(x, (R)0);
    case GM_FN_silu: return gm_slope_silu(x, (R)0);
    case GM_FN_sigmoid: return gm_slope_sigmoid(x, (R)0);
    case GM_FN_tanh: return gm_slope_tanh(x, (R)0);
    }
    return 1;
}

/* The same for elements T of 16 bits: sigmoids, off by some units in the last place of f32, take five instructions.
 * With s = sigmoid(2 z), tanh(z) = 2 s - 1. Others are the functions of the CUDA library. */
GM_DEVICE float gm_sigmoid_near(float x) { return gm_reciprocal_near(1 + gm_exp2_near(x * -1.44269504088896340736f)); }

template <class T, int function, class R = gm_real<T>> GM_DEVICE R gm_slope_near(R x)
{
    if constexpr (gm_is_short<T> && function == GM_FN_gelu_tanh) {
        const R s = gm_sigmoid_near(2 * gm_tanh_argument(x));
        return s + 2 * x * s * (1 - s) * ((R)0.79788456080286535588 * (1 + 3 * (R)0.044715 * x * x));
    } else if constexpr (gm_is_short<T> && function == GM_FN_silu) {
        const R s = gm_sigmoid_near(x);
        return s * (1 + x * (1 - s));
    } else if constexpr (gm_is_short<T> && function == GM_FN_sigmoid) {
        const R s = gm_sigmoid_near(x);
        return s * (1 - s);
    } else if constexpr (gm_is_short<T> && function == GM_FN_tanh) {
        const R s = gm_sigmoid_near(2 * x);
        return 4 * s * (1 - s);
    } else {
        return gm_activation_slope(function, x);
    }
}

/* The sums of a block's warps, in order, to the block's set. room: one number a thread and lane of a pack. */
template <class R, int V> GM_DEVICE void gm_columns_join(void *to, const R (&sum)[V], R *room, int64_t i, int64_t width)
{
    GM_SYNC();
    GM_UNROLL for (int j = 0; j < V; j++) room[j * gm_block_size + gm_thread] = sum[j];
    GM_SYNC();
    if (gm_thread >= GM_WARP) return;
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        R all = 0;
        for (int k = gm_thread; k < gm_block_size; k += GM_WARP) all += room[j * gm_block_size + k];
        if (i + j < width) ((R *)to)[gm_block_y * width + i + j] = all;
    }
}

#define GM_COLUMNS_LOOP                                                                          \
    const int64_t i = (gm_block_x * GM_WARP + gm_thread % GM_WARP) * V;                          \
    const int64_t end = (gm_block_y + 1) * a.tile < a.rows ? (gm_block_y + 1) * a.tile : a.rows; \
    for (int64_t r = gm_block_y * a.tile + gm_thread / GM_WARP; r < end && i < a.width; r += GM_COLUMNS_WARPS)

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_columns_norm(const gm_columns_args a)
{
    GM_SHARED(R, room);
    R dw[V], db[V], g[V], x[V];
    GM_UNROLL for (int j = 0; j < V; j++) dw[j] = db[j] = 0;
    GM_COLUMNS_LOOP {
        R               mean = a.mean.data ? gm_row_number<R>(&a.mean, r) : 0, rstd = gm_row_number<R>(&a.rstd, r);
        const gm_vector held_g = gm_row_load<T>(&a.g, gm_row_start(&a.g, r), i, a.width);
        const gm_vector held_x = gm_row_load<T>(&a.x, gm_row_start(&a.x, r), i, a.width);
        gm_unpack<T>(held_g, g);
        gm_unpack<T>(held_x, x);
        GM_UNROLL for (int j = 0; j < V; j++)
        {
            dw[j] += g[j] * ((x[j] - mean) * rstd);
            db[j] += g[j];
        }
    }
    if (a.dw) gm_columns_join(a.dw, dw, room, i, a.width);
    if (a.db) gm_columns_join(a.db, db, room, i, a.width);
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_columns_activation(const gm_columns_args a)
{
    GM_SHARED(R, room);
    R db[V], g[V], x[V];
    GM_UNROLL for (int j = 0; j < V; j++) db[j] = 0;
    GM_COLUMNS_LOOP {
        gm_vector held_g = gm_row_load<T>(&a.g, gm_row_start(&a.g, r), i, a.width), held_x = held_g;
        if (a.function) held_x = gm_row_load<T>(&a.pre, gm_row_start(&a.pre, r), i, a.width);
        gm_unpack<T>(held_g, g);
        if (a.function) {
            gm_unpack<T>(held_x, x);
            GM_UNROLL for (int j = 0; j < V; j++) if (i + j < a.width) g[j] *= gm_activation_slope(a.function, x[j]);
        }
        if (a.dpre.data) gm_row_give<T>(&a.dpre, gm_row_start(&a.dpre, r), i, a.width, g);
        GM_UNROLL for (int j = 0; j < V; j++) db[j] += g[j];
    }
    if (a.db) gm_columns_join(a.db, db, room, i, a.width);
}

/* gm_columns_activation of even rows (gm_rows_even). A thread loads those of N rows before it waits. */
template <class T, int function, int N, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_columns_turn(const gm_columns_args *a, int64_t r, int64_t i, R (&db)[V])
{
    gm_vector g[N], pre[N];
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        const int64_t row = r + n * GM_COLUMNS_WARPS;
        g[n] = gm_load_vector((const T *)a->g.data + row * a->g.stride[0] + i);
        if (function) pre[n] = gm_load_vector((const T *)a->pre.data + row * a->pre.stride[0] + i);
    }
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        R v[V], x[V];
        gm_unpack<T>(g[n], v);
        if constexpr (function != GM_FN_none) {
            gm_unpack<T>(pre[n], x);
            GM_UNROLL for (int j = 0; j < V; j++) v[j] *= gm_slope_near<T, function>(x[j]);
        }
        if (a->dpre.data)
            gm_store_whole((T *)a->dpre.data + (r + n * GM_COLUMNS_WARPS) * a->dpre.stride[0] + i, gm_pack<T>(v));
        GM_UNROLL for (int j = 0; j < V; j++) db[j] += v[j];
    }
}

template <class T, int function, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_columns_rows(const gm_columns_args *a, R (&db)[V])
{
    constexpr int N = !function ? 4 : sizeof(T) == 8 ? 1 : 2, by = GM_COLUMNS_WARPS; /* f64: for registers */
    const int64_t i = (gm_block_x * GM_WARP + gm_thread % GM_WARP) * V, last = (gm_block_y + 1) * a->tile;
    const int64_t end = last < a->rows ? last : a->rows;
    int64_t       r = gm_block_y * a->tile + gm_thread / GM_WARP;
    if (i >= a->width) return;
    GM_ROLLED for (; r + (N - 1) * by < end; r += N * by) gm_columns_turn<T, function, N>(a, r, i, db);
    GM_ROLLED for (; r < end; r += by) gm_columns_turn<T, function, 1>(a, r, i, db);
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_columns_even(const gm_columns_args a)
{
    GM_SHARED(R, room);
    R db[V];
    GM_UNROLL for (int j = 0; j < V; j++) db[j] = 0;
    switch (a.function) {
    case GM_FN_relu: gm_columns_rows<T, GM_FN_relu>(&a, db); break;
    case GM_FN_gelu: gm_columns_rows<T, GM_FN_gelu>(&a, db); break;
    case GM_FN_gelu_tanh: gm_columns_rows<T, GM_FN_gelu_tanh>(&a, db); break;
    case GM_FN_silu: gm_columns_rows<T, GM_FN_silu>(&a, db); break;
    case GM_FN_sigmoid: gm_columns_rows<T, GM_FN_sigmoid>(&a, db); break;
    case GM_FN_tanh: gm_columns_rows<T, GM_FN_tanh>(&a, db); break;
    default: gm_columns_rows<T, GM_FN_none>(&a, db);
    }
    if (a.db) gm_columns_join(a.db, db, room, (gm_block_x * GM_WARP + gm_thread % GM_WARP) * V, a.width);
}

/* The second pass: a lane has a column, the warps take turns with the sets. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_columns_sum(const gm_columns_sum_args a)
{
    GM_SHARED(R, room);
    const int64_t      i = gm_block_x * GM_WARP + gm_thread % GM_WARP;
    const gm_row_view *out = &a.out[gm_block_y];
    const R           *part = (const R *)a.part[gm_block_y];
    R                  sum = 0;
    if (!out->data) return;
    for (int64_t k = gm_thread / GM_WARP; k < a.tiles && i < a.width; k += GM_COLUMNS_SUM_WARPS)
        sum += part[k * a.width + i];
    room[gm_thread] = sum;
    GM_SYNC();
    if (gm_thread >= GM_WARP || i >= a.width) return;
    for (int k = gm_thread + GM_WARP; k < gm_block_size; k += GM_WARP) sum += room[k];
    T *to = (T *)out->data + i * out->step;
    *to = gm_put<T>(a.accumulate ? gm_get(*to) + sum : sum);
}

GM_KERNELS(gm_columns_norm, gm_columns_args)
GM_KERNELS(gm_columns_activation, gm_columns_args)
GM_KERNELS(gm_columns_even, gm_columns_args)
GM_KERNELS(gm_columns_sum, gm_columns_sum_args)
