/* norm.cu - layer norm and RMS norm, their gradients, and both in steps: one kernel for results, one for gradients.
 *
 * If a team can hold its row in registers, it reads the row and its residual once. Otherwise it reads the row once for
 * each pass: mean, squares around the mean, result. In the gradient kernel a thread has the same columns in all its
 * rows, so that sums over rows (dw, db) stay in registers until the end. For rows that are not held in registers,
 * columns.cu computes these sums in a pass of its own. */
#include "../../common/rows.cuh"
#include "norm_args.h"

/* Packs from column c on of what is normalised: x, or x + residual as the dtype holds it, which `sum` gets. All loads
 * are under way together. */
template <class T, int HELD, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_norm_inputs(const gm_norm_args *a, int64_t x_at, int64_t r_at, int64_t c, int lane,
                              gm_vector (&held)[HELD])
{
    gm_vector more[HELD];
    R         x[V], r[V];
    gm_row_hold<T>(&a->x, x_at, c, a->team, lane, a->width, held);
    if (!a->residual.data) return;
    gm_row_hold<T>(&a->residual, r_at, c, a->team, lane, a->width, more);
    GM_UNROLL for (int k = 0; k < HELD; k++)
    {
        gm_unpack<T>(held[k], x);
        gm_unpack<T>(more[k], r);
        GM_UNROLL for (int j = 0; j < V; j++) x[j] += r[j];
        held[k] = gm_pack<T>(x);
    }
}

/* y = (x - mean) rstd w + b, for one pack */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_norm_result(const gm_norm_args *a, gm_vector v, int64_t y_at, int64_t i, R mean, R rstd)
{
    R x[V], w[V];
    gm_unpack<T>(v, x);
    GM_UNROLL for (int j = 0; j < V; j++) x[j] = (x[j] - mean) * rstd;
    if (a->w.data) {
        gm_row_take<T>(&a->w, 0, i, a->width, w);
        GM_UNROLL for (int j = 0; j < V; j++) x[j] *= w[j];
    }
    if (a->b.data) {
        gm_row_take<T>(&a->b, 0, i, a->width, w);
        GM_UNROLL for (int j = 0; j < V; j++) x[j] += w[j];
    }
    gm_row_give<T>(&a->y, y_at, i, a->width, x);
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>, int HELD = GM_NORM_PACKS(sizeof(T))>
GM_DEVICE void gm_norm(const gm_norm_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t x_at = gm_row_start(&a.x, row), r_at = gm_row_start(&a.residual, row);
    const int64_t y_at = gm_row_start(&a.y, row), sum_at = gm_row_start(&a.sum, row);
    const int     many = !GM_HELD_WHOLE, given = a.given_rstd.data != 0;
    gm_vector     held[HELD];
    R             mean = 0, squares = 0, rstd, x[V];
    GM_EACH_PART(c) {
        gm_norm_inputs<T>(&a, x_at, r_at, c, lane, held);
        GM_EACH_PACK(c, k, i) {
            gm_unpack<T>(held[k], x);
            GM_UNROLL for (int j = 0; j < V; j++) mean += x[j];
            if (a.sum.data) gm_row_store<T>(&a.sum, sum_at, i, a.width, held[k]);
        }
    }
    if (given) mean = a.given_mean.data ? gm_row_number<R>(&a.given_mean, row) : 0;
    else mean = a.centered ? gm_team_sum(mean, team, scratch) / (R)a.width : 0;
    if (given) {
        rstd = gm_row_number<R>(&a.given_rstd, row);
    } else {
        GM_EACH_PART(c) {
            if (many) gm_norm_inputs<T>(&a, x_at, r_at, c, lane, held);
            GM_EACH_PACK(c, k, i) {
                gm_unpack<T>(held[k], x);
                GM_UNROLL for (int j = 0; j < V; j++) squares += i + j < a.width ? (x[j] - mean) * (x[j] - mean) : 0;
            }
        }
        squares = gm_team_sum(squares, team, scratch);
        rstd = 1 / sqrt(squares / (R)a.width + (R)a.eps);
    }
    if (lane == 0) {
        gm_row_set_number(&a.mean, row, mean);
        gm_row_set_number(&a.rstd, row, rstd);
        gm_row_set_number(&a.m2, row, squares);
    }
    if (!a.y.data) return;
    GM_EACH_PART(c) {
        if (many) gm_norm_inputs<T>(&a, x_at, r_at, c, lane, held);
        GM_EACH_PACK(c, k, i) gm_norm_result<T>(&a, held[k], y_at, i, mean, rstd);
    }
}

/* ---- the gradient: with h = g w and hat = (x - mean) rstd,
 *     dx = rstd (h - mean(h) - hat mean(h hat)) + gsum, where RMS norm has no mean(h) ---- */

/* h and hat of one pack. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_norm_slopes(const gm_norm_grad_args *a, int64_t i, R mean, R rstd, R *h, R *hat)
{
    R w[V];
    GM_UNROLL for (int j = 0; j < V; j++) hat[j] = (hat[j] - mean) * rstd;
    if (!a->w.data) return;
    gm_row_take<T>(&a->w, 0, i, a->width, w);
    GM_UNROLL for (int j = 0; j < V; j++) h[j] *= w[j];
}

template <class R> struct gm_norm_grad_row {
    int64_t g_at, x_at, gsum_at, dx_at;
    R       mean, rstd, h, h_hat; /* h, h_hat: what dx subtracts */
};

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_norm_dx(const gm_norm_grad_args *a, const gm_norm_grad_row<R> *r, gm_vector g, gm_vector x, int64_t i)
{
    R h[V], hat[V], more[V];
    gm_unpack<T>(g, h);
    gm_unpack<T>(x, hat);
    gm_norm_slopes<T>(a, i, r->mean, r->rstd, h, hat);
    GM_UNROLL for (int j = 0; j < V; j++) h[j] = r->rstd * (h[j] - r->h - hat[j] * r->h_hat);
    if (a->gsum.data) {
        gm_row_take<T>(&a->gsum, r->gsum_at, i, a->width, more);
        GM_UNROLL for (int j = 0; j < V; j++) h[j] += more[j];
    }
    gm_row_give<T>(&a->dx, r->dx_at, i, a->width, h);
}

template <class R, int V>
GM_DEVICE void gm_norm_partial(void *to, int64_t team, int64_t i, int64_t width, const R (&sum)[V])
{
    R *p = (R *)to + team * width + i;
    GM_UNROLL for (int j = 0; j < V; j++) if (i + j < width) p[j] = sum[j];
}

/* A team has the rows `row`, row + teams, ...; where dw or db is wanted, rows are held whole. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>, int HELD = GM_NORM_PACKS(sizeof(T))>
GM_DEVICE void gm_norm_grad(const gm_norm_grad_args a)
{
    GM_SHARED(R, scratch);
    GM_TEAM(team, lane, row);
    const int64_t me = row, teams = gm_grid_x * (gm_block_size / team);
    const int     many = !GM_HELD_WHOLE, given = a.given_h_hat.data != 0;
    R             dw[HELD][V], db[HELD][V];
    GM_UNROLL for (int k = 0; k < HELD; k++) GM_UNROLL for (int j = 0; j < V; j++) dw[k][j] = db[k][j] = 0;
    for (; row < a.rows; row += teams) {
        gm_vector           held_g[HELD], held_x[HELD];
        R                   h[V], hat[V], sum = 0, sum_hat = 0;
        gm_norm_grad_row<R> r = {gm_row_start(&a.g, row),
                                 gm_row_start(&a.x, row),
                                 gm_row_start(&a.gsum, row),
                                 gm_row_start(&a.dx, row),
                                 0,
                                 0,
                                 0,
                                 0};
        r.mean = a.mean.data ? gm_row_number<R>(&a.mean, row) : 0;
        r.rstd = gm_row_number<R>(&a.rstd, row);
        GM_EACH_PART(c) {
            gm_row_hold<T>(&a.g, r.g_at, c, team, lane, a.width, held_g);
            gm_row_hold<T>(&a.x, r.x_at, c, team, lane, a.width, held_x);
            GM_EACH_PACK(c, k, i) {
                gm_unpack<T>(held_g[k], h);
                gm_unpack<T>(held_x[k], hat);
                GM_UNROLL for (int j = 0; j < V; j++)
                {
                    db[k][j] += h[j];
                    dw[k][j] += h[j] * ((hat[j] - r.mean) * r.rstd);
                }
                gm_norm_slopes<T>(&a, i, r.mean, r.rstd, h, hat);
                GM_UNROLL for (int j = 0; j < V; j++)
                {
                    sum += h[j];
                    sum_hat += h[j] * hat[j];
                }
            }
        }
        if (given) {
            r.h = a.given_h.data ? gm_row_number<R>(&a.given_h, row) : 0;
            r.h_hat = gm_row_number<R>(&a.given_h_hat, row);
        } else {
            sum = gm_team_sum(sum, team, scratch);
            sum_hat = gm_team_sum(sum_hat, team, scratch);
            r.h = a.centered ? sum / (R)a.width : 0;
            r.h_hat = sum_hat / (R)a.width;
        }
        if (lane == 0) {
            gm_row_set_number(&a.h, row, sum);
            gm_row_set_number(&a.h_hat, row, sum_hat);
        }
        if (!a.dx.data) continue;
        GM_EACH_PART(c) {
            if (many) {
                gm_row_hold<T>(&a.g, r.g_at, c, team, lane, a.width, held_g);
                gm_row_hold<T>(&a.x, r.x_at, c, team, lane, a.width, held_x);
            }
            GM_EACH_PACK(c, k, i) gm_norm_dx<T>(&a, &r, held_g[k], held_x[k], i);
        }
    }
    GM_EACH_PACK(0, k, i) {
        if (a.dw) gm_norm_partial(a.dw, me, i, a.width, dw[k]);
        if (a.db) gm_norm_partial(a.db, me, i, a.width, db[k]);
    }
}

GM_KERNELS(gm_norm, gm_norm_args)
GM_KERNEL_BOUND(gm_norm_grad_f32, gm_norm_grad_args, GM_TEAM_MOST, 1) { gm_norm_grad<float>(a); }
GM_KERNEL_BOUND(gm_norm_grad_bf16, gm_norm_grad_args, GM_TEAM_MOST, 1) { gm_norm_grad<gm_bf16>(a); }
GM_KERNEL_BOUND(gm_norm_grad_f16, gm_norm_grad_args, GM_TEAM_MOST, 1) { gm_norm_grad<gm_f16>(a); }
GM_KERNEL_BOUND(gm_norm_grad_f64, gm_norm_grad_args, GM_TEAM_MOST, 1) { gm_norm_grad<double>(a); }
