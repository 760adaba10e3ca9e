/* float8_blocks.cu - floats of 8 bits with scales of blocks of 128 (kernels/float8.h): the scales and codes of both
 * orders from one read.
 *
 * Bytes of an encoding of n numbers of 16 bits with all results: 4 n, and n / 16 for scales. The rows and the columns
 * of a tile of 128 x 128 (float8.cuh) are whole blocks. A thread holds its 4 rows of 16 columns of 16 bits in
 * registers: it finds the largest magnitudes, waits for those of the others, and makes codes of what it holds. Wider
 * numbers are read a second time, when they are in a cache. A warp has 16 whole rows, so rows meet by shuffles alone;
 * columns meet in shared memory. */
#include "float8.cuh"

constexpr int PIECES = TILE / (LANES * COLUMNS), WARPS = GM_FLOAT8_WARPS;

/* The magnitudes of a pack, in an order of T's own (gm_float8_magnitude). */
template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_float8_sizes(gm_vector v, uint32_t (&size)[V])
{
    if constexpr (std::is_same_v<T, double>) {
        double x[V];
        gm_unpack<T>(v, x);
        GM_UNROLL for (int i = 0; i < V; i++) size[i] = gm_float8_bits(x[i]) & 0x7fffffffu;
    } else if constexpr (gm_is_short<T>) {
        GM_UNROLL for (int i = 0; i < V; i++) size[i] = (i % 2 ? v.word[i / 2] : v.word[i / 2] << 16) & 0x7fff0000u;
    } else {
        GM_UNROLL for (int i = 0; i < V; i++) size[i] = v.word[i] & 0x7fffffffu;
    }
}

GM_DEVICE uint32_t gm_float8_most(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The largest of lanes that differ in these bits of their number. */
GM_DEVICE uint32_t gm_float8_join(uint32_t most, int first, int last)
{
    for (int lanes = first; lanes <= last; lanes *= 2) most = gm_float8_most(most, gm_shuffle_xor(most, lanes));
    return most;
}

/* Row and column maxima grow by those of a piece. */
template <class T, int N, int V = gm_lanes<T>>
GM_DEVICE void gm_float8_look(const gm_vector (&v)[ROWS][N], uint32_t (&row)[ROWS], uint32_t *column)
{
    GM_UNROLL for (int i = 0; i < ROWS; i++) GM_UNROLL for (int n = 0; n < N; n++)
    {
        uint32_t size[V];
        gm_float8_sizes<T>(v[i][n], size);
        GM_UNROLL for (int j = 0; j < V; j++)
        {
            row[i] = gm_float8_most(row[i], size[j]);
            column[n * V + j] = gm_float8_most(column[n * V + j], size[j]);
        }
    }
}

/* Of the largest magnitude; what is given for a scale is its factor, 1 / scale. */
template <class T, class R = gm_real<T>>
GM_DEVICE float gm_float8_scale_of(const gm_float8_args &a, uint32_t most, void *to, int64_t at, bool inside)
{
    const uint32_t scale = gm_float8_scale(a.format, gm_float8_magnitude<T>(most));
    if (to && inside) ((R *)to)[at] = (R)gm_as_float(scale);
    return gm_as_float(gm_float8_inverse(scale));
}

/* The factors of a thread's rows. All threads of the block call it. r: its first row in the tile. */
template <class T>
GM_DEVICE void gm_float8_scale_rows(const gm_float8_args &a, int64_t r0, int64_t c0, int r,
                                    const uint32_t (&most)[ROWS], float (&by)[ROWS])
{
    const int64_t across = c0 / TILE;
    GM_UNROLL for (int i = 0; i < ROWS; i++)
    {
        const int64_t row = r0 + r + i;
        const bool    writes = gm_thread % LANES == 0 && row < a.rows;
        by[i] = gm_float8_scale_of<T>(a, gm_float8_join(most[i], 1, LANES / 2), a.scales, across * a.rows + row,
                                      writes);
    }
}

/* factor: those of the tile's columns. parts: what each warp has found. */
template <class T>
GM_DEVICE void gm_float8_scale_columns(const gm_float8_args &a, int64_t r0, int64_t c0, int c, const uint32_t *most,
                                       uint32_t *parts, float *factor)
{
    GM_UNROLL for (int j = 0; j < PIECES * COLUMNS; j++)
    {
        const uint32_t found = gm_float8_join(most[j], LANES, GM_WARP / 2);
        if (gm_thread % GM_WARP < LANES)
            parts[gm_thread / GM_WARP * TILE + j / COLUMNS * LANES * COLUMNS + c + j % COLUMNS] = found;
    }
    GM_SYNC();
    if (gm_thread < TILE) {
        const int64_t column = c0 + gm_thread;
        uint32_t      largest = 0;
        for (int w = 0; w < WARPS; w++) largest = gm_float8_most(largest, parts[w * TILE + gm_thread]);
        factor[gm_thread] = gm_float8_scale_of<T>(a, largest, a.turned_scales, r0 / TILE * a.k + column, column < a.k);
    }
    GM_SYNC();
}

/* One scale for the tile. */
template <class T>
GM_DEVICE float gm_float8_scale_square(const gm_float8_args &a, int64_t r0, int64_t c0, const uint32_t (&row)[ROWS],
                                       uint32_t *scratch)
{
    const int64_t across = (a.k + TILE - 1) / TILE, down = (a.rows + TILE - 1) / TILE, i = r0 / TILE, l = c0 / TILE;
    uint32_t      most = 0;
    GM_UNROLL for (int j = 0; j < ROWS; j++) most = gm_float8_most(most, row[j]);
    most = gm_block_max(most, scratch);
    gm_float8_scale_of<T>(a, most, a.scales, i * across + l, gm_thread == 0);
    return gm_float8_scale_of<T>(a, most, a.turned_scales, l * down + i, gm_thread == 0);
}

/* Codes of v, 4 rows and 8 columns from (r, c) on of the tile, with the factors of its rows, and of its columns. */
template <class T, bool WHOLE, int N, class R = gm_real<T>>
GM_DEVICE void gm_float8_block_piece(const gm_float8_args &a, int64_t r0, int64_t c0, int r, int c,
                                     const float (&of_row)[ROWS], const float *of_column, uint32_t *tile,
                                     const gm_vector (&v)[ROWS][N])
{
    gm_float8_eight codes[ROWS];
    R               by[COLUMNS];
    GM_UNROLL for (int i = 0; i < ROWS; i++)
    {
        const int64_t row = r0 + r + i;
        if (!a.codes || !(WHOLE || (row < a.rows && c0 + c < a.k))) continue;
        GM_UNROLL for (int j = 0; j < COLUMNS; j++) by[j] = (R)of_row[i];
        gm_float8_put<WHOLE>(a.codes + row * a.k + c0 + c, gm_float8_codes_each<T>(a.format, by, v[i]), a.k - c0 - c,
                             a.k % COLUMNS == 0);
    }
    if (!a.turned) return;
    GM_UNROLL for (int j = 0; j < COLUMNS; j++) by[j] = (R)(a.square ? of_row[0] : of_column[c + j]);
    GM_UNROLL for (int i = 0; i < ROWS; i++) codes[i] = gm_float8_codes_each<T>(a.format, by, v[i]);
    gm_float8_turn_into(tile, r, c, codes);
}

/* WHOLE: all tiles are. */
template <class T, bool WHOLE> GM_DEVICE void gm_float8_block_tiles(const gm_float8_args &a)
{
    GM_SHARED(uint32_t, tile);
    constexpr int N = COLUMNS / gm_lanes<T>, HELD = gm_is_short<T> ? PIECES : 1;
    uint32_t     *parts = tile + TILE * TILE / 4;
    float        *factor = (float *)(parts + WARPS * TILE);
    const int64_t across = (a.k + TILE - 1) / TILE;
    const int64_t r0 = gm_block_x / across * TILE, c0 = gm_block_x % across * TILE;
    const int     r = gm_thread / LANES * ROWS, c = gm_thread % LANES * COLUMNS;
    gm_vector     v[HELD][ROWS][N];
    uint32_t      row[ROWS] = {0}, column[PIECES * COLUMNS] = {0};
    float         by[ROWS];
    GM_UNROLL for (int p = 0; p < PIECES; p++)
    {
        GM_UNROLL for (int i = 0; i < ROWS; i++)
            gm_float8_take<T, WHOLE>(a, r0 + r + i, c0 + c + p * LANES * COLUMNS, v[p % HELD][i]);
        gm_float8_look<T>(v[p % HELD], row, column + p * COLUMNS);
    }
    if (a.square) {
        by[0] = gm_float8_scale_square<T>(a, r0, c0, row, parts);
        GM_UNROLL for (int i = 1; i < ROWS; i++) by[i] = by[0];
    } else {
        gm_float8_scale_rows<T>(a, r0, c0, r, row, by);
        gm_float8_scale_columns<T>(a, r0, c0, c, column, parts, factor);
    }
    GM_UNROLL for (int p = 0; p < PIECES; p++)
    {
        if constexpr (HELD == 1) {
            GM_UNROLL for (int i = 0; i < ROWS; i++)
                gm_float8_take<T, WHOLE>(a, r0 + r + i, c0 + c + p * LANES * COLUMNS, v[0][i]);
        }
        gm_float8_block_piece<T, WHOLE>(a, r0, c0, r, c + p * LANES * COLUMNS, by, factor, tile, v[p % HELD]);
    }
    GM_SYNC();
    if (a.turned) gm_float8_give_turned<WHOLE>(a, r0, c0, tile);
}
template <class T> GM_DEVICE void gm_float8_block_encode(const gm_float8_args a) { gm_float8_block_tiles<T, false>(a); }
template <class T> GM_DEVICE void gm_float8_block_encode_whole(const gm_float8_args a)
{
    gm_float8_block_tiles<T, true>(a);
}
GM_KERNELS(gm_float8_block_encode, gm_float8_args)
GM_KERNELS(gm_float8_block_encode_whole, gm_float8_args)
