/* sparse.c - see sparse.h. */
#include "sparse.h"

gm_status gm_value_set_sparse(gm_value *v, bool on)
{
    if (!v->param || v->node || !v->requires_grad || v->ndim != 2)
        return GM_FAIL(GM_EINVAL, "a sparse gradient is for a table (rows, width) that requires a gradient");
    if (v->param->row || v->param->grad_set || v->param->own)
        return GM_FAIL(GM_EINVAL, "the kind of a gradient cannot change while there is one");
    v->param->sparse = on;
    return GM_OK;
}

bool gm_value_sparse_grad(const gm_value *v, gm_tensor **row, gm_tensor **sum)
{
    if (!v->param || !v->param->row) return false;
    *row = v->param->row;
    *sum = v->param->sum;
    return true;
}

bool gm_value_has_grad(const gm_value *v)
{
    gm_layout layout;
    return gm_value_final_grad(v, &layout) || (v->param && v->param->row);
}

gm_status gm_sparse_whole(const gm_value *v, gm_tensor **out)
{
    gm_attrs   zero = gm_attrs_default();
    gm_device *dev = v->rank->device;
    gm_tensor *in[2] = {v->param->sum, v->param->row};
    gm_call    put = {.op = GM_OP_rows_put, .n_in = 2, .n_out = 1, .in = in, .out = out, .attrs = &zero};
    gm_rank_place(v->rank, "gradient");
    GM_TRY(gm_tensor_new(dev, v->local->dtype, v->local->ndim, v->local->shape, out));
    gm_status st = gm_run_one(dev, GM_OP_fill, &zero, NULL, *out);
    if (st == GM_OK) st = gm_run(dev, &put);
    if (st != GM_OK) gm_tensor_release(*out);
    return st;
}

void gm_sparse_drop(gm_value *v)
{
    gm_tensor_release(v->param->row);
    gm_tensor_release(v->param->sum);
    v->param->row = v->param->sum = NULL;
}

gm_status gm_sparse_clear(gm_value *v)
{
    gm_tensor *row, *sum;
    gm_device *dev = v->rank->device;
    GM_TRY(gm_tensor_new(dev, GM_I64, 1, (int64_t[]){0}, &row));
    gm_status st = gm_tensor_new(dev, v->local->dtype, 2, (int64_t[]){0, v->local->shape[1]}, &sum);
    if (st != GM_OK) {
        gm_tensor_release(row);
        return st;
    }
    gm_sparse_drop(v);
    v->param->row = row;
    v->param->sum = sum;
    v->param->grad_partial = 0;
    return GM_OK;
}

gm_status gm_sparse_refuse_dense(const gm_value *v)
{
    if (!v->param->sparse) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "a table with sparse = true has a gradient of its touched rows, which lookups alone can give; this "
                   "one is also used by another op (such as a head that shares it, or a layout that redistributes it): "
                   "leave sparse away");
}

/* a and b, one behind the other along their first dimension. */
static gm_tensor *behind(gm_work *w, gm_tensor *a, gm_tensor *b)
{
    int64_t shape[2] = {a->shape[0] + b->shape[0], a->ndim > 1 ? a->shape[1] : 1};
    if (w->st != GM_OK) return NULL;
    gm_tensor *both = gm_work_new(w, a->dtype, a->ndim, shape);
    gm_work_copy(w, a, gm_work_narrow(w, both, 0, 0, a->shape[0]));
    gm_work_copy(w, b, gm_work_narrow(w, both, 0, a->shape[0], b->shape[0]));
    return both;
}

void gm_sparse_add(gm_work *w, gm_value *v, gm_tensor *row, gm_tensor *g, gm_tensor *weight, int64_t padding)
{
    gm_tensor    *in[3] = {row, g, weight}, *out[2] = {NULL, NULL};
    gm_attrs      a = gm_attrs_default();
    gm_parameter *p = v->param;
    a.padding_index = padding;
    gm_work_run_all(w, GM_OP_embedding_rows, 3, in, &a, 2, out);
    if (p->row && w->st == GM_OK) {
        gm_tensor *both[3] = {behind(w, p->row, out[0]), behind(w, p->sum, out[1]), NULL};
        gm_work_run_all(w, GM_OP_embedding_rows, 3, both, NULL, 2, out);
    }
    if (w->st != GM_OK) return;
    gm_sparse_drop(v);
    p->row = gm_work_keep(w, out[0]);
    p->sum = gm_work_keep(w, out[1]);
}
