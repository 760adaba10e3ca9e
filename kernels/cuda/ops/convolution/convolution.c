/* convolution.c - convolutions of 1, 2 and 3 dimensions: by cuDNN where it takes them (dnn.h), or takes them on other
 * tensors (turned.h, folded.h, widened.h), else by the kernels of convolution.cu. What follows a product of cuDNN, the
 * bias and the activation, is a kernel of ours; the product is rounded to 16 bits before. */
#include "convolution.h"

#include "../../dnn/dnn.h"
#include "folded.h"
#include "turned.h"
#include "widened.h"

gm_convolution_view gm_convolution_view_of(const gm_tensor *t)
{
    gm_convolution_view v = {.data = t ? gm_tensor_data(t) : NULL};
    int                 lack = t ? 5 - t->ndim : 0;
    for (int d = 0; t && d < 5; d++) {
        int from = d < 2 ? d : d - lack;
        v.size[d] = from >= 2 || d < 2 ? t->shape[from] : 1;
        v.stride[d] = from >= 2 || d < 2 ? t->stride[from] : 0;
    }
    return v;
}

static gm_convolution_args arguments(const gm_attrs *at, const gm_tensor *x, const gm_tensor *w, const gm_tensor *y,
                                     const gm_tensor *b)
{
    int                 lack = 5 - x->ndim;
    gm_convolution_args a = {.x = gm_convolution_view_of(x),
                             .w = gm_convolution_view_of(w),
                             .y = gm_convolution_view_of(y),
                             .b = b ? gm_tensor_data(b) : NULL,
                             .b_stride = b ? b->stride[0] : 0,
                             .of_group = w->shape[0] / at->groups,
                             .function = (int32_t)at->function,
                             .accumulate = at->accumulate};
    for (int d = 0; d < 3; d++) {
        a.stride[d] = d < lack ? 1 : (int32_t)at->stride.at[d - lack];
        a.dilation[d] = d < lack ? 1 : (int32_t)at->dilation.at[d - lack];
        a.low[d] = d < lack ? 0 : (int32_t)at->pad_low.at[d - lack];
    }
    return a;
}

static void say_slow(gm_device *dev)
{
    gm_device_note(dev,
                   "some convolutions run on our own kernels, many times slower than cuDNN's, which takes those of 16 "
                   "bits over 1 or 2 dimensions, but no depthwise ones, and groups of multiples of 8 channels alone");
}

/* The product by cuDNN. */
static gm_status multiply(gm_device *dev, const gm_call *call, bool *served)
{
    GM_TRY(gm_convolve_turned(dev, call, served));
    if (!*served) GM_TRY(gm_dnn_convolve_call(dev, call, served));
    if (!*served) GM_TRY(gm_convolve_folded(dev, call, served));
    return *served ? GM_OK : gm_convolve_widened(dev, call, served);
}

/* The product, then bias and activation. */
static gm_status by_library(gm_device *dev, const gm_call *call, const gm_convolution_args *a, bool *served)
{
    char name[GM_CUDA_NAME];
    GM_TRY(multiply(dev, call, served));
    if (!*served || (!a->b && !a->pre.data && !a->function)) return GM_OK;
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_convolution_finish", call->out[0]->dtype),
                     gm_cuda_over(dev, a->n, 1, 256), *a);
}

static gm_status each_result(gm_device *dev, const gm_call *call, const char *kernel)
{
    char                name[GM_CUDA_NAME];
    const gm_tensor    *x = call->in[0], *y = call->out[0];
    gm_convolution_args a = arguments(call->attrs, x, call->in[1], y, call->in[2]);
    bool                served = false;
    a.pre = gm_convolution_view_of(call->out[1]);
    a.n = gm_tensor_numel(y);
    if (a.n) GM_TRY(by_library(dev, call, &a, &served));
    if (served) return GM_OK;
    say_slow(dev);
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), gm_cuda_over(dev, a.n, 1, 256), a);
}

gm_status cuda_convolution(gm_device *dev, const gm_call *call) { return each_result(dev, call, "gm_convolution"); }

gm_status cuda_transposed_convolution(gm_device *dev, const gm_call *call)
{
    return each_result(dev, call, "gm_transposed_convolution");
}

gm_status cuda_convolution_weight_grad(gm_device *dev, const gm_call *call)
{
    char                name[GM_CUDA_NAME];
    const gm_tensor    *g = call->in[0], *dw = call->out[0], *db = call->out[1];
    gm_convolution_args a = arguments(call->attrs, call->in[1], dw, g, db);
    gm_cuda_grid grid = {.x = gm_tensor_numel(dw), .block = GM_CONVOLUTION_THREADS, .shared = 32 * sizeof(double)};
    bool         served = false;
    GM_TRY(multiply(dev, call, &served));
    if (!served) {
        say_slow(dev);
        GM_TRY(GM_LAUNCH(dev, gm_cuda_name(name, "gm_convolution_weight_grad", g->dtype), grid, a));
    }
    grid.x = g->shape[1];
    if (!db) return GM_OK;
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_convolution_bias_grad", g->dtype), grid, a);
}
