/* gemm.c - matmul, linear and its gradients. It turns tensors into products (products/product.h), and has the kernels
 * of gemm.cu for what no library can make. */
#include "../../products/product.h"
#include "../../common/gemm_args.h"

/* ---- tensors to products ---- */

/* Drops dimensions of size 1, and joins a dimension with the one before it where memory goes on. */
static void join_batch(gm_gemm_args *p)
{
    int n = 0;
    for (int d = 0; d < p->ndim; d++) {
        const gm_gemm_dim *in = &p->dim[d];
        gm_gemm_dim       *out = n ? &p->dim[n - 1] : NULL;
        if (in->n == 1) continue;
        if (out && out->a == in->a * in->n && out->b == in->b * in->n && out->y == in->y * in->n &&
            out->pre == in->pre * in->n)
            *out = (gm_gemm_dim){out->n * in->n, in->a, in->b, in->y, in->pre};
        else p->dim[n++] = *in;
    }
    p->ndim = n;
}

/* A batch over one b is more rows, where the rows of a, y and pre go on. */
static void join_rows(gm_gemm_args *p)
{
    for (; p->ndim; p->ndim--) {
        const gm_gemm_dim *d = &p->dim[p->ndim - 1];
        if (d->b != 0) return;
        if (p->m == 1) {
            p->a_m = d->a;
            p->y_m = d->y;
            p->pre_m = d->pre;
        } else if (d->a != p->a_m * p->m || d->y != p->y_m * p->m || d->pre != p->pre_m * p->m) {
            return;
        }
        p->m *= d->n;
    }
}

/* Strides of batch dimension d of `ndim`, which the tensor may lack or repeat. */
static int64_t batch_stride(const gm_tensor *t, int ndim, int d)
{
    int at = d - (ndim - (t->ndim - 2));
    return at < 0 || t->shape[at] == 1 ? 0 : t->stride[at];
}

static void matmul_of(gm_gemm_args *p, const gm_call *call)
{
    const gm_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const gm_attrs  *at = call->attrs;
    int              ta = at->transpose_a, tb = at->transpose_b, ndim = y->ndim - 2;
    const int64_t   *as = a->stride + a->ndim - 2, *bs = b->stride + b->ndim - 2;
    *p = (gm_gemm_args){
        .a = gm_tensor_data(a),
        .b = gm_tensor_data(b),
        .y = gm_tensor_data(y),
        .m = y->shape[ndim],
        .n = y->shape[ndim + 1],
        .k = a->shape[a->ndim - 1 - ta],
        .a_m = as[ta],
        .a_k = as[1 - ta],
        .b_k = bs[tb],
        .b_n = bs[1 - tb],
        .y_m = y->stride[ndim],
        .y_n = y->stride[ndim + 1],
        .ndim = ndim,
        .alpha = at->alpha,
        .accumulate = at->accumulate,
    };
    for (int d = 0; d < ndim; d++)
        p->dim[d] = (gm_gemm_dim){y->shape[d], batch_stride(a, ndim, d), batch_stride(b, ndim, d), y->stride[d], 0};
}

/* Each row is an element of the batch at first; join_rows makes rows of them. */
static void linear_of(gm_gemm_args *p, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2], *y = call->out[0], *pre = call->out[1];
    int              last = x->ndim - 1;
    *p = (gm_gemm_args){
        .a = gm_tensor_data(x),
        .b = gm_tensor_data(w),
        .y = gm_tensor_data(y),
        .bias = b ? gm_tensor_data(b) : NULL,
        .pre = pre ? gm_tensor_data(pre) : NULL,
        .m = 1,
        .n = w->shape[0],
        .k = w->shape[1],
        .a_k = x->stride[last],
        .b_k = w->stride[1],
        .b_n = w->stride[0],
        .y_n = y->stride[last],
        .pre_n = pre ? pre->stride[last] : 0,
        .bias_n = b ? b->stride[0] : 0,
        .ndim = last,
        .alpha = 1,
        .function = (int32_t)call->attrs->function,
    };
    for (int d = 0; d < last; d++)
        p->dim[d] = (gm_gemm_dim){x->shape[d], x->stride[d], 0, y->stride[d], pre ? pre->stride[d] : 0};
}

/* ---- the kernels ---- */

static int64_t batch_of(const gm_gemm_args *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++) n *= p->dim[d].n;
    return n;
}

static int64_t tiles_of(const gm_gemm_args *p, int each)
{
    int side = GM_GEMM_SIDE * each;
    return (p->m + side - 1) / side * ((p->n + side - 1) / side) * batch_of(p);
}

static gm_status run_kernel(gm_device *dev, const gm_gemm_args *p, gm_dtype dtype)
{
    char   name[GM_CUDA_NAME];
    bool   large = dtype != GM_F64 && tiles_of(p, GM_GEMM_LARGE) >= gm_cuda_multiprocessors(dev);
    int    each = large ? GM_GEMM_LARGE : GM_GEMM_SMALL;
    size_t of_arithmetic = dtype == GM_F64 ? sizeof(double) : sizeof(float);
    return GM_LAUNCH(dev, gm_cuda_name(name, large ? "gm_gemm_large" : "gm_gemm", dtype),
                     ((gm_cuda_grid){.x = tiles_of(p, each),
                                     .block = GM_GEMM_SIDE * GM_GEMM_SIDE,
                                     .shared = 2 * GM_GEMM_DEPTH * GM_GEMM_PITCH(each) * of_arithmetic}),
                     *p);
}

static gm_status offers_no_tiles(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n)
{
    (void)dev, (void)p, (void)most, (void)out;
    *n = 0;
    return GM_OK;
}

static gm_status run_tiles(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served)
{
    (void)v;
    *served = true;
    if (p->args.k && p->dtype != GM_F64)
        gm_device_note(dev, "some products run on our own kernels, many times slower than cuBLASLt's: it is turned off "
                            "(GANYMEDE_CUDA_BLAS=none), or does not do their strides");
    return run_kernel(dev, &p->args, p->dtype);
}

const gm_way gm_way_tiles = {"tiles", offers_no_tiles, run_tiles, NULL};

static gm_status run(gm_device *dev, gm_product *p)
{
    join_batch(&p->args);
    join_rows(&p->args);
    if (batch_of(&p->args) * p->args.m * p->args.n == 0 && !p->db) return GM_OK;
    return gm_product_run(dev, p);
}

gm_status cuda_matmul(gm_device *dev, const gm_call *call)
{
    gm_product p = {.dtype = call->in[0]->dtype, .to = call->out[0]->dtype};
    matmul_of(&p.args, call);
    p.args.wide = p.to != p.dtype;
    return run(dev, &p);
}

gm_status cuda_linear(gm_device *dev, const gm_call *call)
{
    gm_product p = {.dtype = call->in[0]->dtype, .to = call->in[0]->dtype};
    linear_of(&p.args, call);
    return run(dev, &p);
}

/* ---- gradients of linear ---- */

static gm_product gradient_of(const gm_call *call, bool transpose_a)
{
    gm_product p = {.dtype = call->in[0]->dtype, .to = call->in[0]->dtype};
    gm_attrs   a = gm_attrs_default();
    a.transpose_a = transpose_a;
    a.accumulate = call->attrs->accumulate;
    matmul_of(&p.args, &(gm_call){GM_OP_matmul, 2, 1, call->in, call->out, &a});
    return p;
}

gm_status cuda_linear_weight_grad(gm_device *dev, const gm_call *call)
{
    gm_product p = gradient_of(call, true);
    p.db = call->out[1];
    return run(dev, &p);
}

gm_status cuda_linear_input_grad(gm_device *dev, const gm_call *call)
{
    gm_product p = gradient_of(call, false);
    gm_tensor *pre = call->in[2];
    p.args.pre = gm_tensor_data(pre);
    p.args.pre_m = pre->stride[0];
    p.args.pre_n = pre->stride[1];
    p.args.function = (int32_t)call->attrs->function;
    p.args.slope = true;
    return run(dev, &p);
}
