/* loss.cu - cross entropy and its gradient. The loss reads the logits once: each thread keeps its largest logit so far
 * and the sum of exp(logit - largest), and these are joined at the end (Milakov, Gimelshein 2018). The gradient reads
 * the logits once; the loss gives it the largest logit and the sum of the row. A target that is not a class is refused
 * (refusal.h), and its row gets NaN. */
#include "../../common/rows.cuh"
#include "loss_args.h"

constexpr int HELD = GM_LOSS_PACKS;

template <class R> struct gm_running {
    R most, sum, total, count; /* sum: of exp(x - most); total: of x - most, -inf where an x is; count: of x */
};

/* The same elements below another largest one, which is not -inf. */
template <class R> GM_DEVICE void gm_running_raise(gm_running<R> *r, R most)
{
    const R fall = r->most == -INFINITY ? 0 : r->most - most;
    r->sum *= exp(fall); /* of nothing: 0 */
    r->total += r->count * fall;
    r->most = most;
}

/* n elements of x more. Elements of -inf add nothing, also before there is a maximum. */
template <int V, class R> GM_DEVICE void gm_running_add(gm_running<R> *r, const R *x, int64_t n)
{
    R most = r->most;
    GM_UNROLL for (int j = 0; j < V; j++) most = j < n && !(x[j] <= most) ? x[j] : most;
    if (most == -INFINITY) {
        r->total = -INFINITY;
        r->count += n < V ? n : V;
        return;
    }
    gm_running_raise(r, most);
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        r->sum += j < n ? exp(x[j] - most) : 0;
        r->total += j < n ? x[j] - most : 0;
    }
    r->count += n < V ? n : V;
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_cross_entropy(const gm_loss_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t at = gm_row_start(&a.x, row), target = gm_row_index(&a.target, a.narrow, row);
    const int     ignored = target == a.ignore, wrong = !ignored && (target < 0 || target >= a.width);
    gm_running<R> r = {-INFINITY, 0, 0, 0};
    GM_EACH_PART(c) {
        gm_vector held[HELD];
        R         x[V];
        gm_row_hold<T>(&a.x, at, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            gm_running_add<V>(&r, x, a.width - i);
        }
    }
    const R most = gm_team_max(r.most, team, scratch);
    if (most != -INFINITY) gm_running_raise(&r, most);
    const R sum = gm_team_sum(r.sum, team, scratch);
    if (a.smoothing > 0) r.total = gm_team_sum(r.total, team, scratch);
    if (lane != 0) return;
    const R rest = log(sum), e = (R)a.smoothing;
    R       loss = ignored ? 0 : NAN;
    if (wrong) gm_refuse(a.refusal, a.op, target, row, a.width);
    if (!wrong && !ignored) {
        loss = (1 - e) * (rest + (most - gm_get(((const T *)a.x.data)[at + target * a.x.step])));
        if (e > 0) loss += e * (rest - r.total / (R)a.width);
    }
    gm_row_set_number(&a.loss, row, loss);
    gm_row_set_number(&a.largest, row, most);
    gm_row_set_number(&a.sum, row, sum);
}

/* dx = g (exp(x - largest) / sum - (1 - e) [class is the target] - e / classes) */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_cross_entropy_grad(const gm_loss_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_row_start(&a.x, row), to = gm_row_start(&a.dx, row);
    const int64_t target = gm_row_index(&a.target, a.narrow, row);
    const int     ignored = target == a.ignore, wrong = !ignored && (target < 0 || target >= a.width);
    const R       e = (R)a.smoothing, each = e / (R)a.width;
    const R       largest = gm_row_number<R>(&a.largest, row), by = 1 / gm_row_number<R>(&a.sum, row);
    const R       g = gm_row_number<R>(&a.g, row);
    if (wrong && lane == 0) gm_refuse(a.refusal, a.op, target, row, a.width);
    GM_EACH_PART(c) {
        gm_vector held[HELD];
        R         x[V];
        if (!ignored) gm_row_hold<T>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            if (ignored) {
                GM_UNROLL for (int j = 0; j < V; j++) x[j] = 0;
            } else {
                gm_unpack<T>(held[k], x);
                GM_UNROLL for (int j = 0; j < V; j++)
                    x[j] = wrong ? NAN : g * (exp(x[j] - largest) * by - ((i + j == target ? 1 - e : 0) + each));
            }
            gm_row_give<T>(&a.dx, to, i, a.width, x);
        }
    }
}

GM_KERNELS(gm_cross_entropy, gm_loss_args)
GM_KERNELS(gm_cross_entropy_grad, gm_loss_args)
