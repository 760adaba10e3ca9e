/* table_t.cuh - the kernels of table.cu for one dtype. */
#include "rows_t.cuh"

/* y[row] = w[index[row]], bit for bit */
GM_KERNEL_NAMED(GM_E(gm_lookup), gm_lookup_args)
{
    GM_TEAM(team, lane, row);
    if (row >= a.positions) return;
    const int64_t from = gm_row_index(&a.index, a.narrow, row), y_at = gm_row_start(&a.y, row);
    const int     inside = from >= 0 && from < a.rows;
    const int64_t w_at = inside ? gm_row_start(&a.w, from) : 0;
    if (!inside && !a.part && lane == 0) gm_refuse(a.refusal, a.op, from, row, a.rows);
    GM_EACH_PACK(c, k)
    {
        const int64_t i = GM_PACK_PLACE(c, k);
        gm_vector     v = {{0, 0, 0, 0}};
        if (i >= a.width) continue;
        if (inside) v = GM_E(gm_row_load)(&a.w, w_at, i, a.width);
        GM_E(gm_row_store)(&a.y, y_at, i, a.width, v);
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
    for (int64_t k = begin; k < end && i < a.width; k++) {
        GM_E(gm_row_take)(&a.g, gm_row_start(&a.g, a.position[k]), i, a.width, g);
        GM_UNROLL for (int j = 0; j < GM_V; j++) sum[j] += g[j];
    }
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

#include "rows_t_end.cuh"
