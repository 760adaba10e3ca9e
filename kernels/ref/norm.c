/* norm.c - layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last dimension.
 *
 * With a residual, the row that is normalised is sum = x + residual. It is first rounded to the dtype, because the
 * gradient reads the rounded sum. Element i of row r is element r n + i; the statistics have one element for each row.
 */
#include "loops.h"

typedef struct shape2 {
    int64_t rows, n;
} shape2;

static shape2 rows_of(const gm_tensor *x) { return (shape2){ref_lines(x, x->ndim - 1), x->shape[x->ndim - 1]}; }

/* What is normalised, at element i; kept in `sum` if that is wanted. */
static double input_at(const gm_call *call, int64_t i)
{
    const gm_tensor *x = call->in[0], *residual = call->in[1], *sum = call->out[1];
    double           v = ref_get(x, i);
    if (residual) v = ref_rounded(x->dtype, v + ref_get(residual, i));
    if (sum) ref_set(sum, i, v);
    return v;
}

/* 1 / sqrt(mean of (x - center)^2 + eps) of row r. */
static double row_rstd(const gm_call *call, int64_t r, int64_t n, double center)
{
    double squares = 0;
    for (int64_t i = r * n; i < (r + 1) * n; i++)
        squares += (input_at(call, i) - center) * (input_at(call, i) - center);
    return 1 / sqrt(squares / (double)n + call->attrs->eps);
}

static void write_row(const gm_call *call, int64_t r, int64_t n, double center, double rstd)
{
    const gm_tensor *w = call->in[2], *b = call->n_in > 3 ? call->in[3] : NULL;
    for (int64_t i = 0; i < n; i++) {
        double v = (input_at(call, r * n + i) - center) * rstd;
        ref_set(call->out[0], r * n + i, v * (w ? ref_get(w, i) : 1) + (b ? ref_get(b, i) : 0));
    }
}

gm_status gm_ref_layer_norm(gm_device *dev, const gm_call *call)
{
    (void)dev;
    shape2 s = rows_of(call->in[0]);
    for (int64_t r = 0; r < s.rows; r++) {
        double mean = 0;
        for (int64_t i = r * s.n; i < (r + 1) * s.n; i++) mean += input_at(call, i) / (double)s.n;
        double rstd = row_rstd(call, r, s.n, mean);
        write_row(call, r, s.n, mean, rstd);
        ref_set(call->out[2], r, mean);
        ref_set(call->out[3], r, rstd);
    }
    return GM_OK;
}

gm_status gm_ref_rms_norm(gm_device *dev, const gm_call *call)
{
    (void)dev;
    shape2 s = rows_of(call->in[0]);
    for (int64_t r = 0; r < s.rows; r++) {
        double rstd = row_rstd(call, r, s.n, 0);
        write_row(call, r, s.n, 0, rstd);
        ref_set(call->out[2], r, rstd);
    }
    return GM_OK;
}

typedef struct grad_args {
    const gm_tensor *g, *gsum, *x, *w, *mean, *rstd, *dx, *dw, *db;
} grad_args;

/* The normalised input, before w and b. */
static double hat(const grad_args *a, int64_t r, int64_t i)
{
    return (ref_get(a->x, i) - (a->mean ? ref_get(a->mean, r) : 0)) * ref_get(a->rstd, r);
}

/* With h the gradient of the normalised input: dx = rstd (h - mean(h) - hat mean(h hat)) + gsum; RMS norm
 * subtracts no mean, so it has no mean(h). */
static void grad_row(const grad_args *a, int64_t r, int64_t n)
{
    double mean_h = 0, mean_h_hat = 0;
    for (int64_t i = 0; i < n; i++) {
        double h = ref_get(a->g, r * n + i) * (a->w ? ref_get(a->w, i) : 1);
        mean_h += a->mean ? h / (double)n : 0;
        mean_h_hat += h * hat(a, r, r * n + i) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        double h = ref_get(a->g, r * n + i) * (a->w ? ref_get(a->w, i) : 1);
        double d = ref_get(a->rstd, r) * (h - mean_h - hat(a, r, r * n + i) * mean_h_hat);
        ref_set(a->dx, r * n + i, d + (a->gsum ? ref_get(a->gsum, r * n + i) : 0));
    }
}

/* dw (+)= the sum over rows of g hat, db (+)= of g */
static gm_status norm_grad(const grad_args *a, bool accumulate)
{
    shape2 s = rows_of(a->x);
    for (int64_t r = 0; r < s.rows; r++) grad_row(a, r, s.n);
    for (int64_t i = 0; i < s.n; i++) {
        double dw = 0, db = 0;
        for (int64_t r = 0; r < s.rows; r++) {
            dw += ref_get(a->g, r * s.n + i) * hat(a, r, r * s.n + i);
            db += ref_get(a->g, r * s.n + i);
        }
        if (a->dw) ref_put(a->dw, i, dw, accumulate);
        if (a->db) ref_put(a->db, i, db, accumulate);
    }
    return GM_OK;
}

gm_status gm_ref_layer_norm_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    gm_tensor *const *in = call->in, *const *out = call->out;
    return norm_grad(&(grad_args){in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2]},
                     call->attrs->accumulate);
}

gm_status gm_ref_rms_norm_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    gm_tensor *const *in = call->in, *const *out = call->out;
    return norm_grad(&(grad_args){in[0], in[1], in[2], in[3], NULL, in[4], out[0], out[1], NULL},
                     call->attrs->accumulate);
}
