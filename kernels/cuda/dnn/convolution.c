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

gm_dnn_roles gm_dnn_roles_of(gm_op op)
{
    if (op == GM_OP_transposed_convolution) return (gm_dnn_roles){.place = {GM_DNN_OUT, 1, 0}, .side = GM_DNN_OF_INPUT};
    if (op == GM_OP_convolution_weight_grad)
        return (gm_dnn_roles){.place = {1, GM_DNN_OUT, 0}, .side = GM_DNN_OF_WEIGHT};
    return (gm_dnn_roles){.place = {0, 1, GM_DNN_OUT}, .side = GM_DNN_OF_RESULT};
}

/* The problem that the call is, and its tensors x, w and y; false: no problem can express it. */
static bool read_problem(const struct gm_dnn *dnn, const gm_call *call, gm_tensor **t, gm_dnn_convolution *p)
{
    const gm_attrs    *at = call->attrs;
    const gm_dnn_roles roles = gm_dnn_roles_of(call->op);
    for (int i = 0; i < 3; i++) t[i] = roles.place[i] == GM_DNN_OUT ? call->out[0] : call->in[roles.place[i]];
    int lack = 2 - (t[0]->ndim - 2);
    memset(p, 0, sizeof *p);
    if (lack < 0 || !is_plain(t[0]) || !is_plain(t[1]) || !is_plain(t[2])) return false;
    read_sizes(t[0], p->x);
    read_sizes(t[1], p->w);
    read_sizes(t[2], p->y);
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
    p->side = roles.side;
    p->accumulate = at->accumulate;
    return true;
}

/* The problem of a call that cuDNN takes, and its tensors; *dnn becomes NULL where it does not. */
static gm_status take(gm_device *dev, const gm_call *call, struct gm_dnn **dnn, gm_tensor **t, gm_dnn_convolution *p)
{
    *dnn = NULL;
    if (!gm_dtype_is_narrow(call->in[0]->dtype)) return GM_OK; /* without asking for the library */
    GM_TRY(gm_dnn_enter(dev, dnn));
    if (!(*dnn)->there || !read_problem(*dnn, call, t, p) || !gm_dnn_takes_convolution(p, NULL)) *dnn = NULL;
    return GM_OK;
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
    struct gm_dnn     *dnn;
    gm_dnn_convolution p;
    gm_tensor         *t[3];
    *served = false;
    GM_TRY(take(dev, call, &dnn, t, &p));
    if (!dnn) return GM_OK;
    return run(dev, dnn, &p, gm_tensor_data(t[0]), gm_tensor_data(t[1]), gm_tensor_data(t[2]), served);
}

gm_status gm_dnn_takes_problem(gm_device *dev, gm_dnn_convolution *p, bool *takes)
{
    struct gm_dnn *dnn;
    GM_TRY(gm_dnn_enter(dev, &dnn));
    p->arch = dnn->arch;
    *takes = dnn->there && gm_dnn_takes_convolution(p, NULL);
    return GM_OK;
}

gm_status gm_dnn_convolve_problem(gm_device *dev, const gm_dnn_convolution *p, void *const *data, bool *served)
{
    struct gm_dnn *dnn;
    GM_TRY(gm_dnn_enter(dev, &dnn));
    return run(dev, dnn, p, data[0], data[1], data[2], served);
}

gm_status gm_dnn_problem_of(gm_device *dev, const gm_call *call, gm_dnn_convolution *p, gm_tensor **t, bool *takes)
{
    struct gm_dnn *dnn;
    GM_TRY(take(dev, call, &dnn, t, p));
    *takes = dnn != NULL;
    return GM_OK;
}
