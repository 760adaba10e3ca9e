/* folded.c - see folded.h. */
#include "folded.h"

#include <string.h>

#include "../../../memory.h"
#include "../../dnn/dnn.h"
#include "folded_args.h"
#include "turned.h"

#define FEW  GM_FOLDED_PACK /* channels; from there on cuDNN has good engines */
#define MOST 32             /* channels of a folded tensor; with more, zeros are most of the work */

/* The folded call: the tensors x, w and y of the call (gm_dnn_roles); copies of x and w, between tensor and memory of
 * this call; the problem for cuDNN; and the memory that it is given. */
typedef struct folded {
    const gm_tensor   *given[3];
    gm_folded_args     copy[2];
    gm_dnn_convolution problem;
    void              *data[3];
} folded;

static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

static bool is_taken(const gm_call *call, const gm_tensor *const *t)
{
    const gm_attrs *at = call->attrs;
    int64_t         channels = t[0]->shape[1];
    if (call->op == GM_OP_transposed_convolution || t[0]->ndim != 4 || at->groups != 1 || channels >= FEW) return false;
    if (!gm_dtype_is_narrow(t[2]->dtype) || at->dilation.at[0] != 1 || at->dilation.at[1] != 1) return false;
    if (t[1]->shape[0] % GM_FOLDED_PACK || !gm_tensor_numel(t[2])) return false;
    if (!gm_tensor_is_contiguous(t[2]) || (uintptr_t)gm_tensor_data(t[2]) % 16) return false;
    return up(channels * at->stride.at[0] * at->stride.at[1], GM_FOLDED_PACK) <= MOST;
}

/* The copy between a tensor and its folded form of that many rows and columns, with zeros before what it has. */
static gm_folded_args copy_of(const gm_tensor *t, const gm_attrs *at, int64_t rows, int64_t columns, bool padded)
{
    gm_folded_args a = {.wide = gm_tensor_data(t), .rows = rows, .columns = columns};
    int64_t        channels = up(t->shape[1] * at->stride.at[0] * at->stride.at[1], GM_FOLDED_PACK);
    memcpy(a.size, t->shape, sizeof a.size);
    memcpy(a.stride, t->stride, sizeof a.stride);
    a.packs = (int32_t)(channels / GM_FOLDED_PACK);
    for (int d = 0; d < 2; d++) {
        a.fold[d] = (int32_t)at->stride.at[d];
        a.low[d] = padded ? (int32_t)at->pad_low.at[d] : 0;
    }
    return a;
}

static size_t bytes_of(const gm_folded_args *a)
{
    return (size_t)(a->size[0] * a->rows * a->columns * a->packs * GM_FOLDED_PACK) * 2;
}

static void describe(const gm_call *call, folded *f)
{
    const gm_tensor *x = f->given[0], *w = f->given[1], *y = f->given[2];
    const gm_attrs  *at = call->attrs;
    int64_t          kernel[2];
    memset(&f->problem, 0, sizeof f->problem);
    for (int d = 0; d < 2; d++) {
        kernel[d] = (w->shape[2 + d] + at->stride.at[d] - 1) / at->stride.at[d];
        f->problem.stride[d] = f->problem.dilation[d] = 1;
    }
    f->copy[0] = copy_of(x, at, y->shape[2] + kernel[0] - 1, y->shape[3] + kernel[1] - 1, true);
    f->copy[1] = copy_of(w, at, kernel[0], kernel[1], false);
    for (int i = 0; i < 2; i++) {
        const gm_folded_args *a = &f->copy[i];
        memcpy(i ? f->problem.w : f->problem.x, (int64_t[]){a->size[0], a->packs * GM_FOLDED_PACK, a->rows, a->columns},
               sizeof f->problem.x);
    }
    memcpy(f->problem.y, y->shape, sizeof f->problem.y);
    f->problem.dtype = y->dtype;
    f->problem.side = gm_dnn_roles_of(call->op).side;
    f->problem.long_sum = f->problem.side == GM_DNN_OF_WEIGHT;
    for (int i = 0; i < 3; i++) f->problem.channels_last[i] = 1;
}

static gm_status fold(gm_device *dev, gm_folded_args *a)
{
    a->n = a->size[0] * a->rows * a->columns;
    return GM_LAUNCH(dev, "gm_convolution_fold", gm_cuda_over(dev, a->n, 1, 256), *a);
}

static gm_status compute(gm_device *dev, const gm_call *call, folded *f, bool *served)
{
    char            name[GM_CUDA_NAME];
    gm_folded_args *w = &f->copy[1];
    bool            gradient = f->problem.side == GM_DNN_OF_WEIGHT;
    const int64_t  *y = f->problem.y;
    GM_TRY(fold(dev, &f->copy[0]));
    if (gradient) GM_TRY(gm_turn_planes(dev, gm_tensor_data(f->given[2]), f->data[2], y[0], y[1], y[2] * y[3]));
    else GM_TRY(fold(dev, w));
    GM_TRY(gm_dnn_convolve_problem(dev, &f->problem, f->data, served));
    if (!*served) return GM_OK;
    if (!gradient) return gm_turn_planes(dev, f->data[2], gm_tensor_data(f->given[2]), y[0], y[2] * y[3], y[1]);
    w->n = gm_tensor_numel(f->given[1]);
    w->accumulate = call->attrs->accumulate;
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_convolution_unfold", f->given[1]->dtype),
                     gm_cuda_over(dev, w->n, 1, 256), *w);
}

static size_t rounded(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

/* Of a problem that cuDNN takes. */
static gm_status run(gm_device *dev, const gm_call *call, folded *f, bool *served)
{
    gm_block *block;
    size_t    x = rounded(bytes_of(&f->copy[0])), w = rounded(bytes_of(&f->copy[1]));
    GM_TRY(gm_cuda_scratch(dev, x + w + (size_t)gm_tensor_numel(f->given[2]) * 2, &f->data[0], &block));
    f->data[1] = (char *)f->data[0] + x;
    f->data[2] = (char *)f->data[1] + w;
    for (int i = 0; i < 2; i++) f->copy[i].folded = f->data[i];
    gm_status st = compute(dev, call, f, served);
    gm_pool_release(dev->pool, block);
    return st;
}

gm_status gm_convolve_folded(gm_device *dev, const gm_call *call, bool *served)
{
    folded             f;
    bool               takes;
    const gm_dnn_roles roles = gm_dnn_roles_of(call->op);
    *served = false;
    for (int i = 0; i < 3; i++) f.given[i] = roles.place[i] == GM_DNN_OUT ? call->out[0] : call->in[roles.place[i]];
    if (!is_taken(call, f.given)) return GM_OK;
    describe(call, &f);
    GM_TRY(gm_dnn_takes_problem(dev, &f.problem, &takes));
    return takes ? run(dev, call, &f, served) : GM_OK;
}
