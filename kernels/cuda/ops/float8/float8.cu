/* float8.cu - floats of 8 bits with a scale for a whole tensor (kernels/float8.h): the scale, the codes as they are and
 * turned in one pass, and the numbers of codes.
 *
 * Bytes of an encoding of n numbers of 16 bits with both results: 4 n, which is what limits it. A block takes a tile of
 * 128 rows and columns, so that it writes runs of 128 bytes in both orders: a thread turns 4 rows of 8 columns in
 * registers, and the words of 4 rows go through shared memory. It finds the largest magnitude on the way, if that is
 * wanted, so that a tensor whose scale is known is read once. */
#include "float8.cuh"

/* ---- magnitudes: as numbers without a sign they are in the order of their bits ---- */

/* *to = max(*to, bits), of a number that is not negative, whatever the order of blocks. */
#ifdef GM_EMULATED /* one thread runs at a time */
#define GM_FLOAT8_RAISE(to, bits) *(to) = (bits) > *(to) ? (bits) : *(to)
#else
#define GM_FLOAT8_RAISE(to, bits) atomicMax((to), (bits))
#endif

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

/* Of 8 numbers and one scale. */
template <class T, int N, class R = gm_real<T>>
GM_DEVICE gm_float8_eight gm_float8_codes(int format, R by, const gm_vector (&v)[N])
{
    R all[COLUMNS];
    GM_UNROLL for (int j = 0; j < COLUMNS; j++) all[j] = by;
    return gm_float8_codes_each<T>(format, all, v);
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
    if (a.turned) gm_float8_turn_into(tile, r, c, codes);
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
    const R *scale = (const R *)a.scale, all = *scale;
    GM_GRID_LOOP(i, a.rows * a.k) {
        R by = all;
        if (a.block) by = scale[i / a.k / a.group * a.row + i % a.k / GM_FLOAT8_BLOCK * a.block];
        ((T *)a.y)[i] = gm_put<T>((R)gm_as_float(gm_float8_value(a.format, a.codes[i])) * by);
    }
}
GM_KERNELS(gm_float8_decode, gm_float8_args)
