/* float8.cuh - what the kernels of float8.cu and float8_blocks.cu share: codes of numbers, and tiles of 128 rows and
 * columns of them that are turned in registers and shared memory. A block of 256 threads has a tile; a thread has 4
 * rows of 8 columns at a time. */
#ifndef GM_CUDA_FLOAT8_CUH
#define GM_CUDA_FLOAT8_CUH

#include "../../common/rows.cuh"
#include "../../../float8.h"
#include "float8_args.h"

constexpr int TILE = GM_FLOAT8_TILE, THREADS = GM_FLOAT8_THREADS;

/* ---- numbers ---- */

GM_DEVICE unsigned long long gm_float8_wide_bits(double v)
{
    union {
        double             number;
        unsigned long long bits;
    } u;
    u.number = v;
    return u.bits;
}

/* The bits of an f32 that has the same code and magnitude. */
GM_DEVICE uint32_t gm_float8_bits(double v) { return gm_float8_narrow(gm_float8_wide_bits(v)); }

/* As the bits of an f32. */
template <class T> GM_DEVICE uint32_t gm_float8_magnitude(uint32_t most)
{
    if constexpr (gm_is_short<T>) return gm_as_bits(gm_get(T{(uint16_t)(most >> 16)}));
    else return most;
}

/* ---- codes ---- */

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

/* A byte of x and y for each digit of `which`, the last digit first: 0 to 3 are those of x, 4 to 7 those of y. */
GM_DEVICE uint32_t gm_float8_pick(uint32_t x, uint32_t y, uint32_t which)
{
#ifdef GM_EMULATED
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t       word = 0;
    for (int i = 0; i < 4; i++) word |= (uint32_t)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return word;
#else
    return __byte_perm(x, y, which);
#endif
}

/* Four words of four bytes: rows become columns. */
GM_DEVICE void gm_float8_turn(uint32_t (&w)[4])
{
    const uint32_t low[2] = {gm_float8_pick(w[0], w[1], 0x5140), gm_float8_pick(w[2], w[3], 0x5140)};
    const uint32_t high[2] = {gm_float8_pick(w[0], w[1], 0x7362), gm_float8_pick(w[2], w[3], 0x7362)};
    w[0] = gm_float8_pick(low[0], low[1], 0x5410);
    w[1] = gm_float8_pick(low[0], low[1], 0x7632);
    w[2] = gm_float8_pick(high[0], high[1], 0x5410);
    w[3] = gm_float8_pick(high[0], high[1], 0x7632);
}

typedef struct GM_ALIGNED(8) gm_float8_eight {
    uint32_t word[2];
} gm_float8_eight;

constexpr int ROWS = 4, COLUMNS = 8, LANES = 8; /* of a thread; threads of a warp beside each other */
constexpr int WORDS = TILE / ROWS;              /* of a column of the tile */

/* Where the tile has the word of rows 4 g .. 4 g + 3 of column c. What the threads of a warp write at a time, and what
 * a quarter of a warp reads, lies in different banks; four words that are neighbours stay such. */
GM_DEVICE int gm_float8_place(int c, int g) { return c * WORDS + (g ^ c / COLUMNS % LANES * 4); }

/* The 8 numbers from column c on of a row; zeros outside. */
template <class T, bool WHOLE, int N, int V = gm_lanes<T>>
GM_DEVICE void gm_float8_take(const gm_float8_args &a, int64_t row, int64_t c, gm_vector (&v)[N])
{
    const gm_vector none = {{0, 0, 0, 0}};
    if constexpr (WHOLE) {
        const T *x = (const T *)a.x.data + row * a.x.stride[0] + c;
        GM_UNROLL for (int p = 0; p < N; p++) v[p] = gm_load_vector(x + p * V);
    } else {
        const int64_t start = row < a.rows ? gm_row_start(&a.x, row) : 0;
        GM_UNROLL for (int p = 0; p < N; p++)
            v[p] = row < a.rows && c + p * V < a.k ? gm_row_load<T>(&a.x, start, c + p * V, a.k) : none;
    }
}

/* Codes of 8 numbers of a row, each times its factor. An infinite x is none of the numbers that become the largest: 0 x
 * is NaN then. */
template <class T, int N, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE gm_float8_eight gm_float8_codes_each(int format, const R (&by)[COLUMNS], const gm_vector (&v)[N])
{
    gm_float8_eight codes = {{0, 0}};
    GM_UNROLL for (int p = 0; p < N; p++)
    {
        R x[V];
        gm_unpack<T>(v[p], x);
        GM_UNROLL for (int j = 0; j < V; j += 2)
        {
            const int at = p * V + j;
            codes.word[at / 4] |= gm_float8_pair(format, x[j] * by[at] + 0 * x[j], x[j + 1] * by[at + 1] + 0 * x[j + 1])
                                  << 8 * (at % 4);
        }
    }
    return codes;
}

/* The codes of 4 rows and 8 columns from (r, c) on of the tile, turned into words of columns of `tile`. */
GM_DEVICE void gm_float8_turn_into(uint32_t *tile, int r, int c, const gm_float8_eight (&codes)[ROWS])
{
    GM_UNROLL for (int half = 0; half < 2; half++)
    {
        uint32_t w[ROWS];
        GM_UNROLL for (int i = 0; i < ROWS; i++) w[i] = codes[i].word[half];
        gm_float8_turn(w);
        GM_UNROLL for (int j = 0; j < 4; j++) tile[gm_float8_place(c + half * 4 + j, r / ROWS)] = w[j];
    }
}

/* Of n bytes; `even`: whole ones go to multiples of the size of E. */
template <bool WHOLE, class E> GM_DEVICE void gm_float8_put(uint8_t *to, E from, int64_t n, bool even)
{
    constexpr int SIZE = (int)sizeof(E);
    if (WHOLE || (even && n >= SIZE)) *(E *)to = from;
    if constexpr (!WHOLE) {
        GM_ROLLED for (int j = even && n >= SIZE ? SIZE : 0; j < SIZE && j < n; j++)
        {
            to[j] = (uint8_t)from.word[0];
            GM_UNROLL for (int i = 0; i < SIZE / 4; i++)
                from.word[i] = from.word[i] >> 8 | (i + 1 < SIZE / 4 ? from.word[(i + 1) % (SIZE / 4)] << 24 : 0);
        }
    }
}

/* The tile's columns are rows of a.turned: a thread takes 16 bytes of one at a time. */
template <bool WHOLE>
GM_DEVICE void gm_float8_give_turned(const gm_float8_args &a, int64_t r0, int64_t c0, const uint32_t *tile)
{
    const bool even = a.rows % 16 == 0;
    GM_UNROLL for (int i = 0; i < TILE * TILE / 16 / THREADS; i++)
    {
        const int c = (gm_thread + i * THREADS) / (TILE / 16), r = (gm_thread + i * THREADS) % (TILE / 16) * 16;
        if (!WHOLE && (c0 + c >= a.k || r0 + r >= a.rows)) continue;
        gm_float8_put<WHOLE>(a.turned + (c0 + c) * a.rows + r0 + r, gm_load_vector(tile + gm_float8_place(c, r / ROWS)),
                             a.rows - r0 - r, even);
    }
}

#endif
