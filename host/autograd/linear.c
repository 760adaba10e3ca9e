/* linear.c - the backward rule of the op `linear`, and the parts of it that the rules of sharded products share.
 *
 * Products carry what they can, so that no pass over a gradient is made for it alone: dw brings db, the sums of the
 * gradient that it reads anyway; dx of a layer goes back through the activation of the layer before, whose rule finds
 * the gradient of its pre-activation then, and no activation to apply. The trap: it must not be applied twice, which is
 * why gm_backward_activated empties the other node's slot. */
#include <string.h>

#include "gradients.h"
#include "rules.h"

#define PRE (GM_SLOT_OUTPUT + 1)

/* dpre = g f'(pre), db where with_bias. */
static gm_status linear_pre(gm_backward *b, gm_tensor *g, gm_tensor *pre, bool with_bias, gm_tensor **dpre)
{
    gm_tensor *out[2] = {NULL, NULL};
    gm_attrs   a = gm_attrs_default();
    if (pre) a.function = gm_backward_attrs(b)->function; /* else there is none, or it has been gone through */
    if (with_bias) GM_TRY(gm_backward_target(b, 2, &out[1], &a.accumulate));
    if (a.function) {
        gm_spec spec = {.dtype = g->dtype, .ndim = g->ndim};
        memcpy(spec.shape, g->shape, sizeof spec.shape);
        GM_TRY(gm_backward_new(b, &spec, &out[0]));
    } else if (!out[1]) {
        gm_tensor_retain(g);
        *dpre = g;
        return GM_OK;
    }
    gm_status st = gm_rule_into(b, GM_OP_bias_activation_grad, 2, (gm_tensor *[]){g, a.function ? pre : NULL}, &a, 2,
                                out);
    if (st != GM_OK) {
        gm_tensor_release(out[0]);
        return st;
    }
    if (!out[0]) gm_tensor_retain(g);
    *dpre = out[0] ? out[0] : g;
    return GM_OK;
}

/* Does db come with dw? */
static bool bias_with_weight(gm_backward *b, const gm_tensor *pre)
{
    return !pre && gm_backward_wants(b, 1) && gm_backward_wants(b, 2);
}

gm_status gm_rule_linear_bias(gm_backward *b, gm_tensor *g, gm_tensor **dpre)
{
    gm_tensor *pre;
    GM_TRY(gm_backward_saved(b, PRE, &pre));
    return linear_pre(b, g, pre, gm_backward_wants(b, 2), dpre);
}

gm_status gm_rule_linear_pre(gm_backward *b, gm_tensor *g, gm_tensor **dpre)
{
    gm_tensor *pre;
    GM_TRY(gm_backward_saved(b, PRE, &pre));
    return linear_pre(b, g, pre, gm_backward_wants(b, 2) && !bias_with_weight(b, pre), dpre);
}

/* Where the gradient of input i goes, and the leading n[0] (by n[1]) of it. */
static gm_status leading_target(gm_backward *b, int i, const int64_t *n, gm_tensor **whole, gm_tensor **out, bool *held)
{
    gm_tensor *rows = NULL;
    GM_TRY((i == 1 ? gm_backward_wide_target : gm_backward_target)(b, i, whole, held));
    GM_TRY(gm_tensor_narrow(*whole, 0, 0, n[0], &rows));
    if (rows->ndim == 1) {
        *out = rows;
        return GM_OK;
    }
    gm_status st = gm_tensor_narrow(rows, 1, 0, n[1], out);
    gm_tensor_release(rows);
    return st;
}

/* dw (+)= dpre' x and db, if there is one. Of 16 bits dw may be a sum in f32, which the op for both does not make. */
static gm_status weight_gradient(gm_backward *b, gm_tensor *dpre, gm_tensor *x, bool accumulate, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default(), product;
    a.accumulate = accumulate;
    if (out[1] && out[0]->dtype == dpre->dtype)
        return gm_rule_into(b, GM_OP_linear_weight_grad, 2, (gm_tensor *[]){dpre, x}, &a, 2, out);
    product = a;
    product.transpose_a = true;
    product.dtype = out[0]->dtype;
    GM_TRY(gm_rule_into(b, GM_OP_matmul, 2, (gm_tensor *[]){dpre, x}, &product, 1, out));
    if (!out[1]) return GM_OK;
    return gm_rule_into(b, GM_OP_bias_activation_grad, 2, (gm_tensor *[]){dpre, NULL}, &a, 2,
                        (gm_tensor *[]){NULL, out[1]});
}

gm_status gm_rule_linear_weight(gm_backward *b, gm_tensor *dpre, gm_tensor *x)
{
    gm_tensor *pre, *whole[2] = {NULL, NULL}, *out[2] = {NULL, NULL};
    gm_attrs   a = gm_attrs_default(), zero = a;
    int64_t    n[2] = {dpre->shape[1], x->shape[1]};
    bool       held[2] = {false, false};
    gm_status  st;
    GM_TRY(gm_backward_saved(b, PRE, &pre));
    GM_TRY(leading_target(b, 1, n, &whole[0], &out[0], &held[0]));
    if (bias_with_weight(b, pre)) GM_TRY_OR(leading_target(b, 2, n, &whole[1], &out[1], &held[1]), st, done);
    a.accumulate = held[0] || held[1];
    for (int i = 0; i < 2; i++) { /* the kernel knows one flag: begin the other with zeros; and so does padding */
        if (!whole[i] || held[i] || (!a.accumulate && gm_tensor_numel(out[i]) == gm_tensor_numel(whole[i]))) continue;
        GM_TRY_OR(gm_rule_into(b, GM_OP_fill, 0, NULL, &zero, 1, &whole[i]), st, done);
    }
    st = weight_gradient(b, dpre, x, a.accumulate, out);
done:
    gm_tensor_release(out[0]);
    gm_tensor_release(out[1]);
    return st;
}

void gm_rule_linear_keep(gm_backward *b, gm_tensor *dpre)
{
    gm_backward_keep_grad(b, 0, dpre);
    gm_backward_keep(b, PRE, NULL);
    for (int i = 0; i < 2; i++)
        if (!gm_backward_later(b, i)) gm_backward_keep(b, !i, NULL);
}

/* dx (+)= dpre w; where x is another layer's f(pre), that layer's dpre = (dpre w) f'(pre) */
static gm_status input_gradient(gm_backward *b, gm_tensor *dpre, gm_tensor *w)
{
    gm_tensor *pre = NULL, *rows = NULL, *to, *view = NULL;
    gm_attrs   a = gm_attrs_default();
    gm_status  st;
    GM_TRY(gm_backward_activated(b, 0, &pre, &a.function));
    GM_TRY_OR(gm_backward_target(b, 0, &to, &a.accumulate), st, done);
    GM_TRY_OR(gm_rule_rows(b, to, &view), st, done);
    if (pre) GM_TRY_OR(gm_rule_rows(b, pre, &rows), st, done);
    st = pre ? gm_rule_into(b, GM_OP_linear_input_grad, 3, (gm_tensor *[]){dpre, w, rows}, &a, 1, &view)
             : gm_rule_into(b, GM_OP_matmul, 2, (gm_tensor *[]){dpre, w}, &a, 1, &view);
done:
    gm_tensor_release(view);
    gm_tensor_release(rows);
    gm_tensor_release(pre);
    return st;
}

gm_status gm_rule_linear(gm_backward *b)
{
    gm_tensor *x, *w, *g = NULL, *dpre = NULL, *rows = NULL, *flat = NULL;
    gm_status  st;
    GM_TRY(gm_backward_saved(b, 0, &x));
    GM_TRY(gm_backward_saved(b, 1, &w));
    GM_TRY(gm_rule_contiguous(b, gm_backward_grad(b, 0), &g));
    GM_TRY_OR(gm_rule_linear_pre(b, g, &dpre), st, done);
    GM_TRY_OR(gm_rule_rows(b, dpre, &rows), st, done); /* (m, out) */
    if (gm_backward_wants(b, 0)) GM_TRY_OR(input_gradient(b, rows, w), st, done);
    if (gm_backward_wants(b, 1)) {
        GM_TRY_OR(gm_rule_rows(b, x, &flat), st, done);
        GM_TRY_OR(gm_rule_linear_weight(b, rows, flat), st, done);
    }
    gm_rule_linear_keep(b, dpre);
    st = GM_OK;
done:
    gm_tensor_release(flat);
    gm_tensor_release(rows);
    gm_tensor_release(dpre);
    gm_tensor_release(g);
    return st;
}
