/* norm_steps.c - the norms of norm.c in steps, for rows of which this rank has a block: first the sums of the block,
 * then the results from the sums of all blocks. Element i of row r is element r n + i. */
#include "loops.h"

static int64_t lines(const gm_tensor *x) { return ref_lines(x, x->ndim - 1); }
static int64_t width(const gm_tensor *x) { return x->shape[x->ndim - 1]; }

/* Element i, with the residual added and rounded, since the gradient sees it so. */
static double input_at(const gm_call *call, int64_t i)
{
    const gm_tensor *x = call->in[0], *residual = call->in[1];
    double           v = ref_get(x, i);
    return residual ? ref_rounded(x->dtype, v + ref_get(residual, i)) : v;
}

gm_status gm_ref_norm_sums(gm_device *dev, const gm_call *call)
{
    int64_t rows = lines(call->in[0]), n = width(call->in[0]);
    (void)dev;
    if (call->in[1] && !call->out[0])
        return GM_FAIL(GM_EINVAL, "norm_sums: the sum of x and residual is not asked for");
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, m2 = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            if (call->out[0]) ref_set(call->out[0], i, input_at(call, i));
            if (call->out[1]) mean += input_at(call, i) / (double)n;
        }
        for (int64_t i = r * n; i < (r + 1) * n; i++) m2 += (input_at(call, i) - mean) * (input_at(call, i) - mean);
        if (call->out[1]) ref_set(call->out[1], r, mean);
        ref_set(call->out[2], r, m2);
    }
    return GM_OK;
}

gm_status gm_ref_norm_apply(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2], *mean = call->in[3], *rstd = call->in[4];
    int64_t          rows = lines(x), n = width(x);
    (void)dev;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            double v = (ref_get(x, r * n + i) - (mean ? ref_get(mean, r) : 0)) * ref_get(rstd, r);
            ref_set(call->out[0], r * n + i, v * (w ? ref_get(w, i) : 1) + (b ? ref_get(b, i) : 0));
        }
    return GM_OK;
}

/* The normalised input, and its gradient. */
static double hat(const gm_tensor *x, const gm_tensor *mean, const gm_tensor *rstd, int64_t r, int64_t i)
{
    return (ref_get(x, r * width(x) + i) - (mean ? ref_get(mean, r) : 0)) * ref_get(rstd, r);
}

static double slope(const gm_tensor *g, const gm_tensor *w, int64_t r, int64_t i)
{
    return ref_get(g, r * width(g) + i) * (w ? ref_get(w, i) : 1);
}

gm_status gm_ref_norm_grad_sums(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0], *x = call->in[1], *w = call->in[2], *mean = call->in[3], *rstd = call->in[4];
    int64_t          rows = lines(x), n = width(x);
    (void)dev;
    for (int64_t r = 0; r < rows; r++) {
        double h = 0, h_hat = 0;
        for (int64_t i = 0; i < n; i++) {
            h += slope(g, w, r, i);
            h_hat += slope(g, w, r, i) * hat(x, mean, rstd, r, i);
        }
        if (call->out[2]) ref_set(call->out[2], r, h);
        if (call->out[3]) ref_set(call->out[3], r, h_hat);
    }
    for (int64_t i = 0; i < n; i++) {
        double dw = 0, db = 0;
        for (int64_t r = 0; r < rows; r++) {
            dw += ref_get(g, r * n + i) * hat(x, mean, rstd, r, i);
            db += ref_get(g, r * n + i);
        }
        if (call->out[0]) ref_set(call->out[0], i, dw);
        if (call->out[1]) ref_set(call->out[1], i, db);
    }
    return GM_OK;
}

gm_status gm_ref_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0], *gsum = call->in[1], *x = call->in[2], *w = call->in[3], *mean = call->in[4];
    const gm_tensor *rstd = call->in[5], *mean_h = call->in[6], *mean_h_hat = call->in[7];
    int64_t          rows = lines(x), n = width(x);
    (void)dev;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            double d = slope(g, w, r, i) - (mean_h ? ref_get(mean_h, r) : 0);
            d = ref_get(rstd, r) * (d - hat(x, mean, rstd, r, i) * ref_get(mean_h_hat, r));
            ref_set(call->out[0], r * n + i, d + (gsum ? ref_get(gsum, r * n + i) : 0));
        }
    return GM_OK;
}
