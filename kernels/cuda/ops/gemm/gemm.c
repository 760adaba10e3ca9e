/* gemm.c - matmul, linear and its gradients. It turns tensors into products (gemm_args.h). cuBLASLt (blas.h) computes
 * the products that it can, and the kernels of gemm.cu the others. If cuBLASLt lacks the activation of a product, or an
 * alignment for it, it computes the plain product in f32, and a kernel adds bias and activation; so pre and y are
 * rounded once. Gradients that cuBLASLt cannot compute in one call are a plain product followed by
 * bias_activation_grad. */
#include "../../blas/blas.h"
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

/* The plain product in f32 by cuBLASLt, then bias and function by a kernel. */
static gm_status run_in_two(gm_device *dev, const gm_gemm_args *p, gm_dtype dtype, bool *served)
{
    gm_status    st;
    char         name[GM_CUDA_NAME];
    gm_block    *block;
    gm_gemm_args plain = *p, rest = *p;
    int64_t      step = p->m * p->n;
    void        *product;
    GM_TRY(gm_cuda_scratch(dev, (size_t)(batch_of(p) * step) * sizeof(float), &product, &block));
    plain.y = product;
    plain.y_m = p->n;
    plain.y_n = 1;
    plain.bias = plain.pre = NULL;
    plain.function = GM_FN_none;
    for (int d = p->ndim - 1; d >= 0; step *= p->dim[d--].n) plain.dim[d].y = step;
    GM_TRY_OR(gm_blas_product(dev, &plain, dtype, GM_F32, served), st, done);
    rest.a = product;
    if (*served)
        st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_gemm_finish_all", dtype),
                       gm_cuda_over(dev, batch_of(p) * p->m * p->n, 4, 256), rest);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

/* to: of y, dtype or f32. */
static gm_status run(gm_device *dev, gm_gemm_args *p, gm_dtype dtype, gm_dtype to)
{
    bool served = false;
    join_batch(p);
    join_rows(p);
    if (batch_of(p) * p->m * p->n == 0) return GM_OK;
    if (p->k && dtype != GM_F64) {
        GM_TRY(gm_blas_product(dev, p, dtype, to, &served));
        if (!served && (p->bias || p->function) && !p->accumulate) GM_TRY(run_in_two(dev, p, dtype, &served));
    }
    if (!served && p->k && dtype != GM_F64)
        gm_device_note(dev, "some products run on our own kernels, many times slower than cuBLASLt's: it is turned off "
                            "(GANYMEDE_CUDA_BLAS=none), or does not do their strides");
    return served ? GM_OK : run_kernel(dev, p, dtype);
}

gm_status cuda_matmul(gm_device *dev, const gm_call *call)
{
    gm_gemm_args p;
    matmul_of(&p, call);
    p.wide = call->out[0]->dtype != call->in[0]->dtype;
    return run(dev, &p, call->in[0]->dtype, call->out[0]->dtype);
}

gm_status cuda_linear(gm_device *dev, const gm_call *call)
{
    gm_gemm_args p;
    linear_of(&p, call);
    return run(dev, &p, call->in[0]->dtype, call->in[0]->dtype);
}

/* ---- gradients of linear ---- */

/* What cuBLASLt can be asked for at all. */
static bool for_blas(const gm_gemm_args *p, gm_dtype t) { return p->m && p->n && p->k && t != GM_F64; }

static void gradient_of(gm_gemm_args *p, const gm_call *call, bool transpose_a)
{
    gm_attrs a = gm_attrs_default();
    a.transpose_a = transpose_a;
    a.accumulate = call->attrs->accumulate;
    matmul_of(p, &(gm_call){GM_OP_matmul, 2, 1, call->in, call->out, &a});
}

static gm_status run_pass(gm_device *dev, gm_tensor *g, gm_tensor *pre, gm_tensor *dpre, gm_tensor *db,
                          const gm_attrs *attrs)
{
    gm_call c = {.op = GM_OP_bias_activation_grad,
                 .n_in = 2,
                 .n_out = 2,
                 .in = (gm_tensor *[]){g, pre},
                 .out = (gm_tensor *[]){dpre, db},
                 .attrs = attrs};
    return cuda_bias_activation_grad(dev, &c);
}

/* The product and its sums by cuBLASLt, which sets them: where they are added to db, or db has gaps, by way of a vector
 * of their own. */
static gm_status run_with_sums(gm_device *dev, gm_gemm_args *p, gm_tensor *db, bool *served)
{
    gm_tensor *sums = NULL;
    gm_attrs   a = gm_attrs_default();
    bool       straight = !p->accumulate && gm_tensor_is_contiguous(db);
    if (!straight) GM_TRY(gm_tensor_new(dev, db->dtype, 1, db->shape, &sums));
    p->sums = gm_tensor_data(straight ? db : sums);
    gm_status st = gm_blas_product(dev, p, db->dtype, db->dtype, served);
    gm_call   c = {.op = GM_OP_axpy, .n_in = 1, .n_out = 1, .in = &sums, .out = &db, .attrs = &a};
    if (st == GM_OK && *served && !straight) st = p->accumulate ? cuda_axpy(dev, &c) : cuda_copy(dev, &c);
    p->sums = NULL;
    gm_tensor_release(sums);
    return st;
}

gm_status cuda_linear_weight_grad(gm_device *dev, const gm_call *call)
{
    gm_gemm_args p;
    gm_tensor   *g = call->in[0], *db = call->out[1];
    bool         served = false;
    gradient_of(&p, call, true);
    if (db && for_blas(&p, g->dtype)) GM_TRY(run_with_sums(dev, &p, db, &served));
    if (served) return GM_OK;
    GM_TRY(run(dev, &p, g->dtype, g->dtype));
    return db ? run_pass(dev, g, NULL, NULL, db, call->attrs) : GM_OK;
}

gm_status cuda_linear_input_grad(gm_device *dev, const gm_call *call)
{
    gm_gemm_args p;
    gm_tensor   *pre = call->in[2], *dpre = call->out[0];
    bool         served = false;
    gradient_of(&p, call, false);
    if (for_blas(&p, dpre->dtype)) {
        gm_gemm_args with = p;
        with.pre = gm_tensor_data(pre);
        with.pre_m = pre->stride[0];
        with.pre_n = pre->stride[1];
        with.function = (int32_t)call->attrs->function;
        with.slope = true;
        GM_TRY(gm_blas_product(dev, &with, dpre->dtype, dpre->dtype, &served));
    }
    if (served) return GM_OK;
    GM_TRY(run(dev, &p, dpre->dtype, dpre->dtype));
    return run_pass(dev, dpre, pre, dpre, NULL, call->attrs); /* element by element, in place */
}
