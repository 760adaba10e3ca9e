/* gemm_grads.c - the gradients of linear: bias_activation_grad, linear_weight_grad and linear_input_grad. Part of
 * gemm.c. */

/* ---- bias_activation_grad ---- */

/* dpre = g f'(pre) and column sums of dpre, by rows: each part of the rows has its own sums. */
typedef struct gemm_bias {
    gm_function f;
    int64_t     n, g_row, pre_row, dpre_row;
    bool        narrow; /* g is bf16; only sums are wanted then, of no function */
    const void *g, *pre;
    void       *dpre;    /* NULL: not wanted */
    double     *scratch; /* 2 n for each part: sums, a row */
} gemm_bias;

#define AS 32
#include "as.h"
#include "gemm_bias_t.h"
#define AS 64
#include "as.h"
#include "gemm_bias_t.h"
#define AS 0
#include "as.h"

static gm_status cpu_bias_activation_grad(gm_device *dev, const gm_call *call)
{
    gm_tensor *g = NULL, *pre = NULL, *dpre = NULL, *db = cpu_out(call, 1);
    gm_dtype   dtype = gm_dtype_wide(call->in[0]->dtype);
    gm_block  *block = NULL;
    gm_status  st;
    gemm_bias  w = {.f = call->attrs->function,
                    .n = call->in[0]->shape[call->in[0]->ndim - 1],
                    .narrow = call->in[0]->dtype == GM_BF16};
    GM_TRY_OR(gemm_rows(dev, call->in[0], true, &g, &w.g_row), st, done);
    GM_TRY_OR(gemm_rows(dev, w.f == GM_FN_none ? NULL : call->in[1], true, &pre, &w.pre_row), st, done);
    GM_TRY_OR(gemm_rows(dev, cpu_out(call, 0), false, &dpre, &w.dpre_row), st, done);
    int64_t rows = 1;
    for (int d = 0; d < g->ndim - 1; d++) rows *= g->shape[d];
    int64_t cost = w.n * (int64_t)gm_dtype_size(dtype) * 4;
    int     parts = rows ? cpu_parts(dev, rows, cost) : 0;
    if (parts) /* a row is needed as scratch even where no sums are wanted */
        GM_TRY_OR(cpu_scratch(dev, (size_t)(2 * w.n * parts) * sizeof(double), &w.scratch, &block), st, done);
    w.g = gm_tensor_data(g);
    w.pre = pre ? gm_tensor_data(pre) : NULL;
    w.dpre = dpre ? gm_tensor_data(dpre) : NULL;
    cpu_parallel(dev, rows, cost, dtype == GM_F32 ? bias_part_f32 : bias_part_f64, &w);
    if (db && dtype == GM_F32) bias_sum_f32(&w, parts, call->attrs->accumulate, gm_tensor_data(db), cpu_stride1(db));
    if (db && dtype == GM_F64) bias_sum_f64(&w, parts, call->attrs->accumulate, gm_tensor_data(db), cpu_stride1(db));
    if (block) gm_pool_release(dev->pool, block);
    st = GM_OK;
done:
    gm_tensor_release(g);
    gm_tensor_release(pre);
    return cpu_home(dev, dpre, cpu_out(call, 0), st);
}

/* ---- linear_weight_grad, linear_input_grad ---- */

/* db (+)= the sums of g over rows, in f32 or f64; g may be bf16. */
static gm_status weight_grad_sums(gm_device *dev, gm_tensor *g, gm_tensor *db, const gm_attrs *a)
{
    gm_tensor *sums[2] = {NULL, NULL};
    GM_TRY(cpu_plain(dev, gm_dtype_wide(db->dtype), db, a->accumulate, &sums[1]));
    gm_status st = cpu_bias_activation_grad(dev, &(gm_call){GM_OP_bias_activation_grad, 1, 2, &g, sums, a});
    return cpu_home(dev, sums[1], db, st);
}

/* Can the product sum rows of g' on its way, which it packs or reads? Then dw is in rows. Sums of f64 keep the order,
 * and so the bits, that they have without a product. */
static bool weight_grad_fuses(const gm_call *call, const amx_kind *amx)
{
    const gm_tensor *dw = call->out[0], *g = call->in[0];
    const bool       rows = dw->shape[1] > 1 && (dw->stride[1] == 1 || dw->stride[0] != 1);
    if (!rows || dw->shape[0] == 0) return false;
    return gemm_takes_pairs(call) ? amx != NULL : g->dtype == GM_F32 && g->stride[1] == 1;
}

/* The product, then, where it does not do that itself, a pass over g for its sums: it costs as much as reading g. */
static gm_status linear_weight_grad_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    gm_attrs a = gm_attrs_default();
    a.transpose_a = true;
    a.accumulate = call->attrs->accumulate;
    const bool    fuses = cpu_out(call, 1) && weight_grad_fuses(call, amx);
    const gm_call product = {GM_OP_matmul, 2, 1, call->in, call->out, &a};
    GM_TRY(matmul_summed(dev, &product, amx, fuses ? call->out[1] : NULL));
    return cpu_out(call, 1) && !fuses ? weight_grad_sums(dev, call->in[0], call->out[1], &a) : GM_OK;
}

static gm_status cpu_linear_weight_grad(gm_device *dev, const gm_call *call)
{
    return linear_weight_grad_by(dev, call, NULL);
}

static gm_status linear_input_grad_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    gm_tensor *from = call->in[0], *w = call->in[1], *pre = NULL, *y = NULL;
    const bool narrow = gemm_is_narrow(call, amx, call->out[0]->dtype);
    gm_dtype   dtype = narrow ? GM_BF16 : gemm_sums(call);
    gm_status  st;
    gemm       g = {.m = from->shape[0],
                    .n = w->shape[1],
                    .k = w->shape[0],
                    .a = gm_tensor_data(from),
                    .a_row = from->stride[0],
                    .a_k = from->stride[1],
                    .b = gm_tensor_data(w),
                    .b_k = w->stride[0],
                    .b_column = w->stride[1],
                    .alpha = 1,
                    .narrow = narrow,
                    .finish = true,
                    .f = call->attrs->function};
    if (g.m == 0 || g.n == 0) return GM_OK;
    GM_TRY_OR(gemm_rows_in(dev, dtype, call->in[2], true, &pre, &g.pre_row), st, done);
    GM_TRY_OR(gemm_rows_in(dev, dtype, call->out[0], false, &y, &g.y_row), st, done);
    g.pre = gm_tensor_data(pre);
    g.c = g.y = gm_tensor_data(y);
    g.c_row = g.y_row;
    if (gemm_takes_pairs(call)) g = gemm_of_pairs(g, amx);
    st = gemm_whole(dev, gemm_sums(call), &g);
done:
    gm_tensor_release(pre);
    return cpu_home(dev, y, call->out[0], st);
}

static gm_status cpu_linear_input_grad(gm_device *dev, const gm_call *call)
{
    return linear_input_grad_by(dev, call, NULL);
}
