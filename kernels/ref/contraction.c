/* contraction.c - matrix products, the dense layer and its elementwise backward. */
#include <string.h>

#include "loops.h"

/* Element (row, column) of the matrix of t that belongs to the batch coordinates of `at`. */
static double matrix_get(const gm_tensor *t, int ndim, const int64_t *at, int64_t row, int64_t column, bool transpose)
{
    int64_t place[GM_MAX_DIMS];
    memcpy(place, at, sizeof place);
    place[ndim - 2] = transpose ? column : row;
    place[ndim - 1] = transpose ? row : column;
    return gm_load(t->dtype, gm_tensor_data(t), ref_broadcast_offset(t, ndim, place));
}

gm_status gm_ref_matmul(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const gm_attrs  *at = call->attrs;
    int64_t          inner = a->shape[a->ndim - 1 - at->transpose_a], place[GM_MAX_DIMS];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        ref_coordinates(y->ndim, y->shape, i, place);
        int64_t row = place[y->ndim - 2], column = place[y->ndim - 1];
        double  sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += matrix_get(a, y->ndim, place, row, k, at->transpose_a) *
                   matrix_get(b, y->ndim, place, k, column, at->transpose_b);
        ref_put(y, i, at->alpha * sum, at->accumulate);
    }
    return GM_OK;
}

/* y = f(pre), pre = x w' + b; y is computed from pre before it is rounded. */
gm_status gm_ref_linear(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2], *y = call->out[0], *pre = call->out[1];
    int64_t          outputs = w->shape[0], inputs = w->shape[1];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        int64_t row = i / outputs, o = i % outputs;
        double  sum = b ? ref_get(b, o) : 0;
        for (int64_t k = 0; k < inputs; k++) sum += ref_get(x, row * inputs + k) * ref_get(w, o * inputs + k);
        if (pre) ref_set(pre, i, sum);
        ref_set(y, i, ref_unary(call->attrs->function, sum, 0));
    }
    return GM_OK;
}

/* dpre = g f'(pre); db (+)= the sum of dpre over rows */
gm_status gm_ref_bias_activation_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *g = call->in[0], *pre = call->in[1], *dpre = call->out[0], *db = call->out[1];
    gm_function      f = call->attrs->function;
    int64_t          width = g->shape[g->ndim - 1], rows = ref_lines(g, g->ndim - 1);
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            int64_t i = r * width + c;
            double  d = f == GM_FN_none ? ref_get(g, i) : ref_get(g, i) * ref_unary_slope(f, ref_get(pre, i), 0);
            if (dpre) ref_set(dpre, i, d);
            sum += d;
        }
        if (db) ref_put(db, c, sum, call->attrs->accumulate);
    }
    return GM_OK;
}
