/* loss.c - cross_entropy and its gradient (loss.cu). */
#include "../../runtime/cuda.h"
#include "loss_args.h"

/* kernel: its name for any rows; even: for even ones, where a loss is without smoothing. */
static gm_status launch(gm_device *dev, const gm_call *call, const char *kernel, const char *even, gm_loss_args *a)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0], *target = call->in[1];
    a->x = gm_rows_last(x);
    a->target = gm_rows_of(target, -1);
    a->rows = gm_rows_count(x, x->ndim - 1);
    a->width = x->shape[x->ndim - 1];
    a->ignore = call->attrs->ignore_index;
    a->smoothing = call->attrs->label_smoothing;
    a->narrow = target->dtype == GM_I32;
    a->op = (int32_t)call->op;
    GM_TRY(gm_cuda_refusal(dev, &a->refusal));
    gm_cuda_grid grid = gm_rows_grid(a->rows, a->width, x->dtype, GM_LOSS_PACKS, &a->team);
    bool         plain = a->dx.data || !(a->smoothing > 0);
    if (plain && gm_rows_even(&a->x, a->width, x->dtype) && gm_rows_even(&a->dx, a->width, x->dtype)) kernel = even;
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, x->dtype), grid, *a);
}

gm_status cuda_cross_entropy(gm_device *dev, const gm_call *call)
{
    gm_loss_args a = {.loss = gm_rows_of(call->out[0], -1),
                      .largest = gm_rows_of(call->out[1], -1),
                      .sum = gm_rows_of(call->out[2], -1)};
    return launch(dev, call, "gm_cross_entropy", "gm_cross_entropy_even", &a);
}

gm_status cuda_cross_entropy_grad(gm_device *dev, const gm_call *call)
{
    gm_loss_args a = {.largest = gm_rows_of(call->in[2], -1),
                      .sum = gm_rows_of(call->in[3], -1),
                      .g = gm_rows_of(call->in[4], -1),
                      .dx = gm_rows_last(call->out[0])};
    return launch(dev, call, "gm_cross_entropy_grad", "gm_cross_entropy_grad_even", &a);
}
