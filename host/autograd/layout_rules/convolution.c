/* convolution.c - layouts of convolutions. Cuts of samples and of output channels pass through. Input channels may be
 * cut alike in x and w, and then each rank has a term. With groups, each rank that shares channels has whole groups:
 * those channels of x, w and y that belong together. Kernels are whole, and so is space, but for its first dimension
 * where the ranks exchange what they need of it (host/parallel/sharded/convolution.c). */
#include "family.h"

static gm_status whole_space(gm_rule_call *c, int first)
{
    for (int d = 2; d < c->in[0]->ndim; d++) {
        if (d >= first) GM_TRY(gm_rule_whole(c, 0, d, "the space that the kernel goes over is cut"));
        GM_TRY(gm_rule_whole(c, 1, d, "the kernel is cut"));
    }
    return GM_OK;
}

/* Dimension d of input i is the channels of the result, group by group, whatever its size. */
static gm_status join_groups(gm_rule_call *c, int i, int d)
{
    const gm_value *v = c->in[i];
    if (!v) return GM_OK;
    c->to[i][d] = 1;
    if (!gm_layout_dims_agree(&v->layout, d, &c->out[0], 1))
        return gm_rule_refuse(c, "the channels of the groups are cut in different ways");
    if (v->layout.n_cuts[d] > c->out[0].n_cuts[1]) gm_layout_copy_dim(&c->out[0], 1, &v->layout, d);
    return GM_OK;
}

static gm_status groups(gm_rule_call *c)
{
    GM_TRY(gm_rule_whole(c, 1, 1, "the channels inside of a group are cut"));
    GM_TRY(join_groups(c, 0, 1));
    GM_TRY(join_groups(c, 1, 0));
    GM_TRY(join_groups(c, 2, 0));
    int parts = gm_layout_parts(&c->r->mesh, &c->out[0], 1), unit = c->out[0].unit[1] > 1 ? c->out[0].unit[1] : 1;
    if (c->attrs->groups % parts || c->global[0].shape[1] / unit % parts)
        return gm_rule_refuse(c, "the ranks that share the channels would share a group; their number must divide that "
                                 "of the groups");
    c->attrs->groups /= parts;
    return GM_OK;
}

gm_status gm_layout_rule_convolution(gm_rule_call *c)
{
    if (c->op == GM_OP_convolution_weight_grad) return gm_layout_rule_optimizer(c);
    return gm_rule_convolution(c, 2);
}

/* x (n, c, ...), w (out, c / groups, ...) or, transposed, (c, out / groups, ...), b (out) */
gm_status gm_rule_convolution(gm_rule_call *c, int first)
{
    int of_input = c->op == GM_OP_convolution ? 1 : 0; /* the dimension of w that is channels of x */
    GM_TRY(whole_space(c, first));
    GM_TRY(gm_rule_join(c, 0, 0, 0));
    if (c->attrs->groups > 1) {
        GM_TRY(groups(c));
    } else {
        GM_TRY(gm_rule_join(c, 1, 1 - of_input, 1));
        GM_TRY(gm_rule_join(c, 2, 0, 1));
        GM_TRY(gm_rule_sum_over(c, 0, 1, 1, of_input));
    }
    GM_TRY(gm_rule_factors(c));
    GM_TRY(gm_rule_bias(c));
    return gm_rule_slices(c);
}
