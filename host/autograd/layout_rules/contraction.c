/* contraction.c - layouts of matmul and linear. Cuts of rows, columns and batch dimensions pass through; the inner
 * dimension may be cut alike in both operands (or be sliced in one), and then each rank has a term. */
#include "family.h"

gm_status gm_rule_factors(gm_rule_call *c)
{
    uint32_t a = c->in[0]->layout.partial, b = c->in[1]->layout.partial;
    if (a & b) return gm_rule_refuse(c, "both operands are sums over the same ranks");
    c->out[0].partial |= a | b;
    return GM_OK;
}

static gm_status matmul(gm_rule_call *c)
{
    const gm_value *a = c->in[0], *b = c->in[1];
    int             n = c->global[0].ndim, ta = c->attrs->transpose_a, tb = c->attrs->transpose_b;
    for (int d = 0; d < a->ndim - 2; d++) GM_TRY(gm_rule_join(c, 0, d, d + n - a->ndim));
    for (int d = 0; d < b->ndim - 2; d++) GM_TRY(gm_rule_join(c, 1, d, d + n - b->ndim));
    GM_TRY(gm_rule_join(c, 0, a->ndim - 2 + ta, n - 2));
    GM_TRY(gm_rule_join(c, 1, b->ndim - 1 - tb, n - 1));
    GM_TRY(gm_rule_sum_over(c, 0, a->ndim - 1 - ta, 1, b->ndim - 2 + tb));
    GM_TRY(gm_rule_factors(c));
    return gm_rule_slices(c);
}

gm_status gm_rule_bias(gm_rule_call *c)
{
    const gm_value *bias = c->in[2];
    if (bias && bias->layout.partial & ~c->out[0].partial)
        return gm_rule_refuse(c, "the bias is a sum over ranks, and the product is not");
    if (c->out[0].partial && c->attrs->function != GM_FN_none)
        return gm_rule_refuse(c, "the activation needs the sum, and this is a term of it");
    if (bias) c->fit[2].layout.partial = c->out[0].partial;
    return GM_OK;
}

static gm_status linear(gm_rule_call *c)
{
    const gm_value *x = c->in[0];
    int             last = x->ndim - 1;
    for (int d = 0; d < last; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    GM_TRY(gm_rule_join(c, 1, 0, last));
    GM_TRY(gm_rule_join(c, 2, 0, last));
    GM_TRY(gm_rule_sum_over(c, 0, last, 1, 1));
    GM_TRY(gm_rule_factors(c));
    GM_TRY(gm_rule_bias(c));
    return gm_rule_slices(c);
}

gm_status gm_layout_rule_contraction(gm_rule_call *c) { return c->op == GM_OP_matmul ? matmul(c) : linear(c); }
