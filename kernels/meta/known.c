/* known.c - values on the meta device: small constants (gm.tensor, gm.arange, gm.zeros in Lua), and what the ops below
 * compute from such constants alone. So a model can read its masks, positions and sizes on a device without data. A
 * value that depends on data, on other ranks or on random numbers is not known. To read it is an error. */
#include <stdlib.h>
#include <string.h>

#include "../ref/ref.h"
#include "meta.h"

static bool is_plain(const gm_call *call)
{
    switch (call->op) {
    case GM_OP_fill:
    case GM_OP_copy:
    case GM_OP_axpy:
    case GM_OP_affine:
    case GM_OP_unary:
    case GM_OP_binary:
    case GM_OP_compare:
    case GM_OP_where:
    case GM_OP_softmax:
    case GM_OP_log_softmax:
    case GM_OP_embedding:
    case GM_OP_sum:
    case GM_OP_max:
    case GM_OP_min:
    case GM_OP_argmax:
    case GM_OP_top_k:
    case GM_OP_sort: return true;
    case GM_OP_matmul: return !call->attrs->accumulate;
    default: return false;
    }
}

/* Will the output hold values in all of its storage? A part of one that is not known says nothing of the rest. */
static bool can_hold(const gm_call *call, gm_tensor *t)
{
    size_t bytes = (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype);
    if (gm_tensor_known(t)) return true;
    if (call->op == GM_OP_axpy || !gm_tensor_is_contiguous(t) || bytes != t->storage->bytes) return false;
    return gm_tensor_know(t) != NULL;
}

static bool is_known(const gm_call *call)
{
    if (!is_plain(call)) return false;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && !gm_tensor_known(call->in[i])) return false;
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !can_hold(call, call->out[i])) return false;
    return true;
}

/* The tensor over its known values, in memory that the plain loops of ref/ can use. */
static gm_tensor *on_host(const gm_tensor *t, gm_tensor *view, gm_storage *storage)
{
    if (!t) return NULL;
    *view = *t;
    *storage = *t->storage;
    storage->data = t->storage->known;
    view->storage = storage;
    return view;
}

/* Of all that is known, fills are most: of gradients, of small sums. The first element, then what is there again. */
static gm_status fill(gm_device *dev, const gm_call *call)
{
    const gm_tensor *y = call->out[0];
    size_t           size = gm_dtype_size(y->dtype), bytes = (size_t)gm_tensor_numel(y) * size;
    char            *to = gm_tensor_data(y);
    if (!gm_tensor_is_contiguous(y) || !bytes) return gm_ref.kernel[GM_OP_fill](dev, call);
    gm_store(y->dtype, to, 0, call->attrs->value);
    for (size_t have = size; have < bytes; have *= 2) memcpy(to + have, to, have < bytes - have ? have : bytes - have);
    return GM_OK;
}

gm_status gm_meta_known(gm_device *dev, const gm_call *call)
{
    enum { MOST = 4 }; /* tensors on one side of a plain op */
    gm_tensor  views[2 * MOST], *in[MOST], *out[MOST];
    gm_storage storages[2 * MOST];
    gm_call    here = *call;
    if (call->n_in > MOST || call->n_out > MOST || !is_known(call)) {
        for (int i = 0; i < call->n_out; i++)
            if (call->out[i]) gm_tensor_forget(call->out[i]);
        return GM_OK;
    }
    for (int i = 0; i < call->n_in; i++) in[i] = on_host(call->in[i], &views[i], &storages[i]);
    for (int i = 0; i < call->n_out; i++) out[i] = on_host(call->out[i], &views[MOST + i], &storages[MOST + i]);
    here.in = in;
    here.out = out;
    return call->op == GM_OP_fill ? fill(dev, &here) : gm_ref.kernel[call->op](dev, &here);
}
