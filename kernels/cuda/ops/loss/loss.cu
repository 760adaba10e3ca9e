/* loss.cu - cross entropy and its gradient. The loss reads the logits once: each thread keeps its largest logit so far
 * and the sum of exp(logit - largest), and these are joined at the end (Milakov, Gimelshein 2018). The gradient reads
 * the logits once; the loss gives it the largest logit and the sum of the row. A target that is not a class is refused
 * (refusal.h), and its row gets NaN.
 *
 * Where the gradient's factor is known before (cross_entropy_both), one kernel makes both. In its plain form a team
 * reads its row twice, the second time from the caches. In `held` a block keeps a row in shared memory.
 *
 * All are made for rows of a vocabulary, where they have to spend no more than some 14 instructions an element (in 16
 * bits, at the bandwidth of an H200; both at once 28): the maximum is raised once for HELD packs, and what lies behind
 * a row's end is -inf, which adds nothing and needs no test. EVEN: rows are even (rows.cuh). */
#include "../../common/async.cuh"
#include "../../common/rows.cuh"
#include "../../common/whole.cuh"
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

/* N packs more. SMOOTH: n elements from the first on are in the row, and the packs lie `apart` elements from each
 * other. */
template <class T, bool SMOOTH, class R, int N, int V = gm_lanes<T>>
GM_DEVICE void gm_running_add(gm_running<R> *r, const gm_vector (&held)[N], int64_t n, int64_t apart)
{
    gm_vector top = held[0];
    R         x[V], most = r->most;
    GM_UNROLL for (int k = 1; k < N; k++) top = gm_pack_max<T>(top, held[k]);
    gm_unpack<T>(top, x);
    GM_UNROLL for (int j = 0; j < V; j++) most = fmax(most, x[j]);
    gm_running_raise<T>(r, most);
    const R base = gm_running_base(most);
    GM_UNROLL for (int k = 0; k < N; k++)
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

/* What a row's target is, and who of the team has it. */
struct gm_loss_target {
    int64_t class_;
    int     ignored, wrong;
};

GM_DEVICE gm_loss_target gm_loss_target_of(const gm_loss_args *a, int64_t row)
{
    gm_loss_target t;
    t.class_ = gm_row_index(&a->target, a->narrow, row);
    t.ignored = t.class_ == a->ignore;
    t.wrong = !t.ignored && (t.class_ < 0 || t.class_ >= a->width);
    return t;
}

/* Of a row whose largest logit and sums these are; wanted: the target's logit. */
template <bool SMOOTH, class R>
GM_DEVICE R gm_loss_of_row(const gm_loss_args *a, gm_loss_target t, R most, R sum, R total, R wanted)
{
    const R rest = log(sum), e = (R)a->smoothing;
    if (t.ignored || t.wrong) return t.ignored ? 0 : NAN;
    R loss = (1 - e) * (rest + (most - wanted));
    if (SMOOTH && e > 0) loss += e * (rest - total / (R)a->width);
    return loss;
}

/* The team's sums over its row: of all threads the same. */
template <class T, bool EVEN, class R = gm_real<T>>
GM_DEVICE gm_running<R> gm_loss_sums(const gm_loss_args *a, int64_t at, int team, int lane, R *scratch)
{
    gm_running<R> r;
    if (!EVEN && a->smoothing > 0) r = gm_loss_walk<T, EVEN, !EVEN>(&a->x, at, team, lane, a->width);
    else r = gm_loss_walk<T, EVEN, false>(&a->x, at, team, lane, a->width);
    gm_running_raise<T>(&r, gm_team_max(r.most, team, scratch));
    r.sum = gm_team_sum(r.sum, team, scratch);
    if (!EVEN && a->smoothing > 0) r.total = gm_team_sum(r.total, team, scratch);
    return r;
}

/* What the team reads of its row: the target; its logit, by the first thread; the sums. */
template <class R> struct gm_loss_reading {
    gm_loss_target t;
    R              wanted;
    gm_running<R>  r;
};

template <class T, bool EVEN, class R = gm_real<T>>
GM_DEVICE gm_loss_reading<R> gm_loss_read(const gm_loss_args *a, int64_t row, int team, int lane, R *scratch)
{
    gm_loss_reading<R> x;
    const int64_t      at = gm_loss_start<T, EVEN>(&a->x, row);
    x.t = gm_loss_target_of(a, row);
    const int reads = lane == 0 && !x.t.ignored && !x.t.wrong;
    x.wanted = reads ? gm_get(((const T *)a->x.data)[at + x.t.class_ * a->x.step]) : 0;
    x.r = gm_loss_sums<T, EVEN>(a, at, team, lane, scratch);
    return x;
}

/* EVEN: and without smoothing. */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_cross_entropy(const gm_loss_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const gm_loss_reading<R> x = gm_loss_read<T, EVEN>(&a, row, team, lane, scratch);
    if (lane != 0) return;
    if (x.t.wrong) gm_refuse(a.refusal, a.op, x.t.class_, row, a.width);
    gm_row_set_number(&a.loss, row, gm_loss_of_row<!EVEN>(&a, x.t, x.r.most, x.r.sum, x.r.total, x.wanted));
    gm_row_set_number(&a.largest, row, x.r.most);
    gm_row_set_number(&a.sum, row, x.r.sum);
}

/* dx = g (exp(x - largest) / sum - (1 - e) [class is the target] - e / classes): all classes first, then the target
 * once more, by the thread that has it. */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_loss_give(const gm_loss_args &a, gm_loss_target t, int64_t row, R largest, R sum, R g, int team,
                            int lane)
{
    const int64_t from = gm_loss_start<T, EVEN>(&a.x, row), to = gm_loss_start<T, EVEN>(&a.dx, row);
    const int     mine = !t.ignored && !t.wrong && t.class_ / V % team == lane;
    const R       e = (R)a.smoothing, each = e / (R)a.width, by = 1 / sum, by_g = by * g, less = each * g;
    const R       wanted = mine ? gm_get(((const T *)a.x.data)[from + t.class_ * a.x.step]) : 0;
    GM_EACH_PART(c) {
        gm_vector held[HELD];
        R         x[V];
        if (!t.ignored) gm_loss_hold<T, EVEN>(&a.x, from, c, team, lane, a.width, held);
        GM_EACH_PACK(c, k, i) {
            if (t.ignored) {
                GM_UNROLL for (int j = 0; j < V; j++) x[j] = 0;
            } else {
                gm_unpack<T>(held[k], x);
                GM_UNROLL for (int j = 0; j < V; j++) x[j] = gm_exp_below<T>(x[j] - largest) * by_g - less;
            }
            if constexpr (EVEN) gm_store_whole((T *)a.dx.data + to + i, gm_pack<T>(x));
            else gm_row_give<T>(&a.dx, to, i, a.width, x);
        }
    }
    if (mine)
        ((T *)a.dx.data)[to + t.class_ * a.dx.step] = gm_put<T>(
            g * (gm_exp_below<T>(wanted - largest) * by - ((1 - e) + each)));
}

template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_cross_entropy_grad(const gm_loss_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const gm_loss_target t = gm_loss_target_of(&a, row);
    const R              largest = gm_row_number<R>(&a.largest, row), sum = gm_row_number<R>(&a.sum, row);
    if (t.wrong && lane == 0) gm_refuse(a.refusal, a.op, t.class_, row, a.width);
    gm_loss_give<T, EVEN>(a, t, row, largest, sum, t.wrong ? (R)NAN : gm_row_number<R>(&a.g, row), team, lane);
}

/* Both, one row for a team. */
template <class T, bool EVEN, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_cross_entropy_both(const gm_loss_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const gm_loss_reading<R> x = gm_loss_read<T, EVEN>(&a, row, team, lane, scratch);
    if (x.t.wrong && lane == 0) gm_refuse(a.refusal, a.op, x.t.class_, row, a.width);
    if (lane == 0)
        gm_row_set_number(&a.loss, row, gm_loss_of_row<!EVEN>(&a, x.t, x.r.most, x.r.sum, x.r.total, x.wanted));
    gm_loss_give<T, EVEN>(a, x.t, row, x.r.most, x.r.sum, x.t.wrong ? (R)NAN : gm_row_number<R>(&a.g, 0), team, lane);
}

/* ---- both, with rows in shared memory: even rows without smoothing; a block has row after row. Each pack of a row is
 * touched by one thread alone, which sends for it, adds it up, and, when it has given its gradient, sends for the pack
 * of the block's next row in its place. So a row is on its way while the one before is written. ---- */

constexpr int GROUPS = 4; /* of a thread's packs: it adds up the first of them while the last are under way */

/* A thread's packs of a group: i = k * team + lane, k from group * part on, below the end of the row. The macro takes
 * part, team, lane and packs from where it stands. */
#define GM_EACH_OF_GROUP(group, i)                                                                \
    GM_UNROLLED(2)                                                                                \
    for (int i = (group)*part * team + lane,                                                      \
             i##_end = ((group) + 1) * part * team < packs ? ((group) + 1) * part * team : packs; \
         i < i##_end; i += team)

/* The packs of group GROUPS - 1 - LEFT, when they have come, and so on. */
template <class T, int LEFT, class R>
GM_DEVICE void gm_held_add(gm_running<R> *r, const gm_vector *room, int part, int team, int lane, int packs)
{
    gm_wait_sends<LEFT>();
    GM_EACH_OF_GROUP(GROUPS - 1 - LEFT, i)
    {
        const gm_vector one[1] = {room[i]};
        gm_running_add<T, false>(r, one, 0, 0);
    }
    if constexpr (LEFT > 0) gm_held_add<T, LEFT - 1>(r, room, part, team, lane, packs);
}

/* Of all threads of the block: the largest, and the sum. pairs: two numbers for each of 32 warps; the block meets once,
 * so two calls in turn take two rooms. */
template <class T, class R> GM_DEVICE void gm_held_join(gm_running<R> *r, R *pairs)
{
    const int warps = gm_block_size / GM_WARP, lane = gm_thread % GM_WARP;
    gm_running_raise<T>(r, gm_warp_max(r->most));
    r->sum = gm_warp_sum(r->sum);
    if (lane == 0) {
        pairs[gm_thread / GM_WARP] = r->most;
        pairs[GM_WARP + gm_thread / GM_WARP] = r->sum;
    }
    GM_SYNC();
    r->most = lane < warps ? pairs[lane] : -INFINITY;
    r->sum = lane < warps ? pairs[GM_WARP + lane] : 0;
    gm_running_raise<T>(r, gm_warp_max(r->most));
    r->sum = gm_warp_sum(r->sum);
}

/* The gradient of the row in `room` goes to dx, and the packs of the row `next` come in its place; NULL: there is none.
 */
template <class T, class R, int V = gm_lanes<T>>
GM_DEVICE void gm_held_give(gm_vector *room, gm_vector *dx, const gm_vector *next, int ignored, R largest, R by,
                            int part, int team, int lane, int packs)
{
    for (int group = 0; group < GROUPS; group++) {
        GM_EACH_OF_GROUP(group, i)
        {
            R x[V];
            gm_unpack<T>(room[i], x);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = ignored ? 0 : gm_exp_below<T>(x[j] - largest) * by;
            if (next) gm_send_16(room + i, next + i, true);
            gm_store_whole(dx + i, gm_pack<T>(x));
        }
        gm_close_sends();
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_cross_entropy_held(const gm_loss_args a)
{
    GM_SHARED(R, pairs);
    gm_vector *room = (gm_vector *)(pairs + 4 * GM_WARP);
    const int  team = gm_block_size, lane = gm_thread, packs = (int)(a.width / V);
    const int  part = (packs + GROUPS * team - 1) / (GROUPS * team);
    const R    g = gm_row_number<R>(&a.g, 0);
    int        turn = 0;
    if (gm_block_x >= a.rows) return;
    const gm_vector *first = gm_even_row<T>(&a.x, gm_block_x);
    for (int group = 0; group < GROUPS; group++) {
        GM_EACH_OF_GROUP(group, i) gm_send_16(room + i, first + i, true);
        gm_close_sends();
    }
    for (int64_t row = gm_block_x; row < a.rows; row += gm_grid_x, turn ^= 1) {
        const gm_loss_target t = gm_loss_target_of(&a, row);
        const int            counts = !t.ignored && !t.wrong, mine = counts && (int)t.class_ / V % team == lane;
        gm_running<R>        r = {-INFINITY, 0, 0, 0};
        gm_held_add<T, GROUPS - 1>(&r, room, part, team, lane, packs);
        gm_held_join<T>(&r, pairs + turn * 2 * GM_WARP);
        const R wanted = mine ? gm_get(((const T *)room)[t.class_]) : 0, by = 1 / r.sum;
        if (t.wrong && lane == 0) gm_refuse(a.refusal, a.op, t.class_, row, a.width);
        if (mine || (!counts && lane == 0))
            gm_row_set_number(&a.loss, row, gm_loss_of_row<false>(&a, t, r.most, r.sum, (R)0, wanted));
        const int64_t    after = row + gm_grid_x;
        const gm_vector *next = after < a.rows ? gm_even_row<T>(&a.x, after) : 0;
        gm_vector       *dx = (gm_vector *)gm_even_row<T>(&a.dx, row);
        gm_held_give<T>(room, dx, next, t.ignored, r.most, t.wrong ? (R)NAN : by * g, part, team, lane, packs);
        if (mine) ((T *)dx)[t.class_] = gm_put<T>(g * (gm_exp_below<T>(wanted - r.most) * by - 1));
    }
}

/* ---- rows of x whose g is not the scale that they were made with ---- */

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_rescale_rows(const gm_loss_args a)
{
    const int  team = gm_block_size, lane = gm_thread;
    const R    scale = gm_row_number<R>(&a.scale, 0);
    const int  known = scale != 0 && scale - scale == 0;
    const bool one = a.g.ndim == 0 ||
                     (a.g.ndim == 1 && a.g.stride[0] == 0); /* g of all rows, as a sum's backward has */
    if (one && gm_row_number<R>(&a.g, 0) == scale) return;
    for (int64_t row = gm_block_x; row < a.rows; row += gm_grid_x) {
        const R       g = gm_row_number<R>(&a.g, row), by = known ? g / scale : NAN;
        const int64_t at = gm_row_start(&a.dx, row);
        if (g == scale) continue;
        for (int64_t i = (int64_t)lane * V; i < a.width; i += (int64_t)team * V) {
            R x[V];
            gm_row_take<T>(&a.dx, at, i, a.width, x);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = known && x[j] == 0 ? 0 : x[j] * by;
            gm_row_give<T>(&a.dx, at, i, a.width, x);
        }
    }
}

/* Bounds for even rows: with 64 registers three blocks of the 320 threads that 50,304 classes of 16 bits get run on a
 * multiprocessor at once, and have 60 KB under way. */
#define GM_LOSS_KERNELS(t, T, blocks)                                                                                \
    GM_KERNEL(gm_cross_entropy_##t, gm_loss_args) { gm_cross_entropy<T, false>(a); }                                 \
    GM_KERNEL(gm_cross_entropy_grad_##t, gm_loss_args) { gm_cross_entropy_grad<T, false>(a); }                       \
    GM_KERNEL(gm_cross_entropy_both_##t, gm_loss_args) { gm_cross_entropy_both<T, false>(a); }                       \
    GM_KERNEL(gm_rescale_rows_##t, gm_loss_args) { gm_rescale_rows<T>(a); }                                          \
    GM_KERNEL_BOUND(gm_cross_entropy_both_even_##t, gm_loss_args, GM_TEAM_MOST, blocks)                              \
    {                                                                                                                \
        gm_cross_entropy_both<T, true>(a);                                                                           \
    }                                                                                                                \
    GM_KERNEL_BOUND(gm_cross_entropy_even_##t, gm_loss_args, GM_TEAM_MOST, blocks) { gm_cross_entropy<T, true>(a); } \
    GM_KERNEL_BOUND(gm_cross_entropy_grad_even_##t, gm_loss_args, GM_TEAM_MOST, blocks)                              \
    {                                                                                                                \
        gm_cross_entropy_grad<T, true>(a);                                                                           \
    }
GM_LOSS_KERNELS(f32, float, 2)
GM_LOSS_KERNELS(bf16, gm_bf16, 2)
GM_LOSS_KERNELS(f16, gm_f16, 2)
GM_LOSS_KERNELS(f64, double, 1)

/* Bounds: two blocks on a multiprocessor, as large as their rows. */
#define GM_HELD_KERNEL(t, T) \
    GM_KERNEL_BOUND(gm_cross_entropy_held_##t, gm_loss_args, GM_LOSS_HELD_MOST, 2) { gm_cross_entropy_held<T>(a); }
GM_HELD_KERNEL(f32, float)
GM_HELD_KERNEL(bf16, gm_bf16)
GM_HELD_KERNEL(f16, gm_f16)
