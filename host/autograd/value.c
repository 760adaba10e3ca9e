/* value.c - see value.h. */
#include "value.h"

#include <stdlib.h>
#include <string.h>

gm_status gm_value_take(gm_rank *r, gm_tensor *local, gm_value **out)
{
    gm_value *v = calloc(1, sizeof *v);
    if (!v) {
        gm_tensor_release(local);
        return GM_FAIL(GM_ENOMEM, "no memory for a value");
    }
    v->refs = 1;
    v->rank = r;
    v->local = local;
    v->layout = gm_layout_replicated();
    v->ndim = local->ndim;
    memcpy(v->shape, local->shape, sizeof v->shape);
    *out = v;
    return GM_OK;
}

gm_status gm_value_new(gm_rank *r, const char *op, gm_dtype dtype, int ndim, const int64_t *shape, gm_value **out)
{
    gm_device *dev;
    gm_tensor *t = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    gm_rank_place(r, op);
    GM_TRY(gm_tensor_new(dev, dtype, ndim, shape, &t));
    return gm_value_take(r, t, out);
}

void gm_value_retain(gm_value *v) { v->refs++; }

void gm_value_release(gm_value *v)
{
    if (!v || --v->refs) return;
    gm_tensor_release(v->local);
    gm_tensor_release(v->grad);
    free(v);
}

gm_status gm_value_detach(gm_value *v, gm_value **out)
{
    gm_tensor_retain(v->local);
    return gm_value_take(v->rank, v->local, out);
}

gm_status gm_value_require_grad(gm_value *v, bool on)
{
    if (v->tape)
        return GM_FAIL(GM_EINVAL, "requires_grad: this tensor was computed; only leaves can be told (detach it first)");
    if (on && !gm_dtype_is_float(v->local->dtype))
        return GM_FAIL(GM_EINVAL, "requires_grad: %s has no gradients", gm_dtype_name(v->local->dtype));
    v->requires_grad = on;
    if (!on) {
        gm_tensor_release(v->grad);
        v->grad = NULL;
        v->grad_set = false;
    }
    return GM_OK;
}

gm_status gm_value_grad_buffer(gm_value *v, gm_tensor **out)
{
    if (!v->grad) {
        gm_rank_place(v->rank, "gradient");
        GM_TRY(gm_tensor_new(v->local->storage->device, v->local->dtype, v->local->ndim, v->local->shape, &v->grad));
        v->grad_set = false;
    }
    *out = v->grad;
    return GM_OK;
}

void gm_value_zero_grad(gm_value *v) { v->grad_set = false; }
void gm_value_touched(gm_value *v) { v->local->storage->version++; }
