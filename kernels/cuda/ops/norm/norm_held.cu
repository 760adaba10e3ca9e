/* norm_held.cu - norms and their gradients as norm.cu has them, for even rows (rows.cuh) that a team holds in
 * registers, such as those of transformers. Each operand is read once, and all of a row is under way before anything is
 * computed.
 *
 * A team is a warp where that holds the row (1,024 numbers of 16 bits), which needs no barrier; else a block, which
 * meets once for each reduction. Teams go on from row to row and keep the weights, as they are in memory, in registers.
 * In the gradient the sums over rows (dw, db) stay in registers until the end, where the warps of a block join theirs:
 * one row of partial sums a block. Sums of a row are those of packs first, which keeps their rounding small. */
#include "../../common/rows.cuh"
#include "norm_args.h"

/* Where this thread stands: its place in its team, the team's first row, and the distance to the next one. */
#define GM_HELD_TEAM                                                                   \
    const int     team = a.team, single = team == GM_WARP, packs = (int)(a.width / V); \
    const int     lane = single ? gm_thread % GM_WARP : gm_thread;                     \
    const int64_t apart = single ? gm_grid_x * (gm_block_size / GM_WARP) : gm_grid_x;  \
    const int64_t first = single ? gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP : gm_block_x

GM_DEVICE gm_vector gm_zeros() { return {{0, 0, 0, 0}}; }

/* The packs of a weight; where there is none, numbers that change nothing, so that no element asks. */
template <class T, int HELD, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_held_weight(const gm_row_view *w, R without, int team, int lane, int packs, gm_vector (&held)[HELD])
{
    R x[V];
    GM_UNROLL for (int j = 0; j < V; j++) x[j] = without;
    const gm_vector none = gm_pack<T>(x);
    GM_UNROLL for (int k = 0; k < HELD; k++) held[k] = none;
    if (w->data) gm_even_hold(gm_even_row<T>(w, 0), team, lane, packs, none, held);
}

template <class T, int HELD, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_norm_held(const gm_norm_args a)
{
    GM_SHARED(R, scratch);
    GM_HELD_TEAM;
    gm_vector w[HELD], b[HELD];
    int       turn = 0;
    gm_held_weight<T>(&a.w, (R)1, team, lane, packs, w);
    gm_held_weight<T>(&a.b, (R)0, team, lane, packs, b);
    for (int64_t row = first, next; row < a.rows; row = next) {
        next = row + apart;
        gm_vector held[HELD], more[HELD];
        R         x[V], y[V], z[V], mean[1] = {0}, squares[1] = {0}, rstd;
        gm_even_hold(gm_even_row<T>(&a.x, row), team, lane, packs, gm_zeros(), held);
        if (next < a.rows) gm_even_prefetch(gm_even_row<T>(&a.x, next), lane, packs);
        if (a.residual.data) {
            gm_even_hold(gm_even_row<T>(&a.residual, row), team, lane, packs, gm_zeros(), more);
            if (next < a.rows) gm_even_prefetch(gm_even_row<T>(&a.residual, next), lane, packs);
            GM_UNROLL for (int k = 0; k < HELD; k++)
            {
                gm_unpack<T>(held[k], x);
                gm_unpack<T>(more[k], y);
                GM_UNROLL for (int j = 0; j < V; j++) x[j] += y[j];
                held[k] = gm_pack<T>(x);
            }
        }
        if (a.sum.data) {
            gm_vector *sum = (gm_vector *)gm_even_row<T>(&a.sum, row);
            GM_EACH_HELD(k, i) gm_store_vector(sum + i, held[k]);
        }
        if (a.given_rstd.data) {
            mean[0] = a.given_mean.data ? gm_even_number<R>(&a.given_mean, row) : 0;
            rstd = gm_even_number<R>(&a.given_rstd, row);
        } else {
            if (a.centered) {
                GM_UNROLL for (int k = 0; k < HELD; k++)
                {
                    R part = 0;
                    gm_unpack<T>(held[k], x);
                    GM_UNROLL for (int j = 0; j < V; j++) part += x[j];
                    mean[0] += part;
                }
                gm_even_sums(mean, team, turn, scratch);
                turn ^= 1;
                mean[0] /= (R)a.width;
            }
            GM_EACH_HELD(k, i) {
                R part = 0;
                gm_unpack<T>(held[k], x);
                GM_UNROLL for (int j = 0; j < V; j++) part += (x[j] - mean[0]) * (x[j] - mean[0]);
                squares[0] += part;
            }
            gm_even_sums(squares, team, turn, scratch);
            turn ^= 1;
            rstd = 1 / sqrt(squares[0] / (R)a.width + (R)a.eps);
        }
        if (lane == 0) {
            gm_even_set_number(&a.mean, row, mean[0]);
            gm_even_set_number(&a.rstd, row, rstd);
            gm_even_set_number(&a.m2, row, squares[0]);
        }
        if (!a.y.data) continue;
        gm_vector *to = (gm_vector *)gm_even_row<T>(&a.y, row);
        GM_EACH_HELD(k, i) {
            gm_unpack<T>(held[k], x);
            gm_unpack<T>(w[k], y);
            gm_unpack<T>(b[k], z);
            GM_UNROLL for (int j = 0; j < V; j++) x[j] = (x[j] - mean[0]) * rstd * y[j] + z[j];
            gm_store_vector(to + i, gm_pack<T>(x));
        }
    }
}

/* ---- the gradient (norm.cu has the formula) ---- */

/* The sums that a block's warps have of the columns of their pack k, in order, to the block's row of `to`. room: V
 * numbers a thread. */
template <class R, int V>
GM_DEVICE void gm_held_join(void *to, const R (&sum)[V], R *room, int k, int packs, int64_t width)
{
    R *p = (R *)to + gm_block_x * width;
    GM_SYNC();
    GM_UNROLL for (int j = 0; j < V; j++) room[j * gm_block_size + gm_thread] = sum[j];
    GM_SYNC();
    for (int c = gm_thread; c < GM_WARP * V; c += gm_block_size) {
        const int lane = c % GM_WARP, j = c / GM_WARP, i = k * GM_WARP + lane;
        R         all = 0;
        for (int at = lane; at < gm_block_size; at += GM_WARP) all += room[j * gm_block_size + at];
        if (i < packs) p[i * V + j] = all;
    }
}

template <class R, int V> GM_DEVICE void gm_held_partial(void *to, const R (&sum)[V], int i, int64_t width)
{
    R *p = (R *)to + gm_block_x * width + (int64_t)i * V;
    GM_UNROLL for (int j = 0; j < V; j++) p[j] = sum[j];
}

template <class T, int HELD, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_norm_grad_held(const gm_norm_grad_args a)
{
    GM_SHARED(R, scratch);
    GM_HELD_TEAM;
    const R   each = 1 / (R)a.width;
    R         dw[HELD][V], db[HELD][V];
    gm_vector w[HELD];
    int       turn = 0;
    GM_UNROLL for (int k = 0; k < HELD; k++) GM_UNROLL for (int j = 0; j < V; j++) dw[k][j] = db[k][j] = 0;
    gm_held_weight<T>(&a.w, (R)1, team, lane, packs, w);
    for (int64_t row = first, next; row < a.rows; row = next, turn ^= 1) {
        next = row + apart;
        gm_vector g[HELD], x[HELD], more[HELD];
        R         h[V], hat[V], s[V], sums[2] = {0, 0};
        gm_even_hold(gm_even_row<T>(&a.g, row), team, lane, packs, gm_zeros(), g);
        gm_even_hold(gm_even_row<T>(&a.x, row), team, lane, packs, gm_zeros(), x);
        if (a.gsum.data) gm_even_hold(gm_even_row<T>(&a.gsum, row), team, lane, packs, gm_zeros(), more);
        if (next < a.rows) {
            gm_even_prefetch(gm_even_row<T>(&a.g, next), lane, packs);
            gm_even_prefetch(gm_even_row<T>(&a.x, next), lane, packs);
            if (a.gsum.data) gm_even_prefetch(gm_even_row<T>(&a.gsum, next), lane, packs);
        }
        const R mean = a.mean.data ? gm_even_number<R>(&a.mean, row) : 0, rstd = gm_even_number<R>(&a.rstd, row);
        GM_EACH_HELD(k, i) {
            R part = 0, part_hat = 0;
            gm_unpack<T>(g[k], h);
            gm_unpack<T>(x[k], hat);
            gm_unpack<T>(w[k], s);
            GM_UNROLL for (int j = 0; j < V; j++)
            {
                hat[j] = (hat[j] - mean) * rstd;
                db[k][j] += h[j];
                dw[k][j] += h[j] * hat[j];
                h[j] *= s[j];
                part += h[j];
                part_hat += h[j] * hat[j];
            }
            sums[0] += part;
            sums[1] += part_hat;
        }
        R mean_h, mean_h_hat;
        if (a.given_h_hat.data) {
            mean_h = a.given_h.data ? gm_even_number<R>(&a.given_h, row) : 0;
            mean_h_hat = gm_even_number<R>(&a.given_h_hat, row);
        } else {
            gm_even_sums(sums, team, turn, scratch);
            mean_h = a.centered ? sums[0] * each : 0;
            mean_h_hat = sums[1] * each;
        }
        const R fall = rstd * rstd * mean_h_hat;
        if (lane == 0) {
            gm_even_set_number(&a.h, row, sums[0]);
            gm_even_set_number(&a.h_hat, row, sums[1]);
        }
        if (!a.dx.data) continue;
        gm_vector *to = (gm_vector *)gm_even_row<T>(&a.dx, row);
        GM_EACH_HELD(k, i) {
            gm_unpack<T>(g[k], h);
            gm_unpack<T>(x[k], hat);
            gm_unpack<T>(w[k], s);
            GM_UNROLL for (int j = 0; j < V; j++) { h[j] = rstd * (h[j] * s[j] - mean_h) - (hat[j] - mean) * fall; }
            if (a.gsum.data) {
                gm_unpack<T>(more[k], s);
                GM_UNROLL for (int j = 0; j < V; j++) h[j] += s[j];
            }
            gm_store_vector(to + i, gm_pack<T>(h));
        }
    }
    GM_UNROLL for (int k = 0; k < HELD; k++)
    {
        const int i = k * team + lane;
        if (single) {
            if (a.dw) gm_held_join(a.dw, dw[k], scratch, k, packs, a.width);
            if (a.db) gm_held_join(a.db, db[k], scratch, k, packs, a.width);
        } else if (i < packs) {
            if (a.dw) gm_held_partial(a.dw, dw[k], i, a.width);
            if (a.db) gm_held_partial(a.db, db[k], i, a.width);
        }
    }
}

#define GM_HELD_KERNELS(t, T)                                                                                    \
    GM_KERNEL_BOUND(gm_norm_held_##t, gm_norm_args, 32 * GM_NORM_WARPS, 1) { gm_norm_held<T, GM_NORM_HELD>(a); } \
    GM_KERNEL_BOUND(gm_norm_grad_held_##t, gm_norm_grad_args, 32 * GM_NORM_GRAD_WARPS, 1)                        \
    {                                                                                                            \
        gm_norm_grad_held<T, GM_NORM_GRAD_HELD>(a);                                                              \
    }
GM_HELD_KERNELS(f32, float)
GM_HELD_KERNELS(bf16, gm_bf16)
GM_HELD_KERNELS(f16, gm_f16)
GM_HELD_KERNELS(f64, double)
