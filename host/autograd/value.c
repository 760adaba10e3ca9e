/* value.c - see value.h. */
#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tier/tier.h"
#include "padding.h"
#include "sparse.h"
#include "tape.h"

gm_status gm_value_take(gm_rank *r, gm_tensor *local, gm_value **out)
{
    gm_value *v = calloc(1, sizeof *v);
    if (!v) {
        gm_tensor_release(local);
        return GM_FAIL(GM_ENOMEM, "no memory for a value");
    }
    v->refs = 1;
    v->rank = r;
    v->local = local; /* the layout is all zeros: replicated */
    v->ndim = local->ndim;
    v->zeroed = local->storage->version;
    memcpy(v->shape, local->shape, sizeof v->shape);
    *out = v;
    return GM_OK;
}

gm_status gm_value_take_block(gm_rank *r, gm_tensor *local, const gm_layout *layout, int ndim, const int64_t *shape,
                              gm_value **out)
{
    gm_box  box;
    int64_t padded[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    char    have[96], whole[96], text[160];
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &box, padded, logical);
    if (local->ndim != ndim || memcmp(local->shape, padded, (size_t)ndim * sizeof *padded)) {
        gm_tensor_describe(local, have, sizeof have);
        gm_tensor_release(local);
        return GM_FAIL(GM_ESHAPE, "%s is no block of a tensor %s cut %s", have,
                       gm_shape_describe(ndim, shape, whole, sizeof whole),
                       gm_layout_describe(&r->mesh, layout, ndim, text, sizeof text));
    }
    GM_TRY(gm_value_take(r, local, out));
    (*out)->layout = *layout;
    memcpy((*out)->shape, shape, (size_t)ndim * sizeof *shape);
    (*out)->padded = memcmp(padded, logical, (size_t)ndim * sizeof *padded) != 0;
    return GM_OK;
}

void gm_value_find_padding(gm_value *v)
{
    int64_t logical[GM_MAX_DIMS];
    gm_value_logical(v, logical);
    v->padded = memcmp(v->local->shape, logical, (size_t)v->ndim * sizeof *logical) != 0;
}

gm_status gm_value_new_block(gm_rank *r, const char *op, gm_dtype dtype, const gm_layout *layout, int ndim,
                             const int64_t *shape, gm_value **out)
{
    gm_device *dev;
    gm_tensor *t = NULL;
    gm_box     box;
    int64_t    padded[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    GM_TRY(gm_rank_device(r, &dev));
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &box, padded, logical);
    gm_rank_place(r, op);
    GM_TRY(gm_tensor_new(dev, dtype, ndim, padded, &t));
    GM_TRY(gm_padding_poison_new(r, t));
    return gm_value_take_block(r, t, layout, ndim, shape, out);
}

void gm_value_logical(const gm_value *v, int64_t *logical)
{
    gm_box  box;
    int64_t padded[GM_MAX_DIMS];
    gm_layout_block(&v->rank->mesh, &v->layout, v->rank->coordinate, v->ndim, v->shape, &box, padded, logical);
}

char *gm_value_describe(const gm_value *v, char *buf, size_t size)
{
    char shape[96], layout[160];
    gm_shape_describe(v->ndim, v->shape, shape, sizeof shape);
    if (gm_layout_is_replicated(&v->layout)) snprintf(buf, size, "%s %s", gm_dtype_name(v->local->dtype), shape);
    else
        snprintf(buf, size, "%s %s cut %s", gm_dtype_name(v->local->dtype), shape,
                 gm_layout_describe(&v->rank->mesh, &v->layout, v->ndim, layout, sizeof layout));
    return buf;
}

typedef gm_status (*tensor_maker)(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out);

static gm_status new_by(tensor_maker make, gm_rank *r, const char *op, gm_dtype dtype, int ndim, const int64_t *shape,
                        gm_value **out)
{
    gm_device *dev;
    gm_tensor *t = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    gm_rank_place(r, op);
    GM_TRY(make(dev, dtype, ndim, shape, &t));
    return gm_value_take(r, t, out);
}

gm_status gm_value_new(gm_rank *r, const char *op, gm_dtype dtype, int ndim, const int64_t *shape, gm_value **out)
{
    return new_by(gm_tensor_new, r, op, dtype, ndim, shape, out);
}

gm_status gm_value_new_shared(gm_rank *r, const char *op, gm_dtype dtype, int ndim, const int64_t *shape,
                              gm_value **out)
{
    return new_by(gm_tensor_new_shared, r, op, dtype, ndim, shape, out);
}

void gm_value_retain(gm_value *v) { v->refs++; }

void gm_value_release(gm_value *v)
{
    if (!v || --v->refs) return;
    if (v->keeps_grad) gm_node_forget(v);
    gm_node_release(v->node);
    gm_tensor_release(v->local);
    if (v->param) {
        gm_sparse_drop(v);
        gm_tensor_release(v->param->grad);
        gm_tensor_release(v->param->own);
        gm_tensor_release(v->param->stored);
    }
    free(v->param);
    free(v);
}

gm_status gm_value_detach(gm_value *v, gm_value **out)
{
    gm_tensor_retain(v->local);
    GM_TRY(gm_value_take(v->rank, v->local, out));
    (*out)->layout = v->layout;
    (*out)->padded = v->padded;
    (*out)->zeroed = v->zeroed;
    memcpy((*out)->shape, v->shape, sizeof v->shape);
    return GM_OK;
}

gm_status gm_value_parameter(gm_value *v, gm_parameter **out)
{
    if (!v->param) v->param = calloc(1, sizeof *v->param);
    *out = v->param;
    return v->param ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for what keeps a gradient");
}

gm_status gm_value_resting(gm_value *v, gm_layout *layout, gm_tensor **t)
{
    const gm_parameter *p = v->param;
    bool                parts = p && p->stored;
    *layout = parts ? p->owned : v->layout;
    *t = parts ? p->stored : v->local;
    return parts ? v->rank->stored_settle(v->local->storage) : GM_OK;
}

gm_status gm_value_resting_changes(gm_value *v)
{
    gm_value_touched(v);
    return v->param && v->param->stored ? v->rank->stored_discard(v->local->storage) : GM_OK;
}

gm_status gm_value_require_grad(gm_value *v, bool on)
{
    if (v->node)
        return GM_FAIL(GM_EINVAL,
                       "requires_grad: this tensor was computed by '%s'; only leaves can be told (detach() it "
                       "first)",
                       gm_node_name(v->node));
    if (on && !gm_dtype_is_float(v->local->dtype))
        return GM_FAIL(GM_EINVAL, "requires_grad: %s has no gradients", gm_dtype_name(v->local->dtype));
    gm_parameter *made;
    if (on) GM_TRY(gm_value_parameter(v, &made));
    v->requires_grad = on;
    if (!on && v->param) {
        gm_sparse_drop(v);
        gm_tensor_release(v->param->grad);
        v->param->grad = NULL;
        v->param->grad_set = false;
    }
    return GM_OK;
}

gm_status gm_value_retain_grad(gm_value *v)
{
    if (!v->requires_grad)
        return GM_FAIL(GM_EINVAL,
                       "retain_grad: this tensor depends on nothing that requires a gradient (or was computed "
                       "under no_grad)");
    gm_parameter *made;
    GM_TRY(gm_value_parameter(v, &made));
    if (v->node && !v->keeps_grad) GM_TRY(gm_node_remember(v));
    return GM_OK;
}

gm_status gm_value_write(const gm_value *v, const char *what)
{
    if (v->rank->no_grad || (!v->requires_grad && !v->guarded)) return GM_OK;
    if (v->guarded)
        return GM_FAIL(GM_EINVAL,
                       "%s: these bytes are those of a computed tensor that requires a gradient, and no gradient would "
                       "know of the change; write under gm.no_grad, or into a clone() of it",
                       what);
    if (v->node)
        return GM_FAIL(GM_EINVAL,
                       "%s: this tensor was computed by '%s' and requires a gradient, and writes in place are not "
                       "recorded; compute a new tensor (ops.where and others), write into a detach():clone() of it, or "
                       "write under gm.no_grad",
                       what, gm_node_name(v->node));
    return GM_FAIL(GM_EINVAL,
                   "%s: this tensor is a leaf that requires a gradient, such as a parameter; write into it under "
                   "gm.no_grad, or before requires_grad(true)",
                   what);
}

gm_dtype gm_value_grad_dtype(const gm_value *v)
{
    return v->param && v->param->wide_grad ? gm_dtype_wide(v->local->dtype) : v->local->dtype;
}

gm_status gm_value_set_wide_grad(gm_value *v, bool on)
{
    gm_parameter *p = v->param;
    gm_tensor    *old = p->grad, *grad = NULL;
    gm_attrs      a = gm_attrs_default();
    if (p->in_sum) return GM_FAIL(GM_EINVAL, "the dtype of a gradient cannot change while it is being summed");
    p->wide_grad = on;
    a.dtype = gm_value_grad_dtype(v);
    if (!old || old->dtype == a.dtype) return GM_OK;
    if (p->grad_set) {
        gm_rank_place(v->rank, "gradient");
        GM_TRY(gm_tensor_new(old->storage->device, a.dtype, old->ndim, old->shape, &grad));
        gm_status st = gm_run_one(v->rank->device, GM_OP_copy, &a, old, grad);
        if (st != GM_OK) gm_tensor_release(grad);
        if (st != GM_OK) return st;
    }
    gm_tensor_release(old);
    p->grad = grad;
    return GM_OK;
}

gm_status gm_gradient_new(gm_rank *r, gm_dtype dtype, int ndim, const int64_t *shape, bool shared, gm_tensor **out)
{
    size_t bytes = gm_dtype_size(dtype);
    for (int d = 0; d < ndim; d++) bytes *= (size_t)shape[d];
    if (!r->rests.gradients || bytes < r->rests.least)
        return (shared ? gm_tensor_new_shared : gm_tensor_new)(r->device, dtype, ndim, shape, out);
    return gm_tier_new_tensor(r->rests.tier, r->device, dtype, ndim, shape, out);
}

/* The buffer of a gradient. A term of a sum that is shared out is in memory: it goes as soon as it is summed. */
static gm_status new_grad(const gm_value *v, gm_tensor **out)
{
    const gm_tensor *like = v->local;
    gm_device       *dev = like->storage->device;
    gm_dtype         dtype = gm_value_grad_dtype(v);
    if (v->param->own || dev != v->rank->device) return gm_tensor_new(dev, dtype, like->ndim, like->shape, out);
    return gm_gradient_new(v->rank, dtype, like->ndim, like->shape, false, out);
}

gm_status gm_value_grad_buffer(gm_value *v, gm_tensor **out)
{
    if (v->param->in_sum)
        return GM_FAIL(GM_EINVAL, "the gradient of a parameter changes while it is being reduced: a second backward in "
                                  "one step. Add the losses and go backward once, arm for the last backward only, or "
                                  "reduce without overlap");
    GM_TRY(gm_sparse_refuse_dense(v));
    if (!v->param->grad) {
        gm_rank_place(v->rank, "gradient");
        GM_TRY(new_grad(v, &v->param->grad));
        v->param->grad_set = false;
    }
    *out = v->param->grad;
    return GM_OK;
}

gm_tensor *gm_value_grad(const gm_value *v) { return v->param && v->param->grad_set ? v->param->grad : NULL; }

gm_tensor *gm_value_final_grad(const gm_value *v, gm_layout *layout)
{
    const gm_parameter *p = v->param;
    if (p && p->own) {
        *layout = p->owned;
        return p->own_set ? p->own : NULL;
    }
    *layout = v->layout;
    layout->partial = p ? p->grad_partial : 0;
    return gm_value_grad(v);
}

gm_status gm_value_clear_grad(gm_value *v)
{
    gm_attrs   zero = gm_attrs_default();
    gm_tensor *g = v->param->own;
    if (v->param->sparse) return gm_sparse_clear(v);
    if (!g) GM_TRY(gm_value_grad_buffer(v, &g));
    GM_TRY(gm_run_one(v->rank->device, GM_OP_fill, &zero, NULL, g));
    if (v->param->own) v->param->own_set = true;
    else v->param->grad_set = true, v->param->grad_partial = 0;
    return GM_OK;
}

void gm_value_zero_grad(gm_value *v)
{
    if (!v->param) return;
    gm_sparse_drop(v);
    v->param->grad_set = v->param->own_set = false;
    gm_tensor *g = v->param->grad;
    if (!g || g->storage->bytes != (size_t)gm_tensor_numel(g) * gm_dtype_size(g->dtype)) return; /* others share it */
    gm_tier_discard(g->storage);
}

void gm_value_touched(gm_value *v)
{
    unsigned version = v->local->storage->version++;
    if (v->zeroed == version) v->zeroed++;
}
