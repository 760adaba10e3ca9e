/* product.c - products of floats of 8 bits, with one scale for each factor or with scales of blocks.
 *
 * cuBLASLt multiplies codes on GPUs that have such tensor cores (Ada, Hopper and later), where rows are multiples of 16
 * bytes. Elsewhere codes become numbers of bf16 first, which hold them exactly, so results differ only by the order of
 * sums. Its sums of products of 8 bits are not the fast ones that round on the way
 * (CUBLASLT_MATMUL_DESC_FAST_ACCUM stays 0).
 *
 * Scales of blocks: NVIDIA's documentation of cuBLAS (13.0, "128-element 1D and 128x128 2D Block Scaling For FP8 Data
 * Types") has them for Hopper, from cuBLAS 12.9 on. Scales are f32 and begin at multiples of 16 bytes. A factor of rows
 * (VEC128_32F) has them in the order (blocks, rows), one of squares (BLK128x128_32F) in the order (row blocks, blocks),
 * where rows of scales begin at multiples of 4 numbers. Not both factors may have squares. Rows of both factors are
 * multiples of 4, results f32, bf16 or f16. Other GPUs are refused. On Hopper sizes that cuBLASLt does not take become
 * numbers of bf16 as above. */
#include <stdio.h>

#include "../../../float8.h"
#include "../../products/product.h"
#include "../../runtime/driver.h"
#include "dense.h"
#include "float8_args.h"

/* a, b: dense codes; scale: theirs, dense; y: dense. */
typedef struct product {
    const gm_call *call;
    gm_tensor     *a, *b, *scale[2], *bias, *y;
    int64_t        m, n, k;
    int32_t        scaling; /* GM_SCALES_*: of b; of blocks, a has scales of rows */
} product;

/* scale: those of b, as cuBLASLt reads them. */
static gm_status by_codes(gm_device *dev, const product *p, const gm_tensor *scale, bool *served)
{
    gm_gemm_args g = {.a = gm_tensor_data(p->a),
                      .b = gm_tensor_data(p->b),
                      .y = gm_tensor_data(p->y),
                      .bias = p->bias ? gm_tensor_data(p->bias) : NULL,
                      .bias_n = 1,
                      .m = p->m,
                      .n = p->n,
                      .k = p->k,
                      .a_m = p->k,
                      .a_k = 1,
                      .b_n = p->k,
                      .b_k = 1,
                      .y_m = p->n,
                      .y_n = 1,
                      .alpha = 1,
                      .accumulate = p->call->attrs->accumulate,
                      .format = (int32_t)p->call->attrs->format,
                      .scaling = p->scaling,
                      .scale = {gm_tensor_data(p->scale[0]), gm_tensor_data(scale)}};
    return gm_product_try(dev, &(gm_product){g, GM_U8, p->y->dtype, NULL}, served);
}

/* *out (rows, k): the numbers of codes. Scales have the type of arithmetic of the dtype. */
static gm_status numbers(gm_device *dev, gm_tensor *codes, int64_t rows, int64_t k, gm_tensor *scale, int32_t scaling,
                         int64_t format, gm_dtype dtype, gm_tensor **out)
{
    char           name[GM_CUDA_NAME];
    const bool     square = scaling == GM_SCALES_SQUARE;
    gm_float8_args a = {.rows = rows,
                        .k = k,
                        .codes = gm_tensor_data(codes),
                        .scale = gm_tensor_data(scale),
                        .group = square ? GM_FLOAT8_BLOCK : 1,
                        .row = square ? gm_float8_blocks(k) : 1,
                        .block = scaling == GM_SCALES_ONE ? 0
                                 : square                 ? 1
                                                          : rows,
                        .format = (int32_t)format};
    GM_TRY(gm_tensor_new(dev, dtype, 2, (int64_t[]){rows, k}, out));
    a.y = gm_tensor_data(*out);
    if (!rows || !k) return GM_OK;
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_float8_decode", dtype), gm_cuda_over(dev, rows * k, 4, 256), a);
}

/* Results of f32 without a bias come from numbers of bf16, too: matmul has them. */
static gm_status by_numbers(gm_device *dev, const product *p)
{
    gm_dtype   to = p->y->dtype, dtype = to == GM_F32 && !p->bias ? GM_BF16 : to == GM_F16 ? GM_F32 : to;
    gm_tensor *in[3] = {NULL, NULL, p->bias}, *y = NULL, *wide = NULL, *bias = NULL;
    gm_attrs   a = gm_attrs_default();
    int32_t    of_a = p->scaling == GM_SCALES_ONE ? GM_SCALES_ONE : GM_SCALES_ROWS;
    gm_status  st;
    GM_TRY_OR(gm_tensor_view(p->y, 2, (int64_t[]){p->m, p->n}, (int64_t[]){p->n, 1}, p->y->offset, &y), st, done);
    GM_TRY_OR(numbers(dev, p->a, p->m, p->k, p->scale[0], of_a, p->call->attrs->format, dtype, &in[0]), st, done);
    GM_TRY_OR(numbers(dev, p->b, p->n, p->k, p->scale[1], p->scaling, GM_FLOAT8_E4M3, dtype, &in[1]), st, done);
    if (to == GM_F16) { /* numbers of 8 bits are too large for f16 */
        GM_TRY_OR(gm_tensor_new(dev, GM_F32, 2, y->shape, &wide), st, done);
        if (p->bias) {
            GM_TRY_OR(gm_tensor_new(dev, GM_F32, 1, p->bias->shape, &bias), st, done);
            a.dtype = GM_F32;
            GM_TRY_OR(cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, (gm_tensor *[]){p->bias}, &bias, &a}), st, done);
            in[2] = bias;
        }
        if (p->call->attrs->accumulate)
            GM_TRY_OR(cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &y, &wide, &a}), st, done);
    }
    a = gm_attrs_default();
    a.accumulate = p->call->attrs->accumulate;
    a.transpose_b = true;
    a.dtype = to;
    gm_tensor *out[2] = {wide ? wide : y, NULL};
    st = p->bias ? cuda_linear(dev, &(gm_call){GM_OP_linear, 3, 2, in, out, &a})
                 : cuda_matmul(dev, &(gm_call){GM_OP_matmul, 2, 1, in, out, &a});
    if (st == GM_OK && wide) st = cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &wide, &y, &a});
done:
    for (int i = 0; i < 2; i++) gm_tensor_release(in[i]);
    gm_tensor_release(bias);
    gm_tensor_release(wide);
    gm_tensor_release(y);
    return st;
}

/* *out: scales (rows, blocks) of squares, each row of which begins at a multiple of 4 numbers; zeros between. */
static gm_status spread(gm_device *dev, gm_tensor *scales, gm_tensor **out)
{
    int64_t    shape[2] = {scales->shape[0], (scales->shape[1] + 3) / 4 * 4};
    gm_tensor *inside = NULL;
    gm_attrs   a = gm_attrs_default();
    GM_TRY(gm_tensor_new(dev, scales->dtype, 2, shape, out));
    GM_TRY(gm_cuda_fill(dev, gm_tensor_data(*out), 0, (size_t)gm_tensor_numel(*out) * gm_dtype_size(scales->dtype)));
    GM_TRY(gm_tensor_view(*out, 2, scales->shape, (int64_t[]){shape[1], 1}, (*out)->offset, &inside));
    gm_status st = cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &scales, &inside, &a});
    gm_tensor_release(inside);
    return st;
}

/* Said once for each size. */
static void note_numbers(gm_device *dev, const product *p)
{
    char text[320];
    snprintf(
        text, sizeof text,
        "cuBLASLt takes no floats of 8 bits with scales of blocks of (%lld, %lld) and (%lld, %lld) to %s: the same "
        "numbers are multiplied in 16 bits or more, slower (it makes results of 16 bits, or of f32 without a bias, of "
        "sizes that are multiples of 16)",
        (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n, gm_dtype_name(p->y->dtype));
    gm_device_note(dev, text);
}

static gm_status try_codes(gm_device *dev, const product *p, bool *served)
{
    gm_tensor *wide = NULL;
    gm_status  st = GM_OK;
    if (p->scaling == GM_SCALES_SQUARE && p->scale[1]->shape[1] % 4) st = spread(dev, p->scale[1], &wide);
    if (st == GM_OK) st = by_codes(dev, p, wide ? wide : p->scale[1], served);
    gm_tensor_release(wide);
    return st;
}

static gm_status multiply(gm_device *dev, const gm_call *call, int32_t scaling)
{
    gm_tensor *to = call->out[0];
    product    p = {.call = call, .n = call->in[1]->shape[0], .k = call->in[1]->shape[1], .scaling = scaling};
    bool       served = false;
    gm_attrs   a = gm_attrs_default();
    gm_status  st;
    GM_TRY_OR(gm_dense(dev, call->in[0], &p.a), st, done);
    GM_TRY_OR(gm_dense(dev, call->in[1], &p.b), st, done);
    for (int i = 0; i < 2; i++) GM_TRY_OR(gm_dense(dev, call->in[2 + i], &p.scale[i]), st, done);
    GM_TRY_OR(gm_dense(dev, call->in[4], &p.bias), st, done);
    GM_TRY_OR(gm_dense_like(dev, to, &p.y), st, done);
    if (p.y != to && call->attrs->accumulate)
        GM_TRY_OR(cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &to, &p.y, &a}), st, done);
    p.m = p.n ? gm_tensor_numel(to) / p.n : 0;
    if (!p.m || !p.n) goto done;
    if (to->dtype != GM_F64 && p.k) GM_TRY_OR(try_codes(dev, &p, &served), st, done);
    if (!served && scaling != GM_SCALES_ONE) note_numbers(dev, &p);
    if (!served) st = by_numbers(dev, &p);
done:
    gm_tensor_release(p.a);
    gm_tensor_release(p.b);
    for (int i = 0; i < 2; i++) gm_tensor_release(p.scale[i]);
    gm_tensor_release(p.bias);
    return gm_dense_home(dev, p.y, to, st);
}

gm_status cuda_float8_product(gm_device *dev, const gm_call *call) { return multiply(dev, call, GM_SCALES_ONE); }

/* ---- scales of blocks ---- */

static gm_status expect_blocks(gm_device *dev)
{
    const gm_cuda *cu = gm_cuda_of(dev);
    int            major, minor;
    GM_CU(cu->driver, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu->device));
    GM_CU(cu->driver, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu->device));
    if (major == 9 && minor == 0) return GM_OK;
    return GM_FAIL(
        GM_EINVAL,
        "float8_block_product: cuBLASLt multiplies floats of 8 bits with scales of blocks on GPUs of compute "
        "capability 9.0 alone (H100, H200), and this one has %d.%d: use scaling = \"current\" or \"delayed\", "
        "or no float8",
        major, minor);
}

gm_status cuda_float8_block_product(gm_device *dev, const gm_call *call)
{
    GM_TRY(expect_blocks(dev));
    return multiply(dev, call, call->attrs->square ? GM_SCALES_SQUARE : GM_SCALES_ROWS);
}
