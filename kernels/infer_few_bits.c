/* infer_few_bits.c - inference rules (infer.h) of weights of few bits (few_bits.h). */
#include <inttypes.h>

#include "few_bits.h"
#include "infer.h"

static gm_status expect_kind(const gm_call *call)
{
    const char *op = gm_op_called(call->op, call->attrs);
    int64_t     bits = call->attrs->bits, group = call->attrs->group;
    if (bits != 8 && bits != 4) return GM_FAIL(GM_EINVAL, "%s: bits is %" PRId64 ", should be 8 or 4", op, bits);
    if (group < GM_FEW_UNIT || group % GM_FEW_UNIT || group > 1 << 20)
        return GM_FAIL(GM_EINVAL, "%s: group is %" PRId64 ", should be a multiple of %d, up to %d", op, group,
                       GM_FEW_UNIT, 1 << 20);
    return GM_OK;
}

/* codes (n, bytes of a row of `columns`) */
static gm_status expect_codes(const gm_call *call, const gm_tensor *codes, int64_t columns)
{
    const char *op = gm_op_called(call->op, call->attrs);
    GM_TRY(expect_kind(call));
    int64_t bytes = gm_few_row_bytes(call->attrs->bits, call->attrs->group, columns);
    if (codes->ndim == 2 && codes->shape[1] == bytes && (bytes < 2 || codes->stride[1] == 1)) return GM_OK;
    if (codes->ndim == 2 && codes->shape[1] == bytes)
        return GM_FAIL(GM_ESHAPE, "%s: the bytes of a row of codes must lie side by side: contiguous() makes it so",
                       op);
    return GM_FAIL(GM_ESHAPE,
                   "%s: codes are %s; rows of %" PRId64 " numbers of %" PRId64 " bits in groups of %" PRId64
                   " have %" PRId64 " bytes",
                   op, GM_SHOW(codes), columns, call->attrs->bits, call->attrs->group, bytes);
}

/* w (n, k) -> codes (n, bytes) */
gm_status gm_infer_quantize(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *w = call->in[0];
    GM_TRY(expect_kind(call));
    if (w->ndim != 2) return GM_FAIL(GM_ESHAPE, "quantize: w is %s, should be a matrix", GM_SHOW(w));
    int64_t bytes = gm_few_row_bytes(call->attrs->bits, call->attrs->group, w->shape[1]);
    spec[0] = gm_spec_of(GM_U8, 2, (int64_t[]){w->shape[0], bytes});
    return GM_OK;
}

/* codes (n, bytes) -> w (n, columns), or with index its rows: index.shape + (columns) */
gm_status gm_infer_dequantize(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *codes = call->in[0], *index = call->in[1];
    gm_dtype         dtype = call->attrs->dtype == GM_DTYPE_NONE ? GM_F32 : call->attrs->dtype;
    if (call->attrs->columns < 0)
        return GM_FAIL(GM_EINVAL, "dequantize: columns is %" PRId64 ", should not be negative", call->attrs->columns);
    GM_TRY(expect_codes(call, codes, call->attrs->columns));
    if (!gm_dtype_is_float(dtype))
        return GM_FAIL(GM_EINVAL, "dequantize: numbers are floats, not %s", gm_dtype_name(dtype));
    if (index && index->ndim == GM_MAX_DIMS)
        return GM_FAIL(GM_ESHAPE, "dequantize: index %s has too many dimensions", GM_SHOW(index));
    spec[0] = index ? gm_spec_of(dtype, index->ndim, index->shape) : gm_spec_of(dtype, 1, codes->shape);
    spec[0].shape[spec[0].ndim++] = call->attrs->columns;
    return GM_OK;
}

/* x (..., in), codes (out, bytes), b (out) -> y, pre (..., out) */
gm_status gm_infer_linear_quantized(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *codes = call->in[1];
    gm_function      f = call->attrs->function;
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    GM_TRY(expect_codes(call, codes, x->shape[x->ndim - 1]));
    if (f != GM_FN_none && !gm_function_is_activation(f))
        return GM_FAIL(GM_EINVAL, "linear_quantized: the function is no activation of a product");
    GM_TRY(gm_expect_shape(call, "b", call->in[2], 1, codes->shape));
    spec[0] = gm_spec_like(x);
    spec[0].shape[x->ndim - 1] = codes->shape[0];
    spec[1] = spec[0];
    return GM_OK;
}
