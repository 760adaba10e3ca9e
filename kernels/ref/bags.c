/* bags.c - bags of rows of tables, gradients of tables as lists of rows, and rows that such a list names. An index out
 * of range is an error (GM_EINVAL), which is found before anything is written. */
#include <inttypes.h>

#include "loops.h"

/* The row of w at place i of the index, -1 where there is none. GM_EINVAL: it is outside of its table. */
static gm_status row_at(const gm_call *call, int64_t i, int64_t *row)
{
    const gm_tensor *w = call->in[0], *index = call->in[1], *bounds = call->in[2];
    int64_t          table = i / index->shape[2] % index->shape[1], v = (int64_t)ref_get(index, i);
    int64_t          begin = (int64_t)ref_get(bounds, table), end = (int64_t)ref_get(bounds, table + 1);
    *row = -1;
    if (v == -1) return GM_OK;
    if (v < 0 || v >= end - begin)
        return GM_FAIL(GM_EINVAL,
                       "embedding_bag: index %" PRId64 " at position %" PRId64 " (from 0) is outside a table of "
                       "%" PRId64 " rows",
                       v, i, end - begin);
    v += begin - call->attrs->first;
    if (v >= 0 && v < w->shape[0]) *row = v;
    return GM_OK;
}

gm_status gm_ref_embedding_bag(gm_device *dev, const gm_call *call)
{
    const gm_tensor *w = call->in[0], *weight = call->in[3], *y = call->out[0];
    int64_t          width = w->shape[1], each = call->in[1]->shape[2], row;
    (void)dev;
    for (int64_t i = 0, n = gm_tensor_numel(call->in[1]); i < n; i++) GM_TRY(row_at(call, i, &row));
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        double sum = 0;
        for (int64_t j = i / width * each; j < (i / width + 1) * each; j++) {
            GM_TRY(row_at(call, j, &row));
            if (row >= 0) sum += (weight ? ref_get(weight, j) : 1) * ref_get(w, row * width + i % width);
        }
        ref_set(y, i, sum);
    }
    for (int64_t i = 0, n = gm_tensor_numel(call->in[1]); i < n && call->out[1]; i++) {
        GM_TRY(row_at(call, i, &row));
        ref_set(call->out[1], i, (double)row);
    }
    return GM_OK;
}

/* Places for each row of g. */
static int64_t places_each(const gm_tensor *row, const gm_tensor *g)
{
    int64_t runs = ref_lines(g, g->ndim - 1);
    return runs ? gm_tensor_numel(row) / runs : 1;
}

gm_status gm_ref_embedding_bag_weight_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *w = call->in[0], *row = call->in[1], *g = call->in[2];
    int64_t          width = w->shape[1], each = places_each(row, g);
    (void)dev;
    for (int64_t i = 0, n = gm_tensor_numel(row); i < n; i++) {
        double  sum = 0;
        int64_t r = (int64_t)ref_get(row, i), run = i / each;
        for (int64_t c = 0; c < width && r >= 0; c++) sum += ref_get(g, run * width + c) * ref_get(w, r * width + c);
        ref_set(call->out[0], i, sum);
    }
    return GM_OK;
}

/* The row at a place, -1 where there is none. */
static int64_t kept_at(const gm_call *call, int64_t i)
{
    int64_t r = (int64_t)ref_get(call->in[0], i);
    return r < 0 || r == call->attrs->padding_index ? -1 : r;
}

/* The least row above r that occurs; -1: none. */
static int64_t next_row(const gm_call *call, int64_t r)
{
    int64_t best = -1;
    for (int64_t i = 0, n = gm_tensor_numel(call->in[0]); i < n; i++) {
        int64_t at = kept_at(call, i);
        if (at > r && (best < 0 || at < best)) best = at;
    }
    return best;
}

gm_status gm_ref_embedding_rows(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[1], *weight = call->in[2];
    int64_t          n = gm_tensor_numel(call->in[0]), width = g->shape[g->ndim - 1];
    int64_t          each = places_each(call->in[0], g), row = -1;
    bool             more = true;
    (void)dev;
    for (int64_t u = 0; u < n; u++) {
        if (more) row = next_row(call, row);
        more = more && row >= 0;
        ref_set(call->out[0], u, more ? (double)row : -1);
        for (int64_t c = 0; c < width; c++) {
            double sum = 0;
            for (int64_t i = 0; i < n && more; i++)
                if (kept_at(call, i) == row)
                    sum += (weight ? ref_get(weight, i) : 1) * ref_get(g, i / each * width + c);
            ref_set(call->out[1], u * width + c, sum);
        }
    }
    return GM_OK;
}

static gm_status check_list(const gm_call *call, int64_t rows)
{
    for (int64_t i = 0, n = gm_tensor_numel(call->in[1]); i < n; i++)
        if (ref_get(call->in[1], i) >= (double)rows)
            return GM_FAIL(GM_EINVAL,
                           "%s: row %.0f at position %" PRId64 " (from 0) is outside a table of %" PRId64 " rows",
                           gm_op_name(call->op), ref_get(call->in[1], i), i, rows);
    return GM_OK;
}

gm_status gm_ref_rows_take(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    int64_t          width = x->shape[1];
    (void)dev;
    GM_TRY(check_list(call, x->shape[0]));
    for (int64_t i = 0, n = gm_tensor_numel(call->out[0]); i < n; i++) {
        int64_t row = (int64_t)ref_get(call->in[1], i / width);
        ref_set(call->out[0], i, row >= 0 ? ref_get(x, row * width + i % width) : 0);
    }
    return GM_OK;
}

gm_status gm_ref_rows_put(gm_device *dev, const gm_call *call)
{
    const gm_tensor *y = call->in[0], *x = call->out[0];
    int64_t          width = x->shape[1];
    (void)dev;
    GM_TRY(check_list(call, x->shape[0]));
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        int64_t row = (int64_t)ref_get(call->in[1], i / width);
        if (row >= 0) ref_set(x, row * width + i % width, ref_get(y, i));
    }
    return GM_OK;
}
