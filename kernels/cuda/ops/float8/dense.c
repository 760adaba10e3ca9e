/* dense.c - see dense.h. */
#include "dense.h"

/* What kernels and cuBLASLt read and write 16 bytes at once. */
static bool is_dense(const gm_tensor *t)
{
    return gm_tensor_is_contiguous(t) && (uintptr_t)gm_tensor_data(t) % 16 == 0;
}

gm_status gm_dense(gm_device *dev, gm_tensor *t, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    *out = NULL;
    if (!t || is_dense(t)) {
        if (t) gm_tensor_retain(*out = t);
        return GM_OK;
    }
    GM_TRY(gm_tensor_new(dev, t->dtype, t->ndim, t->shape, out));
    return cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &t, out, &a});
}

gm_status gm_dense_like(gm_device *dev, gm_tensor *t, gm_tensor **out)
{
    *out = NULL;
    if (!t) return GM_OK;
    if (!is_dense(t)) return gm_tensor_new(dev, t->dtype, t->ndim, t->shape, out);
    gm_tensor_retain(*out = t);
    return GM_OK;
}

gm_status gm_dense_home(gm_device *dev, gm_tensor *dense, gm_tensor *t, gm_status st)
{
    gm_attrs a = gm_attrs_default();
    if (st == GM_OK && dense && dense != t) st = cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &dense, &t, &a});
    gm_tensor_release(dense);
    return st;
}
