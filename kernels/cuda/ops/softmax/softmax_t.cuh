/* softmax_t.cuh - the kernels of softmax.cu for one dtype. */
#include "../../common/rows_t.cuh"

/* y = exp(x - m) / sum, or x - m - log(sum), with m the largest of the row */
GM_KERNEL_NAMED(GM_E(gm_softmax), gm_softmax_args)
{
    GM_SHARED(GM_R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_row_start(&a.x, row), to = gm_row_start(&a.y, row);
    const int     many = !GM_HELD_WHOLE;
    gm_vector     held[GM_HELD];
    GM_R          most = -INFINITY, sum = 0, x[GM_V];
    GM_EACH_PART(c)
    {
        GM_E(gm_row_hold)(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_UNROLL for (int j = 0; j < GM_V; j++) most = i + j < a.width && !(x[j] <= most) ? x[j] : most;
        }
    }
    most = GM_N(gm_team_max)(most, team, scratch);
    GM_EACH_PART(c)
    {
        if (many) GM_E(gm_row_hold)(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_UNROLL for (int j = 0; j < GM_V; j++) sum += i + j < a.width ? GM_M(exp)(x[j] - most) : 0;
        }
    }
    sum = GM_N(gm_team_sum)(sum, team, scratch);
    const GM_R by = a.logarithm ? GM_M(log)(sum) : 1 / sum;
    GM_EACH_PART(c)
    {
        if (many) GM_E(gm_row_hold)(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_UNROLL for (int j = 0; j < GM_V; j++)
                x[j] = a.logarithm ? x[j] - most - by : GM_M(exp)(x[j] - most) * by;
            GM_E(gm_row_give)(&a.y, to, i, a.width, x);
        }
    }
}

/* x is the result of the forward op, p its softmax: dx = p (g - sum(g p)), or of the logarithm g - p sum(g) */
GM_KERNEL_NAMED(GM_E(gm_softmax_grad), gm_softmax_args)
{
    GM_SHARED(GM_R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_row_start(&a.x, row), slope = gm_row_start(&a.g, row), to = gm_row_start(&a.y, row);
    const int     many = !GM_HELD_WHOLE;
    gm_vector     held[GM_HELD], held_g[GM_HELD];
    GM_R          sum = 0, x[GM_V], g[GM_V];
    GM_EACH_PART(c)
    {
        GM_E(gm_row_hold)(&a.x, from, c, team, lane, a.width, held);
        GM_E(gm_row_hold)(&a.g, slope, c, team, lane, a.width, held_g);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_E(gm_unpack)(held_g[k], g);
            GM_UNROLL for (int j = 0; j < GM_V; j++) sum += a.logarithm ? g[j] : g[j] * x[j];
        }
    }
    sum = GM_N(gm_team_sum)(sum, team, scratch);
    GM_EACH_PART(c)
    {
        if (many) {
            GM_E(gm_row_hold)(&a.x, from, c, team, lane, a.width, held);
            GM_E(gm_row_hold)(&a.g, slope, c, team, lane, a.width, held_g);
        }
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_E(gm_unpack)(held_g[k], g);
            GM_UNROLL for (int j = 0; j < GM_V; j++)
                x[j] = a.logarithm ? g[j] - GM_M(exp)(x[j]) * sum : x[j] * (g[j] - sum);
            GM_E(gm_row_give)(&a.y, to, i, a.width, x);
        }
    }
}

#include "../../common/rows_t_end.cuh"
