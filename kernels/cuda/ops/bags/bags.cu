/* bags.cu - bags of rows of tables, gradients of tables as lists of rows, and rows that such a list names (ops.def).
 *
 * A team of threads has a bag, or a row. The places of a gradient are sorted by row (sort.h); one block then finds
 * where each row begins, and a team adds up each row in order of the places. So there are no races and one order of
 * additions. An index outside of its table is refused (refusal.h) and adds nothing. */
#include "../../common/map.cuh"
#include "../../common/rows.cuh"
#include "bags_args.h"

/* The row of w at a place, -1 where there is none. refuse: tell of an index outside of its table. */
GM_DEVICE int64_t gm_bag_row(const gm_bag_args *a, int64_t bag, int64_t place, int refuse)
{
    const int64_t table = bag % a->tables, v = gm_row_index(&a->index, a->narrow, place);
    const int64_t begin = a->bounds[table * a->bounds_step], count = a->bounds[(table + 1) * a->bounds_step] - begin;
    if (v == -1) return -1;
    if (v < 0 || v >= count) {
        if (refuse) gm_refuse(a->refusal, a->op, v, place, count);
        return -1;
    }
    const int64_t row = v + begin - a->first;
    return row >= 0 && row < a->rows ? row : -1;
}

template <class T, class R = gm_real<T>> GM_DEVICE R gm_one(const gm_row_view *rows, int64_t i)
{
    return rows->data ? gm_at<T>(rows->data, gm_row_start(rows, i)) : (R)1;
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_bag(const gm_bag_args a)
{
    GM_TEAM(team, lane, bag);
    if (bag >= a.bags) return;
    const int64_t first = bag * a.each, y_at = gm_row_start(&a.y, bag);
    for (int64_t k = lane; k < a.each; k += team) {
        const int64_t row = gm_bag_row(&a, bag, first + k, 1);
        if (a.row.data) ((int64_t *)a.row.data)[gm_row_start(&a.row, first + k)] = row;
    }
    for (int64_t i = (int64_t)lane * V; i < a.width; i += (int64_t)team * V) {
        R sum[V], x[V];
        GM_UNROLL for (int j = 0; j < V; j++) sum[j] = 0;
        for (int64_t k = 0; k < a.each; k++) {
            const int64_t row = gm_bag_row(&a, bag, first + k, 0);
            if (row < 0) continue;
            const R weight = gm_one<T>(&a.weight, first + k);
            gm_row_take<T>(&a.w, gm_row_start(&a.w, row), i, a.width, x);
            GM_UNROLL for (int j = 0; j < V; j++) sum[j] += weight * x[j];
        }
        gm_row_give<T>(&a.y, y_at, i, a.width, sum);
    }
}

/* dweight = g . w at each place */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_bag_weight(const gm_bag_weight_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, place);
    const int64_t row = place < a.places ? ((const int64_t *)a.row.data)[gm_row_start(&a.row, place)] : -1;
    R             sum = 0, x[V], g[V];
    for (int64_t i = (int64_t)lane * V; row >= 0 && i < a.width; i += (int64_t)team * V) {
        gm_row_take<T>(&a.w, gm_row_start(&a.w, row), i, a.width, x);
        gm_row_take<T>(&a.g, gm_row_start(&a.g, place / a.each), i, a.width, g);
        GM_UNROLL for (int j = 0; j < V; j++) sum += g[j] * x[j];
    }
    sum = gm_team_sum(sum, team, scratch);
    if (lane == 0 && place < a.places) gm_set<T>(a.dweight.data, gm_row_start(&a.dweight, place), sum);
}

/* ---- the touched rows ---- */

GM_KERNEL(gm_touched_keys, gm_touched_args)
{
    GM_GRID_LOOP(i, a.n) {
        const int64_t row = ((const int64_t *)a.row.data)[gm_row_start(&a.row, i)];
        a.key[i] = row < 0 || row == a.padding ? GM_NO_ROW : (int32_t)row;
        a.position[i] = (int32_t)i;
    }
}

GM_DEVICE bool gm_touched_begins(const gm_touched_args *a, int64_t i)
{
    return a->key[i] != GM_NO_ROW && (i == 0 || a->key[i] != a->key[i - 1]);
}

/* start of each kept row, and behind these the number of places with a row: one block for all. */
GM_KERNEL(gm_touched_starts, gm_touched_args)
{
    GM_SHARED(int32_t, rows);
    int32_t      *places = rows + gm_block_size;
    const int64_t each = (a.n + gm_block_size - 1) / gm_block_size, begin = gm_thread * each;
    const int64_t end = begin + each < a.n ? begin + each : a.n;
    int32_t       count = 0, there = 0, before = 0, all = 0, total = 0;
    for (int64_t i = begin; i < end; i++) {
        count += gm_touched_begins(&a, i);
        there += a.key[i] != GM_NO_ROW;
    }
    rows[gm_thread] = count;
    places[gm_thread] = there;
    GM_SYNC();
    for (int k = 0; k < gm_block_size; k++) {
        before += k < gm_thread ? rows[k] : 0;
        all += rows[k];
        total += places[k];
    }
    for (int64_t i = begin; i < end; i++)
        if (gm_touched_begins(&a, i)) a.start[before++] = (int32_t)i;
    for (int64_t u = all + gm_thread; u <= a.n; u += gm_block_size) a.start[u] = total;
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_touched_sum(const gm_touched_args a)
{
    GM_TEAM(team, lane, u);
    if (u >= a.n) return;
    const int32_t begin = a.start[u], end = a.start[u + 1];
    if (lane == 0) a.kept[u * a.kept_step] = begin < end ? a.key[begin] : -1;
    for (int64_t i = (int64_t)lane * V; i < a.width; i += (int64_t)team * V) {
        R sum[V], g[V];
        GM_UNROLL for (int j = 0; j < V; j++) sum[j] = 0;
        for (int32_t k = begin; k < end; k++) {
            const int64_t place = a.position[k];
            const R       weight = gm_one<T>(&a.weight, place);
            gm_row_take<T>(&a.g, gm_row_start(&a.g, place / a.each), i, a.width, g);
            GM_UNROLL for (int j = 0; j < V; j++) sum[j] += weight * g[j];
        }
        gm_row_give<T>(&a.sum, gm_row_start(&a.sum, u), i, a.width, sum);
    }
}

/* ---- rows that a list names, bit for bit ---- */

template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_move_row(const gm_move_args a)
{
    GM_TEAM(team, lane, i);
    if (i >= a.n) return;
    int64_t       row = ((const int64_t *)a.row.data)[gm_row_start(&a.row, i)];
    const int64_t y_at = gm_row_start(&a.y, i);
    if (row >= a.rows) {
        if (lane == 0) gm_refuse(a.refusal, a.op, row, i, a.rows);
        row = -1;
    }
    if (row < 0 && a.put) return;
    const int64_t   x_at = row < 0 ? 0 : gm_row_start(&a.x, row);
    const gm_vector none = {{0, 0, 0, 0}};
    for (int64_t c = (int64_t)lane * V; c < a.width; c += (int64_t)team * V) {
        if (a.put) gm_row_store<T>(&a.x, x_at, c, a.width, gm_row_load<T>(&a.y, y_at, c, a.width));
        else gm_row_store<T>(&a.y, y_at, c, a.width, row < 0 ? none : gm_row_load<T>(&a.x, x_at, c, a.width));
    }
}

GM_KERNELS(gm_bag, gm_bag_args)
GM_KERNELS(gm_bag_weight, gm_bag_weight_args)
GM_KERNELS(gm_touched_sum, gm_touched_args)
GM_KERNELS(gm_move_row, gm_move_args)
