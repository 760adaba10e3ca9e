/* experts.cu - the kernels of mixtures of experts: which expert serves which token, and how rows move to experts and
 * back. Choices are sorted by expert (sort.h), so that places depend only on the order of tokens. The thread that
 * writes an element of a result adds up all its terms, so there are no races.
 *
 * An index, choice or row out of range is refused (refusal.h) and counts as -1. A choice beyond the rows of its expert
 * counts as -1, too. */
#include "../../common/rows.cuh"
#include "experts_args.h"

/* The key of an expert: experts first .. first + ahead - 1 come before the others. And back. */
GM_DEVICE int64_t gm_expert_key(int64_t e, int64_t first, int64_t ahead)
{
    return e < first ? e + ahead : e < first + ahead ? e - first : e;
}

GM_DEVICE int64_t gm_expert_of_key(int64_t key, int64_t first, int64_t ahead)
{
    return key < ahead ? key + first : key < first + ahead ? key - ahead : key;
}

GM_DEVICE void gm_set_number(const gm_row_view *rows, int narrow, int64_t i, int64_t v)
{
    int64_t at = gm_row_start(rows, i);
    if (narrow) ((int32_t *)rows->data)[at] = (int32_t)v;
    else ((int64_t *)rows->data)[at] = v;
}

GM_KERNEL(gm_expert_keys, gm_expert_keys_args)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t e = gm_row_index(&a.index, a.narrow, i), key = a.none;
        if (e >= 0 && e < a.experts) {
            key = gm_expert_key(e, a.first, a.ahead);
            if (a.span) key += i / a.span * a.experts;
        } else if (e != -1) {
            gm_refuse(a.refusal, a.op, e, i, a.experts);
        }
        a.key[i] = (int32_t)key;
        a.position[i] = (int32_t)i;
    }
}

GM_KERNEL(gm_expert_count, gm_expert_lists_args)
{
    GM_GRID_LOOP(i, a.keys) gm_set_number(&a.count, 0, i, a.start[i + 1] - a.start[i]);
}

GM_KERNEL(gm_expert_limit, gm_expert_lists_args)
{
    GM_GRID_LOOP(i, a.n) {
        const int64_t key = a.key[i];
        int64_t       e = -1;
        if (key < a.keys) {
            const int64_t ahead = a.before.data ? gm_row_index(&a.before, 0, key) : 0;
            if (ahead + (i - a.start[key]) < a.capacity) e = key % a.experts;
        }
        gm_set_number(&a.kept, a.narrow, a.position[i], e);
    }
}

/* Element i of row, choice, count and bounds, where there is one. */
GM_KERNEL(gm_expert_order, gm_expert_lists_args)
{
    const int64_t lists = a.n > a.rows ? a.n : a.rows;
    GM_GRID_LOOP(i, lists > a.experts ? lists : a.experts + 1) {
        if (i < a.n) {
            const int64_t key = a.key[i], place = key < a.keys ? i - a.start[key] : 0;
            int64_t       at = key < a.keys ? i : -1;
            if (key < a.keys && a.capacity) {
                const int64_t e = gm_expert_of_key(key, a.first, a.ahead);
                at = place < a.capacity ? e * a.capacity + place : -1;
                if (at < 0) gm_refuse(a.refusal, a.op, e, a.position[i], -a.capacity);
            }
            gm_set_number(&a.row, 0, a.position[i], at);
        }
        if (i < a.rows) {
            int64_t from = i, end = a.start[a.keys];
            if (a.capacity) {
                const int64_t key = gm_expert_key(i / a.capacity, a.first, a.ahead);
                from = a.start[key] + i % a.capacity;
                end = a.start[key + 1];
            }
            gm_set_number(&a.choice, 0, i, from < end ? a.position[from] : -1);
        }
        if (i < a.experts) {
            const int64_t key = gm_expert_key(i, a.first, a.ahead);
            gm_set_number(&a.count, 0, i, a.start[key + 1] - a.start[key]);
        }
        if (i <= a.ahead) gm_set_number(&a.bounds, 0, i, a.capacity ? (a.first + i) * a.capacity : a.start[i]);
    }
}

GM_DEVICE int64_t gm_expert_run(const gm_expert_before_args *a, int64_t i)
{
    const int64_t run = gm_row_index(&a->order, 0, i);
    if (run >= 0 && run < a->runs) return run;
    if (run != -1 && gm_block_x == 0) gm_refuse(a->refusal, a->op, run, i, a->runs);
    return -1;
}

/* A block has a kind and an expert, each of its threads some runs that follow each other in the order. */
GM_KERNEL(gm_expert_before, gm_expert_before_args)
{
    GM_SHARED(int64_t, sums);
    int64_t      *lower = sums + GM_EXPERTS_THREADS;
    const int64_t kind = gm_block_x / a.experts, e = gm_block_x % a.experts;
    const int64_t each = (a.runs + GM_EXPERTS_THREADS - 1) / GM_EXPERTS_THREADS, first = gm_thread * each;
    const int64_t end = first + each < a.runs ? first + each : a.runs;
    int64_t       own = 0, kinds = 0;
    for (int64_t i = first; i < end; i++) {
        const int64_t run = gm_expert_run(&a, i);
        for (int64_t j = 0; j <= kind && run >= 0; j++) {
            const int64_t n = gm_row_index(&a.count, 0, (run * a.k + j) * a.experts + e);
            if (j < kind) kinds += n;
            else own += n;
        }
    }
    sums[gm_thread] = own;
    lower[gm_thread] = kinds;
    GM_SYNC();
    int64_t before = 0;
    for (int t = 0; t < GM_EXPERTS_THREADS; t++) before += lower[t] + (t < gm_thread ? sums[t] : 0);
    for (int64_t i = first; i < end; i++) {
        const int64_t run = gm_expert_run(&a, i), at = (run * a.k + kind) * a.experts + e;
        if (run < 0) continue;
        gm_set_number(&a.before, 0, at, before);
        before += gm_row_index(&a.count, 0, at);
    }
}

/* ---- rows that move; weights are of the type of arithmetic ---- */

constexpr int HELD = GM_EXPERTS_PACKS;

/* What number i of the way names, or -1. one: the thread that says so where it names nothing. */
GM_DEVICE int64_t gm_expert_way(const gm_expert_rows_args *a, int64_t i, int one)
{
    const int64_t v = gm_row_index(&a->way, 0, i);
    if (v >= 0 && v < a->limit) return v;
    if (v != -1 && one) gm_refuse(a->refusal, a->op, v, i, a->limit);
    return -1;
}

/* to[row] = weight[c] from[c / k], c the choice of the row */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_expert_gather(const gm_expert_rows_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.n) return;
    const int64_t c0 = gm_expert_way(&a, row, lane == 0), to = gm_row_start(&a.to, row);
    const int64_t from = c0 < 0 ? 0 : gm_row_start(&a.from, c0 / a.k);
    const R       w = c0 >= 0 && a.weight.data ? gm_row_number<R>(&a.weight, c0) : 1;
    GM_EACH_PART(c) {
        gm_vector held[HELD] = {{{0}}};
        if (c0 >= 0) gm_row_hold<T>(&a.from, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            if (c0 >= 0 && a.weight.data) {
                R x[V];
                gm_unpack<T>(held[k], x);
                GM_UNROLL for (int j = 0; j < V; j++) x[j] *= w;
                held[k] = gm_pack<T>(x);
            }
            gm_row_store<T>(&a.to, to, i, a.width, held[k]);
        }
    }
}

/* to[t] (+)= the sum over the token's choices c of weight[c] from[row of c], in their order */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_expert_combine(const gm_expert_rows_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.n) return;
    const int64_t to = gm_row_start(&a.to, row);
    GM_EACH_PART(c)
        GM_EACH_PACK(c, k, i) {
            R sum[V], y[V];
            GM_UNROLL for (int j = 0; j < V; j++) sum[j] = 0;
            if (a.accumulate) gm_row_take<T>(&a.to, to, i, a.width, sum);
            for (int64_t choice = row * a.k; choice < (row + 1) * a.k; choice++) {
                const int64_t at = gm_expert_way(&a, choice, i == 0);
                if (at < 0) continue;
                const R w = a.weight.data ? gm_row_number<R>(&a.weight, choice) : 1;
                gm_row_take<T>(&a.from, gm_row_start(&a.from, at), i, a.width, y);
                GM_UNROLL for (int j = 0; j < V; j++) sum[j] += w * y[j];
            }
            gm_row_give<T>(&a.to, to, i, a.width, sum);
        }
}

/* to[c] = g[c / k] . from[row of choice c] */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_expert_combine_grad(const gm_expert_rows_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.n) return;
    const int64_t at = gm_expert_way(&a, row, lane == 0), g_at = gm_row_start(&a.g, row / a.k);
    const int64_t from = at < 0 ? 0 : gm_row_start(&a.from, at);
    R             sum = 0, y[V], g[V];
    GM_EACH_PART(c) {
        gm_vector held[HELD], held_g[HELD];
        if (at < 0) break;
        gm_row_hold<T>(&a.from, from, c, team, lane, a.width, held);
        gm_row_hold<T>(&a.g, g_at, c, team, lane, a.width, held_g);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], y);
            gm_unpack<T>(held_g[k], g);
            GM_UNROLL for (int j = 0; j < V; j++) sum += y[j] * g[j];
        }
    }
    sum = gm_team_sum(sum, team, scratch);
    if (lane == 0) gm_row_set_number(&a.to, row, sum);
}

GM_KERNELS(gm_expert_gather, gm_expert_rows_args)
GM_KERNELS(gm_expert_combine, gm_expert_rows_args)
GM_KERNELS(gm_expert_combine_grad, gm_expert_rows_args)
