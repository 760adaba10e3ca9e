/* few_bits.c - weights of 8 or 4 bits (few_bits.cu). More rows of x than the kernel of the product has sums for are a
 * product of the numbers, which exist as a whole while it runs. */
#include "../../../few_bits.h"
#include "../../runtime/cuda.h"
#include "few_bits_args.h"

static gm_few_bits_args args_of(const gm_call *call, const gm_tensor *codes, int64_t columns)
{
    return (gm_few_bits_args){.codes = gm_tensor_data(codes),
                              .step = codes->stride[0],
                              .rows = codes->shape[0],
                              .columns = columns,
                              .bits = call->attrs->bits,
                              .group = call->attrs->group,
                              .part = call->attrs->part,
                              .function = (int32_t)call->attrs->function,
                              .op = call->op};
}

gm_status cuda_quantize(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *w = call->in[0];
    gm_few_bits_args a = args_of(call, call->out[0], w->shape[1]);
    a.x = gm_rows_last(w);
    int64_t blocks = a.rows * gm_few_blocks(a.group, a.columns);
    if (!blocks) return GM_OK;
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_few_encode", w->dtype), gm_cuda_over(dev, blocks, 1, 128), a);
}

gm_status cuda_dequantize(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *y = call->out[0], *index = call->in[1];
    gm_few_bits_args a = args_of(call, call->in[0], call->attrs->columns);
    a.y = gm_rows_last(y);
    a.index = gm_rows_of(index, -1);
    a.narrow = index && index->dtype == GM_I32;
    a.count = a.columns ? gm_tensor_numel(y) / a.columns : 0;
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    if (!a.count) return GM_OK;
    gm_cuda_grid grid = gm_rows_grid(a.count, a.columns, y->dtype, 1, &a.team);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_few_decode", y->dtype), grid, a);
}

static gm_status by_numbers(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *w = NULL, *from[2] = {call->in[1], NULL}, *in[3] = {x, NULL, NULL};
    gm_attrs   a = *call->attrs;
    int64_t    shape[2] = {call->in[1]->shape[0], x->shape[x->ndim - 1]};
    a.columns = shape[1];
    GM_TRY(gm_tensor_new(dev, x->dtype, 2, shape, &w));
    in[1] = w;
    in[2] = call->n_in > 2 ? call->in[2] : NULL;
    gm_status st = cuda_dequantize(dev, &(gm_call){GM_OP_dequantize, 2, 1, from, &w, &a});
    if (st == GM_OK) st = cuda_linear(dev, &(gm_call){GM_OP_linear, 3, call->n_out, in, call->out, &a});
    gm_tensor_release(w);
    return st;
}

gm_status cuda_linear_quantized(gm_device *dev, const gm_call *call)
{
    char       name[GM_CUDA_NAME];
    gm_tensor *x = call->in[0], *codes = call->in[1];
    int64_t    rows = gm_rows_count(x, x->ndim - 1);
    if (rows > GM_FEW_BITS_ROWS) return by_numbers(dev, call);
    gm_few_bits_args a = args_of(call, codes, x->shape[x->ndim - 1]);
    if (!rows || !a.rows) return GM_OK;
    a.x = gm_rows_last(x);
    a.y = gm_rows_last(call->out[0]);
    if (call->n_out > 1 && call->out[1]) a.pre = gm_rows_last(call->out[1]);
    if (call->n_in > 2 && call->in[2]) a.bias = gm_rows_single(call->in[2]);
    a.count = rows;
    gm_cuda_grid grid = gm_rows_grid(a.rows, 1, x->dtype, 1, &a.team);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_few_product", x->dtype), grid, a);
}
