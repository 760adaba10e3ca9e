/* few_bits.c - weights of 8 or 4 bits (few_bits.h), number by number. */
#include <inttypes.h>

#include "../dtype.h"
#include "../few_bits.h"
#include "loops.h"

/* Block b of row r. Codes are contiguous in a row. */
static uint8_t *block_at(const gm_tensor *codes, const gm_attrs *at, int64_t r, int64_t b)
{
    return (uint8_t *)gm_tensor_data(codes) + r * codes->stride[0] + b * gm_few_block_bytes(at->bits, at->group);
}

static double number_at(const gm_tensor *codes, const gm_attrs *at, int64_t r, int64_t i)
{
    const uint8_t *block = block_at(codes, at, r, i / at->group);
    return (double)gm_f16_to_f32(gm_few_scale(block)) * gm_few_code(at->bits, block, i % at->group);
}

gm_status gm_ref_quantize(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *w = call->in[0], *codes = call->out[0];
    const gm_attrs  *at = call->attrs;
    int64_t          columns = w->shape[1];
    double          *room;
    GM_TRY(ref_scratch(at->group, &room));
    float *x = (float *)room;
    for (int64_t r = 0; r < w->shape[0]; r++)
        for (int64_t i = 0; i < columns; i += at->group) {
            int64_t n = columns - i < at->group ? columns - i : at->group;
            for (int64_t j = 0; j < n; j++) x[j] = (float)ref_get(w, r * columns + i + j);
            uint8_t *block = block_at(codes, at, r, i / at->group);
            GM_FEW_ENCODE(gm_f32_to_f16, at->bits, at->group, x, n, 1, block);
        }
    free(room);
    return GM_OK;
}

gm_status gm_ref_dequantize(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *codes = call->in[0], *index = call->in[1], *w = call->out[0];
    int64_t          columns = call->attrs->columns;
    for (int64_t i = 0, n = gm_tensor_numel(w); i < n; i++) {
        int64_t r = index ? (int64_t)ref_get(index, i / columns) : i / columns;
        bool    there = r >= 0 && r < codes->shape[0];
        if (!there && !call->attrs->part)
            return GM_FAIL(GM_EINVAL, "dequantize: index %" PRId64 " is outside a table of %" PRId64 " rows", r,
                           codes->shape[0]);
        ref_set(w, i, there ? number_at(codes, call->attrs, r, i % columns) : 0);
    }
    return GM_OK;
}

gm_status gm_ref_linear_quantized(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *codes = call->in[1], *b = call->in[2], *y = call->out[0], *pre = call->out[1];
    int64_t          outputs = codes->shape[0], inputs = x->shape[x->ndim - 1];
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++) {
        int64_t o = i % outputs;
        double  sum = b ? ref_get(b, o) : 0;
        for (int64_t k = 0; k < inputs; k++)
            sum += ref_get(x, i / outputs * inputs + k) * number_at(codes, call->attrs, o, k);
        if (pre) ref_set(pre, i, sum);
        ref_set(y, i, ref_unary(call->attrs->function, sum, 0));
    }
    return GM_OK;
}
