/* gemm_ops.c - matmul and linear, built on the blocking (gemm_block_t.h); gemm_grads.c has the gradients of linear. It
 * turns tensors of any strides into matrices, and decides which products share the threads. Part of gemm.c. */

static void gemm_run(gm_threads *threads, gm_dtype dtype, const gemm *g, void *scratch)
{
    if (dtype == GM_F32) gemm_run_f32(threads, g, scratch);
    else gemm_run_f64(threads, g, scratch);
}

/* Bytes, a multiple of 64, so that several threads' scratch can stand in a row. */
static size_t gemm_scratch_bytes(gm_dtype dtype, const gemm *g, int threads)
{
    int64_t n = dtype == GM_F32 ? gemm_scratch_f32(g, threads) : gemm_scratch_f64(g, threads);
    return ((size_t)n * gm_dtype_size(dtype) + 63) & ~(size_t)63;
}

/* Around several products by tiles on this thread, which are then `configured`. NULL: there are no tiles. */
static void gemm_use_tiles(const amx_kind *amx, bool use)
{
#if GEMM_PAIRS
    if (amx) (use ? amx->begin : amx->end)();
#endif
    (void)amx;
    (void)use;
}

/* One product on all threads. */
static gm_status gemm_whole(gm_device *dev, gm_dtype dtype, const gemm *g)
{
    gm_block *block;
    void     *scratch;
    GM_TRY(cpu_scratch(dev, gemm_scratch_bytes(dtype, g, gm_threads_count(dev->threads)), &scratch, &block));
    gemm_run(dev->threads, dtype, g, scratch);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

/* The dtype of sums. */
static gm_dtype gemm_sums(const gm_call *call) { return gemm_takes_pairs(call) ? GM_F32 : call->in[0]->dtype; }

/* Are results of this dtype rounded as they are stored? Sums in f32 that other tables make of pairs are rounded behind
 * the product. */
static bool gemm_is_narrow(const gm_call *call, const amx_kind *amx, gm_dtype to)
{
    return amx && to == GM_BF16 && gemm_takes_pairs(call);
}

/* g, with its k along numbers, where operands are bf16. */
static gemm gemm_of_pairs(gemm g, const amx_kind *amx)
{
    g.numbers = g.k;
    g.k = (g.k + 1) / 2;
    g.amx = amx;
    return g;
}

/* ---- tensors without a usable stride are copied ---- */

/* t as rows of unit stride: *view is t itself (a new reference) or a compact copy, in this dtype. NULL stays NULL. */
static gm_status gemm_rows_in(gm_device *dev, gm_dtype dtype, gm_tensor *t, bool fill, gm_tensor **view, int64_t *step)
{
    *view = NULL;
    *step = 0;
    if (!t) return GM_OK;
    cpu_rows r = cpu_rows_of(t);
    *step = r.even && r.rows > 1 ? r.step / r.size : r.width;
    if (t->dtype == dtype && r.even && (r.width <= 1 || t->stride[t->ndim - 1] == 1)) {
        gm_tensor_retain(*view = t);
        return GM_OK;
    }
    *step = r.width;
    return cpu_compact(dev, dtype, t, fill, view);
}

/* In its own dtype. */
static gm_status gemm_rows(gm_device *dev, gm_tensor *t, bool fill, gm_tensor **view, int64_t *step)
{
    return gemm_rows_in(dev, t ? t->dtype : GM_F32, t, fill, view, step);
}

/* ---- matmul ---- */

typedef struct gemm_batch {
    gemm       g;     /* the first product */
    gm_dtype   dtype; /* of sums; a and b have it too, or are pairs */
    gm_dtype   to;    /* of c */
    int        ndim;
    int64_t    count, shape[GM_MAX_DIMS], a[GM_MAX_DIMS], b[GM_MAX_DIMS], c[GM_MAX_DIMS]; /* strides in elements */
    char      *scratch;
    size_t     scratch_step; /* bytes for each thread */
    gm_tensor *row_sums;     /* NULL, or the sums of rows of a over all k, for one product */
} gemm_batch;

/* Product number i of the batch. */
static gemm gemm_nth(const gemm_batch *w, int64_t i)
{
    gemm    g = w->g;
    int64_t a = 0, b = 0, c = 0, to = (int64_t)gm_dtype_size(w->to), size = g.numbers ? 2 : to;
    for (int d = w->ndim - 1; d >= 0; d--) {
        int64_t at = i % w->shape[d];
        i /= w->shape[d];
        a += at * w->a[d];
        b += at * w->b[d];
        c += at * w->c[d];
    }
    g.a = (const char *)g.a + a * size;
    g.b = (const char *)g.b + b * size;
    g.c = (char *)g.c + c * to;
    return g;
}

static void gemm_batch_part(void *context, int64_t begin, int64_t end, int thread)
{
    const gemm_batch *w = context;
    gemm_use_tiles(w->g.amx, true);
    for (int64_t i = begin; i < end; i++) {
        gemm g = gemm_nth(w, i);
        g.configured = true;
        gemm_run(NULL, w->dtype, &g, w->scratch + (size_t)thread * w->scratch_step);
    }
    gemm_use_tiles(w->g.amx, false);
}

/* c' = b' a': for outputs whose columns, not rows, are contiguous. */
static void gemm_swap(gemm_batch *w)
{
    gemm g = w->g, s = g;
    s.m = g.n;
    s.n = g.m;
    s.a = g.b;
    s.b = g.a;
    s.a_row = g.b_column;
    s.a_k = g.b_k;
    s.b_column = g.a_row;
    s.b_k = g.a_k;
    w->g = s;
    for (int d = 0; d < w->ndim; d++) {
        int64_t t = w->a[d];
        w->a[d] = w->b[d];
        w->b[d] = t;
    }
}

/* Where every product has the same b and rows follow each other, the batch is one taller product. */
static void gemm_fold(gemm_batch *w)
{
    gemm *g = &w->g;
    while (w->ndim > 0 && w->count > 0) {
        int d = w->ndim - 1;
        if (w->b[d] != 0 || w->a[d] != g->m * g->a_row || w->c[d] != g->m * g->c_row) return;
        g->m *= w->shape[d];
        w->count /= w->shape[d];
        w->ndim--;
    }
}

/* Each thread whole products, or all threads in each product? By shape and thread count only. */
static bool gemm_apart(const gemm_batch *w, int threads)
{
    double flops = 2.0 * (double)w->g.m * (double)w->g.n * (double)w->g.k;
    return w->count > 1 && (w->count >= 4 * threads || w->count % threads == 0 || flops < 1 << 20);
}

static gm_status gemm_batch_run(gm_device *dev, gemm_batch *w)
{
    int threads = gm_threads_count(dev->threads);
    if (w->count == 0 || w->g.m == 0 || w->g.n == 0) return GM_OK;
    bool      apart = gemm_apart(w, threads);
    gm_block *block;
    w->scratch_step = gemm_scratch_bytes(w->dtype, &w->g, apart ? 1 : threads);
    const int64_t numbers = w->g.numbers ? w->g.numbers : w->g.k, pieces = (numbers + GEMM_DEPTH - 1) / GEMM_DEPTH;
    const size_t  products = w->scratch_step * (size_t)(apart ? threads : 1);
    const size_t  sums = w->row_sums ? (size_t)(pieces * w->g.m) * sizeof(double) : 0;
    GM_TRY(cpu_scratch(dev, products + sums, &w->scratch, &block));
    if (w->row_sums) w->g.row_sums = (double *)(void *)(w->scratch + products);
    if (apart) {
        double cost = (double)w->g.m * (double)w->g.n * (double)(w->g.k + 8) / 16;
        gemm_parallel(dev->threads, w->count, (int64_t)cost, gemm_batch_part, w);
    } else {
        for (int64_t i = 0; i < w->count; i++) {
            gemm g = gemm_nth(w, i);
            gemm_run(dev->threads, w->dtype, &g, w->scratch);
        }
    }
    if (w->row_sums) add_partials(w->row_sums, w->g.row_sums, (int)pieces, w->g.m, w->g.accumulate);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

/* Batch dimensions of y with more than one element, and what each operand does along them. */
static void gemm_batch_dims(gemm_batch *w, const gm_tensor *a, const gm_tensor *b, const gm_tensor *y)
{
    int64_t   as[GM_MAX_DIMS], bs[GM_MAX_DIMS];
    gm_tensor batch_a = *a, batch_b = *b;
    int       n = y->ndim - 2;
    batch_a.ndim -= 2;
    batch_b.ndim -= 2;
    walk_strides(&batch_a, n, as);
    walk_strides(&batch_b, n, bs);
    w->ndim = 0;
    w->count = 1;
    for (int d = 0; d < n; d++) {
        w->count *= y->shape[d];
        if (y->shape[d] == 1) continue;
        w->shape[w->ndim] = y->shape[d];
        w->a[w->ndim] = as[d];
        w->b[w->ndim] = bs[d];
        w->c[w->ndim++] = y->stride[d];
    }
}

/* amx, here and below: not NULL, products of bf16 by its tiles (gemm_amx.c). row_sums: as of gemm_batch. */
static gm_status matmul_summed(gm_device *dev, const gm_call *call, const amx_kind *amx, gm_tensor *row_sums)
{
    gm_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0], *to = y;
    bool       ta = call->attrs->transpose_a, tb = call->attrs->transpose_b, accumulate = call->attrs->accumulate;
    int        i = y->ndim - 2, j = y->ndim - 1;
    int64_t    m = y->shape[i], n = y->shape[j];
    const bool narrow = gemm_is_narrow(call, amx, y->dtype);
    gm_dtype   dtype = narrow ? GM_BF16 : gemm_sums(call);
    if (y->dtype == dtype && (n == 1 || y->stride[j] == 1 || m == 1 || y->stride[i] == 1)) gm_tensor_retain(to);
    else GM_TRY(cpu_compact(dev, dtype, y, accumulate, &to));
    bool           by_row = n == 1 || to->stride[j] == 1, by_column = m == 1 || to->stride[i] == 1;
    const int64_t *as = a->stride + a->ndim - 2, *bs = b->stride + b->ndim - 2;
    gemm_batch     w = {.dtype = gemm_sums(call), .to = dtype, .row_sums = row_sums};
    w.g = (gemm){.m = m,
                 .n = n,
                 .k = a->shape[a->ndim - (ta ? 2 : 1)],
                 .a = gm_tensor_data(a),
                 .b = gm_tensor_data(b),
                 .a_row = as[ta],
                 .a_k = as[!ta],
                 .b_k = bs[tb],
                 .b_column = bs[!tb],
                 .c = gm_tensor_data(to),
                 .c_row = to->stride[i],
                 .alpha = call->attrs->alpha,
                 .narrow = narrow,
                 .accumulate = accumulate};
    if (gemm_takes_pairs(call)) w.g = gemm_of_pairs(w.g, amx);
    gemm_batch_dims(&w, a, b, to);
    if ((by_column && !by_row) || (by_column && n == 1)) {
        w.g.c_row = to->stride[j];
        gemm_swap(&w);
    }
    gemm_fold(&w);
    return cpu_home(dev, to, y, gemm_batch_run(dev, &w));
}

static gm_status matmul_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    return matmul_summed(dev, call, amx, NULL);
}

static gm_status cpu_matmul(gm_device *dev, const gm_call *call) { return matmul_by(dev, call, NULL); }

/* ---- linear ---- */

/* A vector of unit stride: t itself or a compact copy. */
static gm_status gemm_vector(gm_device *dev, gm_tensor *t, gm_tensor **view)
{
    int64_t step;
    return gemm_rows(dev, t, true, view, &step);
}

/* y = f(x b + bias) in the dtype of y, which is that of x, or f32 of pairs, or bf16 where g is narrow. g: alpha, n, k
 * and b. */
static gm_status linear_product(gm_device *dev, const gm_call *call, gemm g)
{
    gm_tensor  *x = NULL, *b = NULL, *y = NULL, *pre = NULL;
    gm_function f = call->attrs->function;
    gm_status   st;
    int64_t     pre_row;
    GM_TRY_OR(gemm_rows(dev, call->in[0], true, &x, &g.a_row), st, done);
    GM_TRY_OR(gemm_vector(dev, cpu_in(call, 2), &b), st, done);
    GM_TRY_OR(gemm_rows(dev, call->out[0], false, &y, &g.y_row), st, done);
    GM_TRY_OR(gemm_rows(dev, cpu_out(call, 1), false, &pre, &pre_row), st, done);
    g.m = 1;
    for (int d = 0; d < x->ndim - 1; d++) g.m *= x->shape[d];
    if (g.m == 0 || g.n == 0) goto done;
    g.a = gm_tensor_data(x);
    g.a_k = 1;
    g.bias = b ? gm_tensor_data(b) : NULL;
    g.y = gm_tensor_data(y);
    g.c = pre ? gm_tensor_data(pre) : g.y;
    g.c_row = pre ? pre_row : g.y_row;
    g.f = f;
    g.finish = f != GM_FN_none || pre;
    st = gemm_whole(dev, g.narrow ? GM_F32 : y->dtype, &g);
done:
    gm_tensor_release(x);
    gm_tensor_release(b);
    st = cpu_home(dev, y, call->out[0], st);
    return cpu_home(dev, pre, cpu_out(call, 1), st);
}

/* The same where x, the bias and the results may have 16 bits: in f32, rounded once. x stays as it is in pairs, and so
 * do results where g is narrow. */
static gm_status linear_in_f32(gm_device *dev, const gm_call *call, gemm g)
{
    gm_tensor *in[3] = {NULL, call->in[1], NULL}, *out[2] = {NULL, NULL};
    gm_call    c = {call->op, 3, 2, in, out, call->attrs};
    gm_dtype   to = g.narrow ? GM_BF16 : GM_F32;
    gm_status  st;
    if (g.numbers) gm_tensor_retain(in[0] = call->in[0]);
    else GM_TRY_OR(cpu_plain(dev, GM_F32, call->in[0], true, &in[0]), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_F32, cpu_in(call, 2), true, &in[2]), st, done);
    GM_TRY_OR(cpu_plain(dev, to, call->out[0], false, &out[0]), st, done);
    GM_TRY_OR(cpu_plain(dev, to, cpu_out(call, 1), false, &out[1]), st, done);
    st = linear_product(dev, &c, g);
done:
    gm_tensor_release(in[0]);
    gm_tensor_release(in[2]);
    st = cpu_home(dev, out[0], call->out[0], st);
    return cpu_home(dev, out[1], cpu_out(call, 1), st);
}

static void widen_bf16(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    cast_bf16_f32(k, (const char *)g->b + j * g->b_column + 2 * p, to);
}

static void widen_f16(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    cast_f16_f32(k, (const char *)g->b + j * g->b_column + 2 * p, to);
}

/* Does `linear` read the weights of this call as they are, whatever their dtype? */
static bool linear_reads(const gm_call *call)
{
    const gm_tensor *w = call->in[1];
    return gm_dtype_is_narrow(w->dtype) && (w->stride[1] == 1 || w->shape[1] == 1);
}

static gm_status linear_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    const gm_tensor *w = call->in[1];
    gemm             g = {.alpha = 1, .n = w->shape[0], .k = w->shape[1], .b = gm_tensor_data(w)};
    if (gemm_is_thin(call, amx)) return thin_linear(dev, call);
    g.b_k = w->stride[1];
    g.b_column = w->stride[0];
    if (!gm_dtype_is_narrow(w->dtype)) return linear_product(dev, call, g);
    g.narrow = gemm_is_narrow(call, amx, call->out[0]->dtype);
    if (gemm_takes_pairs(call)) return linear_in_f32(dev, call, gemm_of_pairs(g, amx));
    g.widen = w->dtype == GM_BF16 ? widen_bf16 : widen_f16;
    g.b_bits = 16;
    g.b_column *= 2;
    return linear_in_f32(dev, call, g);
}

static gm_status cpu_linear(gm_device *dev, const gm_call *call) { return linear_by(dev, call, NULL); }
