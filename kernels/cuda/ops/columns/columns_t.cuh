/* columns_t.cuh - the kernels of columns.cu for one dtype. */
#include "../../common/rows_t.cuh"

/* The sums of a block's warps, in order, to the block's set. room: one number a thread and lane of a pack. */
GM_DEVICE void GM_E(gm_columns_join)(void *to, const GM_R *sum, GM_R *room, int64_t i, int64_t width)
{
    GM_SYNC();
    GM_UNROLL for (int j = 0; j < GM_V; j++) room[j * gm_block_size + gm_thread] = sum[j];
    GM_SYNC();
    if (gm_thread >= GM_WARP) return;
    GM_UNROLL for (int j = 0; j < GM_V; j++)
    {
        GM_R all = 0;
        for (int k = gm_thread; k < gm_block_size; k += GM_WARP) all += room[j * gm_block_size + k];
        if (i + j < width) ((GM_R *)to)[gm_block_y * width + i + j] = all;
    }
}

#define GM_COLUMNS_LOOP                                                                                  \
    const int64_t i = (gm_block_x * GM_WARP + gm_thread % GM_WARP) * GM_V;                               \
    const int64_t end = (gm_block_y + 1) * a.tile < a.rows ? (gm_block_y + 1) * a.tile : a.rows;         \
    for (int64_t r = gm_block_y * a.tile + gm_thread / GM_WARP; r < end && i < a.width; r += GM_COLUMNS_WARPS)

GM_KERNEL_NAMED(GM_E(gm_columns_norm), gm_columns_args)
{
    GM_SHARED(GM_R, room);
    GM_R dw[GM_V], db[GM_V], g[GM_V], x[GM_V];
    GM_UNROLL for (int j = 0; j < GM_V; j++) dw[j] = db[j] = 0;
    GM_COLUMNS_LOOP
    {
        GM_R mean = a.mean.data ? GM_E(gm_row_number)(&a.mean, r) : 0, rstd = GM_E(gm_row_number)(&a.rstd, r);
        const gm_vector held_g = GM_E(gm_row_load)(&a.g, gm_row_start(&a.g, r), i, a.width);
        const gm_vector held_x = GM_E(gm_row_load)(&a.x, gm_row_start(&a.x, r), i, a.width);
        GM_E(gm_unpack)(held_g, g);
        GM_E(gm_unpack)(held_x, x);
        GM_UNROLL for (int j = 0; j < GM_V; j++)
        {
            dw[j] += g[j] * ((x[j] - mean) * rstd);
            db[j] += g[j];
        }
    }
    if (a.dw) GM_E(gm_columns_join)(a.dw, dw, room, i, a.width);
    if (a.db) GM_E(gm_columns_join)(a.db, db, room, i, a.width);
}

GM_KERNEL_NAMED(GM_E(gm_columns_activation), gm_columns_args)
{
    GM_SHARED(GM_R, room);
    GM_R db[GM_V], g[GM_V], x[GM_V];
    GM_UNROLL for (int j = 0; j < GM_V; j++) db[j] = 0;
    GM_COLUMNS_LOOP
    {
        gm_vector held_g = GM_E(gm_row_load)(&a.g, gm_row_start(&a.g, r), i, a.width), held_x = held_g;
        if (a.function) held_x = GM_E(gm_row_load)(&a.pre, gm_row_start(&a.pre, r), i, a.width);
        GM_E(gm_unpack)(held_g, g);
        if (a.function) {
            GM_E(gm_unpack)(held_x, x);
            GM_UNROLL for (int j = 0; j < GM_V; j++)
                if (i + j < a.width) g[j] *= GM_N(gm_activation_slope)(a.function, x[j]);
        }
        if (a.dpre.data) GM_E(gm_row_give)(&a.dpre, gm_row_start(&a.dpre, r), i, a.width, g);
        GM_UNROLL for (int j = 0; j < GM_V; j++) db[j] += g[j];
    }
    if (a.db) GM_E(gm_columns_join)(a.db, db, room, i, a.width);
}

/* The second pass: a lane has a column, the warps take turns with the sets. */
GM_KERNEL_NAMED(GM_E(gm_columns_sum), gm_columns_sum_args)
{
    GM_SHARED(GM_R, room);
    const int64_t  i = gm_block_x * GM_WARP + gm_thread % GM_WARP;
    const gm_row_view *out = &a.out[gm_block_y];
    const GM_R    *part = (const GM_R *)a.part[gm_block_y];
    GM_R           sum = 0;
    if (!out->data) return;
    for (int64_t k = gm_thread / GM_WARP; k < a.tiles && i < a.width; k += GM_COLUMNS_SUM_WARPS)
        sum += part[k * a.width + i];
    room[gm_thread] = sum;
    GM_SYNC();
    if (gm_thread >= GM_WARP || i >= a.width) return;
    for (int k = gm_thread + GM_WARP; k < gm_block_size; k += GM_WARP) sum += room[k];
    GM_T *to = (GM_T *)out->data + i * out->step;
    *to = GM_E(gm_put)(a.accumulate ? GM_E(gm_get)(*to) + sum : sum);
}

#include "../../common/rows_t_end.cuh"
