/* padding.c - see padding.h. */
#include "padding.h"

#include <math.h>

/* What of dimension d lies beyond the end, from `first` on. Elements that other dimensions repeat (the gradient of a
 * sum) are written once. */
static gm_status fill_beyond(gm_tensor *t, int d, int64_t first, const gm_attrs *a)
{
    gm_tensor *part = NULL;
    int64_t    shape[GM_MAX_DIMS];
    if (!t->stride[d] && first) return GM_FAIL(GM_EINVAL, "padding that repeats elements of a tensor");
    for (int e = 0; e < t->ndim; e++) shape[e] = t->stride[e] || t->shape[e] < 1 ? t->shape[e] : 1;
    shape[d] = t->shape[d] - first;
    if (!t->stride[d]) shape[d] = 1;
    GM_TRY(gm_tensor_view(t, t->ndim, shape, t->stride, t->offset + first * t->stride[d], &part));
    gm_status st = gm_tensor_numel(part) ? gm_run_one(t->storage->device, GM_OP_fill, a, NULL, part) : GM_OK;
    gm_tensor_release(part);
    return st;
}

gm_status gm_padding_fill(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, gm_tensor *t,
                          double value)
{
    gm_box   box;
    int64_t  local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_attrs a = gm_attrs_default();
    a.value = value;
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &box, local, logical);
    for (int d = 0; d < ndim; d++)
        if (logical[d] < t->shape[d]) GM_TRY(fill_beyond(t, d, logical[d], &a));
    return GM_OK;
}

static double poison_of(gm_dtype dtype) { return gm_dtype_is_float(dtype) ? (double)NAN : dtype == GM_U8 ? 255 : 1e9; }

gm_status gm_padding_poison_new(const gm_rank *r, gm_tensor *t)
{
    gm_attrs a = gm_attrs_default();
    if (!r->poison_padding) return GM_OK;
    a.value = poison_of(t->dtype);
    gm_status st = gm_run_one(t->storage->device, GM_OP_fill, &a, NULL, t);
    if (st != GM_OK) gm_tensor_release(t);
    return st;
}

gm_status gm_padding_poison(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, gm_tensor *t)
{
    return r->poison_padding ? gm_padding_fill(r, layout, ndim, shape, t, poison_of(t->dtype)) : GM_OK;
}

gm_status gm_padding_finish(gm_value *v)
{
    if (!v || !v->padded) return GM_OK;
    v->zeroed = v->local->storage->version;
    return gm_padding_fill(v->rank, &v->layout, v->ndim, v->shape, v->local, 0);
}

static gm_status renew(const gm_value *v, gm_tensor *t, unsigned *zeroed)
{
    if (*zeroed == t->storage->version) return GM_OK;
    *zeroed = t->storage->version;
    return gm_padding_fill(v->rank, &v->layout, v->ndim, v->shape, t, 0);
}

gm_status gm_padding_renew(gm_value *v)
{
    if (!v->padded) return GM_OK;
    GM_TRY(renew(v, v->local, &v->zeroed));
    if (!v->param || !v->param->grad_shown || !v->param->grad) return GM_OK;
    return renew(v, v->param->grad, &v->param->grad_zeroed);
}

void gm_padding_show_gradient(gm_value *v)
{
    if (!v->padded || v->param->grad_shown || v->param->own) return;
    v->param->grad_shown = true;
    v->param->grad_zeroed = v->param->grad->storage->version;
}
