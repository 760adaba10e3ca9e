/* softmax.c - softmax and its logarithm along one dimension. A line with only -inf has no softmax; its results are NaN.
 */
#include "loops.h"

/* log of the sum of exp in two terms, which are subtracted one after the other: the largest element, and the log of
 * the sum of exp(element - largest). */
static double log_sum_exp(const ref_line *x, double *largest)
{
    double sum = 0;
    *largest = -INFINITY;
    for (int64_t k = 0; k < x->n; k++) *largest = fmax(*largest, ref_line_get(x, k));
    for (int64_t k = 0; k < x->n; k++) sum += exp(ref_line_get(x, k) - *largest);
    return log(sum);
}

static gm_status along_lines(const gm_call *call, bool logarithm)
{
    int dim = ref_dim(call, call->in[0]->ndim);
    for (int64_t i = 0, lines = ref_lines(call->in[0], dim); i < lines; i++) {
        ref_line x = ref_line_of(call->in[0], dim, i), y = ref_line_of(call->out[0], dim, i);
        double   largest, rest = log_sum_exp(&x, &largest);
        for (int64_t k = 0; k < x.n; k++) {
            double v = ref_line_get(&x, k) - largest - rest;
            ref_line_set(&y, k, logarithm ? v : exp(v));
        }
    }
    return GM_OK;
}

gm_status gm_ref_softmax(gm_device *dev, const gm_call *call) { return (void)dev, along_lines(call, false); }
gm_status gm_ref_log_softmax(gm_device *dev, const gm_call *call) { return (void)dev, along_lines(call, true); }

/* dx = y (g - sum(g y)) */
gm_status gm_ref_softmax_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    int dim = ref_dim(call, call->in[0]->ndim);
    for (int64_t i = 0, lines = ref_lines(call->in[0], dim); i < lines; i++) {
        ref_line y = ref_line_of(call->in[0], dim, i), g = ref_line_of(call->in[1], dim, i);
        ref_line dx = ref_line_of(call->out[0], dim, i);
        double   sum = 0;
        for (int64_t k = 0; k < y.n; k++) sum += ref_line_get(&g, k) * ref_line_get(&y, k);
        for (int64_t k = 0; k < y.n; k++) ref_line_set(&dx, k, ref_line_get(&y, k) * (ref_line_get(&g, k) - sum));
    }
    return GM_OK;
}

/* y = log p: dx = g - p sum(g) */
gm_status gm_ref_log_softmax_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    int dim = ref_dim(call, call->in[0]->ndim);
    for (int64_t i = 0, lines = ref_lines(call->in[0], dim); i < lines; i++) {
        ref_line y = ref_line_of(call->in[0], dim, i), g = ref_line_of(call->in[1], dim, i);
        ref_line dx = ref_line_of(call->out[0], dim, i);
        double   sum = 0;
        for (int64_t k = 0; k < y.n; k++) sum += ref_line_get(&g, k);
        for (int64_t k = 0; k < y.n; k++) ref_line_set(&dx, k, ref_line_get(&g, k) - exp(ref_line_get(&y, k)) * sum);
    }
    return GM_OK;
}
