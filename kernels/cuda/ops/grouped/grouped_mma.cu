/* grouped_mma.cu - products of groups of rows on the tensor cores (mma.cuh): 16 bits, sums in f32 in one order.
 *
 * A block makes a tile of 128 by 128, its eight warps 64 by 32 each. Tiles of both factors, 32 deep, come by cp.async,
 * three stages in turn, so that two are under way while one is multiplied. A factor lies in shared memory as it lies in
 * device memory: in rows along the sum, or across it (`turned`); ldmatrix turns it. A tile at the end of a group has
 * rows of zeros where the next group begins, and these are not written.
 *     gm_grouped_mma_linear   x w'      gm_grouped_mma_input   x w      gm_grouped_mma_weight   g' x along the rows */
#include "../../common/async.cuh"
#include "../../common/mma.cuh"
#include "grouped.cuh"

constexpr int SIDE = GM_GROUPED_SIDE, DEPTH = GM_GROUPED_DEPTH, STAGES = GM_GROUPED_STAGES;
constexpr int ROWS = 4, COLUMNS = 4; /* of a warp, in tiles of 16 rows and 8 columns */

/* Sides s before `sides`, depths d before `depths`, from these on; zeros elsewhere. step: from row to row of memory. */
template <bool turned>
GM_DEVICE void gm_grouped_send(uint16_t *to, const uint16_t *from, int64_t step, int64_t side, int64_t sides,
                               int64_t depth, int64_t depths)
{
    constexpr int across = turned ? SIDE / 8 : DEPTH / 8, pitch = turned ? GM_GROUPED_TURNED : GM_GROUPED_PITCH;
    GM_UNROLL
    for (int i = 0; i < SIDE * DEPTH / 8 / GM_GROUPED_THREADS; i++) {
        const int     at = gm_thread + i * GM_GROUPED_THREADS, row = at / across, column = at % across * 8;
        const int64_t s = side + (turned ? column : row), d = depth + (turned ? row : column);
        const bool    there = s < sides && d < depths;
        gm_send_16(to + row * pitch + column, from + (there ? (turned ? d * step + s : s * step + d) : 0), there);
    }
}

/* Four matrices of 8 by 8: sides from `side` on, those of `lower` 8 further, depths from `depth` on, the others 8
 * further. high: the second of a pair of matrices is further along the side (factor a), else along the depth. */
template <bool turned, bool high> GM_DEVICE void gm_grouped_take(uint32_t *r, const uint16_t *tile, int side, int depth)
{
    const int lane = gm_thread % GM_WARP, matrix = lane / 8, row = lane % 8;
    const int s = side + ((high ? matrix % 2 : matrix / 2) ? 8 : 0),
              d = depth + ((high ? matrix / 2 : matrix % 2) ? 8 : 0);
    if constexpr (turned) gm_matrices_turned(r, tile + (d + row) * GM_GROUPED_TURNED + s);
    else gm_matrices(r, tile + (s + row) * GM_GROUPED_PITCH + d);
}

template <class T, bool turned_a, bool turned_b>
GM_DEVICE void gm_grouped_multiply(float (&sum)[ROWS][COLUMNS][4], const uint16_t *as, const uint16_t *bs, int row,
                                   int column)
{
    GM_UNROLL
    for (int depth = 0; depth < DEPTH; depth += 16) {
        uint32_t b[COLUMNS / 2][4];
        GM_UNROLL
        for (int j = 0; j < COLUMNS / 2; j++) gm_grouped_take<turned_b, false>(b[j], bs, column + 16 * j, depth);
        GM_UNROLL
        for (int i = 0; i < ROWS; i++) {
            uint32_t x[4];
            gm_grouped_take<turned_a, true>(x, as, row + 16 * i, depth);
            GM_UNROLL
            for (int j = 0; j < COLUMNS; j++) gm_mma<T>(sum[i][j], x, b[j / 2] + j % 2 * 2);
        }
    }
}

/* The sums of a tile from depth `from` to depth `to`. w: the matrix of the tile's group. */
template <class T, bool turned_a, bool turned_b>
GM_DEVICE void gm_grouped_sum(const gm_grouped_args *a, const gm_grouped_place *at, const uint16_t *w, int64_t from,
                              int64_t to, int row, int column, float (&sum)[ROWS][COLUMNS][4])
{
    GM_SHARED(uint16_t, shared);
    const uint16_t *x = (const uint16_t *)a->a;
    const int64_t   step_a = turned_a ? a->a_k : a->a_m, step_b = turned_b ? a->b_k : a->b_n;
    const int       stages = (int)((to - from + DEPTH - 1) / DEPTH);
    for (int s = 0; s < STAGES - 1 + stages; s++) {
        if (s >= STAGES - 1) {
            gm_wait_sends<STAGES - 2>();
            GM_SYNC();
        }
        if (s < stages) {
            uint16_t     *tile = shared + s % STAGES * 2 * GM_GROUPED_TILE;
            const int64_t depth = from + (int64_t)s * DEPTH;
            gm_grouped_send<turned_a>(tile, x, step_a, at->row, at->end, depth, to);
            gm_grouped_send<turned_b>(tile + GM_GROUPED_TILE, w, step_b, at->column, a->n, depth, to);
        }
        gm_close_sends();
        if (s < STAGES - 1) continue;
        const uint16_t *tile = shared + (s - STAGES + 1) % STAGES * 2 * GM_GROUPED_TILE;
        gm_grouped_multiply<T, turned_a, turned_b>(sum, tile, tile + GM_GROUPED_TILE, row, column);
    }
}

/* Two neighbours of c. */
template <class T> GM_DEVICE void gm_grouped_put(uint32_t *to, float low, float high, bool accumulate)
{
    if (accumulate) {
        low += gm_get(T{(uint16_t)*to});
        high += gm_get(T{(uint16_t)(*to >> 16)});
    }
    *to = gm_pair<T>(low, high);
}

template <class T>
GM_DEVICE void gm_grouped_finish(const gm_grouped_args *a, const gm_grouped_place *at, uint16_t *c, const T *bias,
                                 int row, int column, const float (&sum)[ROWS][COLUMNS][4])
{
    const int     g = gm_thread % GM_WARP / 4, t = gm_thread % 4;
    const int64_t from = at->column + column + 2 * t;
    GM_UNROLL
    for (int j = 0; j < COLUMNS; j++) {
        const int64_t to = from + 8 * j;
        if (to >= a->n) continue;
        const float low = bias ? gm_get(bias[to]) : 0, high = bias ? gm_get(bias[to + 1]) : 0;
        GM_UNROLL
        for (int i = 0; i < 2 * ROWS; i++) {
            const int64_t r = at->row + row + 8 * i + g;
            const float  *s = sum[i / 2][j] + i % 2 * 2;
            if (r < at->end)
                gm_grouped_put<T>((uint32_t *)(c + r * a->c_m + to), s[0] + low, s[1] + high, a->accumulate);
        }
    }
}

template <class T, bool turned_b> GM_DEVICE void gm_grouped_rows(const gm_grouped_args a)
{
    gm_grouped_place at;
    float            sum[ROWS][COLUMNS][4] = {{{0}}};
    const int        warp = gm_thread / GM_WARP, row = warp / 4 * 64, column = warp % 4 * 32;
    if (!gm_grouped_find(&a, SIDE, &at)) return;
    const bool      in = at.group < a.groups;
    const uint16_t *w = (const uint16_t *)a.b + (in ? at.group * a.b_group : 0);
    const T        *bias = in && a.bias ? (const T *)a.bias + at.group * a.bias_group : nullptr;
    gm_grouped_sum<T, false, turned_b>(&a, &at, w, 0, in ? a.k : 0, row, column, sum);
    gm_grouped_finish<T>(&a, &at, (uint16_t *)a.c, bias, row, column, sum);
}

template <class T> GM_DEVICE void gm_grouped_weight(const gm_grouped_args a)
{
    const gm_grouped_place at = gm_grouped_weight_place(&a, SIDE);
    const gm_grouped_range r = gm_grouped_range_of(&a, at.group);
    float                  sum[ROWS][COLUMNS][4] = {{{0}}};
    const int              warp = gm_thread / GM_WARP, row = warp / 4 * 64, column = warp % 4 * 32;
    gm_grouped_sum<T, true, true>(&a, &at, (const uint16_t *)a.b, r.first, r.end, row, column, sum);
    gm_grouped_finish<T>(&a, &at, (uint16_t *)a.c + at.group * a.c_group, nullptr, row, column, sum);
}

#define GM_GROUPED_MMA(dtype, T)                                                           \
    GM_KERNEL_BOUND(gm_grouped_mma_linear_##dtype, gm_grouped_args, GM_GROUPED_THREADS, 2) \
    {                                                                                      \
        gm_grouped_rows<T, false>(a);                                                      \
    }                                                                                      \
    GM_KERNEL_BOUND(gm_grouped_mma_input_##dtype, gm_grouped_args, GM_GROUPED_THREADS, 2)  \
    {                                                                                      \
        gm_grouped_rows<T, true>(a);                                                       \
    }                                                                                      \
    GM_KERNEL_BOUND(gm_grouped_mma_weight_##dtype, gm_grouped_args, GM_GROUPED_THREADS, 2) { gm_grouped_weight<T>(a); }
GM_GROUPED_MMA(bf16, gm_bf16)
GM_GROUPED_MMA(f16, gm_f16)
