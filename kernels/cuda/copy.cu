/* copy.cu - fill and copies: elements moved as bits, whatever they are, by size (gm_move_<bytes>, where 16 bytes are
 * items of smaller elements: the host turns one into the other); a plane whose rows become columns, through shared
 * memory (gm_turn_<bytes>); between the dtypes of arithmetic in items (gm_cast_<from>_<to>); all others (gm_cast_any).
 * And the same times a number that is known on the device only (gm_scale_<from>_<to>, gm_scale_any).
 * The limit is bandwidth: each element is read and written once. */
#include "elementwise.cuh"
#include "copy_args.h"

typedef struct GM_ALIGNED(1) gm_cell_1 {
    uint8_t byte;
} gm_cell_1;
typedef struct GM_ALIGNED(2) gm_cell_2 {
    uint16_t bits;
} gm_cell_2;
typedef struct GM_ALIGNED(4) gm_cell_4 {
    uint32_t bits;
} gm_cell_4;
typedef struct GM_ALIGNED(8) gm_cell_8 {
    uint64_t bits;
} gm_cell_8;
typedef gm_vector gm_cell_16;

#define GM_MOVES(bytes)                                                                        \
    GM_KERNEL(gm_move_##bytes, gm_map_args)                                                    \
    {                                                                                          \
        const int64_t step = gm_grid_x * gm_block_size;                                        \
        for (int64_t i = gm_block_x * gm_block_size + gm_thread; i < a.map.n; i += 2 * step) { \
            int64_t         at[2], next[2];                                                    \
            gm_cell_##bytes one, two;                                                          \
            bool            both = i + step < a.map.n;                                         \
            gm_map_place(&a.map, 2, i, at);                                                    \
            gm_map_place(&a.map, 2, both ? i + step : i, next);                                \
            one = ((const gm_cell_##bytes *)a.in[0])[at[1]];                                   \
            two = ((const gm_cell_##bytes *)a.in[0])[next[1]];                                 \
            ((gm_cell_##bytes *)a.out)[at[0]] = one;                                           \
            if (both) ((gm_cell_##bytes *)a.out)[next[0]] = two;                               \
        }                                                                                      \
    }

#define GM_FILLS(bytes, field, low)                \
    GM_KERNEL(gm_fill_##bytes, gm_map_args)        \
    {                                              \
        gm_cell_##bytes v;                         \
        v.field = low;                             \
        GM_GRID_LOOP(i, a.map.n)                   \
        {                                          \
            int64_t at[1];                         \
            gm_map_place(&a.map, 1, i, at);        \
            ((gm_cell_##bytes *)a.out)[at[0]] = v; \
        }                                          \
    }

GM_FILLS(1, byte, (uint8_t)a.pattern[0])
GM_FILLS(2, bits, (uint16_t)a.pattern[0])
GM_FILLS(4, bits, (uint32_t)a.pattern[0])
GM_FILLS(8, bits, a.pattern[0])
GM_FILLS(16, word[0], (uint32_t)a.pattern[0]; v.word[1] = (uint32_t)(a.pattern[0] >> 32);
         v.word[2] = (uint32_t)a.pattern[1]; v.word[3] = (uint32_t)(a.pattern[1] >> 32))

GM_MOVES(1)
GM_MOVES(2)
GM_MOVES(4)
GM_MOVES(8)
GM_MOVES(16)

/* Rows of a tile have one cell more than is used, so that its columns lie in different banks.
 * Blocks of 32 x 8 threads: block x goes over tiles of a plane, y over the planes of the map. */
#define GM_TURNS(bytes)                                                                            \
    GM_KERNEL(gm_turn_##bytes, gm_turn_args)                                                       \
    {                                                                                              \
        GM_SHARED(gm_cell_##bytes, tile);                                                          \
        const int64_t across = (a.columns + GM_TILE - 1) / GM_TILE;                                \
        const int64_t row = gm_block_x / across * GM_TILE, column = gm_block_x % across * GM_TILE; \
        const int     lane = gm_thread % GM_TILE, line = gm_thread / GM_TILE;                      \
        for (int64_t plane = gm_block_y; plane < a.map.n; plane += a.planes_at_once) {             \
            int64_t at[2];                                                                         \
            gm_map_place(&a.map, 2, plane, at);                                                    \
            const gm_cell_##bytes *x = (const gm_cell_##bytes *)a.x + at[1];                       \
            gm_cell_##bytes       *y = (gm_cell_##bytes *)a.y + at[0];                             \
            for (int k = line; k < GM_TILE; k += GM_TILE_LINES)                                    \
                if (column + k < a.columns && row + lane < a.rows)                                 \
                    tile[k * (GM_TILE + 1) + lane] = x[(column + k) * a.x_column + row + lane];    \
            GM_SYNC();                                                                             \
            for (int k = line; k < GM_TILE; k += GM_TILE_LINES)                                    \
                if (row + k < a.rows && column + lane < a.columns)                                 \
                    y[(row + k) * a.y_row + column + lane] = tile[lane * (GM_TILE + 1) + k];       \
            GM_SYNC();                                                                             \
        }                                                                                          \
    }

GM_TURNS(1)
GM_TURNS(2)
GM_TURNS(4)
GM_TURNS(8)

/* ---- between dtypes, with the results of kernels/dtype.c, NaN's sign and digits included, which the GPU's own
 * conversions would drop ---- */

GM_DEVICE float gm_cast_f16_to_f32(gm_f16 h)
{
    if ((h.bits & 0x7c00) != 0x7c00) return gm_get_f16(h);
    return gm_as_float((uint32_t)(h.bits & 0x8000) << 16 | 0x7f800000u | (uint32_t)(h.bits & 0x3ff) << 13);
}

GM_DEVICE gm_f16 gm_cast_f32_to_f16(float f)
{
    gm_f16 h;
    if (f == f) return gm_put_f16(f);
    h.bits = (uint16_t)((gm_as_bits(f) >> 16 & 0x8000) | 0x7e00);
    return h;
}

GM_DEVICE gm_bf16 gm_cast_f32_to_bf16(float f)
{
    gm_bf16 h;
    if (f == f) return gm_put_bf16(f);
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

/* A dtype more needs a case in gm_cast_load and gm_cast_store: without, this does not compile. */
enum { gm_cast_has_each_dtype = 1 / (GM_DTYPE_COUNT == 7) };

GM_DEVICE double gm_cast_load(int t, const void *p, int64_t i)
{
    switch (t) {
    case GM_F32: return gm_cast_f32_to_f64(((const float *)p)[i]);
    case GM_F64: return ((const double *)p)[i];
    case GM_BF16: return gm_cast_f32_to_f64(gm_from_bf16(((const gm_bf16 *)p)[i]));
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
    GM_GRID_LOOP(i, a.map.n)
    {
        int64_t at[2];
        gm_map_place(&a.map, 2, i, at);
        gm_cast_store(a.to, a.out, at[0], gm_cast_load(a.from, a.in[0], at[1]));
    }
}

/* f32 from and to 16 bits, 8 elements an item: what mixed precision casts. */
GM_DEVICE void gm_cast_take_f32(const float *p, float *x)
{
    gm_unpack_f32(gm_load_vector(p), x);
    gm_unpack_f32(gm_load_vector(p + 4), x + 4);
}
GM_DEVICE void gm_cast_give_f32(float *p, const float *x)
{
    gm_store_vector(p, gm_pack_f32(x));
    gm_store_vector(p + 4, gm_pack_f32(x + 4));
}
GM_DEVICE void gm_cast_take_bf16(const gm_bf16 *p, float *x) { gm_unpack_bf16(gm_load_vector(p), x); }
GM_DEVICE void gm_cast_take_f16(const gm_f16 *p, float *x)
{
    gm_vector v = gm_load_vector(p);
    for (int k = 0; k < 8; k++) {
        gm_f16 h;
        h.bits = (uint16_t)(v.word[k / 2] >> (k % 2 ? 16 : 0));
        x[k] = gm_cast_f16_to_f32(h);
    }
}

#define GM_CAST_GIVE(type)                                                        \
    GM_DEVICE void gm_cast_give_##type(gm_##type *p, const float *x)              \
    {                                                                             \
        gm_vector v;                                                              \
        for (int k = 0; k < 4; k++)                                               \
            v.word[k] = gm_cast_f32_to_##type(x[2 * k]).bits |                    \
                        (uint32_t)gm_cast_f32_to_##type(x[2 * k + 1]).bits << 16; \
        gm_store_vector(p, v);                                                    \
    }
GM_CAST_GIVE(bf16)
GM_CAST_GIVE(f16)

#define GM_CAST(x_dtype, x_type, y_dtype, y_type)                                                \
    GM_KERNEL(gm_cast_##x_dtype##_##y_dtype, gm_map_args)                                        \
    {                                                                                            \
        GM_GRID_LOOP(i, a.map.n)                                                                 \
        {                                                                                        \
            float   x[8];                                                                        \
            int64_t at[2];                                                                       \
            gm_map_place(&a.map, 2, i, at);                                                      \
            gm_cast_take_##x_dtype((const x_type *)a.in[0] + at[1], x);                          \
            gm_cast_give_##y_dtype((y_type *)a.out + at[0], x);                                  \
        }                                                                                        \
        int64_t first = gm_block_x * gm_block_size + gm_thread, j = a.map.n * 8 + first;         \
        if (first < a.map.tail) gm_cast_store(a.to, a.out, j, gm_cast_load(a.from, a.in[0], j)); \
    }

GM_CAST(f32, float, bf16, gm_bf16)
GM_CAST(f32, float, f16, gm_f16)
GM_CAST(bf16, gm_bf16, f32, float)
GM_CAST(bf16, gm_bf16, f16, gm_f16)
GM_CAST(f16, gm_f16, f32, float)
GM_CAST(f16, gm_f16, bf16, gm_bf16)

/* ---- y = s x or, where `function` is not 0, y + s x: s = in[1], one number of f32 (of f64 where x is) ---- */

GM_DEVICE void gm_scale_one(const gm_map_args *a, int64_t to, int64_t from)
{
    double s = gm_cast_load(a->from == GM_F64 ? GM_F64 : GM_F32, a->in[1], 0);
    double y = s * gm_cast_load(a->from, a->in[0], from);
    gm_cast_store(a->to, a->out, to, a->function ? gm_cast_load(a->to, a->out, to) + y : y);
}

GM_KERNEL(gm_scale_any, gm_map_args)
{
    GM_GRID_LOOP(i, a.map.n)
    {
        int64_t at[2];
        gm_map_place(&a.map, 2, i, at);
        gm_scale_one(&a, at[0], at[1]);
    }
}

#define GM_SCALE(x_dtype, x_type, y_dtype, y_type)                                       \
    GM_KERNEL(gm_scale_##x_dtype##_##y_dtype, gm_map_args)                               \
    {                                                                                    \
        const float s = *(const float *)a.in[1];                                         \
        GM_GRID_LOOP(i, a.map.n)                                                         \
        {                                                                                \
            float   x[8], y[8] = {0, 0, 0, 0, 0, 0, 0, 0};                               \
            int64_t at[2];                                                               \
            gm_map_place(&a.map, 2, i, at);                                              \
            gm_cast_take_##x_dtype((const x_type *)a.in[0] + at[1], x);                  \
            if (a.function) gm_cast_take_##y_dtype((const y_type *)a.out + at[0], y);    \
            for (int k = 0; k < 8; k++) y[k] = a.function ? y[k] + s * x[k] : s * x[k];  \
            gm_cast_give_##y_dtype((y_type *)a.out + at[0], y);                          \
        }                                                                                \
        int64_t first = gm_block_x * gm_block_size + gm_thread, j = a.map.n * 8 + first; \
        if (first < a.map.tail) gm_scale_one(&a, j, j);                                  \
    }

GM_SCALE(f32, float, f32, float)
GM_SCALE(f32, float, bf16, gm_bf16)
GM_SCALE(f32, float, f16, gm_f16)
GM_SCALE(bf16, gm_bf16, bf16, gm_bf16)
GM_SCALE(f16, gm_f16, f16, gm_f16)
