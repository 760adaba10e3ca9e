/* grouped.cuh - where groups are, and which tile of which group a block has. The bounds of groups are numbers in device
 * memory, which the host does not know. */
#ifndef GM_CUDA_GROUPED_CUH
#define GM_CUDA_GROUPED_CUH

#include "../../common/dtype.cuh"
#include "grouped_args.h"

/* Rows first .. end - 1 of group e. Bounds that do not divide the rows are refused, and cut to what is there. */
typedef struct gm_grouped_range {
    int64_t first, end;
} gm_grouped_range;

GM_DEVICE gm_grouped_range gm_grouped_range_of(const gm_grouped_args *a, int64_t e)
{
    gm_grouped_range r;
    r.first = a->bounds[e * a->bounds_step];
    r.end = a->bounds[(e + 1) * a->bounds_step];
    if (r.first < 0 || r.end < r.first || r.end > a->rows) {
        gm_refuse(a->refusal, a->op, r.first < 0 ? r.first : r.end, r.first < 0 ? e : e + 1, a->rows);
        r.first = r.first < 0 ? 0 : r.first < a->rows ? r.first : a->rows;
        r.end = r.end < r.first ? r.first : r.end < a->rows ? r.end : a->rows;
    }
    return r;
}

/* The rows in front of all groups and behind them are groups, too, the last ones: their results are zeros. */
GM_DEVICE gm_grouped_range gm_grouped_any(const gm_grouped_args *a, int64_t e)
{
    gm_grouped_range r;
    if (e < a->groups) return gm_grouped_range_of(a, e);
    const int64_t bound = a->bounds[(e == a->groups ? a->groups : 0) * a->bounds_step];
    const int64_t inside = bound < 0 ? 0 : bound < a->rows ? bound : a->rows;
    r.first = e == a->groups ? inside : 0;
    r.end = e == a->groups ? a->rows : e == a->groups + 1 ? inside : 0;
    if (a->accumulate) r.end = r.first;
    return r;
}

/* A tile: rows from `row` on, before `end`, columns from `column` on. group: `groups` or more for rows of none. */
typedef struct gm_grouped_place {
    int64_t group, row, end, column;
} gm_grouped_place;

/* The tile number gm_block_x of a rows kernel, in tiles of `side` rows and columns; false: there are not so many. Tiles
 * go group by group, and in a group column by column. All threads of a warp call it; each lane looks at one group of
 * 32. */
GM_DEVICE bool gm_grouped_find(const gm_grouped_args *a, int side, gm_grouped_place *at)
{
    const int lane = gm_thread % GM_WARP;
    int64_t   unit = gm_block_x;
    for (int64_t base = 0; base < a->groups + 2; base += GM_WARP) {
        gm_grouped_range r = {0, 0};
        if (base + lane < a->groups + 2) r = gm_grouped_any(a, base + lane);
        int64_t down = (r.end - r.first + side - 1) / side, tiles = down * a->tiles_n;
        int64_t sum = tiles; /* of this lane's group and of those before it */
        for (int by = 1; by < GM_WARP; by *= 2) {
            const int64_t before = gm_shuffle(sum, lane >= by ? lane - by : lane);
            if (lane >= by) sum += before;
        }
        const int64_t all = gm_shuffle(sum, GM_WARP - 1);
        if (unit < all) {
            int which = sum <= unit; /* the lanes before the one that has it */
            for (int by = GM_WARP / 2; by; by /= 2) which += gm_shuffle_xor(which, by);
            const int64_t in_group = unit - gm_shuffle(sum - tiles, which), rows = gm_shuffle(down, which);
            at->group = base + which;
            at->end = gm_shuffle(r.end, which);
            at->row = gm_shuffle(r.first, which) + in_group % rows * side;
            at->column = in_group / rows * side;
            return true;
        }
        unit -= all;
    }
    return false;
}

/* The tile of a weight kernel that this block has: rows of c[group] from at->row on; end: their number. */
GM_DEVICE gm_grouped_place gm_grouped_weight_place(const gm_grouped_args *a, int side)
{
    gm_grouped_place at;
    const int64_t    tiles = (int64_t)a->tiles_m * a->tiles_n, tile = gm_block_x % tiles;
    at.group = gm_block_x / tiles;
    at.row = tile % a->tiles_m * side;
    at.column = tile / a->tiles_m * side;
    at.end = a->m;
    return at;
}

#endif
