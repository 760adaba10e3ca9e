/* contraction.c - matrix products, the dense layer and its gradients. */
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

static double dot(ref_line a, ref_line b)
{
    double sum = 0;
    for (int64_t k = 0; k < a.n; k++) sum += ref_line_get(&a, k) * ref_line_get(&b, k);
    return sum;
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
        ref_put(y, i, at->alpha * dot(row, column), at->accumulate);
    }
    return GM_OK;
}

/* y = f(pre), pre = x w' + b; y is computed from pre before it is rounded. */
gm_status gm_ref_linear(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2], *y = call->out[0], *pre = call->out[1];
    int64_t          outputs = w->shape[0];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        int64_t o = i % outputs;
        double  sum = (b ? ref_get(b, o) : 0) + dot(ref_line_of(x, x->ndim - 1, i / outputs), ref_line_of(w, 1, o));
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

/* dw (+)= g' x; db (+)= the sum of g over rows */
gm_status gm_ref_linear_weight_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *g = call->in[0], *x = call->in[1], *dw = call->out[0], *db = call->out[1];
    int64_t          outputs = g->shape[1], inputs = x->shape[1];
    for (int64_t o = 0; o < outputs; o++) {
        ref_line of_g = ref_line_of(g, 0, o);
        double   sum = 0;
        for (int64_t r = 0; r < of_g.n; r++) sum += ref_line_get(&of_g, r);
        if (db) ref_put(db, o, sum, call->attrs->accumulate);
        for (int64_t i = 0; i < inputs; i++)
            ref_put(dw, o * inputs + i, dot(of_g, ref_line_of(x, 0, i)), call->attrs->accumulate);
    }
    return GM_OK;
}

/* dpre = (g w) f'(pre), the product not rounded before */
gm_status gm_ref_linear_input_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *g = call->in[0], *w = call->in[1], *pre = call->in[2], *dpre = call->out[0];
    int64_t          inputs = w->shape[1];
    for (int64_t i = 0, n = gm_tensor_numel(dpre); i < n; i++) {
        double product = dot(ref_line_of(g, 1, i / inputs), ref_line_of(w, 0, i % inputs));
        ref_set(dpre, i, product * ref_unary_slope(call->attrs->function, ref_get(pre, i), 0));
    }
    return GM_OK;
}
