/* convolution.c - the backward rule of convolutions, and its parts. Each of the two ops is the other's gradient of the
 * input; both have the same gradient of the weight, with the places of what is read and what is made exchanged. The
 * nodes keep the slots of `linear`: x, w, and what the activation was given. */
#include "gradients.h"

#define PRE (GM_SLOT_OUTPUT + 1)

/* The attributes of a gradient: those of the call, less its activation. */
static gm_attrs attributes(const gm_attrs *of)
{
    gm_attrs a = *of;
    a.function = GM_FN_none;
    a.output_padding = (gm_sizes)GM_SIZES(0);
    a.name = NULL;
    return a;
}

/* What a convolution of x left out at the end, because its stride did not reach there. */
static void left_out(gm_attrs *a, const gm_tensor *x, const gm_tensor *w)
{
    for (int d = 0; d < x->ndim - 2; d++) {
        int64_t reach = a->dilation.at[d] * (w->shape[d + 2] - 1) + 1;
        a->output_padding.at[d] = (x->shape[d + 2] + a->pad_low.at[d] + a->pad_high.at[d] - reach) % a->stride.at[d];
    }
}

void gm_convolution_input_gradient(gm_work *w, gm_op op, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *weight,
                                   gm_tensor *dx)
{
    bool       transposed = op == GM_OP_transposed_convolution;
    gm_attrs   a = attributes(attrs);
    gm_tensor *in[3] = {dpre, weight, NULL}, *out[2] = {dx, NULL};
    if (w->st != GM_OK) return;
    if (!transposed) left_out(&a, dx, weight);
    gm_work_into(w, transposed ? GM_OP_convolution : GM_OP_transposed_convolution, 3, in, &a, 2, out);
}

void gm_convolution_rule_input(gm_backward *b, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *dx)
{
    gm_convolution_input_gradient(gm_backward_work(b), gm_backward_op(b), attrs, dpre, gm_backward_saved(b, 1), dx);
}

void gm_convolution_rule_bias(gm_backward *b, gm_tensor *g)
{
    uint32_t all = (1u << gm_backward_input(b, 0)->ndim) - 1;
    if (gm_backward_work(b)->st != GM_OK) return;
    gm_backward_give(b, 2, gm_work_sum(gm_backward_work(b), g, all & ~2u, false, NULL));
}

/* out (dw, db or NULL) from dpre and x, of the node's op: the kernel takes what it made the gradient of, and what it
 * read. */
static void weight_kernel(gm_work *w, gm_op op, gm_attrs a, gm_tensor *dpre, gm_tensor *x, gm_tensor *const *out)
{
    bool       transposed = op == GM_OP_transposed_convolution;
    gm_tensor *in[2] = {transposed ? x : dpre, transposed ? dpre : x};
    if (w->st != GM_OK) return;
    for (int d = 0; d < out[0]->ndim - 2; d++) a.kernel.at[d] = out[0]->shape[d + 2];
    gm_work_into(w, GM_OP_convolution_weight_grad, 2, in, &a, 2, out);
}

void gm_convolution_weight_gradient(gm_work *w, gm_op op, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *x,
                                    bool accumulate, gm_tensor *dw)
{
    gm_attrs   a = attributes(attrs);
    gm_tensor *out[2] = {dw, NULL};
    a.accumulate = accumulate;
    weight_kernel(w, op, a, dpre, x, out);
}

/* dw, and db with it. */
static void weight_gradient(gm_backward *b, gm_attrs a, gm_tensor *dpre, gm_tensor *x, bool with_bias)
{
    gm_work   *w = gm_backward_work(b);
    bool       held[2] = {false, false};
    gm_tensor *out[2] = {gm_backward_target(b, 1, &held[0]), NULL};
    if (with_bias) out[1] = gm_backward_target(b, 2, &held[1]);
    a.accumulate = held[0] || held[1];
    for (int i = 0; i < 2; i++) /* the kernel knows one flag: begin the other with zeros */
        if (out[i] && a.accumulate && !held[i]) gm_work_fill(w, out[i], 0);
    weight_kernel(w, gm_backward_op(b), a, dpre, x, out);
}

/* dw and db of a rank that made nothing: zeros, unless they hold a gradient. */
static void no_gradient(gm_backward *b)
{
    for (int i = 1; i <= 2; i++) {
        bool held = false;
        if (!gm_backward_wants(b, i)) continue;
        gm_tensor *to = gm_backward_target(b, i, &held);
        if (!held) gm_work_fill(gm_backward_work(b), to, 0);
    }
}

void gm_convolution_rule_weight(gm_backward *b, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *x)
{
    bool     transposed = gm_backward_op(b) == GM_OP_transposed_convolution, with_bias = gm_backward_wants(b, 2);
    gm_attrs a = attributes(attrs);
    if (gm_backward_work(b)->st != GM_OK) return;
    if (!dpre) {
        no_gradient(b);
        return;
    }
    if (gm_backward_wants(b, 1)) weight_gradient(b, a, dpre, x, with_bias && !transposed);
    if (with_bias && (transposed || !gm_backward_wants(b, 1))) gm_convolution_rule_bias(b, dpre);
}

/* Without an activation, or where the first half of the pass has applied its derivative, there is no pre. */
gm_tensor *gm_convolution_rule_pre(gm_backward *b, gm_tensor *g, int slot)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *in[2] = {gm_backward_saved(b, slot), g};
    a.function = gm_backward_attrs(b)->function;
    return in[0] ? gm_work_run(gm_backward_work(b), GM_OP_unary_grad, 2, in, &a) : g;
}

void gm_convolution_rule(gm_backward *b)
{
    gm_work        *w = gm_backward_work(b);
    const gm_attrs *a = gm_backward_attrs(b);
    gm_tensor      *dpre = gm_convolution_rule_pre(b, gm_work_contiguous(w, gm_backward_grad(b, 0)), PRE);
    if (gm_backward_wants(b, 0)) {
        gm_tensor *dx = gm_backward_like(b, 0);
        gm_convolution_rule_input(b, a, dpre, dx);
        gm_backward_give(b, 0, dx);
    }
    gm_convolution_rule_weight(b, a, dpre, gm_backward_saved(b, 0));
    gm_linear_rule_keep(b, dpre);
}
