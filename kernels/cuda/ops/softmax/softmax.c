/* softmax.c - softmax, log_softmax and their gradients (softmax.cu). */
#include "../../runtime/cuda.h"
#include "softmax_args.h"

static gm_status launch(gm_device *dev, const gm_call *call, bool grad, bool logarithm)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0];
    int              dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + x->ndim : call->attrs->dim);
    gm_softmax_args  a = {.x = gm_rows_of(x, dim),
                          .g = gm_rows_of(grad ? call->in[1] : NULL, dim),
                          .y = gm_rows_of(call->out[0], dim),
                          .rows = gm_rows_count(x, dim),
                          .width = x->shape[dim],
                          .logarithm = logarithm};
    int              packs = grad ? GM_SOFTMAX_GRAD_PACKS : GM_SOFTMAX_PACKS(gm_dtype_size(x->dtype));
    gm_cuda_grid     grid = gm_rows_grid(a.width ? a.rows : 0, a.width, x->dtype, packs, &a.team);
    bool             even = gm_rows_even(&a.x, a.width, x->dtype) && gm_rows_even(&a.g, a.width, x->dtype) &&
                gm_rows_even(&a.y, a.width, x->dtype);
    const char *kernel = grad   ? even ? "gm_softmax_grad_even" : "gm_softmax_grad"
                         : even ? "gm_softmax_even"
                                : "gm_softmax";
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), grid, a);
}

gm_status cuda_softmax(gm_device *dev, const gm_call *call) { return launch(dev, call, false, false); }

gm_status cuda_log_softmax(gm_device *dev, const gm_call *call) { return launch(dev, call, false, true); }

gm_status cuda_softmax_grad(gm_device *dev, const gm_call *call) { return launch(dev, call, true, false); }

gm_status cuda_log_softmax_grad(gm_device *dev, const gm_call *call) { return launch(dev, call, true, true); }
