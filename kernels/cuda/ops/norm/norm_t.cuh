/* norm_t.cuh - the kernels of norm.cu for one dtype. */
#include "../../common/rows_t.cuh"

/* Packs from column c on of what is normalised: x, or x + residual as the dtype holds it, which `sum` gets. All loads
 * are under way together. */
GM_DEVICE void GM_E(gm_norm_inputs)(const gm_norm_args *a, int64_t x_at, int64_t r_at, int64_t c, int lane,
                                    gm_vector *held)
{
    gm_vector more[GM_HELD];
    GM_R      x[GM_V], r[GM_V];
    GM_E(gm_row_hold)(&a->x, x_at, c, a->team, lane, a->width, held);
    if (!a->residual.data) return;
    GM_E(gm_row_hold)(&a->residual, r_at, c, a->team, lane, a->width, more);
    GM_UNROLL for (int k = 0; k < GM_HELD; k++)
    {
        GM_E(gm_unpack)(held[k], x);
        GM_E(gm_unpack)(more[k], r);
        GM_UNROLL for (int j = 0; j < GM_V; j++) x[j] += r[j];
        held[k] = GM_E(gm_pack)(x);
    }
}

/* y = (x - mean) rstd w + b, for one pack */
GM_DEVICE void GM_E(gm_norm_result)(const gm_norm_args *a, gm_vector v, int64_t y_at, int64_t i, GM_R mean, GM_R rstd)
{
    GM_R x[GM_V], w[GM_V];
    GM_E(gm_unpack)(v, x);
    GM_UNROLL for (int j = 0; j < GM_V; j++) x[j] = (x[j] - mean) * rstd;
    if (a->w.data) {
        GM_E(gm_row_take)(&a->w, 0, i, a->width, w);
        GM_UNROLL for (int j = 0; j < GM_V; j++) x[j] *= w[j];
    }
    if (a->b.data) {
        GM_E(gm_row_take)(&a->b, 0, i, a->width, w);
        GM_UNROLL for (int j = 0; j < GM_V; j++) x[j] += w[j];
    }
    GM_E(gm_row_give)(&a->y, y_at, i, a->width, x);
}

GM_KERNEL_NAMED(GM_E(gm_norm), gm_norm_args)
{
    GM_SHARED(GM_R, scratch);
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t x_at = gm_row_start(&a.x, row), r_at = gm_row_start(&a.residual, row);
    const int64_t y_at = gm_row_start(&a.y, row), sum_at = gm_row_start(&a.sum, row);
    const int     many = !GM_HELD_WHOLE, given = a.given_rstd.data != 0;
    gm_vector     held[GM_HELD];
    GM_R          mean = 0, squares = 0, rstd, x[GM_V];
    GM_EACH_PART(c)
    {
        GM_E(gm_norm_inputs)(&a, x_at, r_at, c, lane, held);
        GM_EACH_PACK(c, k, i)
        {
            GM_E(gm_unpack)(held[k], x);
            GM_UNROLL for (int j = 0; j < GM_V; j++) mean += x[j];
            if (a.sum.data) GM_E(gm_row_store)(&a.sum, sum_at, i, a.width, held[k]);
        }
    }
    if (given) mean = a.given_mean.data ? GM_E(gm_row_number)(&a.given_mean, row) : 0;
    else mean = a.centered ? GM_N(gm_team_sum)(mean, team, scratch) / (GM_R)a.width : 0;
    if (given) {
        rstd = GM_E(gm_row_number)(&a.given_rstd, row);
    } else {
        GM_EACH_PART(c)
        {
            if (many) GM_E(gm_norm_inputs)(&a, x_at, r_at, c, lane, held);
            GM_EACH_PACK(c, k, i)
            {
                GM_E(gm_unpack)(held[k], x);
                GM_UNROLL for (int j = 0; j < GM_V; j++)
                    squares += i + j < a.width ? (x[j] - mean) * (x[j] - mean) : 0;
            }
        }
        squares = GM_N(gm_team_sum)(squares, team, scratch);
        rstd = 1 / GM_M(sqrt)(squares / (GM_R)a.width + (GM_R)a.eps);
    }
    if (lane == 0) {
        GM_E(gm_row_set_number)(&a.mean, row, mean);
        GM_E(gm_row_set_number)(&a.rstd, row, rstd);
        GM_E(gm_row_set_number)(&a.m2, row, squares);
    }
    if (!a.y.data) return;
    GM_EACH_PART(c)
    {
        if (many) GM_E(gm_norm_inputs)(&a, x_at, r_at, c, lane, held);
        GM_EACH_PACK(c, k, i) GM_E(gm_norm_result)(&a, held[k], y_at, i, mean, rstd);
    }
}

/* ---- the gradient: with h = g w and hat = (x - mean) rstd,
 *     dx = rstd (h - mean(h) - hat mean(h hat)) + gsum, where RMS norm has no mean(h) ---- */

/* h and hat of one pack. */
GM_DEVICE void GM_E(gm_norm_slopes)(const gm_norm_grad_args *a, int64_t i, GM_R mean, GM_R rstd, GM_R *h, GM_R *hat)
{
    GM_R w[GM_V];
    GM_UNROLL for (int j = 0; j < GM_V; j++) hat[j] = (hat[j] - mean) * rstd;
    if (!a->w.data) return;
    GM_E(gm_row_take)(&a->w, 0, i, a->width, w);
    GM_UNROLL for (int j = 0; j < GM_V; j++) h[j] *= w[j];
}

typedef struct GM_E(gm_norm_grad_row) {
    int64_t g_at, x_at, gsum_at, dx_at;
    GM_R    mean, rstd, h, h_hat; /* h, h_hat: what dx subtracts */
} GM_E(gm_norm_grad_row);

GM_DEVICE void GM_E(gm_norm_dx)(const gm_norm_grad_args *a, const GM_E(gm_norm_grad_row) *r, gm_vector g, gm_vector x,
                                int64_t i)
{
    GM_R h[GM_V], hat[GM_V], more[GM_V];
    GM_E(gm_unpack)(g, h);
    GM_E(gm_unpack)(x, hat);
    GM_E(gm_norm_slopes)(a, i, r->mean, r->rstd, h, hat);
    GM_UNROLL for (int j = 0; j < GM_V; j++) h[j] = r->rstd * (h[j] - r->h - hat[j] * r->h_hat);
    if (a->gsum.data) {
        GM_E(gm_row_take)(&a->gsum, r->gsum_at, i, a->width, more);
        GM_UNROLL for (int j = 0; j < GM_V; j++) h[j] += more[j];
    }
    GM_E(gm_row_give)(&a->dx, r->dx_at, i, a->width, h);
}

GM_DEVICE void GM_E(gm_norm_partial)(void *to, int64_t team, int64_t i, int64_t width, const GM_R *sum)
{
    GM_R *p = (GM_R *)to + team * width + i;
    GM_UNROLL for (int j = 0; j < GM_V; j++) if (i + j < width) p[j] = sum[j];
}

/* A team has the rows `row`, row + teams, ...; where dw or db is wanted, rows are held whole. */
GM_KERNEL_BOUND(GM_E(gm_norm_grad), gm_norm_grad_args, GM_TEAM_MOST, 1)
{
    GM_SHARED(GM_R, scratch);
    GM_TEAM(team, lane, row);
    const int64_t me = row, teams = gm_grid_x * (gm_block_size / team);
    const int     many = !GM_HELD_WHOLE, given = a.given_h_hat.data != 0;
    GM_R          dw[GM_HELD][GM_V], db[GM_HELD][GM_V];
    GM_UNROLL for (int k = 0; k < GM_HELD; k++)
        GM_UNROLL for (int j = 0; j < GM_V; j++) dw[k][j] = db[k][j] = 0;
    for (; row < a.rows; row += teams) {
        gm_vector                held_g[GM_HELD], held_x[GM_HELD];
        GM_R                     h[GM_V], hat[GM_V], sum = 0, sum_hat = 0;
        GM_E(gm_norm_grad_row) r = {gm_row_start(&a.g, row), gm_row_start(&a.x, row), gm_row_start(&a.gsum, row),
                                    gm_row_start(&a.dx, row), 0, 0, 0, 0};
        r.mean = a.mean.data ? GM_E(gm_row_number)(&a.mean, row) : 0;
        r.rstd = GM_E(gm_row_number)(&a.rstd, row);
        GM_EACH_PART(c)
        {
            GM_E(gm_row_hold)(&a.g, r.g_at, c, team, lane, a.width, held_g);
            GM_E(gm_row_hold)(&a.x, r.x_at, c, team, lane, a.width, held_x);
            GM_EACH_PACK(c, k, i)
            {
                GM_E(gm_unpack)(held_g[k], h);
                GM_E(gm_unpack)(held_x[k], hat);
                GM_UNROLL for (int j = 0; j < GM_V; j++)
                {
                    db[k][j] += h[j];
                    dw[k][j] += h[j] * ((hat[j] - r.mean) * r.rstd);
                }
                GM_E(gm_norm_slopes)(&a, i, r.mean, r.rstd, h, hat);
                GM_UNROLL for (int j = 0; j < GM_V; j++)
                {
                    sum += h[j];
                    sum_hat += h[j] * hat[j];
                }
            }
        }
        if (given) {
            r.h = a.given_h.data ? GM_E(gm_row_number)(&a.given_h, row) : 0;
            r.h_hat = GM_E(gm_row_number)(&a.given_h_hat, row);
        } else {
            sum = GM_N(gm_team_sum)(sum, team, scratch);
            sum_hat = GM_N(gm_team_sum)(sum_hat, team, scratch);
            r.h = a.centered ? sum / (GM_R)a.width : 0;
            r.h_hat = sum_hat / (GM_R)a.width;
        }
        if (lane == 0) {
            GM_E(gm_row_set_number)(&a.h, row, sum);
            GM_E(gm_row_set_number)(&a.h_hat, row, sum_hat);
        }
        if (!a.dx.data) continue;
        GM_EACH_PART(c)
        {
            if (many) {
                GM_E(gm_row_hold)(&a.g, r.g_at, c, team, lane, a.width, held_g);
                GM_E(gm_row_hold)(&a.x, r.x_at, c, team, lane, a.width, held_x);
            }
            GM_EACH_PACK(c, k, i) GM_E(gm_norm_dx)(&a, &r, held_g[k], held_x[k], i);
        }
    }
    GM_EACH_PACK(0, k, i)
    {
        if (a.dw) GM_E(gm_norm_partial)(a.dw, me, i, a.width, dw[k]);
        if (a.db) GM_E(gm_norm_partial)(a.db, me, i, a.width, db[k]);
    }
}

#include "../../common/rows_t_end.cuh"
