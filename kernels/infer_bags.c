/* infer_bags.c - inference rules (infer.h) of bags of rows, and of rows that a list names. */
#include <inttypes.h>

#include "infer.h"

static gm_status expect_table(const gm_call *call, const char *name, const gm_tensor *w)
{
    if (w->ndim == 2) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be (rows, width)", gm_op_name(call->op), name, GM_SHOW(w));
}

/* w (rows, width), index (b, t, n), bounds (t + 1), weight like index -> y (b, t, width), row like index */
gm_status gm_infer_embedding_bag(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *w = call->in[0], *index = call->in[1];
    GM_TRY(expect_table(call, "w", w));
    if (index->ndim != 3) return GM_FAIL(GM_ESHAPE, "embedding_bag: index is %s, should be (b, t, n)", GM_SHOW(index));
    GM_TRY(gm_expect_shape(call, "bounds", call->in[2], 1, (int64_t[]){index->shape[1] + 1}));
    GM_TRY(gm_expect_like(call, "weight", call->in[3], index));
    if (call->attrs->first < 0)
        return GM_FAIL(GM_EINVAL, "embedding_bag: first is %" PRId64 ", should not be negative", call->attrs->first);
    spec[0] = gm_spec_of(w->dtype, 3, (int64_t[]){index->shape[0], index->shape[1], w->shape[1]});
    spec[1] = gm_spec_of(GM_I64, 3, index->shape);
    return GM_OK;
}

/* How many places each row of g serves. */
static gm_status expect_runs(const gm_call *call, const gm_tensor *row, const gm_tensor *g)
{
    int64_t places = gm_tensor_numel(row), runs = 1;
    GM_TRY(gm_expect_ndim(call, "g", g, 1));
    for (int d = 0; d < g->ndim - 1; d++) runs *= g->shape[d];
    if (runs ? places % runs == 0 : places == 0) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: g is %s, and its rows cannot have equal shares of the %" PRId64 " places of row %s",
                   gm_op_name(call->op), GM_SHOW(g), places, GM_SHOW(row));
}

/* w (rows, width), row (...), g (..., width) -> dweight like row */
gm_status gm_infer_embedding_bag_weight_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *w = call->in[0], *row = call->in[1], *g = call->in[2];
    GM_TRY(expect_table(call, "w", w));
    GM_TRY(expect_runs(call, row, g));
    if (g->shape[g->ndim - 1] != w->shape[1])
        return GM_FAIL(GM_ESHAPE, "embedding_bag_weight_grad: g is %s, but rows of w have %" PRId64 " elements",
                       GM_SHOW(g), w->shape[1]);
    spec[0] = gm_spec_of(w->dtype, row->ndim, row->shape);
    return GM_OK;
}

/* row (...), g (..., width), weight like row -> kept (places), sum (places, width) */
gm_status gm_infer_embedding_rows(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *row = call->in[0], *g = call->in[1];
    int64_t          places = gm_tensor_numel(row);
    GM_TRY(expect_runs(call, row, g));
    GM_TRY(gm_expect_like(call, "weight", call->in[2], row));
    spec[0] = gm_spec_of(GM_I64, 1, &places);
    spec[1] = gm_spec_of(g->dtype, 2, (int64_t[]){places, g->shape[g->ndim - 1]});
    return GM_OK;
}

static gm_status expect_list(const gm_call *call, const gm_tensor *row)
{
    if (row->ndim == 1) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: row is %s, should have one dimension", gm_op_name(call->op), GM_SHOW(row));
}

/* x (rows, width), row (n) -> y (n, width) */
gm_status gm_infer_rows_take(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *row = call->in[1];
    GM_TRY(expect_table(call, "x", x));
    GM_TRY(expect_list(call, row));
    spec[0] = gm_spec_of(x->dtype, 2, (int64_t[]){row->shape[0], x->shape[1]});
    return GM_OK;
}

/* y (n, width), row (n) -> x (rows, width), which is updated */
gm_status gm_infer_rows_put(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *y = call->in[0], *row = call->in[1], *x = call->out[0];
    GM_TRY(expect_table(call, "x", x));
    GM_TRY(expect_list(call, row));
    GM_TRY(gm_expect_shape(call, "y", y, 2, (int64_t[]){row->shape[0], x->shape[1]}));
    spec[0] = gm_spec_of(y->dtype, 2, x->shape);
    return GM_OK;
}
