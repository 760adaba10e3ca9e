/* float8.cu - floats of 8 bits with a scale for a whole tensor (kernels/float8.h): the scale, the codes as they are and
 * turned in one pass, and the numbers of codes.
 *
 * Bytes of an encoding of n numbers of 16 bits with both results: 4 n, which is what limits it. A block takes a tile of
 * rows and columns through shared memory, so that it reads and writes runs of 64 numbers in both orders. */
#include "../../common/rows.cuh"
#include "../../../float8.h"
#include "float8_args.h"

constexpr int TILE = GM_FLOAT8_TILE, STEP = GM_FLOAT8_THREADS / GM_FLOAT8_TILE;

/* The bits of an f32 that has the same code and magnitude. */
GM_DEVICE uint32_t gm_float8_bits(float v) { return gm_as_bits(v); }
GM_DEVICE uint32_t gm_float8_bits(double v)
{
    union {
        double   number;
        uint64_t bits;
    } u;
    u.number = v;
    return gm_float8_narrow(u.bits);
}

/* A magnitude that is not finite is infinite. */
template <class R> GM_DEVICE float gm_float8_size(R v)
{
    const uint32_t size = gm_float8_bits(v) & 0x7fffffffu;
    return gm_as_float(size < 0x7f800000u ? size : 0x7f800000u);
}

/* The largest magnitude of the rows that this block meets. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_float8_largest(const gm_float8_args a)
{
    GM_SHARED(float, scratch);
    GM_TEAM(team, lane, row);
    const int64_t step = (int64_t)a.parts * (gm_block_size / team);
    float         largest = 0;
    for (; row < a.rows; row += step) {
        const int64_t start = gm_row_start(&a.x, row);
        for (int64_t i = (int64_t)lane * V; i < a.k; i += (int64_t)team * V) {
            R x[V];
            gm_row_take<T>(&a.x, start, i, a.k, x);
            GM_UNROLL for (int j = 0; j < V; j++)
            {
                const float size = gm_float8_size(x[j]);
                largest = size > largest ? size : largest;
            }
        }
    }
    largest = gm_block_max(largest, scratch);
    if (gm_thread == 0) a.part[gm_block_x] = largest;
}
GM_KERNELS(gm_float8_largest, gm_float8_args)

/* y = the scale of the largest of all parts: one block. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_float8_join(const gm_float8_args a)
{
    GM_SHARED(float, scratch);
    float largest = 0;
    for (int64_t i = gm_thread; i < a.parts; i += gm_block_size) largest = a.part[i] > largest ? a.part[i] : largest;
    largest = gm_block_max(largest, scratch);
    if (gm_thread == 0) *(R *)a.y = (R)gm_as_float(gm_float8_scale(a.format, gm_as_bits(largest)));
}
GM_KERNELS(gm_float8_join, gm_float8_args)

template <class T, class R = gm_real<T>> GM_DEVICE void gm_float8_encode(const gm_float8_args a)
{
    GM_SHARED(uint8_t, tile);
    const R       scale = *(const R *)a.scale, by = scale > 0 ? 1 / scale : 0;
    const int64_t across = (a.k + TILE - 1) / TILE;
    const int64_t r0 = gm_block_x / across * TILE, c0 = gm_block_x % across * TILE;
    const int     inner = gm_thread % TILE, outer = gm_thread / TILE;
    for (int i = outer; i < TILE; i += STEP) {
        const int64_t r = r0 + i, c = c0 + inner;
        if (r >= a.rows || c >= a.k) continue;
        const R       x = (R)gm_get(((const T *)a.x.data)[gm_row_start(&a.x, r) + c * a.x.step]);
        const uint8_t code = gm_float8_code(a.format, gm_float8_bits(x * by));
        if (a.codes) a.codes[r * a.k + c] = code;
        tile[i * GM_FLOAT8_PITCH + inner] = code;
    }
    GM_SYNC();
    if (!a.turned) return;
    for (int i = outer; i < TILE; i += STEP) {
        const int64_t c = c0 + i, r = r0 + inner;
        if (r < a.rows && c < a.k) a.turned[c * a.rows + r] = tile[inner * GM_FLOAT8_PITCH + i];
    }
}
GM_KERNELS(gm_float8_encode, gm_float8_args)

/* y = the numbers of codes, in any dtype that holds them: bf16 does, with scales that are powers of two. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_float8_decode(const gm_float8_args a)
{
    const R scale = *(const R *)a.scale;
    GM_GRID_LOOP(i, a.rows * a.k) {
        ((T *)a.y)[i] = gm_put<T>((R)gm_as_float(gm_float8_value(a.format, a.codes[i])) * scale);
    }
}
GM_KERNELS(gm_float8_decode, gm_float8_args)
