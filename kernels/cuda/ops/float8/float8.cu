/* float8.cu - floats of 8 bits with a scale for a whole tensor (kernels/float8.h): the scale, the codes as they are and
 * turned in one pass, and the numbers of codes.
 *
 * Bytes of an encoding of n numbers of 16 bits with both results: 4 n, which is what limits it. A block takes a tile of
 * 128 rows and columns, so that it writes runs of 128 bytes in both orders: a thread turns 4 rows of 8 columns in
 * registers, and the words of 4 rows go through shared memory. It finds the largest magnitude on the way, if that is
 * wanted, so that a tensor whose scale is known is read once. */
#include "../../common/rows.cuh"
#include "../../../float8.h"
#include "float8_args.h"

constexpr int TILE = GM_FLOAT8_TILE, THREADS = GM_FLOAT8_THREADS;

/* ---- magnitudes: as numbers without a sign they are in the order of their bits ---- */

/* *to = max(*to, bits), of a number that is not negative, whatever the order of blocks. */
#ifdef GM_EMULATED /* one thread runs at a time */
#define GM_FLOAT8_RAISE(to, bits) *(to) = (bits) > *(to) ? (bits) : *(to)
#else
#define GM_FLOAT8_RAISE(to, bits) atomicMax((to), (bits))
#endif

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

/* The larger of `most` and the magnitudes of a pack, in an order of T's own: of 16 bits the upper half of a word counts
 * (what is in the lower half only decides between equals). */
template <class T> GM_DEVICE uint32_t gm_float8_larger(uint32_t most, gm_vector v)
{
    const auto raise = [](uint32_t so_far, uint32_t size) { return size > so_far ? size : so_far; };
    if constexpr (std::is_same_v<T, double>) {
        double x[2];
        gm_unpack<T>(v, x);
        GM_UNROLL for (int i = 0; i < 2; i++) most = raise(most, gm_float8_bits(x[i]) & 0x7fffffffu);
    } else {
        GM_UNROLL for (int i = 0; i < 4; i++)
        {
            most = raise(most, v.word[i] & 0x7fffffffu);
            if constexpr (gm_is_short<T>) most = raise(most, v.word[i] << 16 & 0x7fffffffu);
        }
    }
    return most;
}

/* As the bits of an f32. */
template <class T> GM_DEVICE uint32_t gm_float8_magnitude(uint32_t most)
{
    if constexpr (gm_is_short<T>) return gm_as_bits(gm_get(T{(uint16_t)(most >> 16)}));
    else return most;
}

/* *a.needed becomes the scale of the largest magnitude that a thread of the block found, if it is larger. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_float8_raise(const gm_float8_args &a, uint32_t most)
{
    GM_SHARED(uint32_t, scratch);
    most = gm_block_max(most, scratch);
    if (gm_thread != 0) return;
    const float scale = gm_as_float(gm_float8_scale(a.format, gm_float8_magnitude<T>(most)));
    if constexpr (std::is_same_v<R, double>)
        GM_FLOAT8_RAISE((unsigned long long *)a.needed, gm_float8_wide_bits(scale));
    else GM_FLOAT8_RAISE((unsigned int *)a.needed, gm_as_bits(scale));
}

/* Of x that is one run of whole packs. All of a thread's packs are under way before the first is looked at. */
template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_float8_largest_flat(const gm_float8_args a)
{
    constexpr int    HELD = GM_FLOAT8_HELD;
    const gm_vector *x = (const gm_vector *)a.x.data, none = {{0, 0, 0, 0}};
    const int64_t    packs = a.rows * a.k / V;
    uint32_t         most = 0;
    for (int64_t i = gm_block_x * THREADS * HELD + gm_thread; i < packs; i += gm_grid_x * THREADS * HELD) {
        gm_vector held[HELD];
        GM_UNROLL for (int j = 0; j < HELD; j++) held[j] = i + j * THREADS < packs ? gm_load_vector(x + i + j * THREADS)
                                                                                   : none;
        GM_UNROLL for (int j = 0; j < HELD; j++) most = gm_float8_larger<T>(most, held[j]);
    }
    gm_float8_raise<T>(a, most);
}
GM_KERNELS(gm_float8_largest_flat, gm_float8_args)

template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_float8_largest(const gm_float8_args a)
{
    GM_TEAM(team, lane, row);
    const int64_t step = gm_grid_x * (gm_block_size / team);
    uint32_t      most = 0;
    for (; row < a.rows; row += step) {
        const int64_t start = gm_row_start(&a.x, row);
        for (int64_t i = (int64_t)lane * V; i < a.k; i += (int64_t)team * V)
            most = gm_float8_larger<T>(most, gm_row_load<T>(&a.x, start, i, a.k));
    }
    gm_float8_raise<T>(a, most);
}
GM_KERNELS(gm_float8_largest, gm_float8_args)

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

/* An infinite x is none of the numbers that become the largest: 0 x is NaN then. */
template <class T, int N, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE gm_float8_eight gm_float8_codes(int format, R by, const gm_vector (&v)[N])
{
    gm_float8_eight codes = {{0, 0}};
    GM_UNROLL for (int p = 0; p < N; p++)
    {
        R x[V];
        gm_unpack<T>(v[p], x);
        GM_UNROLL for (int j = 0; j < V; j += 2)
        {
            const int at = p * V + j;
            codes.word[at / 4] |= gm_float8_pair(format, x[j] * by + 0 * x[j], x[j + 1] * by + 0 * x[j + 1])
                                  << 8 * (at % 4);
        }
    }
    return codes;
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

/* Codes of v, 4 rows and 8 columns from (r, c) on of the tile at (r0, c0): into a.codes, and turned into `tile`. */
template <class T, bool WHOLE, int N, class R = gm_real<T>>
GM_DEVICE void gm_float8_piece(const gm_float8_args &a, R by, int64_t r0, int64_t c0, int r, int c, uint32_t *tile,
                               const gm_vector (&v)[ROWS][N])
{
    gm_float8_eight codes[ROWS];
    GM_UNROLL for (int i = 0; i < ROWS; i++)
    {
        const int64_t row = r0 + r + i;
        codes[i] = gm_float8_codes<T>(a.format, by, v[i]);
        if (a.codes && (WHOLE || (row < a.rows && c0 + c < a.k)))
            gm_float8_put<WHOLE>(a.codes + row * a.k + c0 + c, codes[i], a.k - c0 - c, a.k % COLUMNS == 0);
    }
    if (!a.turned) return;
    GM_UNROLL for (int half = 0; half < 2; half++)
    {
        uint32_t w[ROWS];
        GM_UNROLL for (int i = 0; i < ROWS; i++) w[i] = codes[i].word[half];
        gm_float8_turn(w);
        GM_UNROLL for (int j = 0; j < 4; j++) tile[gm_float8_place(c + half * 4 + j, r / ROWS)] = w[j];
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

/* A warp takes 16 rows of the tile, 64 columns at a time. Of 16 bits all of them are under way together. */
template <class T, bool WHOLE, class R = gm_real<T>>
GM_DEVICE void gm_float8_tile(const gm_float8_args &a, int64_t r0, int64_t c0, uint32_t *tile)
{
    constexpr int N = COLUMNS / gm_lanes<T>, PIECES = TILE / (LANES * COLUMNS), HELD = gm_is_short<T> ? PIECES : 1;
    const R       scale = *(const R *)a.scale, by = scale > 0 ? 1 / scale : 0;
    const int     r = gm_thread / LANES * ROWS, c = gm_thread % LANES * COLUMNS;
    uint32_t      most = 0;
    GM_UNROLL for (int p = 0; p < PIECES; p += HELD)
    {
        gm_vector v[HELD][ROWS][N];
        GM_UNROLL for (int h = 0; h < HELD; h++) GM_UNROLL for (int i = 0; i < ROWS; i++)
            gm_float8_take<T, WHOLE>(a, r0 + r + i, c0 + c + (p + h) * LANES * COLUMNS, v[h][i]);
        GM_UNROLL for (int h = 0; h < HELD; h++)
        {
            gm_float8_piece<T, WHOLE>(a, by, r0, c0, r, c + (p + h) * LANES * COLUMNS, tile, v[h]);
            if (!a.needed) continue;
            GM_UNROLL for (int i = 0; i < ROWS; i++) GM_UNROLL for (int n = 0; n < N; n++)
                most = gm_float8_larger<T>(most, v[h][i][n]);
        }
    }
    GM_SYNC();
    if (a.turned) gm_float8_give_turned<WHOLE>(a, r0, c0, tile);
    if (a.needed) gm_float8_raise<T>(a, most); /* its first meeting is after all have read the tile */
}

/* WHOLE: all tiles are. */
template <class T, bool WHOLE> GM_DEVICE void gm_float8_encode_tiles(const gm_float8_args &a)
{
    GM_SHARED(uint32_t, tile);
    const int64_t across = (a.k + TILE - 1) / TILE;
    const int64_t r0 = gm_block_x / across * TILE, c0 = gm_block_x % across * TILE;
    gm_float8_tile<T, WHOLE>(a, r0, c0, tile);
}
template <class T> GM_DEVICE void gm_float8_encode(const gm_float8_args a) { gm_float8_encode_tiles<T, false>(a); }
template <class T> GM_DEVICE void gm_float8_encode_whole(const gm_float8_args a) { gm_float8_encode_tiles<T, true>(a); }
GM_KERNELS(gm_float8_encode, gm_float8_args)
GM_KERNELS(gm_float8_encode_whole, gm_float8_args)

/* y = the numbers of codes, in any dtype that holds them: bf16 does, with scales that are powers of two. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_float8_decode(const gm_float8_args a)
{
    const R scale = *(const R *)a.scale;
    GM_GRID_LOOP(i, a.rows * a.k) {
        ((T *)a.y)[i] = gm_put<T>((R)gm_as_float(gm_float8_value(a.format, a.codes[i])) * scale);
    }
}
GM_KERNELS(gm_float8_decode, gm_float8_args)
