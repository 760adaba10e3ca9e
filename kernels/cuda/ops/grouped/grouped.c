/* grouped.c - launches the products of groups of rows: grouped_mma.cu where numbers have 16 bits and matrices lie in
 * rows that start at multiples of 16 bytes, grouped.cu for all others.
 *
 * The host does not know how many rows a group has. A rows kernel therefore gets as many blocks as there can be tiles,
 * and those that find none end at once. cuDNN's MOE_GROUPED_MATMUL (9.18) takes only where groups begin, not where the
 * last one ends, and makes no gradients of weights; so there is one way for all of it. */
#include "../../common/gemm_args.h"
#include "../../runtime/cuda.h"
#include "grouped_args.h"

static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* Rows that start at multiples of 16 bytes, of whole packs. */
static bool in_packs(const void *data, int64_t step, int64_t group, int64_t n)
{
    return (uintptr_t)data % 16 == 0 && step % 8 == 0 && group % 8 == 0 && n % 8 == 0;
}

/* Tiles of the tensor cores: a and b each lie in rows along the sum, or in rows across it where the kernel says so. */
static bool takes_mma(const gm_grouped_args *a, gm_dtype dtype, bool turned_a, bool turned_b)
{
    if (!gm_dtype_is_narrow(dtype) || a->c_n != 1 || (a->bias && a->bias_n != 1)) return false;
    if ((turned_a ? a->a_m : a->a_k) != 1 || (turned_b ? a->b_n : a->b_k) != 1) return false;
    if (!in_packs(a->a, turned_a ? a->a_k : a->a_m, 0, turned_a ? a->m : a->k)) return false;
    if (!in_packs(a->b, turned_b ? a->b_k : a->b_n, a->b_group, turned_a ? a->n : a->k)) return false;
    return in_packs(NULL, 0, 0, a->n) && (uintptr_t)a->c % 4 == 0 && a->c_m % 2 == 0 && a->c_group % 2 == 0;
}

static gm_status launch(gm_device *dev, const char *base, gm_dtype dtype, int64_t blocks, size_t shared,
                        const gm_grouped_args *a)
{
    char name[GM_CUDA_NAME];
    return GM_LAUNCH(dev, gm_cuda_name(name, base, dtype),
                     ((gm_cuda_grid){.x = blocks, .block = GM_GROUPED_THREADS, .shared = shared}), *a);
}

/* Of a tile without tensor cores. */
static size_t plain_shared(gm_dtype dtype)
{
    return 2 * GM_GEMM_DEPTH * GM_GEMM_PITCH(GM_GEMM_SMALL) * (dtype == GM_F64 ? sizeof(double) : sizeof(float));
}

static int side_of(bool mma) { return mma ? GM_GROUPED_SIDE : GM_GEMM_SIDE * GM_GEMM_SMALL; }

gm_status cuda_grouped_matmul(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *w = call->in[1], *bounds = call->in[2], *b = call->in[3], *y = call->out[0];
    bool             tb = call->attrs->transpose_b;
    gm_dtype         dtype = x->dtype;
    gm_grouped_args  a = {.a = gm_tensor_data(x),
                          .b = gm_tensor_data(w),
                          .bias = b ? gm_tensor_data(b) : NULL,
                          .c = gm_tensor_data(y),
                          .bounds = gm_tensor_data(bounds),
                          .rows = x->shape[0],
                          .groups = w->shape[0],
                          .n = y->shape[1],
                          .k = x->shape[1],
                          .a_m = x->stride[0],
                          .a_k = x->stride[1],
                          .b_group = w->stride[0],
                          .b_k = w->stride[tb ? 2 : 1],
                          .b_n = w->stride[tb ? 1 : 2],
                          .c_m = y->stride[0],
                          .c_n = y->stride[1],
                          .bias_group = b ? b->stride[0] : 0,
                          .bias_n = b ? b->stride[1] : 0,
                          .bounds_step = bounds->stride[0],
                          .op = (int32_t)call->op,
                          .accumulate = call->attrs->accumulate};
    if (a.rows == 0 || a.n == 0) return GM_OK;
    bool    mma = takes_mma(&a, dtype, false, !tb);
    int     side = side_of(mma);
    int64_t ends = a.groups + 2 < a.rows ? a.groups + 2 : a.rows; /* tiles that are not full */
    a.tiles_n = (int32_t)over(a.n, side);
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    int64_t blocks = (a.rows / side + ends) * a.tiles_n;
    if (!mma) return launch(dev, "gm_grouped_rows", dtype, blocks, plain_shared(dtype), &a);
    return launch(dev, tb ? "gm_grouped_mma_linear" : "gm_grouped_mma_input", dtype, blocks, GM_GROUPED_SHARED, &a);
}

static gm_status weight_product(gm_device *dev, const gm_call *call, gm_grouped_args a)
{
    const gm_tensor *x = call->in[1], *dw = call->out[0];
    gm_dtype         dtype = x->dtype;
    a.b = gm_tensor_data(x);
    a.c = gm_tensor_data(dw);
    a.n = x->shape[1];
    a.b_k = x->stride[0];
    a.b_n = x->stride[1];
    a.c_group = dw->stride[0];
    a.c_m = dw->stride[1];
    a.c_n = dw->stride[2];
    bool mma = takes_mma(&a, dtype, true, true);
    a.tiles_m = (int32_t)over(a.m, side_of(mma));
    a.tiles_n = (int32_t)over(a.n, side_of(mma));
    int64_t blocks = a.groups * a.tiles_m * a.tiles_n;
    if (mma) return launch(dev, "gm_grouped_mma_weight", dtype, blocks, GM_GROUPED_SHARED, &a);
    return launch(dev, "gm_grouped_weight", dtype, blocks, plain_shared(dtype), &a);
}

static gm_status bias_sums(gm_device *dev, const gm_tensor *db, gm_grouped_args a)
{
    a.c = gm_tensor_data(db);
    a.c_group = db->stride[0];
    a.c_m = db->stride[1];
    a.tiles_m = (int32_t)over(a.m, GM_GROUPED_COLUMNS);
    return launch(dev, "gm_grouped_sums", db->dtype, a.groups * a.tiles_m, GM_GROUPED_THREADS * sizeof(double), &a);
}

gm_status cuda_grouped_weight_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0], *bounds = call->in[2];
    gm_grouped_args  a = {.a = gm_tensor_data(g),
                          .bounds = gm_tensor_data(bounds),
                          .rows = g->shape[0],
                          .groups = bounds->shape[0] - 1,
                          .m = g->shape[1],
                          .a_m = g->stride[1],
                          .a_k = g->stride[0],
                          .bounds_step = bounds->stride[0],
                          .op = (int32_t)call->op,
                          .accumulate = call->attrs->accumulate};
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    if (call->out[0]) GM_TRY(weight_product(dev, call, a));
    return call->out[1] ? bias_sums(dev, call->out[1], a) : GM_OK;
}
