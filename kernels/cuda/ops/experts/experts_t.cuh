/* experts_t.cuh - the kernels of experts.cu that move rows, for one dtype. Weights are of the type of arithmetic. */
#include "../../common/rows_t.cuh"

/* What number i of the way names, or -1. one: the thread that says so where it names nothing. */
GM_DEVICE int64_t GM_E(gm_expert_way)(const gm_expert_rows_args *a, int64_t i, int one)
{
    const int64_t v = gm_row_index(&a->way, 0, i);
    if (v >= 0 && v < a->limit) return v;
    if (v != -1 && one) gm_refuse(a->refusal, a->op, v, i, a->limit);
    return -1;
}

/* to[row] = weight[c] from[c / k], c the choice of the row */
GM_KERNEL_NAMED(GM_E(gm_expert_gather), gm_expert_rows_args)
{
    GM_TEAM(team, lane, row);
    if (row >= a.n) return;
    const int64_t c0 = GM_E(gm_expert_way)(&a, row, lane == 0), to = gm_row_start(&a.to, row);
    const int64_t from = c0 < 0 ? 0 : gm_row_start(&a.from, c0 / a.k);
    const GM_R    w = c0 >= 0 && a.weight.data ? GM_E(gm_row_number)(&a.weight, c0) : 1;
    GM_EACH_PART(c)
    {
        gm_vector held[GM_HELD] = {{{0}}};
        if (c0 >= 0) GM_E(gm_row_hold)(&a.from, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i)
        {
            if (c0 >= 0 && a.weight.data) {
                GM_R x[GM_V];
                GM_E(gm_unpack)(held[k], x);
                GM_UNROLL for (int j = 0; j < GM_V; j++) x[j] *= w;
                held[k] = GM_E(gm_pack)(x);
            }
            GM_E(gm_row_store)(&a.to, to, i, a.width, held[k]);
        }
    }
}

/* to[t] (+)= the sum over the token's choices c of weight[c] from[row of c], in their order */
GM_KERNEL_NAMED(GM_E(gm_expert_combine), gm_expert_rows_args)
{
    GM_TEAM(team, lane, row);
    if (row >= a.n) return;
    const int64_t to = gm_row_start(&a.to, row);
    GM_EACH_PART(c)
    GM_EACH_PACK(c, k, i)
    {
        GM_R sum[GM_V], y[GM_V];
        GM_UNROLL for (int j = 0; j < GM_V; j++) sum[j] = 0;
        if (a.accumulate) GM_E(gm_row_take)(&a.to, to, i, a.width, sum);
        for (int64_t choice = row * a.k; choice < (row + 1) * a.k; choice++) {
            const int64_t at = GM_E(gm_expert_way)(&a, choice, i == 0);
            if (at < 0) continue;
            const GM_R w = a.weight.data ? GM_E(gm_row_number)(&a.weight, choice) : 1;
            GM_E(gm_row_take)(&a.from, gm_row_start(&a.from, at), i, a.width, y);
            GM_UNROLL for (int j = 0; j < GM_V; j++) sum[j] += w * y[j];
        }
        GM_E(gm_row_give)(&a.to, to, i, a.width, sum);
    }
}

/* to[c] = g[c / k] . from[row of choice c] */
GM_KERNEL_NAMED(GM_E(gm_expert_combine_grad), gm_expert_rows_args)
{
    GM_SHARED(GM_R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.n) return;
    const int64_t at = GM_E(gm_expert_way)(&a, row, lane == 0), g_at = gm_row_start(&a.g, row / a.k);
    const int64_t from = at < 0 ? 0 : gm_row_start(&a.from, at);
    GM_R          sum = 0, y[GM_V], g[GM_V];
    GM_EACH_PART(c)
    {
        gm_vector held[GM_HELD], held_g[GM_HELD];
        if (at < 0) break;
        GM_E(gm_row_hold)(&a.from, from, c, team, lane, a.width, held);
        GM_E(gm_row_hold)(&a.g, g_at, c, team, lane, a.width, held_g);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], y);
            GM_E(gm_unpack)(held_g[k], g);
            GM_UNROLL for (int j = 0; j < GM_V; j++) sum += y[j] * g[j];
        }
    }
    sum = GM_N(gm_team_sum)(sum, team, scratch);
    if (lane == 0) GM_E(gm_row_set_number)(&a.to, row, sum);
}

#include "../../common/rows_t_end.cuh"
