/* float8.cu - floats of 8 bits with a scale for a whole tensor (kernels/float8.h): the scale, the codes as they are and
 * turned in one pass, and the numbers of codes.
 *
 * Bytes of an encoding of n numbers of 16 bits with both results: 4 n, which is what limits it. A block takes a tile of
 * rows and columns through shared memory, so that it reads and writes runs of 64 numbers in both orders. */
#include "../../common/rows.cuh"
#include "../../../float8.h"
#include "float8_args.h"

constexpr int TILE = GM_FLOAT8_TILE, THREADS = GM_FLOAT8_THREADS, PITCH = GM_FLOAT8_PITCH;

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

/* Two codes, that of `low` in the lower byte. GPUs from sm_89 on have an instruction for this; its 20 in place of one
 * would take as long as the bytes. */
GM_DEVICE uint32_t gm_float8_pair(int format, float low, float high)
{
#if !defined GM_EMULATED && defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    uint16_t two;
    if (format == GM_FLOAT8_E4M3) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    return two;
#else
    return gm_float8_code(format, gm_as_bits(low)) | (uint32_t)gm_float8_code(format, gm_as_bits(high)) << 8;
#endif
}

GM_DEVICE uint32_t gm_float8_pair(int format, double low, double high)
{
    return gm_float8_code(format, gm_float8_bits(low)) | (uint32_t)gm_float8_code(format, gm_float8_bits(high)) << 8;
}

/* Bytes of two words to a place that is a multiple of 4 where `even`; the last ones may be outside: n are inside. */
GM_DEVICE void gm_float8_put(uint8_t *to, uint32_t word, int64_t n, int even)
{
    if (even && n >= 4) {
        *(uint32_t *)to = word;
        return;
    }
    GM_UNROLL for (int j = 0; j < 4; j++) if (j < n) to[j] = (uint8_t)(word >> 8 * j);
}

/* Codes of a tile of x: into a.codes, and into `tile` for turning. A thread takes 16 bytes of a row at a time. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_float8_tile(const gm_float8_args &a, int64_t r0, int64_t c0, uint8_t *tile)
{
    constexpr int ACROSS = TILE / V, STEP = THREADS / ACROSS;
    const R       scale = *(const R *)a.scale, by = scale > 0 ? 1 / scale : 0;
    const int     inner = gm_thread % ACROSS * V, even = a.k % 4 == 0 && (uintptr_t)a.codes % 4 == 0;
    const int64_t c = c0 + inner, left = a.k - c;
    if (left <= 0) return;
    for (int i = gm_thread / ACROSS; i < TILE && r0 + i < a.rows; i += STEP) {
        R        x[V];
        uint32_t word[2] = {0, 0};
        gm_row_take<T>(&a.x, gm_row_start(&a.x, r0 + i), c, a.k, x);
        GM_UNROLL for (int j = 0; j < V; j += 2) word[j / 4] |= gm_float8_pair(a.format, x[j] * by, x[j + 1] * by)
                                                                << 8 * (j % 4);
        GM_UNROLL for (int j = 0; j < V; j += 4)
        {
            const int n = V < 4 ? V : 4; /* of f64 a pack is half a word */
            if (a.codes)
                gm_float8_put(a.codes + (r0 + i) * a.k + c + j, word[j / 4], left - j < n ? left - j : n, even);
            gm_float8_put(tile + i * PITCH + inner + j, word[j / 4], n, 1);
        }
    }
}

/* Rows of the result are columns of the tile: a thread takes four neighbours. */
GM_DEVICE void gm_float8_turn(const gm_float8_args &a, int64_t r0, int64_t c0, const uint8_t *tile)
{
    constexpr int ACROSS = TILE / 4, STEP = THREADS / ACROSS;
    const int     inner = gm_thread % ACROSS * 4;
    const int     even = a.rows % 4 == 0 && (uintptr_t)a.turned % 4 == 0;
    const int64_t left = a.rows - r0 - inner;
    if (left <= 0) return;
    for (int i = gm_thread / ACROSS; i < TILE && c0 + i < a.k; i += STEP) {
        uint32_t word = 0;
        GM_UNROLL for (int j = 0; j < 4; j++) word |= (uint32_t)tile[(inner + j) * PITCH + i] << 8 * j;
        gm_float8_put(a.turned + (c0 + i) * a.rows + r0 + inner, word, left, even);
    }
}

template <class T> GM_DEVICE void gm_float8_encode(const gm_float8_args a)
{
    GM_SHARED(uint8_t, tile);
    const int64_t across = (a.k + TILE - 1) / TILE;
    const int64_t r0 = gm_block_x / across * TILE, c0 = gm_block_x % across * TILE;
    gm_float8_tile<T>(a, r0, c0, tile);
    GM_SYNC();
    if (a.turned) gm_float8_turn(a, r0, c0, tile);
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
