/* infer_float8.c - inference rules (infer.h) of floats of 8 bits (float8.h). */
#include <inttypes.h>

#include "float8.h"
#include "infer.h"

static gm_status expect_format(const gm_call *call)
{
    if (call->attrs->format >= 0 && call->attrs->format < GM_FLOAT8_FORMATS) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: format is %" PRId64 ", should be 0 (e4m3) or 1 (e5m2)",
                   gm_op_called(call->op, call->attrs), call->attrs->format);
}

/* x -> scale () */
gm_status gm_infer_float8_scale(const gm_call *call, gm_spec *spec)
{
    spec[0] = gm_spec_of(call->in[0]->dtype, 0, NULL);
    return expect_format(call);
}

/* x (..., k), scale () -> codes (..., k), turned (k, ...), needed () */
gm_status gm_infer_float8_encode(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_format(call));
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    GM_TRY(gm_expect_shape(call, "scale", call->in[1], 0, NULL));
    spec[0] = gm_spec_of(GM_U8, x->ndim, x->shape);
    spec[1] = gm_spec_of(GM_U8, 1, x->shape + x->ndim - 1);
    for (int d = 0; d < x->ndim - 1; d++) spec[1].shape[spec[1].ndim++] = x->shape[d];
    spec[2] = gm_spec_of(gm_dtype_wide(x->dtype), 0, NULL);
    return GM_OK;
}

/* Checks all of a product but its scales; its result. */
static gm_status expect_product(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *a = call->in[0], *b = call->in[1], *bias = call->in[4];
    const char      *name = gm_op_called(call->op, call->attrs);
    gm_dtype         dtype = call->attrs->dtype == GM_DTYPE_NONE ? GM_F32 : call->attrs->dtype;
    GM_TRY(expect_format(call));
    GM_TRY(gm_expect_ndim(call, "a_codes", a, 1));
    int64_t k = a->shape[a->ndim - 1];
    if (b->ndim != 2 || b->shape[1] != k)
        return GM_FAIL(GM_ESHAPE, "%s: b_codes are %s, should be rows of %" PRId64 " beside a_codes %s", name,
                       GM_SHOW(b), k, GM_SHOW(a));
    GM_TRY(gm_expect_shape(call, "bias", bias, 1, b->shape));
    if (!gm_dtype_is_float(dtype))
        return GM_FAIL(GM_EINVAL, "%s: results are floats, not %s", name, gm_dtype_name(dtype));
    if (bias && call->attrs->accumulate)
        return GM_FAIL(GM_EINVAL, "%s: no bias is added where results are added to others", name);
    if (bias && bias->dtype != dtype)
        return GM_FAIL(GM_ESHAPE, "%s: bias is %s, the result %s: write bias:to(\"%s\")", name,
                       gm_dtype_name(bias->dtype), gm_dtype_name(dtype), gm_dtype_name(dtype));
    if (call->in[2]->dtype != gm_dtype_wide(dtype) || call->in[3]->dtype != gm_dtype_wide(dtype))
        return GM_FAIL(GM_ESHAPE, "%s: scales are %s and %s, should be %s beside results of %s", name,
                       gm_dtype_name(call->in[2]->dtype), gm_dtype_name(call->in[3]->dtype),
                       gm_dtype_name(gm_dtype_wide(dtype)), gm_dtype_name(dtype));
    spec[0] = gm_spec_of(dtype, a->ndim, a->shape);
    spec[0].shape[a->ndim - 1] = b->shape[0];
    return GM_OK;
}

/* a (..., k), b (n, k), scales (), bias (n) -> y (..., n) */
gm_status gm_infer_float8_product(const gm_call *call, gm_spec *spec)
{
    for (int i = 2; i < 4; i++) GM_TRY(gm_expect_shape(call, i == 2 ? "a_scale" : "b_scale", call->in[i], 0, NULL));
    return expect_product(call, spec);
}

/* ---- blocks ---- */

/* Scales of rows of t (..., k): (k / 128, ...), rounded up. */
static gm_spec scales_of_rows(const gm_tensor *t, gm_dtype dtype)
{
    int     last = t->ndim - 1;
    gm_spec s = gm_spec_of(dtype, 1, (int64_t[]){gm_float8_blocks(t->shape[last])});
    for (int d = 0; d < last; d++) s.shape[s.ndim++] = t->shape[d];
    return s;
}

static gm_spec scales_of(int64_t rows, int64_t columns, gm_dtype dtype)
{
    return gm_spec_of(dtype, 2, (int64_t[]){rows, columns});
}

static int64_t rows_of(const gm_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim - 1; d++) n *= t->shape[d];
    return n;
}

/* x (..., k) of m rows -> codes (..., k), scales, turned (k, ...), turned_scales: ops.def */
gm_status gm_infer_float8_block_encode(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_format(call));
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    gm_dtype wide = gm_dtype_wide(x->dtype);
    int64_t  k = x->shape[x->ndim - 1], across = gm_float8_blocks(k), down = gm_float8_blocks(rows_of(x));
    spec[0] = gm_spec_of(GM_U8, x->ndim, x->shape);
    spec[1] = call->attrs->square ? scales_of(down, across, wide) : scales_of_rows(x, wide);
    spec[2] = scales_of_rows(x, GM_U8);
    spec[2].shape[0] = k;
    spec[3] = call->attrs->square ? scales_of(across, down, wide) : scales_of(down, k, wide);
    return GM_OK;
}

/* a (..., k), b (n, k), scales of a's rows, scales of b's rows or squares, bias (n) -> y (..., n) */
gm_status gm_infer_float8_block_product(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *a = call->in[0], *b = call->in[1];
    GM_TRY(expect_product(call, spec));
    gm_dtype wide = gm_dtype_wide(spec[0].dtype);
    gm_spec  of_a = scales_of_rows(a, wide), of_b = scales_of_rows(b, wide);
    if (call->attrs->square) of_b = scales_of(gm_float8_blocks(b->shape[0]), gm_float8_blocks(b->shape[1]), wide);
    GM_TRY(gm_expect_spec(call, "a_scales", call->in[2], &of_a));
    return gm_expect_spec(call, "b_scales", call->in[3], &of_b);
}
