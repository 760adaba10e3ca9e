/* softmax.cu - softmax, its logarithm and their gradients along one dimension. A row that the threads of a team can
 * hold in registers is read once. A longer one is read once for each pass: the largest element, the sum, the result. */
#include "../../common/rows.cuh"
#include "softmax_args.h"

constexpr int HELD = GM_SOFTMAX_PACKS;

/* y = exp(x - m) / sum, or x - m - log(sum), with m the largest of the row */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_softmax(const gm_softmax_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_row_start(&a.x, row), to = gm_row_start(&a.y, row);
    const int     many = !GM_HELD_WHOLE;
    gm_vector     held[HELD];
    R             most = -INFINITY, sum = 0, x[V];
    GM_EACH_PART(c) {
        gm_row_hold<T>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) most = i + j < a.width && !(x[j] <= most) ? x[j] : most;
        }
    }
    most = gm_team_max(most, team, scratch);
    GM_EACH_PART(c) {
        if (many) gm_row_hold<T>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) sum += i + j < a.width ? exp(x[j] - most) : 0;
        }
    }
    sum = gm_team_sum(sum, team, scratch);
    const R by = a.logarithm ? log(sum) : 1 / sum;
    GM_EACH_PART(c) {
        if (many) gm_row_hold<T>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = a.logarithm ? x[j] - most - by : exp(x[j] - most) * by;
            gm_row_give<T>(&a.y, to, i, a.width, x);
        }
    }
}

/* x is the result of the forward op, p its softmax: dx = p (g - sum(g p)), or of the logarithm g - p sum(g) */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_softmax_grad(const gm_softmax_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_row_start(&a.x, row), slope = gm_row_start(&a.g, row), to = gm_row_start(&a.y, row);
    const int     many = !GM_HELD_WHOLE;
    gm_vector     held[HELD], held_g[HELD];
    R             sum = 0, x[V], g[V];
    GM_EACH_PART(c) {
        gm_row_hold<T>(&a.x, from, c, team, lane, a.width, held);
        gm_row_hold<T>(&a.g, slope, c, team, lane, a.width, held_g);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            gm_unpack<T>(held_g[k], g);
            GM_UNROLL for (int j = 0; j < V; j++) sum += a.logarithm ? g[j] : g[j] * x[j];
        }
    }
    sum = gm_team_sum(sum, team, scratch);
    GM_EACH_PART(c) {
        if (many) {
            gm_row_hold<T>(&a.x, from, c, team, lane, a.width, held);
            gm_row_hold<T>(&a.g, slope, c, team, lane, a.width, held_g);
        }
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            gm_unpack<T>(held_g[k], g);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = a.logarithm ? g[j] - exp(x[j]) * sum : x[j] * (g[j] - sum);
            gm_row_give<T>(&a.y, to, i, a.width, x);
        }
    }
}

GM_KERNELS(gm_softmax, gm_softmax_args)
GM_KERNELS(gm_softmax_grad, gm_softmax_args)
