/* softmax.cu - softmax, its logarithm and their gradients along one dimension. A row that the threads of a team can
 * hold in registers is read once. A longer one is read once for each pass: the largest element, the sum, the result.
 *
 * EVEN: rows are even (rows.cuh), so that no element asks whether it is in the row, but packs do. */
#include "../../common/rows.cuh"
#include "../../common/whole.cuh"
#include "softmax_args.h"

/* The thread's packs of the part at c of a row that begins at `start`. */
template <class T, bool EVEN, int HELD, int V = gm_lanes<T>>
GM_DEVICE void gm_softmax_hold(const gm_row_view *rows, int64_t start, int64_t c, int team, int lane, int64_t n,
                               gm_vector (&held)[HELD])
{
    if constexpr (EVEN) {
        const gm_vector  none = {{0, 0, 0, 0}};
        const gm_vector *p = (const gm_vector *)((const T *)rows->data + start + c);
        gm_even_hold(p, team, lane, (int)((n - c) / V), none, held);
    } else {
        gm_row_hold<T>(rows, start, c, team, lane, n, held);
    }
}

template <class T, bool EVEN> GM_DEVICE int64_t gm_softmax_start(const gm_row_view *rows, int64_t row)
{
    return EVEN ? row * rows->stride[0] : gm_row_start(rows, row);
}

template <class T, bool EVEN>
GM_DEVICE void gm_softmax_give(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, const gm_real<T> *x)
{
    if constexpr (EVEN) gm_store_whole((T *)rows->data + start + i, gm_pack<T>(x));
    else gm_row_give<T>(rows, start, i, n, x);
}

/* y = exp(x - m) / sum, or x - m - log(sum), with m the largest of the row */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_softmax(const gm_softmax_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_softmax_start<T, EVEN>(&a.x, row), to = gm_softmax_start<T, EVEN>(&a.y, row);
    constexpr int HELD = GM_SOFTMAX_PACKS(sizeof(T));
    const int     many = !GM_HELD_WHOLE;
    gm_vector     held[HELD];
    R             most = -INFINITY, sum = 0, x[V];
    GM_EACH_PART(c) {
        gm_softmax_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) most = (EVEN || i + j < a.width) && !(x[j] <= most) ? x[j] : most;
        }
    }
    most = gm_team_max(most, team, scratch);
    GM_EACH_PART(c) {
        if (many) gm_softmax_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) sum += EVEN || i + j < a.width ? gm_exp_below<T>(x[j] - most) : 0;
        }
    }
    sum = gm_team_sum(sum, team, scratch);
    const R by = a.logarithm ? log(sum) : 1 / sum;
    GM_EACH_PART(c) {
        if (many) gm_softmax_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = a.logarithm ? x[j] - most - by
                                                                     : gm_exp_below<T>(x[j] - most) * by;
            gm_softmax_give<T, EVEN>(&a.y, to, i, a.width, x);
        }
    }
}

/* x is the result of the forward op, p its softmax: dx = p (g - sum(g p)), or of the logarithm g - p sum(g) */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_softmax_grad(const gm_softmax_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_softmax_start<T, EVEN>(&a.x, row), slope = gm_softmax_start<T, EVEN>(&a.g, row),
                  to = gm_softmax_start<T, EVEN>(&a.y, row);
    constexpr int HELD = GM_SOFTMAX_GRAD_PACKS;
    const int     many = !GM_HELD_WHOLE;
    gm_vector     held[HELD], held_g[HELD];
    R             sum = 0, x[V], g[V];
    GM_EACH_PART(c) {
        gm_softmax_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
        gm_softmax_hold<T, EVEN>(&a.g, slope, c, team, lane, a.width, held_g);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            gm_unpack<T>(held_g[k], g);
            GM_UNROLL for (int j = 0; j < V; j++) sum += a.logarithm ? g[j] : g[j] * x[j];
        }
    }
    sum = gm_team_sum(sum, team, scratch);
    GM_EACH_PART(c) {
        if (many) {
            gm_softmax_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
            gm_softmax_hold<T, EVEN>(&a.g, slope, c, team, lane, a.width, held_g);
        }
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            gm_unpack<T>(held_g[k], g);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = a.logarithm ? g[j] - gm_exp_below<T>(x[j]) * sum
                                                                     : x[j] * (g[j] - sum);
            gm_softmax_give<T, EVEN>(&a.y, to, i, a.width, x);
        }
    }
}

#define GM_SOFTMAX_KERNELS(t, T)                                                      \
    GM_KERNEL(gm_softmax_##t, gm_softmax_args) { gm_softmax<T, false>(a); }           \
    GM_KERNEL(gm_softmax_even_##t, gm_softmax_args) { gm_softmax<T, true>(a); }       \
    GM_KERNEL(gm_softmax_grad_##t, gm_softmax_args) { gm_softmax_grad<T, false>(a); } \
    GM_KERNEL(gm_softmax_grad_even_##t, gm_softmax_args) { gm_softmax_grad<T, true>(a); }
GM_SOFTMAX_KERNELS(f32, float)
GM_SOFTMAX_KERNELS(bf16, gm_bf16)
GM_SOFTMAX_KERNELS(f16, gm_f16)
GM_SOFTMAX_KERNELS(f64, double)
