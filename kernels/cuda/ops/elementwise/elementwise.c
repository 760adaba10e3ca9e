/* elementwise.c - axpy, affine, unary, unary_grad, binary, compare and where. Each is one launch: of the kernel for
 * items of 16 bytes if strides and addresses allow them, else of the kernel for single elements (map.h). */
#include <stdio.h>
#include "../../common/map.h"

/* `base`_<dtype> for items, `any`_any_<dtype> for elements. operand[0] is the output; t is the dtype of arithmetic. */
static gm_status launch(gm_device *dev, const char *base, const char *any, gm_dtype t, int operands,
                        const gm_tensor *const *operand, gm_map_args *a)
{
    char        name[GM_CUDA_NAME], whole[GM_CUDA_NAME];
    const void *address[GM_MAP_OPERANDS];
    size_t      size[GM_MAP_OPERANDS];
    gm_map_tensors(&a->map, operands, operand);
    for (int o = 0; o < operands; o++) {
        address[o] = gm_tensor_data(operand[o]);
        size[o] = gm_dtype_size(operand[o]->dtype);
        if (o > 0) a->in[o - 1] = address[o];
    }
    a->out = gm_tensor_data(operand[0]);
    snprintf(whole, sizeof whole, "%s_any", any);
    bool items = gm_map_vectors(&a->map, operands, (int)(16 / gm_dtype_size(t)), address, size);
    gm_cuda_name(name, items ? base : whole, t);
    return GM_LAUNCH(dev, name, gm_map_grid(dev, &a->map), *a);
}

gm_status cuda_axpy(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0];
    gm_map_args      a = {.alpha = call->attrs->alpha};
    return launch(dev, "gm_axpy", "gm_axpy", y->dtype, 3, (const gm_tensor *[]){y, x, y}, &a);
}

gm_status cuda_affine(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0];
    gm_map_args      a = {.alpha = call->attrs->alpha, .beta = call->attrs->beta};
    return launch(dev, "gm_affine", "gm_affine", y->dtype, 2, (const gm_tensor *[]){y, x}, &a);
}

/* Functions that have a kernel each: gm_unary_gelu, ... */
static gm_status launch_function(gm_device *dev, const gm_call *call, const char *op, int operands,
                                 const gm_tensor *const *operand)
{
    char        base[GM_CUDA_NAME];
    gm_map_args a = {.alpha = call->attrs->value, .function = (int32_t)call->attrs->function};
    if (call->attrs->function == GM_FN_clamp) {
        a.alpha = call->attrs->low;
        a.beta = call->attrs->high;
    }
    snprintf(base, sizeof base, "%s_%s", op, gm_function_name(call->attrs->function));
    return launch(dev, base, op, operand[0]->dtype, operands, operand, &a);
}

gm_status cuda_unary(gm_device *dev, const gm_call *call)
{
    return launch_function(dev, call, "gm_unary", 2, (const gm_tensor *[]){call->out[0], call->in[0]});
}

gm_status cuda_unary_grad(gm_device *dev, const gm_call *call)
{
    return launch_function(dev, call, "gm_unary_grad", 3,
                           (const gm_tensor *[]){call->out[0], call->in[0], call->in[1]});
}

gm_status cuda_binary(gm_device *dev, const gm_call *call)
{
    return launch_function(dev, call, "gm_binary", 3, (const gm_tensor *[]){call->out[0], call->in[0], call->in[1]});
}

gm_status cuda_compare(gm_device *dev, const gm_call *call)
{
    gm_map_args a = {.function = (int32_t)call->attrs->function};
    return launch(dev, "gm_compare", "gm_compare", call->in[0]->dtype, 3,
                  (const gm_tensor *[]){call->out[0], call->in[0], call->in[1]}, &a);
}

gm_status cuda_where(gm_device *dev, const gm_call *call)
{
    gm_map_args a = {0};
    return launch(dev, "gm_where", "gm_where", call->out[0]->dtype, 4,
                  (const gm_tensor *[]){call->out[0], call->in[0], call->in[1], call->in[2]}, &a);
}
