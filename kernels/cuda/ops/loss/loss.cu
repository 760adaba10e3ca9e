/* loss.cu - cross entropy and its gradient. The loss reads the logits once: each thread keeps its largest logit so far
 * and the sum of exp(logit - largest), and these are joined at the end (Milakov, Gimelshein 2018). The gradient reads
 * the logits once; the loss gives it the largest logit and the sum of the row. A target that is not a class is refused
 * (refusal.h), and its row gets NaN.
 *
 * Both are made for rows of a vocabulary, where they have to spend no more than some 14 instructions an element (in 16
 * bits, at the bandwidth of an H200): the maximum is raised once for HELD packs, and what lies behind a row's end is
 * -inf, which adds nothing and needs no test. EVEN: rows are even (rows.cuh). */
#include "../../common/rows.cuh"
#include "loss_args.h"

constexpr int HELD = GM_LOSS_PACKS;

/* Of the elements seen so far. sum: of exp(x - most); total: of x - most, -inf where an x is; count: of x. total and
 * count are for smoothing alone. */
template <class R> struct gm_running {
    R most, sum, total, count;
};

/* What elements are measured from: where all are -inf so far, they need a number. NaN is no maximum; the sum is NaN. */
template <class R> GM_DEVICE R gm_running_base(R most) { return most == -INFINITY ? 0 : most; }

/* The same elements below a maximum that is no smaller. */
template <class T, class R> GM_DEVICE void gm_running_raise(gm_running<R> *r, R most)
{
    const R fall = r->most == -INFINITY ? 0 : r->most - most;
    r->sum *= gm_exp_below<T>(fall); /* of nothing: 0 */
    r->total += r->count * fall;
    r->most = most;
}

/* HELD packs more. SMOOTH: n elements from the first on are in the row, and the packs lie `apart` elements from each
 * other. */
template <class T, bool SMOOTH, class R, int V = gm_lanes<T>>
GM_DEVICE void gm_running_add(gm_running<R> *r, const gm_vector (&held)[HELD], int64_t n, int64_t apart)
{
    gm_vector top = held[0];
    R         x[V], most = r->most;
    GM_UNROLL for (int k = 1; k < HELD; k++) top = gm_pack_max<T>(top, held[k]);
    gm_unpack<T>(top, x);
    GM_UNROLL for (int j = 0; j < V; j++) most = fmax(most, x[j]);
    gm_running_raise<T>(r, most);
    const R base = gm_running_base(most);
    GM_UNROLL for (int k = 0; k < HELD; k++)
    {
        R sum = 0;
        gm_unpack<T>(held[k], x);
        GM_UNROLL for (int j = 0; j < V; j++) sum += gm_exp_below<T>(x[j] - base);
        r->sum += sum;
        if constexpr (SMOOTH) {
            const int64_t left = n - k * apart;
            const int     in = left < 0 ? 0 : left < V ? (int)left : V;
            GM_UNROLL for (int j = 0; j < V; j++) r->total += j < in ? x[j] - base : 0;
            r->count += in;
        }
    }
}

/* The packs from c on of a row that begins at p, element by element; `rest` behind its end. */
template <class T, int V = gm_lanes<T>>
GM_DEVICE void gm_loss_gather(const T *p, int64_t step, int64_t c, int team, int lane, int64_t n, gm_vector rest,
                              gm_vector (&held)[HELD])
{
    GM_UNROLL for (int k = 0; k < HELD; k++) held[k] = rest;
    GM_ROLLED for (int k = 0; k < HELD; k++)
    {
        const int64_t i = GM_PACK_PLACE(c, k);
        gm_pack_of<T> u;
        u.v = rest;
        GM_ROLLED for (int j = 0; j < V; j++) gm_push<V>(u.x, i + j < n ? p[(i + j) * step] : gm_put<T>(-INFINITY));
        gm_push<HELD>(held, u.v);
    }
}

/* The packs from c on of a row that begins at `start`; -inf behind its end. */
template <class T, bool EVEN, int V = gm_lanes<T>>
GM_DEVICE void gm_loss_hold(const gm_row_view *rows, int64_t start, int64_t c, int team, int lane, int64_t n,
                            gm_vector (&held)[HELD])
{
    const T   *p = (const T *)rows->data + start;
    gm_real<T> low[V];
    GM_UNROLL for (int j = 0; j < V; j++) low[j] = -INFINITY;
    const gm_vector rest = gm_pack<T>(low);
    const int       packs = (int)((n - c) / V);
    if constexpr (EVEN) gm_even_hold((const gm_vector *)(p + c), team, lane, packs, rest, held);
    else if (rows->vectors && n % V == 0) gm_even_hold((const gm_vector *)(p + c), team, lane, packs, rest, held);
    else gm_loss_gather(p, rows->step, c, team, lane, n, rest, held);
}

template <class T, bool EVEN> GM_DEVICE int64_t gm_loss_start(const gm_row_view *rows, int64_t row)
{
    return EVEN ? row * rows->stride[0] : gm_row_start(rows, row);
}

/* What the thread sees of the row that begins at `start`. */
template <class T, bool EVEN, bool SMOOTH, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE gm_running<R> gm_loss_walk(const gm_row_view *rows, int64_t start, int team, int lane, int64_t width)
{
    const int64_t all = (int64_t)HELD * team * V, apart = (int64_t)team * V;
    gm_running<R> r = {-INFINITY, 0, 0, 0};
    gm_vector     held[HELD];
    int64_t       c = 0;
    if constexpr (EVEN) { /* no pack asks whether it is in the row, but those of the last turn */
        const gm_vector *p = (const gm_vector *)((const T *)rows->data + start) + lane;
        for (; c + all <= width; c += all, p += HELD * team) {
            GM_UNROLL for (int k = 0; k < HELD; k++) held[k] = gm_load_vector(p + k * team);
            gm_running_add<T, SMOOTH>(&r, held, all, apart);
        }
    }
    for (; c < width; c += all) {
        gm_loss_hold<T, EVEN>(rows, start, c, team, lane, width, held);
        gm_running_add<T, SMOOTH>(&r, held, width - c - (int64_t)lane * V, apart);
    }
    return r;
}

/* EVEN: and without smoothing. */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_cross_entropy(const gm_loss_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t at = gm_loss_start<T, EVEN>(&a.x, row), target = gm_row_index(&a.target, a.narrow, row);
    const int     ignored = target == a.ignore, wrong = !ignored && (target < 0 || target >= a.width);
    const int     reads = lane == 0 && !ignored && !wrong;
    const R       wanted = reads ? gm_get(((const T *)a.x.data)[at + target * a.x.step]) : 0;
    gm_running<R> r;
    if (!EVEN && a.smoothing > 0) r = gm_loss_walk<T, EVEN, !EVEN>(&a.x, at, team, lane, a.width);
    else r = gm_loss_walk<T, EVEN, false>(&a.x, at, team, lane, a.width);
    const R most = gm_team_max(r.most, team, scratch);
    gm_running_raise<T>(&r, most);
    const R sum = gm_team_sum(r.sum, team, scratch);
    if (!EVEN && a.smoothing > 0) r.total = gm_team_sum(r.total, team, scratch);
    if (lane != 0) return;
    const R rest = log(sum), e = (R)a.smoothing;
    R       loss = ignored ? 0 : NAN;
    if (wrong) gm_refuse(a.refusal, a.op, target, row, a.width);
    if (!wrong && !ignored) {
        loss = (1 - e) * (rest + (most - wanted));
        if (!EVEN && e > 0) loss += e * (rest - r.total / (R)a.width);
    }
    gm_row_set_number(&a.loss, row, loss);
    gm_row_set_number(&a.largest, row, most);
    gm_row_set_number(&a.sum, row, sum);
}

/* dx = g (exp(x - largest) / sum - (1 - e) [class is the target] - e / classes): all classes first, then the target
 * once more, by the thread that has it. */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_cross_entropy_grad(const gm_loss_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t from = gm_loss_start<T, EVEN>(&a.x, row), to = gm_loss_start<T, EVEN>(&a.dx, row);
    const int64_t target = gm_row_index(&a.target, a.narrow, row);
    const int     ignored = target == a.ignore, wrong = !ignored && (target < 0 || target >= a.width);
    const int     mine = !ignored && !wrong && target / V % team == lane;
    const R       e = (R)a.smoothing, each = e / (R)a.width;
    const R       largest = gm_row_number<R>(&a.largest, row), by = 1 / gm_row_number<R>(&a.sum, row);
    const R       g = wrong ? NAN : gm_row_number<R>(&a.g, row), by_g = by * g, less = each * g;
    const R       wanted = mine ? gm_get(((const T *)a.x.data)[from + target * a.x.step]) : 0;
    if (wrong && lane == 0) gm_refuse(a.refusal, a.op, target, row, a.width);
    GM_EACH_PART(c) {
        gm_vector held[HELD];
        R         x[V];
        if (!ignored) gm_loss_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            if (ignored) {
                GM_UNROLL for (int j = 0; j < V; j++) x[j] = 0;
            } else {
                gm_unpack<T>(held[k], x);
                GM_UNROLL for (int j = 0; j < V; j++) x[j] = gm_exp_below<T>(x[j] - largest) * by_g - less;
            }
            if constexpr (EVEN) gm_store_vector((T *)a.dx.data + to + i, gm_pack<T>(x));
            else gm_row_give<T>(&a.dx, to, i, a.width, x);
        }
    }
    if (mine)
        ((T *)a.dx.data)[to + target * a.dx.step] = gm_put<T>(
            g * (gm_exp_below<T>(wanted - largest) * by - ((1 - e) + each)));
}

/* Bounds for even rows: with 64 registers three blocks of the 320 threads that 50,304 classes of 16 bits get run on a
 * multiprocessor at once, and have 60 KB under way. */
#define GM_LOSS_KERNELS(t, T, blocks)                                                                                \
    GM_KERNEL(gm_cross_entropy_##t, gm_loss_args) { gm_cross_entropy<T, false>(a); }                                 \
    GM_KERNEL(gm_cross_entropy_grad_##t, gm_loss_args) { gm_cross_entropy_grad<T, false>(a); }                       \
    GM_KERNEL_BOUND(gm_cross_entropy_even_##t, gm_loss_args, GM_TEAM_MOST, blocks) { gm_cross_entropy<T, true>(a); } \
    GM_KERNEL_BOUND(gm_cross_entropy_grad_even_##t, gm_loss_args, GM_TEAM_MOST, blocks)                              \
    {                                                                                                                \
        gm_cross_entropy_grad<T, true>(a);                                                                           \
    }
GM_LOSS_KERNELS(f32, float, 2)
GM_LOSS_KERNELS(bf16, gm_bf16, 2)
GM_LOSS_KERNELS(f16, gm_f16, 2)
GM_LOSS_KERNELS(f64, double, 1)
