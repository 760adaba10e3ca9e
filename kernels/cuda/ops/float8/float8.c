/* float8.c - floats of 8 bits with a scale for a whole tensor (float8.cu), and their products.
 *
 * cuBLASLt multiplies codes on GPUs that have such tensor cores (Ada, Hopper and later), where rows are multiples of 16
 * bytes. Elsewhere codes become numbers of bf16 first, which hold them exactly, so results differ only by the order of
 * sums. Its sums of products of 8 bits are not the fast ones that round on the way
 * (CUBLASLT_MATMUL_DESC_FAST_ACCUM stays 0). */
#include "../../../float8.h"
#include "../../products/product.h"
#include "float8_args.h"

static gm_status contiguous(gm_device *dev, gm_tensor *t, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    *out = NULL;
    if (!t || gm_tensor_is_contiguous(t)) {
        if (t) gm_tensor_retain(*out = t);
        return GM_OK;
    }
    GM_TRY(gm_tensor_new(dev, t->dtype, t->ndim, t->shape, out));
    return cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &t, out, &a});
}

/* *out: where a dense result goes that ends up in t: t itself, or a tensor of its own. */
static gm_status dense_like(gm_device *dev, gm_tensor *t, gm_tensor **out)
{
    *out = NULL;
    if (!t) return GM_OK;
    if (!gm_tensor_is_contiguous(t)) return gm_tensor_new(dev, t->dtype, t->ndim, t->shape, out);
    gm_tensor_retain(*out = t);
    return GM_OK;
}

static gm_status bring_home(gm_device *dev, gm_tensor *dense, gm_tensor *t, gm_status st)
{
    gm_attrs a = gm_attrs_default();
    if (st == GM_OK && dense && dense != t) st = cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &dense, &t, &a});
    gm_tensor_release(dense);
    return st;
}

/* ---- scales and codes ---- */

static gm_float8_args args_of(const gm_call *call, const gm_tensor *x)
{
    int last = x->ndim - 1;
    return (gm_float8_args){.x = x->ndim ? gm_rows_last(x) : gm_rows_of(x, -1),
                            .rows = x->ndim ? gm_rows_count(x, last) : 1,
                            .k = x->ndim ? x->shape[last] : 1,
                            .format = (int32_t)call->attrs->format};
}

/* Raises *a.needed to the scale of x, from whole pieces of 16 bytes where x is one run of them. */
static gm_status raise_needed(gm_device *dev, const gm_tensor *x, gm_float8_args a)
{
    char         name[GM_CUDA_NAME];
    int64_t      n = gm_tensor_numel(x), size = (int64_t)gm_dtype_size(x->dtype);
    int64_t      each = GM_FLOAT8_HELD * GM_FLOAT8_THREADS * (16 / size);
    int64_t      most = (int64_t)gm_cuda_multiprocessors(dev) * GM_FLOAT8_BLOCKS;
    bool         flat = gm_tensor_is_contiguous(x) && (uintptr_t)a.x.data % 16 == 0 && n * size % 16 == 0;
    gm_cuda_grid grid = gm_rows_grid(a.rows, a.k, x->dtype, 1, &a.team);
    if (flat) grid = (gm_cuda_grid){.x = (n + each - 1) / each, .block = GM_FLOAT8_THREADS, .shared = grid.shared};
    if (grid.x > most) grid.x = most;
    if (grid.x < 1) grid.x = 1; /* no elements have a scale, too */
    return GM_LAUNCH(dev, gm_cuda_name(name, flat ? "gm_float8_largest_flat" : "gm_float8_largest", x->dtype), grid, a);
}

gm_status cuda_float8_scale(gm_device *dev, const gm_call *call)
{
    gm_float8_args a = args_of(call, call->in[0]);
    a.needed = gm_tensor_data(call->out[0]);
    GM_TRY(gm_cuda_fill(dev, a.needed, 0, gm_dtype_size(call->out[0]->dtype)));
    return raise_needed(dev, call->in[0], a);
}

static bool is_whole(const gm_float8_args *a, gm_dtype dtype)
{
    return gm_rows_even(&a->x, a->k, dtype) && a->k % GM_FLOAT8_TILE == 0 && a->rows % GM_FLOAT8_TILE == 0;
}

gm_status cuda_float8_encode(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *x = call->in[0];
    gm_tensor       *codes = NULL, *turned = NULL;
    gm_tensor       *needed = call->n_out > 2 ? call->out[2] : NULL;
    gm_float8_args   a = args_of(call, x);
    int64_t   high = (a.rows + GM_FLOAT8_TILE - 1) / GM_FLOAT8_TILE, wide = (a.k + GM_FLOAT8_TILE - 1) / GM_FLOAT8_TILE;
    gm_status st;
    if (needed && !call->attrs->accumulate)
        GM_TRY(gm_cuda_fill(dev, gm_tensor_data(needed), 0, gm_dtype_size(needed->dtype)));
    a.needed = needed ? gm_tensor_data(needed) : NULL;
    if (!high || !wide) return needed ? raise_needed(dev, x, a) : GM_OK;
    GM_TRY_OR(dense_like(dev, call->out[0], &codes), st, done);
    GM_TRY_OR(dense_like(dev, call->out[1], &turned), st, done);
    a.scale = gm_tensor_data(call->in[1]);
    a.codes = codes ? gm_tensor_data(codes) : NULL;
    a.turned = turned ? gm_tensor_data(turned) : NULL;
    st = GM_LAUNCH(
        dev, gm_cuda_name(name, is_whole(&a, x->dtype) ? "gm_float8_encode_whole" : "gm_float8_encode", x->dtype),
        ((gm_cuda_grid){.x = high * wide, .block = GM_FLOAT8_THREADS, .shared = GM_FLOAT8_TILE * GM_FLOAT8_TILE}), a);
done:
    st = bring_home(dev, codes, call->out[0], st);
    return bring_home(dev, turned, call->out[1], st);
}

/* ---- products ---- */

/* a, b: dense codes; y: dense. */
typedef struct product {
    const gm_call *call;
    gm_tensor     *a, *b, *bias, *y;
    int64_t        m, n, k;
} product;

static gm_status by_codes(gm_device *dev, const product *p, bool *served)
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
                      .scale = {gm_tensor_data(p->call->in[2]), gm_tensor_data(p->call->in[3])}};
    return gm_product_try(dev, &(gm_product){g, GM_U8, p->y->dtype, NULL}, served);
}

/* *out (rows, k): the numbers of codes. The scale has the type of arithmetic of the dtype. */
static gm_status numbers(gm_device *dev, gm_tensor *codes, int64_t rows, int64_t k, gm_tensor *scale, int64_t format,
                         gm_dtype dtype, gm_tensor **out)
{
    char           name[GM_CUDA_NAME];
    gm_float8_args a = {.rows = rows,
                        .k = k,
                        .codes = gm_tensor_data(codes),
                        .scale = gm_tensor_data(scale),
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
    gm_status  st;
    GM_TRY_OR(gm_tensor_view(p->y, 2, (int64_t[]){p->m, p->n}, (int64_t[]){p->n, 1}, p->y->offset, &y), st, done);
    GM_TRY_OR(numbers(dev, p->a, p->m, p->k, p->call->in[2], p->call->attrs->format, dtype, &in[0]), st, done);
    GM_TRY_OR(numbers(dev, p->b, p->n, p->k, p->call->in[3], GM_FLOAT8_E4M3, dtype, &in[1]), st, done);
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

gm_status cuda_float8_product(gm_device *dev, const gm_call *call)
{
    gm_tensor *to = call->out[0];
    product    p = {.call = call, .n = call->in[1]->shape[0], .k = call->in[1]->shape[1]};
    bool       served = false;
    gm_attrs   a = gm_attrs_default();
    gm_status  st;
    GM_TRY_OR(contiguous(dev, call->in[0], &p.a), st, done);
    GM_TRY_OR(contiguous(dev, call->in[1], &p.b), st, done);
    GM_TRY_OR(contiguous(dev, call->in[4], &p.bias), st, done);
    GM_TRY_OR(dense_like(dev, to, &p.y), st, done);
    if (p.y != to && call->attrs->accumulate)
        GM_TRY_OR(cuda_copy(dev, &(gm_call){GM_OP_copy, 1, 1, &to, &p.y, &a}), st, done);
    p.m = p.n ? gm_tensor_numel(to) / p.n : 0;
    if (!p.m || !p.n) goto done;
    if (to->dtype != GM_F64 && p.k) GM_TRY_OR(by_codes(dev, &p, &served), st, done);
    if (!served) st = by_numbers(dev, &p);
done:
    gm_tensor_release(p.a);
    gm_tensor_release(p.b);
    gm_tensor_release(p.bias);
    return bring_home(dev, p.y, to, st);
}
