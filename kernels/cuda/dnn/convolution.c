/* convolution.c - see dnn.h: convolutions of 16 bits and their gradients. */
#include "dnn.h"

#include <stdio.h>
#include <string.h>

#include "state.h"

#define ALIGNMENT 16

static bool is_plain(const gm_tensor *t)
{
    return gm_tensor_is_contiguous(t) && (uintptr_t)gm_tensor_data(t) % ALIGNMENT == 0;
}

/* (n, c, l) as (n, c, 1, l) */
static void read_sizes(const gm_tensor *t, int64_t *out)
{
    out[0] = t->shape[0], out[1] = t->shape[1];
    out[2] = t->ndim == 4 ? t->shape[2] : 1;
    out[3] = t->shape[t->ndim - 1];
}

/* x, w, y of the convolution that the call is one of, of which `side` is computed; false: it is none that a problem can
 * express. */
static bool read_problem(const struct gm_dnn *dnn, const gm_call *call, gm_dnn_side side, const gm_tensor *x,
                         const gm_tensor *w, const gm_tensor *y, gm_dnn_convolution *p)
{
    const gm_attrs *at = call->attrs;
    int             lack = 2 - (x->ndim - 2);
    memset(p, 0, sizeof *p);
    if (lack < 0 || !is_plain(x) || !is_plain(w) || !is_plain(y)) return false;
    read_sizes(x, p->x);
    read_sizes(w, p->w);
    read_sizes(y, p->y);
    for (int d = 0; d < 2; d++) {
        bool there = d >= lack;
        int  from = there ? d - lack : 0;
        p->stride[d] = there ? at->stride.at[from] : 1;
        p->dilation[d] = there ? at->dilation.at[from] : 1;
        p->low[d] = there ? at->pad_low.at[from] : 0;
        p->high[d] = there ? at->pad_high.at[from] : 0;
    }
    p->dtype = call->in[0]->dtype;
    p->arch = dnn->arch;
    p->side = side;
    p->accumulate = at->accumulate;
    return true;
}

static gm_status run(gm_device *dev, struct gm_dnn *dnn, const gm_dnn_convolution *p, void *x, void *w, void *y,
                     bool *served)
{
    const gm_dnn_plan *plan = NULL;
    void              *data;
    gm_block          *block;
    gm_dnn_pack        k = {.n = 0};
    gm_dnn_writing     how = gm_dnn_of_convolution(p);
    GM_TRY(gm_dnn_find_plan(dnn, &how, sizeof *p, &plan));
    *served = plan->deterministic; /* the same bits each time, as our kernel gives them */
    if (!*served) return GM_OK;
    GM_TRY(gm_cuda_scratch(dev, (size_t)plan->workspace + 256, &data, &block));
    gm_dnn_give(&k, GM_DNN_CONVOLUTION_X, x);
    gm_dnn_give(&k, GM_DNN_CONVOLUTION_W, w);
    gm_dnn_give(&k, GM_DNN_CONVOLUTION_Y, y);
    gm_status st = gm_dnn_execute(dnn, plan, &k, data, how.what);
    gm_pool_release(dev->pool, block);
    return st;
}

gm_status gm_dnn_convolve_call(gm_device *dev, const gm_call *call, bool *served)
{
    struct gm_dnn     *dnn = NULL;
    gm_dnn_convolution p;
    gm_tensor         *first = call->in[0], *second = call->in[1], *out = call->out[0];
    gm_tensor         *x = first, *w = second, *y = out;
    gm_dnn_side        side = GM_DNN_OF_RESULT;
    *served = false;
    if (!gm_dtype_is_narrow(first->dtype)) return GM_OK; /* without asking for the library */
    if (call->op == GM_OP_transposed_convolution) side = GM_DNN_OF_INPUT, x = out, y = first;
    if (call->op == GM_OP_convolution_weight_grad) side = GM_DNN_OF_WEIGHT, x = second, w = out, y = first;
    GM_TRY(gm_dnn_enter(dev, &dnn));
    if (!dnn->there || !read_problem(dnn, call, side, x, w, y, &p)) return GM_OK;
    if (!gm_dnn_takes_convolution(&p, NULL)) return GM_OK;
    return run(dev, dnn, &p, gm_tensor_data(x), gm_tensor_data(w), gm_tensor_data(y), served);
}
