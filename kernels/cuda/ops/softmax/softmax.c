/* softmax.c - softmax, log_softmax and their gradients (softmax.cu). */
#include "../../runtime/cuda.h"
#include "softmax_args.h"

static gm_status launch(gm_device *dev, const gm_call *call, const char *kernel, bool grad, bool logarithm)
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
    gm_cuda_grid     grid = gm_rows_grid(a.width ? a.rows : 0, a.width, x->dtype, GM_SOFTMAX_PACKS, &a.team);
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), grid, a);
}

gm_status cuda_softmax(gm_device *dev, const gm_call *call) { return launch(dev, call, "gm_softmax", false, false); }

gm_status cuda_log_softmax(gm_device *dev, const gm_call *call) { return launch(dev, call, "gm_softmax", false, true); }

gm_status cuda_softmax_grad(gm_device *dev, const gm_call *call)
{
    return launch(dev, call, "gm_softmax_grad", true, false);
}

gm_status cuda_log_softmax_grad(gm_device *dev, const gm_call *call)
{
    return launch(dev, call, "gm_softmax_grad", true, true);
}
