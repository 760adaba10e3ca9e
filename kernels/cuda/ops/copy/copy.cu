/* copy.cu - the kernels of fill, copy and scale:
 *     gm_move_<bytes>        moves elements of this size as bits; 16 bytes may be an item of smaller elements
 *     gm_turn_<bytes>        moves a plane whose rows become columns, through shared memory
 *     gm_turn_even_<bytes>   the same by 16 bytes, where both sides are whole packs of these
 *     gm_cast_<from>_<to>    casts between floats, in items
 *     gm_cast_any            all other casts
 *     gm_scale_<from>_<to>, gm_scale_any    cast, and multiply by a number that only the device knows
 * The limit is bandwidth: each element is read once and written once. */
#include "../../common/map.cuh"
#include "../../common/whole.cuh"
#include "copy_args.h"

/* ---- bits, by cells of 1, 2, 4, 8 and 16 bytes ---- */

template <class U> struct GM_ALIGNED(sizeof(U)) gm_cell {
    U bits;
};

#define GM_KERNELS_BY_SIZE(name, type)                        \
    GM_KERNEL(name##_1, type) { name<gm_cell<uint8_t>>(a); }  \
    GM_KERNEL(name##_2, type) { name<gm_cell<uint16_t>>(a); } \
    GM_KERNEL(name##_4, type) { name<gm_cell<uint32_t>>(a); } \
    GM_KERNEL(name##_8, type) { name<gm_cell<uint64_t>>(a); }

template <class C> GM_DEVICE void gm_move(const gm_map_args a)
{
    const int64_t step = gm_grid_x * gm_block_size;
    for (int64_t i = gm_block_x * gm_block_size + gm_thread; i < a.map.n; i += 2 * step) {
        int64_t    at[2], next[2];
        const bool both = i + step < a.map.n;
        gm_map_place(&a.map, 2, i, at);
        gm_map_place(&a.map, 2, both ? i + step : i, next);
        const C one = ((const C *)a.in[0])[at[1]], two = ((const C *)a.in[0])[next[1]];
        ((C *)a.out)[at[0]] = one;
        if (both) ((C *)a.out)[next[0]] = two;
    }
}

template <class C> GM_DEVICE void gm_fill_with(const gm_map_args &a, C v)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[1];
        gm_map_place(&a.map, 1, i, at);
        ((C *)a.out)[at[0]] = v;
    }
}

template <class C> GM_DEVICE void gm_fill(const gm_map_args a) { gm_fill_with(a, C{(decltype(C::bits))a.pattern[0]}); }

/* Rows of a tile have one cell more than is used, so that its columns lie in different banks.
 * Blocks of 32 x 8 threads: block x goes over tiles of a plane, y over the planes of the map. */
template <class C> GM_DEVICE void gm_turn(const gm_turn_args a)
{
    GM_SHARED(C, tile);
    const int64_t across = (a.columns + GM_TILE - 1) / GM_TILE;
    const int64_t row = gm_block_x / across * GM_TILE, column = gm_block_x % across * GM_TILE;
    const int     lane = gm_thread % GM_TILE, line = gm_thread / GM_TILE;
    for (int64_t plane = gm_block_y; plane < a.map.n; plane += a.planes_at_once) {
        int64_t at[2];
        gm_map_place(&a.map, 2, plane, at);
        const C *x = (const C *)a.x + at[1];
        C       *y = (C *)a.y + at[0];
        for (int k = line; k < GM_TILE; k += GM_TILE_LINES)
            if (column + k < a.columns && row + lane < a.rows)
                tile[k * (GM_TILE + 1) + lane] = x[(column + k) * a.x_column + row + lane];
        GM_SYNC();
        for (int k = line; k < GM_TILE; k += GM_TILE_LINES)
            if (row + k < a.rows && column + lane < a.columns)
                y[(row + k) * a.y_row + column + lane] = tile[lane * (GM_TILE + 1) + k];
        GM_SYNC();
    }
}

/* A plate of GM_PLATE rows and columns of cells of 2 or 4 bytes. A line of the plate in shared memory is a column of y;
 * its bytes come as words, as the gap between lines asks for. A pack of y is gathered from as many lines as it has
 * cells. */
template <class C> GM_DEVICE void gm_turn_even(const gm_turn_args a)
{
    constexpr int V = 16 / (int)sizeof(C), PACKS = GM_PLATE / V, EACH = GM_PLATE * PACKS / (GM_TILE * GM_TILE_LINES);
    constexpr int PITCH = GM_PLATE + GM_PLATE_GAP / (int)sizeof(C), WORDS = PITCH * (int)sizeof(C) / 4;
    GM_SHARED(C, plate);
    uint32_t     *words = (uint32_t *)plate;
    const int64_t across = (a.columns + GM_PLATE - 1) / GM_PLATE;
    const int64_t row = gm_block_x / across * GM_PLATE, column = gm_block_x % across * GM_PLATE;
    for (int64_t plane = gm_block_y; plane < a.map.n; plane += a.planes_at_once) {
        gm_vector held[EACH] = {{{0}}};
        int64_t   at[2];
        gm_map_place(&a.map, 2, plane, at);
        const C *x = (const C *)a.x + at[1];
        C       *y = (C *)a.y + at[0];
        GM_UNROLL for (int n = 0; n < EACH; n++)
        {
            const int t = gm_thread + n * GM_TILE * GM_TILE_LINES, line = t / PACKS, place = t % PACKS * V;
            if (column + line < a.columns && row + place < a.rows)
                held[n] = gm_load_vector(x + (column + line) * a.x_column + row + place);
        }
        GM_UNROLL for (int n = 0; n < EACH; n++)
        {
            const int t = gm_thread + n * GM_TILE * GM_TILE_LINES, line = t / PACKS, pack = t % PACKS;
            GM_UNROLL for (int j = 0; j < 4; j++) words[line * WORDS + 4 * pack + j] = held[n].word[j];
        }
        GM_SYNC();
        GM_UNROLL for (int n = 0; n < EACH; n++)
        {
            const int t = gm_thread + n * GM_TILE * GM_TILE_LINES, line = t / PACKS, place = t % PACKS * V;
            union GM_ALIGNED(16) {
                gm_vector v;
                C         x[V];
            } u;
            GM_UNROLL for (int j = 0; j < V; j++) u.x[j] = plate[(place + j) * PITCH + line];
            if (row + line < a.rows && column + place < a.columns)
                gm_store_whole(y + (row + line) * a.y_row + column + place, u.v);
        }
        GM_SYNC();
    }
}

GM_KERNEL(gm_turn_even_2, gm_turn_args) { gm_turn_even<gm_cell<uint16_t>>(a); }
GM_KERNEL(gm_turn_even_4, gm_turn_args) { gm_turn_even<gm_cell<uint32_t>>(a); }
GM_KERNELS_BY_SIZE(gm_move, gm_map_args)
GM_KERNELS_BY_SIZE(gm_fill, gm_map_args)
GM_KERNELS_BY_SIZE(gm_turn, gm_turn_args)
GM_KERNEL(gm_move_16, gm_map_args) { gm_move<gm_vector>(a); }
GM_KERNEL(gm_fill_16, gm_map_args)
{
    const uint64_t *p = a.pattern;
    gm_fill_with(a, gm_vector{{(uint32_t)p[0], (uint32_t)(p[0] >> 32), (uint32_t)p[1], (uint32_t)(p[1] >> 32)}});
}

/* ---- between dtypes, with the results of kernels/dtype.c, NaN's sign and digits included, which the GPU's own
 * conversions would drop ---- */

GM_DEVICE float gm_cast_f16_to_f32(gm_f16 h)
{
    if ((h.bits & 0x7c00) != 0x7c00) return gm_get(h);
    return gm_as_float((uint32_t)(h.bits & 0x8000) << 16 | 0x7f800000u | (uint32_t)(h.bits & 0x3ff) << 13);
}

GM_DEVICE gm_f16 gm_cast_f32_to_f16(float f)
{
    gm_f16 h;
    if (f == f) return gm_put<gm_f16>(f);
    h.bits = (uint16_t)((gm_as_bits(f) >> 16 & 0x8000) | 0x7e00);
    return h;
}

GM_DEVICE gm_bf16 gm_cast_f32_to_bf16(float f)
{
    gm_bf16 h;
    if (f == f) return gm_put<gm_bf16>(f);
    h.bits = (uint16_t)(gm_as_bits(f) >> 16 | 0x40);
    return h;
}

typedef union gm_double_bits {
    double   f;
    uint64_t u;
} gm_double_bits;

GM_DEVICE double gm_cast_f32_to_f64(float f)
{
    gm_double_bits v;
    uint32_t       u = gm_as_bits(f);
    if (f == f) return f;
    v.u = (uint64_t)(u & 0x80000000u) << 32 | 0x7ff8000000000000u | (uint64_t)(u & 0x7fffffu) << 29;
    return v.f;
}

GM_DEVICE float gm_cast_f64_to_f32(double d)
{
    gm_double_bits v;
    if (d == d) return (float)d;
    v.f = d;
    return gm_as_float((uint32_t)(v.u >> 32 & 0x80000000u) | 0x7fc00000u | (uint32_t)(v.u >> 29 & 0x7fffffu));
}

/* A new dtype needs a case in gm_cast_load and gm_cast_store. */
static_assert(GM_DTYPE_COUNT == 7, "gm_cast_load and gm_cast_store lack a dtype");

GM_DEVICE double gm_cast_load(int t, const void *p, int64_t i)
{
    switch (t) {
    case GM_F32: return gm_cast_f32_to_f64(((const float *)p)[i]);
    case GM_F64: return ((const double *)p)[i];
    case GM_BF16: return gm_cast_f32_to_f64(gm_get(((const gm_bf16 *)p)[i]));
    case GM_F16: return gm_cast_f32_to_f64(gm_cast_f16_to_f32(((const gm_f16 *)p)[i]));
    case GM_I32: return ((const int32_t *)p)[i];
    case GM_I64: return (double)((const int64_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

/* Toward zero, saturating; NaN gives 0. end: the first power of two that is too large. */
GM_DEVICE int64_t gm_cast_integer(double v, double end, int64_t least, int64_t most)
{
    if (v != v) return 0;
    return v <= (double)least ? least : v >= end ? most : (int64_t)v;
}

GM_DEVICE void gm_cast_store(int t, void *p, int64_t i, double v)
{
    switch (t) {
    case GM_F32: ((float *)p)[i] = gm_cast_f64_to_f32(v); break;
    case GM_F64: ((double *)p)[i] = v; break;
    case GM_BF16: ((gm_bf16 *)p)[i] = gm_cast_f32_to_bf16(gm_cast_f64_to_f32(v)); break;
    case GM_F16: ((gm_f16 *)p)[i] = gm_cast_f32_to_f16(gm_cast_f64_to_f32(v)); break;
    case GM_I32: ((int32_t *)p)[i] = (int32_t)gm_cast_integer(v, 0x1p31, INT32_MIN, INT32_MAX); break;
    case GM_I64: ((int64_t *)p)[i] = gm_cast_integer(v, 0x1p63, INT64_MIN, INT64_MAX); break;
    default: ((uint8_t *)p)[i] = (uint8_t)gm_cast_integer(v, 256, 0, 255); break;
    }
}

GM_KERNEL(gm_cast_any, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[2];
        gm_map_place(&a.map, 2, i, at);
        gm_cast_store(a.to, a.out, at[0], gm_cast_load(a.from, a.in[0], at[1]));
    }
}

/* f32 from and to 16 bits, 8 elements an item: what mixed precision casts. */
GM_DEVICE void gm_cast_take(const float *p, float *x)
{
    gm_unpack<float>(gm_load_vector(p), x);
    gm_unpack<float>(gm_load_vector(p + 4), x + 4);
}
GM_DEVICE void gm_cast_take(const gm_bf16 *p, float *x) { gm_unpack<gm_bf16>(gm_load_vector(p), x); }
GM_DEVICE void gm_cast_take(const gm_f16 *p, float *x)
{
    gm_vector v = gm_load_vector(p);
    for (int k = 0; k < 8; k++) x[k] = gm_cast_f16_to_f32(gm_f16{(uint16_t)(v.word[k / 2] >> (k % 2 ? 16 : 0))});
}

GM_DEVICE void gm_cast_give(float *p, const float *x)
{
    gm_store_whole(p, gm_pack<float>(x));
    gm_store_whole(p + 4, gm_pack<float>(x + 4));
}
GM_DEVICE void gm_cast_give(gm_bf16 *p, const float *x)
{
    gm_vector v;
    for (int k = 0; k < 4; k++)
        v.word[k] = gm_cast_f32_to_bf16(x[2 * k]).bits | (uint32_t)gm_cast_f32_to_bf16(x[2 * k + 1]).bits << 16;
    gm_store_whole(p, v);
}
GM_DEVICE void gm_cast_give(gm_f16 *p, const float *x)
{
    gm_vector v;
    for (int k = 0; k < 4; k++)
        v.word[k] = gm_cast_f32_to_f16(x[2 * k]).bits | (uint32_t)gm_cast_f32_to_f16(x[2 * k + 1]).bits << 16;
    gm_store_whole(p, v);
}

/* From X to Y. A thread has two items under way. */
template <class X, class Y> GM_DEVICE void gm_cast(const gm_map_args a)
{
    const int64_t step = gm_grid_x * gm_block_size;
    for (int64_t i = gm_block_x * gm_block_size + gm_thread; i < a.map.n; i += 2 * step) {
        float      x[8], more[8];
        int64_t    at[2], next[2];
        const bool both = i + step < a.map.n;
        gm_map_place(&a.map, 2, i, at);
        gm_map_place(&a.map, 2, both ? i + step : i, next);
        gm_cast_take((const X *)a.in[0] + at[1], x);
        gm_cast_take((const X *)a.in[0] + next[1], more);
        gm_cast_give((Y *)a.out + at[0], x);
        if (both) gm_cast_give((Y *)a.out + next[0], more);
    }
    const int64_t first = gm_block_x * gm_block_size + gm_thread, j = a.map.n * 8 + first;
    if (first < a.map.tail) gm_cast_store(a.to, a.out, j, gm_cast_load(a.from, a.in[0], j));
}

GM_KERNEL(gm_cast_f32_bf16, gm_map_args) { gm_cast<float, gm_bf16>(a); }
GM_KERNEL(gm_cast_f32_f16, gm_map_args) { gm_cast<float, gm_f16>(a); }
GM_KERNEL(gm_cast_bf16_f32, gm_map_args) { gm_cast<gm_bf16, float>(a); }
GM_KERNEL(gm_cast_bf16_f16, gm_map_args) { gm_cast<gm_bf16, gm_f16>(a); }
GM_KERNEL(gm_cast_f16_f32, gm_map_args) { gm_cast<gm_f16, float>(a); }
GM_KERNEL(gm_cast_f16_bf16, gm_map_args) { gm_cast<gm_f16, gm_bf16>(a); }

/* ---- y = s x or, where `function` is not 0, y + s x: s = in[1], one number of f32 (of f64 where x is) ---- */

GM_DEVICE void gm_scale_one(const gm_map_args *a, int64_t to, int64_t from)
{
    double s = gm_cast_load(a->from == GM_F64 ? GM_F64 : GM_F32, a->in[1], 0);
    double y = s * gm_cast_load(a->from, a->in[0], from);
    gm_cast_store(a->to, a->out, to, a->function ? gm_cast_load(a->to, a->out, to) + y : y);
}

GM_KERNEL(gm_scale_any, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n) {
        int64_t at[2];
        gm_map_place(&a.map, 2, i, at);
        gm_scale_one(&a, at[0], at[1]);
    }
}

template <class X, class Y> GM_DEVICE void gm_scale(const gm_map_args a)
{
    const float s = *(const float *)a.in[1];
    GM_GRID_LOOP(i, a.map.n) {
        float   x[8], y[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        int64_t at[2];
        gm_map_place(&a.map, 2, i, at);
        gm_cast_take((const X *)a.in[0] + at[1], x);
        if (a.function) gm_cast_take((const Y *)a.out + at[0], y);
        for (int k = 0; k < 8; k++) y[k] = a.function ? y[k] + s * x[k] : s * x[k];
        gm_cast_give((Y *)a.out + at[0], y);
    }
    const int64_t first = gm_block_x * gm_block_size + gm_thread, j = a.map.n * 8 + first;
    if (first < a.map.tail) gm_scale_one(&a, j, j);
}

GM_KERNEL(gm_scale_f32_f32, gm_map_args) { gm_scale<float, float>(a); }
GM_KERNEL(gm_scale_f32_bf16, gm_map_args) { gm_scale<float, gm_bf16>(a); }
GM_KERNEL(gm_scale_f32_f16, gm_map_args) { gm_scale<float, gm_f16>(a); }
GM_KERNEL(gm_scale_bf16_bf16, gm_map_args) { gm_scale<gm_bf16, gm_bf16>(a); }
GM_KERNEL(gm_scale_f16_f16, gm_map_args) { gm_scale<gm_f16, gm_f16>(a); }
