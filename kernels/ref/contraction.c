/* contraction.c - matrix products, the dense layer and its elementwise backward. */
#include <string.h>

#include "loops.h"

/* Row or column `i` of the matrix of t that belongs to the batch coordinates of `at`, as a line. */
static ref_line matrix_line(const gm_tensor *t, int ndim, const int64_t *at, int64_t i, bool column)
{
    int64_t place[GM_MAX_DIMS];
    int     along = t->ndim - (column ? 2 : 1);
    memcpy(place, at, sizeof place);
    place[ndim - 2] = place[ndim - 1] = 0;
    int64_t offset = ref_broadcast_offset(t, ndim, place) + i * t->stride[t->ndim - (column ? 1 : 2)];
    char   *data = (char *)gm_tensor_data(t) + (size_t)offset * gm_dtype_size(t->dtype);
    return (ref_line){t->dtype, data, t->shape[along], t->stride[along]};
}

/* y (+)= alpha a b: element (row, column) sums row of a, after its transpose, times column of b. */
gm_status gm_ref_matmul(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const gm_attrs  *at = call->attrs;
    int64_t          place[GM_MAX_DIMS];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        ref_coordinates(y->ndim, y->shape, i, place);
        ref_line row = matrix_line(a, y->ndim, place, place[y->ndim - 2], at->transpose_a);
        ref_line column = matrix_line(b, y->ndim, place, place[y->ndim - 1], !at->transpose_b);
        double   sum = 0;
        for (int64_t k = 0; k < row.n; k++) sum += ref_line_get(&row, k) * ref_line_get(&column, k);
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
        int64_t  o = i % outputs;
        double   sum = b ? ref_get(b, o) : 0;
        ref_line xs = ref_line_of(x, x->ndim - 1, i / outputs), ws = ref_line_of(w, 1, o);
        for (int64_t k = 0; k < inputs; k++) sum += ref_line_get(&xs, k) * ref_line_get(&ws, k);
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
