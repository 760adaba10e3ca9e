/* table_t.cuh - the kernels of table.cu for one dtype. */
#include "../../common/rows_t.cuh"

/* y[row] = w[index[row]], bit for bit */
GM_KERNEL_NAMED(GM_E(gm_lookup), gm_lookup_args)
{
    GM_TEAM(team, lane, row);
    if (row >= a.positions) return;
    const int64_t from = gm_row_index(&a.index, a.narrow, row), y_at = gm_row_start(&a.y, row);
    const int     inside = from >= 0 && from < a.rows;
    const int64_t w_at = inside ? gm_row_start(&a.w, from) : 0;
    if (!inside && !a.part && lane == 0) gm_refuse(a.refusal, a.op, from, row, a.rows);
    GM_EACH_PART(c)
    {
        gm_vector held[GM_HELD] = {{{0}}};
        if (inside) GM_E(gm_row_hold)(&a.w, w_at, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) GM_E(gm_row_store)(&a.y, y_at, i, a.width, held[k]);
    }
}

#define GM_AHEAD 8 /* positions whose rows are under way together: some words are in each line of a text */

/* sum += pack i of g at the positions from k on, in order, up to `end`. */
GM_DEVICE void GM_E(gm_table_add)(const gm_table_grad_args *a, int64_t k, int64_t end, int64_t i, GM_R *sum)
{
    int64_t   at[GM_AHEAD];
    gm_vector held[GM_AHEAD] = {{{0}}};
    GM_R      g[GM_V];
    GM_UNROLL for (int j = 0; j < GM_AHEAD; j++) at[j] = gm_row_start(&a->g, a->position[k + j < end ? k + j : k]);
    if (a->g.vectors && i + GM_V <= a->width) {
        GM_UNROLL for (int j = 0; j < GM_AHEAD; j++) held[j] = gm_load_vector((const GM_T *)a->g.data + at[j] + i);
    } else {
        GM_ROLLED for (int j = 0; j < GM_AHEAD; j++)
        {
            GM_TURN(held, GM_AHEAD, GM_E(gm_row_load)(&a->g, at[0], i, a->width));
            GM_TURN(at, GM_AHEAD, at[0]);
        }
    }
    GM_UNROLL for (int j = 0; j < GM_AHEAD; j++)
    {
        if (k + j >= end) break;
        GM_E(gm_unpack)(held[j], g);
        GM_UNROLL for (int e = 0; e < GM_V; e++) sum[e] += g[e];
    }
}

/* dw[row] (+)= the sum of g at the row's positions. A block has a row and 32 packs of its columns; its warps have a
 * part of the positions each, and their sums are added in order. */
GM_KERNEL_NAMED(GM_E(gm_table_grad), gm_table_grad_args)
{
    GM_SHARED(GM_R, room);
    const int     warp = gm_thread / GM_WARP;
    const int64_t row = gm_block_x, i = (gm_block_y * GM_WARP + gm_thread % GM_WARP) * GM_V;
    const int64_t first = a.start[row], n = a.start[row + 1] - first, each = (n + GM_TABLE_WARPS - 1) / GM_TABLE_WARPS;
    const int64_t begin = first + warp * each, end = begin + each < first + n ? begin + each : first + n;
    GM_R          sum[GM_V], g[GM_V];
    if (n == 0 && a.accumulate) return;
    GM_UNROLL for (int j = 0; j < GM_V; j++) sum[j] = 0;
    for (int64_t k = begin; k < end && i < a.width; k += GM_AHEAD) GM_E(gm_table_add)(&a, k, end, i, sum);
    GM_UNROLL for (int j = 0; j < GM_V; j++) room[j * gm_block_size + gm_thread] = sum[j];
    GM_SYNC();
    if (warp || i >= a.width) return;
    for (int k = gm_thread + GM_WARP; k < gm_block_size; k += GM_WARP)
        GM_UNROLL for (int j = 0; j < GM_V; j++) sum[j] += room[j * gm_block_size + k];
    if (a.accumulate) {
        GM_E(gm_row_take)(&a.dw, gm_row_start(&a.dw, row), i, a.width, g);
        GM_UNROLL for (int j = 0; j < GM_V; j++) sum[j] += g[j];
    }
    GM_E(gm_row_give)(&a.dw, gm_row_start(&a.dw, row), i, a.width, sum);
}

#undef GM_AHEAD

#include "../../common/rows_t_end.cuh"
