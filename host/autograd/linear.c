/* linear.c - the backward rules of the ops `linear` and `linear_quantized`, and the parts of the first that the rules
 * of sharded products share.
 *
 * Products do further work where they can, which saves passes over the gradient. The product of dw also computes db,
 * the column sums of the gradient that it reads. The product of dx also applies the derivative of the previous layer's
 * activation; that layer's rule then gets the gradient of its pre-activation. The trap: the derivative must not be
 * applied twice, so gm_backward_activated empties the other node's slot. */
#include "gradients.h"

#define PRE (GM_SLOT_OUTPUT + 1)

/* dpre = g f'(pre), db where with_bias. */
static gm_tensor *linear_pre(gm_backward *b, gm_tensor *g, gm_tensor *pre, bool with_bias)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *out[2] = {NULL, NULL};
    gm_attrs   a = gm_attrs_default();
    if (pre) a.function = gm_backward_attrs(b)->function; /* else there is none, or it has been gone through */
    if (with_bias) out[1] = gm_backward_target(b, 2, &a.accumulate);
    if (a.function) out[0] = gm_work_like(w, g);
    if (!out[0] && !out[1]) return g;
    gm_work_into(w, GM_OP_bias_activation_grad, 2, (gm_tensor *[]){g, a.function ? pre : NULL}, &a, 2, out);
    return out[0] ? out[0] : g;
}

/* Does db come with dw? */
static bool bias_with_weight(gm_backward *b, const gm_tensor *pre)
{
    return !pre && gm_backward_wants(b, 1) && gm_backward_wants(b, 2);
}

gm_tensor *gm_linear_rule_bias(gm_backward *b, gm_tensor *g)
{
    return linear_pre(b, g, gm_backward_saved(b, PRE), gm_backward_wants(b, 2));
}

gm_tensor *gm_linear_rule_pre(gm_backward *b, gm_tensor *g)
{
    gm_tensor *pre = gm_backward_saved(b, PRE);
    return linear_pre(b, g, pre, gm_backward_wants(b, 2) && !bias_with_weight(b, pre));
}

/* Of a gradient, the leading n[0] (by n[1]). */
static gm_tensor *leading(gm_work *w, gm_tensor *t, const int64_t *n)
{
    gm_tensor *rows = gm_work_narrow(w, t, 0, 0, n[0]);
    return rows && rows->ndim > 1 ? gm_work_narrow(w, rows, 1, 0, n[1]) : rows;
}

/* dw (+)= dpre' x and db, if there is one. Of 16 bits dw may be a sum in f32, which the op for both does not make. */
static void weight_gradient(gm_work *w, gm_tensor *dpre, gm_tensor *x, bool accumulate, gm_tensor **out)
{
    gm_tensor *in[2] = {dpre, x};
    gm_attrs   a = gm_attrs_default();
    a.accumulate = accumulate;
    if (out[1] && out[0]->dtype == dpre->dtype) {
        gm_work_into(w, GM_OP_linear_weight_grad, 2, in, &a, 2, out);
        return;
    }
    gm_attrs product = a;
    product.transpose_a = true;
    product.dtype = out[0]->dtype;
    gm_work_into(w, GM_OP_matmul, 2, in, &product, 1, out);
    in[1] = NULL;
    if (out[1]) gm_work_into(w, GM_OP_bias_activation_grad, 2, in, &a, 2, (gm_tensor *[]){NULL, out[1]});
}

void gm_linear_rule_weight(gm_backward *b, gm_tensor *dpre, gm_tensor *x)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *pre = gm_backward_saved(b, PRE), *whole[2] = {NULL, NULL}, *out[2] = {NULL, NULL};
    bool       held[2] = {false, false};
    if (w->st != GM_OK) return;
    int64_t n[2] = {dpre->shape[1], x->shape[1]};
    whole[0] = gm_backward_wide_target(b, 1, &held[0]);
    if (bias_with_weight(b, pre)) whole[1] = gm_backward_target(b, 2, &held[1]);
    bool accumulate = held[0] || held[1];
    for (int i = 0; i < 2 && whole[i]; i++) { /* the kernel knows one flag: begin the other with zeros; and padding */
        out[i] = leading(w, whole[i], n);
        if (!out[i] || held[i] || (!accumulate && gm_tensor_numel(out[i]) == gm_tensor_numel(whole[i]))) continue;
        gm_work_fill(w, whole[i], 0);
    }
    if (w->st == GM_OK) weight_gradient(w, dpre, x, accumulate, out);
}

void gm_linear_rule_keep(gm_backward *b, gm_tensor *dpre)
{
    if (gm_backward_work(b)->st != GM_OK) return;
    gm_backward_keep_grad(b, 0, dpre);
    gm_backward_keep(b, PRE, NULL);
    for (int i = 0; i < 2; i++)
        if (!gm_backward_later(b, i)) gm_backward_keep(b, !i, NULL);
}

/* dx (+)= dpre w; where x is another layer's f(pre), that layer's dpre = (dpre w) f'(pre) */
static void input_gradient(gm_backward *b, gm_tensor *dpre, gm_tensor *weight)
{
    gm_work   *w = gm_backward_work(b);
    gm_attrs   a = gm_attrs_default();
    gm_tensor *pre = gm_backward_activated(b, 0, &a.function);
    gm_tensor *to = gm_work_flat(w, gm_backward_target(b, 0, &a.accumulate));
    gm_tensor *in[3] = {dpre, weight, pre ? gm_work_flat(w, pre) : NULL};
    gm_work_into(w, pre ? GM_OP_linear_input_grad : GM_OP_matmul, pre ? 3 : 2, in, &a, 1, &to);
}

void gm_linear_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *x = gm_backward_saved(b, 0), *weight = gm_backward_saved(b, 1);
    gm_tensor *dpre = gm_linear_rule_pre(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    gm_tensor *rows = gm_work_flat(w, dpre); /* (m, out) */
    if (gm_backward_wants(b, 0)) input_gradient(b, rows, weight);
    if (gm_backward_wants(b, 1)) gm_linear_rule_weight(b, rows, gm_work_flat(w, x));
    gm_linear_rule_keep(b, dpre);
}

/* Weights of few bits: dx only, by the weights as numbers, which live until the product is there. */
void gm_linear_quantized_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_attrs   a = *gm_backward_attrs(b);
    gm_tensor *dpre = gm_linear_rule_bias(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    if (w->st != GM_OK || !gm_backward_wants(b, 0)) return;
    const gm_spec *x = gm_backward_input(b, 0);
    gm_tensor     *in[2] = {gm_backward_saved(b, 1), NULL};
    a.columns = x->shape[x->ndim - 1];
    a.dtype = x->dtype;
    input_gradient(b, gm_work_flat(w, dpre), gm_work_run(w, GM_OP_dequantize, 2, in, &a));
}
