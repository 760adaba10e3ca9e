/* table.cu - lookups in a table, and their gradient, which has no races and one order of additions: positions are
 * sorted by row of the table (sort.h), and one warp sums each row in order of position; or a block, a row of many.
 *
 * An index outside of the table is refused (refusal.h). Its row of y is zeros, and it adds to no row of dw. */
#include "../../common/rows.cuh"
#include "../../common/whole.cuh"
#include "table_args.h"

constexpr int HELD = GM_TABLE_PACKS;

/* y[row] = w[index[row]], bit for bit */
template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_lookup(const gm_lookup_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.positions) return;
    const int64_t from = gm_row_index(&a.index, a.narrow, row), y_at = gm_row_start(&a.y, row);
    const bool    inside = from >= 0 && from < a.rows;
    const int64_t w_at = inside ? gm_row_start(&a.w, from) : 0;
    if (!inside && !a.part && lane == 0) gm_refuse(a.refusal, a.op, from, row, a.rows);
    GM_EACH_PART(c) {
        gm_vector held[HELD] = {{{0}}};
        if (inside) gm_row_hold<T>(&a.w, w_at, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) gm_row_store<T>(&a.y, y_at, i, a.width, held[k]);
    }
}

constexpr int AHEAD = 8; /* positions whose rows are under way together: some words are in each line of a text */

/* sum += pack i of g at the positions from k on, in order, up to `end`. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_table_add(const gm_table_grad_args *a, int64_t k, int64_t end, int64_t i, R *sum)
{
    int64_t   at[AHEAD];
    gm_vector held[AHEAD] = {{{0}}};
    R         g[V];
    GM_UNROLL for (int j = 0; j < AHEAD; j++) at[j] = gm_row_start(&a->g, a->position[k + j < end ? k + j : k]);
    if (a->g.vectors && i + V <= a->width) {
        GM_UNROLL for (int j = 0; j < AHEAD; j++) if (k + j < end)
            held[j] = gm_load_vector((const T *)a->g.data + at[j] + i);
    } else {
        GM_ROLLED for (int j = 0; j < AHEAD; j++)
        {
            gm_push<AHEAD>(held, gm_row_load<T>(&a->g, at[0], i, a->width));
            gm_push<AHEAD>(at, at[0]);
        }
    }
    GM_UNROLL for (int j = 0; j < AHEAD; j++)
    {
        if (k + j >= end) break;
        gm_unpack<T>(held[j], g);
        GM_UNROLL for (int e = 0; e < V; e++) sum[e] += g[e];
    }
}

template <class T, class R = gm_real<T>>
GM_DEVICE void gm_table_sum(const gm_table_grad_args *a, int64_t k, int64_t end, int64_t i, R *sum)
{
    GM_UNROLL for (int j = 0; j < gm_lanes<T>; j++) sum[j] = 0;
    GM_ROLLED for (; k < end && i < a->width; k += AHEAD) gm_table_add<T>(a, k, end, i, sum);
}

/* dw[row] (+)= sum, pack i */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_table_put(const gm_table_grad_args *a, int64_t row, int64_t i, R *sum)
{
    const int64_t at = gm_row_start(&a->dw, row);
    R             old[V];
    if (a->accumulate) {
        gm_row_take<T>(&a->dw, at, i, a->width, old);
        GM_UNROLL for (int j = 0; j < V; j++) sum[j] += old[j];
    }
    gm_row_give<T>(&a->dw, at, i, a->width, sum);
}

/* dw[row] (+)= the sum of g at the row's positions. A block has GM_TABLE_WARPS rows and 32 packs of their columns, and
 * each of its warps a row. On a row of more than GM_TABLE_ALONE positions all of them work: each has a part of the
 * positions, and their sums are added in order. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_table_grad(const gm_table_grad_args a)
{
    GM_SHARED(R, room);
    const int     warp = gm_thread / GM_WARP;
    const int64_t rows = gm_block_x * GM_TABLE_WARPS, i = (gm_block_y * GM_WARP + gm_thread % GM_WARP) * V;
    const int64_t past = rows + GM_TABLE_WARPS < a.rows ? rows + GM_TABLE_WARPS : a.rows, own = rows + warp;
    R             sum[V];
    if (own < past && i < a.width) {
        const int64_t first = a.start[own], end = a.start[own + 1], n = end - first;
        if (n <= GM_TABLE_ALONE && (n > 0 || !a.accumulate)) {
            gm_table_sum<T>(&a, first, end, i, sum);
            gm_table_put<T>(&a, own, i, sum);
        }
    }
    GM_ROLLED for (int64_t row = rows; row < past; row++)
    {
        const int64_t first = a.start[row], n = a.start[row + 1] - first,
                      each = (n + GM_TABLE_WARPS - 1) / GM_TABLE_WARPS;
        const int64_t begin = first + warp * each, end = begin + each < first + n ? begin + each : first + n;
        if (n <= GM_TABLE_ALONE) continue;
        gm_table_sum<T>(&a, begin, end, i, sum);
        GM_SYNC();
        GM_UNROLL for (int j = 0; j < V; j++) room[j * gm_block_size + gm_thread] = sum[j];
        GM_SYNC();
        if (warp || i >= a.width) continue;
        for (int k = gm_thread + GM_WARP; k < gm_block_size; k += GM_WARP)
            GM_UNROLL for (int j = 0; j < V; j++) sum[j] += room[j * gm_block_size + k];
        gm_table_put<T>(&a, row, i, sum);
    }
}

/* ---- even rows (gm_rows_even): a lane has P packs of a row, 32 packs apart, so that few warps ask where a row's
 * positions are ---- */

/* Of a row: dw[i] = dw[i] + sums, where they are added to. `at` is the lane's first element. */
template <class T, int P, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_even_table_put(const gm_table_grad_args *a, int64_t row, int64_t at, R (&sum)[P][V])
{
    T *to = (T *)a->dw.data + row * a->dw.stride[0] + at;
    GM_UNROLL for (int p = 0; p < P; p++)
    {
        if (at + p * GM_WARP * V >= a->width) return;
        if (a->accumulate) {
            R old[V];
            gm_unpack<T>(gm_load_vector(to + p * GM_WARP * V), old);
            GM_UNROLL for (int j = 0; j < V; j++) sum[p][j] += old[j];
        }
        gm_store_whole(to + p * GM_WARP * V, gm_pack<T>(sum[p]));
    }
}

/* The sums of g at the positions from k on, in order, up to `end`. */
template <class T, int P, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_even_table_sum(const gm_table_grad_args *a, int32_t k, int32_t end, int64_t at, R (&sum)[P][V])
{
    constexpr int A = (AHEAD + P - 1) / P;
    const T      *g = (const T *)a->g.data + at;
    GM_UNROLL for (int p = 0; p < P; p++) GM_UNROLL for (int j = 0; j < V; j++) sum[p][j] = 0;
    GM_ROLLED for (; k < end; k += A)
    {
        gm_vector held[A][P] = {{{{0}}}};
        R         v[V];
        GM_UNROLL for (int n = 0; n < A; n++)
        {
            const T *from = g + a->position[k + n < end ? k + n : k] * a->g.stride[0];
            GM_UNROLL for (int p = 0; p < P; p++) if (k + n < end && at + p * GM_WARP * V < a->width)
                held[n][p] = gm_load_vector(from + p * GM_WARP * V);
        }
        GM_UNROLL for (int n = 0; n < A; n++)
        {
            if (k + n >= end) break;
            GM_UNROLL for (int p = 0; p < P; p++)
            {
                gm_unpack<T>(held[n][p], v);
                GM_UNROLL for (int j = 0; j < V; j++) sum[p][j] += v[j];
            }
        }
    }
}

/* A row of many positions, by all warps of the block. room: of each thread P V numbers. */
template <class T, int P, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_even_table_many(const gm_table_grad_args *a, int64_t row, int32_t first, int32_t n, int64_t at,
                                  R *room)
{
    const int     warp = gm_thread / GM_WARP;
    const int32_t each = (n + GM_TABLE_WARPS - 1) / GM_TABLE_WARPS, begin = first + warp * each;
    R             sum[P][V];
    gm_even_table_sum<T, P>(a, begin, begin + each < first + n ? begin + each : first + n, at, sum);
    GM_SYNC();
    GM_UNROLL for (int p = 0; p < P; p++) GM_UNROLL for (int j = 0; j < V; j++)
        room[(p * V + j) * gm_block_size + gm_thread] = sum[p][j];
    GM_SYNC();
    if (warp) return;
    for (int k = gm_thread + GM_WARP; k < gm_block_size; k += GM_WARP)
        GM_UNROLL for (int p = 0; p < P; p++) GM_UNROLL for (int j = 0; j < V; j++)
            sum[p][j] += room[(p * V + j) * gm_block_size + k];
    gm_even_table_put<T, P>(a, row, at, sum);
}

/* As gm_table_grad, with P times as many columns for a block. */
template <class T, int P, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_even_table_grad(const gm_table_grad_args a)
{
    GM_SHARED(R, room);
    const int64_t rows = gm_block_x * GM_TABLE_WARPS, own = rows + gm_thread / GM_WARP;
    const int64_t past = rows + GM_TABLE_WARPS < a.rows ? rows + GM_TABLE_WARPS : a.rows;
    const int64_t at = (gm_block_y * GM_WARP * P + gm_thread % GM_WARP) * V;
    if (own < past) {
        const int32_t first = a.start[own], end = a.start[own + 1];
        if (end - first <= GM_TABLE_ALONE && (end > first || !a.accumulate)) {
            R sum[P][V];
            gm_even_table_sum<T, P>(&a, first, end, at, sum);
            gm_even_table_put<T, P>(&a, own, at, sum);
        }
    }
    GM_ROLLED for (int64_t row = rows; row < past; row++)
    {
        const int32_t first = a.start[row], n = a.start[row + 1] - first;
        if (n > GM_TABLE_ALONE) gm_even_table_many<T, P>(&a, row, first, n, at, room);
    }
}

template <class T> GM_DEVICE void gm_table_grad_even1(const gm_table_grad_args a) { gm_even_table_grad<T, 1>(a); }
template <class T> GM_DEVICE void gm_table_grad_even3(const gm_table_grad_args a) { gm_even_table_grad<T, 3>(a); }

GM_KERNELS(gm_lookup, gm_lookup_args)
GM_KERNELS(gm_table_grad, gm_table_grad_args)
GM_KERNELS(gm_table_grad_even1, gm_table_grad_args)
GM_KERNELS(gm_table_grad_even3, gm_table_grad_args)
