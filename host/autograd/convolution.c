/* convolution.c - the backward rules of convolutions. Each of the two ops is the other's gradient of the input; both
 * have the same gradient of the weight, with the places of what is read and what is made exchanged. The nodes keep the
 * slots of `linear`: x, w, and what the activation was given. */
#include "gradients.h"

#define PRE (GM_SLOT_OUTPUT + 1)

/* g f'(pre): g itself without an activation, or where the first half of the pass has applied its derivative. */
static gm_tensor *through_activation(gm_backward *b, gm_tensor *g)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *in[2] = {gm_backward_saved(b, PRE), g};
    a.function = gm_backward_attrs(b)->function;
    return in[0] ? gm_work_run(gm_backward_work(b), GM_OP_unary_grad, 2, in, &a) : g;
}

/* dx, which the other of the two ops makes. */
static void input_gradient(gm_backward *b, gm_op op, gm_tensor *g, gm_tensor *weight, const gm_attrs *a)
{
    gm_tensor *in[3] = {g, weight, NULL}, *out[2] = {gm_backward_like(b, 0), NULL};
    gm_work_into(gm_backward_work(b), op, 3, in, a, 2, out);
    gm_backward_give(b, 0, out[0]);
}

/* The attributes of a gradient: those of the node, less its activation. */
static gm_attrs attributes(gm_backward *b)
{
    gm_attrs a = *gm_backward_attrs(b);
    a.function = GM_FN_none;
    a.output_padding = (gm_sizes)GM_SIZES(0);
    a.name = NULL;
    return a;
}

/* What a convolution of this many elements left out at the end, because its stride did not reach there. */
static void left_out(gm_attrs *a, const gm_spec *x, const gm_spec *w)
{
    for (int d = 0; d < x->ndim - 2; d++) {
        int64_t reach = a->dilation.at[d] * (w->shape[d + 2] - 1) + 1;
        a->output_padding.at[d] = (x->shape[d + 2] + a->pad_low.at[d] + a->pad_high.at[d] - reach) % a->stride.at[d];
    }
}

/* db alone: the sums of g over all but its channels. */
static void bias_gradient(gm_backward *b, gm_tensor *g)
{
    uint32_t all = (1u << gm_backward_input(b, 0)->ndim) - 1;
    gm_backward_give(b, 2, gm_work_sum(gm_backward_work(b), g, all & ~2u, false, NULL));
}

/* dw from what the kernel made the gradient of (g) and what it read (x), and db with it where g is the node's own. */
static void weight_gradient(gm_backward *b, gm_tensor *g, gm_tensor *x, bool with_bias)
{
    gm_work       *w = gm_backward_work(b);
    const gm_spec *weight = gm_backward_input(b, 1);
    gm_attrs       a = attributes(b);
    bool           held[2] = {false, false};
    gm_tensor     *out[2] = {gm_backward_target(b, 1, &held[0]), NULL}, *in[2] = {g, x};
    if (with_bias) out[1] = gm_backward_target(b, 2, &held[1]);
    a.accumulate = held[0] || held[1];
    for (int i = 0; i < 2; i++) /* the kernel knows one flag: begin the other with zeros */
        if (out[i] && a.accumulate && !held[i]) gm_work_fill(w, out[i], 0);
    for (int d = 0; d < weight->ndim - 2; d++) a.kernel.at[d] = weight->shape[d + 2];
    gm_work_into(w, GM_OP_convolution_weight_grad, 2, in, &a, 2, out);
}

void gm_convolution_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *x = gm_backward_saved(b, 0), *weight = gm_backward_saved(b, 1);
    gm_tensor *dpre = through_activation(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    if (gm_backward_wants(b, 0)) {
        gm_attrs a = attributes(b);
        left_out(&a, gm_backward_input(b, 0), gm_backward_input(b, 1));
        input_gradient(b, GM_OP_transposed_convolution, dpre, weight, &a);
    }
    if (gm_backward_wants(b, 1)) weight_gradient(b, dpre, x, gm_backward_wants(b, 2));
    else if (gm_backward_wants(b, 2)) bias_gradient(b, dpre);
    gm_linear_rule_keep(b, dpre);
}

void gm_transposed_convolution_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *x = gm_backward_saved(b, 0), *weight = gm_backward_saved(b, 1);
    gm_tensor *dpre = through_activation(b, gm_work_contiguous(w, gm_backward_grad(b, 0)));
    if (gm_backward_wants(b, 0)) {
        gm_attrs a = attributes(b);
        input_gradient(b, GM_OP_convolution, dpre, weight, &a);
    }
    if (gm_backward_wants(b, 1)) weight_gradient(b, x, dpre, false);
    if (gm_backward_wants(b, 2)) bias_gradient(b, dpre);
    gm_linear_rule_keep(b, dpre);
}
