/* loss_t.cuh - the kernels of loss.cu for one dtype. */
#include "../../common/rows_t.cuh"

typedef struct GM_E(gm_running) {
    GM_R most, sum, total, count; /* sum: of exp(x - most); total: of x - most, -inf where an x is; count: of x */
} GM_E(gm_running);

/* The same elements below another largest one, which is not -inf. */
GM_DEVICE void GM_E(gm_running_raise)(GM_E(gm_running) *r, GM_R most)
{
    const GM_R fall = r->most == -INFINITY ? 0 : r->most - most;
    r->sum *= GM_M(exp)(fall); /* of nothing: 0 */
    r->total += r->count * fall;
    r->most = most;
}

/* n elements of x more. Elements of -inf add nothing, also before there is a maximum. */
GM_DEVICE void GM_E(gm_running_add)(GM_E(gm_running) *r, const GM_R *x, int64_t n)
{
    GM_R most = r->most;
    GM_UNROLL for (int j = 0; j < GM_V; j++) most = j < n && !(x[j] <= most) ? x[j] : most;
    if (most == -INFINITY) {
        r->total = -INFINITY;
        r->count += n < GM_V ? n : GM_V;
        return;
    }
    GM_E(gm_running_raise)(r, most);
    GM_UNROLL for (int j = 0; j < GM_V; j++)
    {
        r->sum += j < n ? GM_M(exp)(x[j] - most) : 0;
        r->total += j < n ? x[j] - most : 0;
    }
    r->count += n < GM_V ? n : GM_V;
}

GM_KERNEL_NAMED(GM_E(gm_cross_entropy), gm_loss_args)
{
    GM_SHARED(GM_R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t    at = gm_row_start(&a.x, row), target = gm_row_index(&a.target, a.narrow, row);
    const int        ignored = target == a.ignore, wrong = !ignored && (target < 0 || target >= a.width);
    GM_E(gm_running) r = {-INFINITY, 0, 0, 0};
    GM_EACH_PART(c)
    {
        gm_vector held[GM_HELD];
        GM_R      x[GM_V];
        GM_E(gm_row_hold)(&a.x, at, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_E(gm_running_add)(&r, x, a.width - i);
        }
    }
    const GM_R most = GM_N(gm_team_max)(r.most, team, scratch);
    if (most != -INFINITY) GM_E(gm_running_raise)(&r, most);
    const GM_R sum = GM_N(gm_team_sum)(r.sum, team, scratch);
    if (a.smoothing > 0) r.total = GM_N(gm_team_sum)(r.total, team, scratch);
    if (lane != 0) return;
    const GM_R rest = GM_M(log)(sum), e = (GM_R)a.smoothing;
    GM_R       loss = ignored ? 0 : NAN;
    if (wrong) gm_refuse(a.refusal, a.op, target, row, a.width);
    if (!wrong && !ignored) {
        loss = (1 - e) * (rest + (most - GM_E(gm_get)(((const GM_T *)a.x.data)[at + target * a.x.step])));
        if (e > 0) loss += e * (rest - r.total / (GM_R)a.width);
    }
    GM_E(gm_row_set_number)(&a.loss, row, loss);
    GM_E(gm_row_set_number)(&a.largest, row, most);
    GM_E(gm_row_set_number)(&a.sum, row, sum);
}

/* dx = g (exp(x - largest) / sum - (1 - e) [class is the target] - e / classes) */
GM_KERNEL_NAMED(GM_E(gm_cross_entropy_grad), gm_loss_args)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_row_start(&a.x, row), to = gm_row_start(&a.dx, row);
    const int64_t target = gm_row_index(&a.target, a.narrow, row);
    const int     ignored = target == a.ignore, wrong = !ignored && (target < 0 || target >= a.width);
    const GM_R    e = (GM_R)a.smoothing, each = e / (GM_R)a.width;
    const GM_R    largest = GM_E(gm_row_number)(&a.largest, row), by = 1 / GM_E(gm_row_number)(&a.sum, row);
    const GM_R    g = GM_E(gm_row_number)(&a.g, row);
    if (wrong && lane == 0) gm_refuse(a.refusal, a.op, target, row, a.width);
    GM_EACH_PART(c)
    {
        gm_vector held[GM_HELD];
        GM_R      x[GM_V];
        if (!ignored) GM_E(gm_row_hold)(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i)
        {
            if (ignored) {
                GM_UNROLL for (int j = 0; j < GM_V; j++) x[j] = 0;
            } else {
                GM_E(gm_unpack)(held[k], x);
                GM_UNROLL for (int j = 0; j < GM_V; j++)
                    x[j] = wrong ? NAN : g * (GM_M(exp)(x[j] - largest) * by - ((i + j == target ? 1 - e : 0) + each));
            }
            GM_E(gm_row_give)(&a.dx, to, i, a.width, x);
        }
    }
}

#include "../../common/rows_t_end.cuh"
