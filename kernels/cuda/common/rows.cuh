/* rows.cuh - rows (rows.h) in kernels: where a row starts, who works on it, sums over a team. Per dtype: rows_t.cuh. */
#ifndef GM_CUDA_ROWS_CUH
#define GM_CUDA_ROWS_CUH

#include "kernel.cuh"
#include "rows.h"

#ifndef GM_PASTE
#define GM_PASTE_(a, b) a##_##b
#define GM_PASTE(a, b)  GM_PASTE_(a, b)
#endif

/* Elements from data to the first of row r. */
GM_DEVICE int64_t gm_row_start(const gm_row_view *rows, int64_t r)
{
    int64_t at = 0;
    if (rows->ndim <= 1) return r * rows->stride[0];
    for (int d = rows->ndim - 1; d > 0; d--) {
        int64_t rest = r / rows->shape[d];
        at += (r - rest * rows->shape[d]) * rows->stride[d];
        r = rest;
    }
    return at + r * rows->stride[0];
}

/* The row and place in its team of this thread, where a block has one team, or a warp each. */
#define GM_TEAM(team, lane, row)                \
    const int team = a.team;                    \
    const int lane = gm_thread % team;          \
    int64_t   row = gm_block_x * (gm_block_size / team) + gm_thread / team

/* As gm_block_sum_f32: the same for all threads of the team. */
#define GM_TEAM_JOINS(type, name)                                                        \
    GM_DEVICE type gm_team_sum_##name(type v, int team, type *scratch)                   \
    {                                                                                    \
        return team == GM_WARP ? gm_warp_sum_##name(v) : gm_block_sum_##name(v, scratch); \
    }                                                                                    \
    GM_DEVICE type gm_team_max_##name(type v, int team, type *scratch)                   \
    {                                                                                    \
        return team == GM_WARP ? gm_warp_max_##name(v) : gm_block_max_##name(v, scratch); \
    }
GM_TEAM_JOINS(float, f32)
GM_TEAM_JOINS(double, f64)

/* The integers of an index or target: i64, or i32 where narrow. */
GM_DEVICE int64_t gm_row_index(const gm_row_view *rows, int narrow, int64_t r)
{
    int64_t at = gm_row_start(rows, r);
    return narrow ? ((const int32_t *)rows->data)[at] : ((const int64_t *)rows->data)[at];
}

#endif
