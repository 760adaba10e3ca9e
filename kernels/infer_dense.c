/* infer_dense.c - inference rules (infer.h) of the contractions, norms, softmax and attention. */
#include <inttypes.h>

#include "infer.h"

/* The dtype of a product: a's, or f32 where that is of 16 bits, for sums of several products. */
static gm_status product_dtype(const gm_call *call, gm_dtype *out)
{
    gm_dtype a = call->in[0]->dtype, wide = gm_dtype_wide(a), asked = call->attrs->dtype;
    *out = asked == GM_DTYPE_NONE ? a : asked;
    if (*out == a || *out == wide) return GM_OK;
    return GM_FAIL(GM_EINVAL, "matmul: of %s it gives %s%s%s", gm_dtype_name(a), gm_dtype_name(a),
                   a == wide ? "" : " or ", a == wide ? "" : gm_dtype_name(wide));
}

/* a (..., m, k) x b (..., k, n) -> (..., m, n), after the transposes; batch dimensions broadcast. */
gm_status gm_infer_matmul(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *a = call->in[0], *b = call->in[1];
    gm_dtype         dtype;
    GM_TRY(product_dtype(call, &dtype));
    GM_TRY(gm_expect_ndim(call, "a", a, 2));
    GM_TRY(gm_expect_ndim(call, "b", b, 2));
    int     ta = call->attrs->transpose_a, tb = call->attrs->transpose_b, ndim = a->ndim - 2;
    int64_t m = a->shape[a->ndim - 2 + ta], k = a->shape[a->ndim - 1 - ta];
    int64_t inner = b->shape[b->ndim - 2 + tb], n = b->shape[b->ndim - 1 - tb];
    if (k != inner)
        return GM_FAIL(GM_ESHAPE, "matmul: %s%s x %s%s: inner sizes %" PRId64 " and %" PRId64 " differ", GM_SHOW(a),
                       ta ? "'" : "", GM_SHOW(b), tb ? "'" : "", k, inner);
    spec[0] = gm_spec_of(dtype, ndim, a->shape);
    gm_tensor batch = *b;
    batch.ndim -= 2;
    GM_TRY(gm_broadcast(call, &batch, &spec[0].ndim, spec[0].shape));
    spec[0].shape[spec[0].ndim++] = m;
    spec[0].shape[spec[0].ndim++] = n;
    return GM_OK;
}

gm_status gm_expect_activation(const gm_call *call)
{
    gm_function f = call->attrs->function;
    if (f == GM_FN_none || gm_function_is_activation(f)) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: '%s' is no activation; relu, gelu, gelu_tanh, silu, sigmoid, tanh and none are",
                   gm_op_called(call->op, call->attrs), f > 0 && f < GM_FN_COUNT ? gm_function_name(f) : "?");
}

/* x (..., in), w (out, in), b (out) -> y, pre (..., out) */
gm_status gm_infer_linear(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *w = call->in[1];
    GM_TRY(gm_expect_activation(call));
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    if (w->ndim != 2) return GM_FAIL(GM_ESHAPE, "linear: w is %s, should be (out, in)", GM_SHOW(w));
    if (x->shape[x->ndim - 1] != w->shape[1])
        return GM_FAIL(GM_ESHAPE, "linear: x %s, w %s: inner sizes %" PRId64 " and %" PRId64 " differ", GM_SHOW(x),
                       GM_SHOW(w), x->shape[x->ndim - 1], w->shape[1]);
    GM_TRY(gm_expect_shape(call, "b", call->in[2], 1, w->shape));
    spec[0] = gm_spec_like(x);
    spec[0].shape[x->ndim - 1] = w->shape[0];
    spec[1] = spec[0];
    return GM_OK;
}

/* g (..., n), pre as g unless there is no function -> dpre as g, db (n) */
gm_status gm_infer_bias_activation_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *g = call->in[0], *pre = call->in[1];
    GM_TRY(gm_expect_activation(call));
    GM_TRY(gm_expect_ndim(call, "g", g, 1));
    if (!pre && call->attrs->function != GM_FN_none)
        return GM_FAIL(GM_EINVAL, "bias_activation_grad: pre is missing; the gradient of %s needs it",
                       gm_function_name(call->attrs->function));
    GM_TRY(gm_expect_like(call, "pre", pre, g));
    spec[0] = gm_spec_like(g);
    spec[1] = gm_spec_of(g->dtype, 1, &g->shape[g->ndim - 1]);
    return GM_OK;
}

/* A matrix of these sizes; -1: any. */
static gm_status expect_matrix(const gm_call *call, const char *name, const gm_tensor *t, int64_t rows, int64_t columns)
{
    if (t->ndim == 2 && (rows < 0 || t->shape[0] == rows) && (columns < 0 || t->shape[1] == columns)) return GM_OK;
    const char *op = gm_op_called(call->op, call->attrs);
    if (rows < 0 && columns < 0) return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be a matrix", op, name, GM_SHOW(t));
    if (columns < 0)
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be a matrix of %" PRId64 " rows", op, name, GM_SHOW(t), rows);
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be (%" PRId64 ", %" PRId64 ")", op, name, GM_SHOW(t), rows,
                   columns);
}

/* g (rows, out), x (rows, in) -> dw (out, in), db (out) */
gm_status gm_infer_linear_weight_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *g = call->in[0], *x = call->in[1];
    GM_TRY(expect_matrix(call, "g", g, -1, -1));
    GM_TRY(expect_matrix(call, "x", x, g->shape[0], -1));
    spec[0] = gm_spec_of(g->dtype, 2, (int64_t[]){g->shape[1], x->shape[1]});
    spec[1] = gm_spec_of(g->dtype, 1, &g->shape[1]);
    return GM_OK;
}

/* g (rows, out), w (out, in), pre (rows, in) -> dpre as pre */
gm_status gm_infer_linear_input_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *g = call->in[0], *w = call->in[1], *pre = call->in[2];
    if (call->attrs->function == GM_FN_none)
        return GM_FAIL(GM_EINVAL, "linear_input_grad: without an activation it is a matmul");
    GM_TRY(gm_expect_activation(call));
    GM_TRY(expect_matrix(call, "g", g, -1, -1));
    GM_TRY(expect_matrix(call, "w", w, g->shape[1], -1));
    GM_TRY(expect_matrix(call, "pre", pre, g->shape[0], w->shape[1]));
    spec[0] = gm_spec_like(pre);
    return GM_OK;
}

/* x (..., n), w and b (n); the statistics of rows of nothing are no numbers that anybody reads */
static gm_status expect_norm(const gm_call *call, const gm_tensor *x, const gm_tensor *w, const gm_tensor *b)
{
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    const int64_t *n = &x->shape[x->ndim - 1];
    GM_TRY(gm_expect_shape(call, "w", w, 1, n));
    return gm_expect_shape(call, "b", b, 1, n);
}

static gm_status expect_eps(const gm_call *call)
{
    if (call->attrs->eps >= 0) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: eps is %g, should not be negative", gm_op_called(call->op, call->attrs),
                   call->attrs->eps);
}

gm_status gm_infer_layer_norm(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_eps(call));
    GM_TRY(expect_norm(call, x, call->in[2], call->in[3]));
    GM_TRY(gm_expect_like(call, "residual", call->in[1], x));
    spec[0] = spec[1] = gm_spec_like(x);
    spec[2] = spec[3] = gm_spec_leading(x);
    return GM_OK;
}

gm_status gm_infer_rms_norm(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_eps(call));
    GM_TRY(expect_norm(call, x, call->in[2], NULL));
    GM_TRY(gm_expect_like(call, "residual", call->in[1], x));
    spec[0] = spec[1] = gm_spec_like(x);
    spec[2] = gm_spec_leading(x);
    return GM_OK;
}

/* g, gsum as x; the statistics have x's leading shape -> dx as x, dw, db (n) */
static gm_status norm_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[2];
    GM_TRY(expect_norm(call, x, call->in[3], NULL));
    GM_TRY(gm_expect_like(call, "g", call->in[0], x));
    GM_TRY(gm_expect_like(call, "gsum", call->in[1], x));
    for (int i = 4; i < call->n_in; i++)
        GM_TRY(gm_expect_shape(call, i == call->n_in - 1 ? "rstd" : "mean", call->in[i], x->ndim - 1, x->shape));
    spec[0] = gm_spec_like(x);
    for (int i = 1; i < call->n_out; i++) spec[i] = gm_spec_of(x->dtype, 1, &x->shape[x->ndim - 1]);
    return GM_OK;
}

gm_status gm_infer_layer_norm_grad(const gm_call *call, gm_spec *spec) { return norm_grad(call, spec); }
gm_status gm_infer_rms_norm_grad(const gm_call *call, gm_spec *spec) { return norm_grad(call, spec); }

/* mean, rstd, ...: one number a row */
static gm_status expect_statistics(const gm_call *call, const gm_tensor *x, int first, const char *const *names)
{
    for (int i = first; i < call->n_in; i++)
        GM_TRY(gm_expect_shape(call, names[i - first], call->in[i], x->ndim - 1, x->shape));
    return GM_OK;
}

gm_status gm_infer_norm_sums(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0];
    GM_TRY(expect_norm(call, x, NULL, NULL));
    GM_TRY(gm_expect_like(call, "residual", call->in[1], x));
    spec[0] = gm_spec_like(x);
    spec[1] = spec[2] = gm_spec_leading(x);
    return GM_OK;
}

gm_status gm_infer_norm_apply(const gm_call *call, gm_spec *spec)
{
    static const char *const names[] = {"mean", "rstd"};
    const gm_tensor         *x = call->in[0];
    GM_TRY(expect_norm(call, x, call->in[1], call->in[2]));
    GM_TRY(expect_statistics(call, x, 3, names));
    spec[0] = gm_spec_like(x);
    return GM_OK;
}

gm_status gm_infer_norm_grad_sums(const gm_call *call, gm_spec *spec)
{
    static const char *const names[] = {"mean", "rstd"};
    const gm_tensor         *x = call->in[1];
    GM_TRY(expect_norm(call, x, call->in[2], NULL));
    GM_TRY(gm_expect_like(call, "g", call->in[0], x));
    GM_TRY(expect_statistics(call, x, 3, names));
    spec[0] = spec[1] = gm_spec_of(x->dtype, 1, &x->shape[x->ndim - 1]);
    spec[2] = spec[3] = gm_spec_leading(x);
    return GM_OK;
}

gm_status gm_infer_norm_grad_apply(const gm_call *call, gm_spec *spec)
{
    static const char *const names[] = {"mean", "rstd", "mean_h", "mean_h_hat"};
    const gm_tensor         *x = call->in[2];
    GM_TRY(expect_norm(call, x, call->in[3], NULL));
    GM_TRY(gm_expect_like(call, "g", call->in[0], x));
    GM_TRY(gm_expect_like(call, "gsum", call->in[1], x));
    GM_TRY(expect_statistics(call, x, 4, names));
    spec[0] = gm_spec_like(x);
    return GM_OK;
}

static gm_status expect_positions(const gm_call *call)
{
    const gm_tensor *x = call->in[0], *index = call->in[2];
    if (!index) return GM_OK;
    if (call->attrs->first)
        return GM_FAIL(GM_EINVAL, "rotary: first is %" PRId64 ", should be 0 where positions are given",
                       call->attrs->first);
    if (index->ndim == 2) return gm_expect_shape(call, "positions", index, 2, x->shape);
    return gm_expect_shape(call, "positions", index, 1, &x->shape[1]);
}

gm_status gm_infer_rotary(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->in[0], *f = call->in[1];
    const gm_attrs  *at = call->attrs;
    GM_TRY(gm_expect_ndim(call, "x", x, 3));
    if (f->ndim != 1 || 2 * f->shape[0] > x->shape[x->ndim - 1])
        return GM_FAIL(GM_ESHAPE,
                       "rotary: frequencies are %s, should be (r), where 2 r is at most the last size of x %s",
                       GM_SHOW(f), GM_SHOW(x));
    if (at->rotated < 0 || (at->rotated && (x->ndim < 4 || at->rotated > x->shape[x->ndim - 2])))
        return GM_FAIL(GM_EINVAL, "rotary: rotated is %" PRId64 ", should be from 1 to the last size but one of x %s",
                       at->rotated, GM_SHOW(x));
    if (at->first < 0) return GM_FAIL(GM_EINVAL, "rotary: first is %" PRId64 ", should not be negative", at->first);
    GM_TRY(expect_positions(call));
    GM_TRY(gm_expect_box(call, x->ndim, x->shape, true));
    spec[0] = gm_spec_like(x);
    return GM_OK;
}

static gm_status along_dim(const gm_call *call, gm_spec *spec)
{
    int dim;
    GM_TRY(gm_expect_dim(call, call->in[0], &dim));
    if (call->n_in == 2) GM_TRY(gm_expect_like(call, "g", call->in[1], call->in[0]));
    spec[0] = gm_spec_like(call->in[0]);
    return GM_OK;
}

gm_status gm_infer_cumsum(const gm_call *call, gm_spec *spec) { return along_dim(call, spec); }
gm_status gm_infer_softmax(const gm_call *call, gm_spec *spec) { return along_dim(call, spec); }
gm_status gm_infer_softmax_grad(const gm_call *call, gm_spec *spec) { return along_dim(call, spec); }
gm_status gm_infer_log_softmax(const gm_call *call, gm_spec *spec) { return along_dim(call, spec); }
gm_status gm_infer_log_softmax_grad(const gm_call *call, gm_spec *spec) { return along_dim(call, spec); }

static gm_status expect_unit_stride(const gm_call *call, const char *name, const gm_tensor *t)
{
    if (t->shape[3] <= 1 || t->stride[3] == 1) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: the last dimension of %s %s has stride %" PRId64 ", should be 1: copy it first",
                   gm_op_called(call->op, call->attrs), name, GM_SHOW(t), t->stride[3]);
}

static gm_status expect_window(const char *op, const gm_attrs *at)
{
    if (at->window < 0)
        return GM_FAIL(GM_EINVAL, "%s: window is %" PRId64 ", should be a number of keys, or 0 for all", op,
                       at->window);
    if (at->behind < 0) return GM_FAIL(GM_EINVAL, "%s: behind is %" PRId64 ", should not be negative", op, at->behind);
    if ((at->window || at->behind) && !at->causal)
        return GM_FAIL(GM_EINVAL, "%s: a window needs causal attention: it ends at the query's own place", op);
    if (!(at->softcap >= 0)) return GM_FAIL(GM_EINVAL, "%s: softcap is %g, should not be negative", op, at->softcap);
    return GM_OK;
}

/* bias (n, h, s, t), for samples from number `row` on. */
static gm_status expect_bias(const gm_call *call, const gm_tensor *bias)
{
    const gm_tensor *q = call->in[0], *k = call->in[1];
    const char      *op = gm_op_called(call->op, call->attrs);
    if (call->attrs->row < 0)
        return GM_FAIL(GM_EINVAL, "%s: row is %" PRId64 ", should be the place of the first sample, from 0", op,
                       call->attrs->row);
    if (!bias) return GM_OK;
    if (bias->ndim != 4 || bias->shape[0] < 1)
        return GM_FAIL(GM_ESHAPE, "%s: bias is %s; should be (1 or more, heads, queries, keys)", op, GM_SHOW(bias));
    return gm_expect_shape(call, "bias", bias, 4, (int64_t[]){bias->shape[0], q->shape[2], q->shape[1], k->shape[1]});
}

/* q (b, s, h, d), k and v (b, t, hk, d), key_mask (b, t), limits (b, s, 2), bias (n, h, s, t); the attributes. */
static gm_status expect_attention(const gm_call *call, const gm_tensor *limits, const gm_tensor *bias)
{
    const gm_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
    const gm_attrs  *at = call->attrs;
    const char      *op = gm_op_called(call->op, call->attrs);
    if (q->ndim != 4 || k->ndim != 4 || q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3])
        return GM_FAIL(GM_ESHAPE,
                       "%s: q %s, k %s; should be (batch, queries, heads, size) and (batch, keys, heads, size)", op,
                       GM_SHOW(q), GM_SHOW(k));
    GM_TRY(gm_expect_like(call, "v", v, k));
    int64_t h = q->shape[2], hk = k->shape[2];
    if (hk == 0 ? h != 0 : h % hk != 0)
        return GM_FAIL(GM_ESHAPE, "%s: %" PRId64 " query heads are no multiple of %" PRId64 " key heads", op, h, hk);
    GM_TRY(gm_expect_shape(call, "key_mask", call->in[3], 2, k->shape));
    if (at->prefix_mask && !call->in[3])
        return GM_FAIL(GM_EINVAL, "%s: prefix_mask says what key_mask is like, and no key_mask is given", op);
    GM_TRY(gm_expect_shape(call, "limits", limits, 3, (int64_t[]){q->shape[0], q->shape[1], 2}));
    GM_TRY(expect_bias(call, bias));
    GM_TRY(gm_expect_range(call, "dropout", at->p, 0, 1));
    if (!(at->scale >= 0)) return GM_FAIL(GM_EINVAL, "%s: scale is %g, should not be negative", op, at->scale);
    GM_TRY(expect_window(op, at));
    GM_TRY(expect_unit_stride(call, "q", q));
    GM_TRY(expect_unit_stride(call, "k", k));
    GM_TRY(expect_unit_stride(call, "v", v));
    return gm_expect_box(call, 4, (int64_t[]){q->shape[0], h, q->shape[1], k->shape[1]}, true);
}

gm_status gm_infer_attention(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *q = call->in[0];
    GM_TRY(expect_attention(call, call->in[4], call->in[5]));
    spec[0] = gm_spec_like(q);
    spec[1] = gm_spec_of(q->dtype, 3, (int64_t[]){q->shape[0], q->shape[2], q->shape[1]});
    return GM_OK;
}

gm_status gm_infer_attention_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *q = call->in[0];
    GM_TRY(expect_attention(call, call->in[7], call->in[8]));
    if (call->out && call->out[3] && !call->in[8])
        return GM_FAIL(GM_EINVAL, "%s: dbias is wanted, but there is no bias", gm_op_called(call->op, call->attrs));
    GM_TRY(gm_expect_like(call, "o", call->in[4], q));
    GM_TRY(gm_expect_shape(call, "lse", call->in[5], 3, (int64_t[]){q->shape[0], q->shape[2], q->shape[1]}));
    GM_TRY(gm_expect_like(call, "g", call->in[6], q));
    GM_TRY(expect_unit_stride(call, "o", call->in[4]));
    GM_TRY(expect_unit_stride(call, "g", call->in[6]));
    for (int i = 0; i < 3; i++) spec[i] = gm_spec_like(call->in[i]);
    spec[3] = gm_spec_like(call->in[8] ? call->in[8] : q);
    return GM_OK;
}

gm_status gm_infer_documents(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *segment = call->in[0];
    if (segment->ndim != 2)
        return GM_FAIL(GM_ESHAPE, "documents: segment is %s, should be (batch, sequence)", GM_SHOW(segment));
    spec[0] = gm_spec_of(GM_I64, 3, (int64_t[]){segment->shape[0], segment->shape[1], 3});
    return GM_OK;
}
