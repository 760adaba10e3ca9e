/* table.cu - lookups in a table, and their gradient, which has no races and one order of additions: positions are
 * sorted by row of the table (sort.h), and one block sums each row in order of position.
 *
 * An index outside of the table is refused (refusal.h). Its row of y is zeros, and it adds to no row of dw. */
#include "../../common/rows.cuh"
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
        GM_UNROLL for (int j = 0; j < AHEAD; j++) held[j] = gm_load_vector((const T *)a->g.data + at[j] + i);
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

/* dw[row] (+)= the sum of g at the row's positions. A block has a row and 32 packs of its columns; its warps have a
 * part of the positions each, and their sums are added in order. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_table_grad(const gm_table_grad_args a)
{
    GM_SHARED(R, room);
    const int     warp = gm_thread / GM_WARP;
    const int64_t row = gm_block_x, i = (gm_block_y * GM_WARP + gm_thread % GM_WARP) * V;
    const int64_t first = a.start[row], n = a.start[row + 1] - first, each = (n + GM_TABLE_WARPS - 1) / GM_TABLE_WARPS;
    const int64_t begin = first + warp * each, end = begin + each < first + n ? begin + each : first + n;
    R             sum[V], g[V];
    if (n == 0 && a.accumulate) return;
    GM_UNROLL for (int j = 0; j < V; j++) sum[j] = 0;
    for (int64_t k = begin; k < end && i < a.width; k += AHEAD) gm_table_add<T>(&a, k, end, i, sum);
    GM_UNROLL for (int j = 0; j < V; j++) room[j * gm_block_size + gm_thread] = sum[j];
    GM_SYNC();
    if (warp || i >= a.width) return;
    for (int k = gm_thread + GM_WARP; k < gm_block_size; k += GM_WARP)
        GM_UNROLL for (int j = 0; j < V; j++) sum[j] += room[j * gm_block_size + k];
    if (a.accumulate) {
        gm_row_take<T>(&a.dw, gm_row_start(&a.dw, row), i, a.width, g);
        GM_UNROLL for (int j = 0; j < V; j++) sum[j] += g[j];
    }
    gm_row_give<T>(&a.dw, gm_row_start(&a.dw, row), i, a.width, sum);
}

GM_KERNELS(gm_lookup, gm_lookup_args)
GM_KERNELS(gm_table_grad, gm_table_grad_args)
