/* few_bits.c - layouts of weights of few bits. Their rows are bytes, in whole blocks (kernels/few_bits.h), so a cut of the
 * bytes is a cut of the numbers only where every part has whole blocks. */
#include "../../../kernels/few_bits.h"
#include "family.h"

static gm_status whole_blocks(const gm_rule_call *c, int64_t columns, int parts)
{
    if (parts == 1 || columns % (parts * c->attrs->group) == 0) return GM_OK;
    return gm_rule_refuse(c, "the ranks that share a row of weights would share a block; choose a group that divides "
                             "each rank's part of the row, or fewer ranks");
}

static gm_status quantize(gm_rule_call *c)
{
    const gm_value *w = c->in[0];
    for (int d = 0; d < 2; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    GM_TRY(whole_blocks(c, w->shape[1], gm_layout_parts(&c->r->mesh, &w->layout, 1)));
    GM_TRY(gm_rule_no_partial(c));
    return gm_rule_slices(c);
}

gm_status gm_rule_few_columns(gm_rule_call *c)
{
    const gm_value *codes = c->in[0];
    int             parts = gm_layout_parts(&c->r->mesh, &codes->layout, 1);
    GM_TRY(whole_blocks(c, c->attrs->columns, parts));
    c->attrs->columns /= parts;
    return GM_OK;
}

static gm_status dequantize(gm_rule_call *c)
{
    const gm_value *index = c->in[1];
    int             last = index ? index->ndim : 1;
    if (index) GM_TRY(gm_rule_whole(c, 0, 0, "the rows of the table are cut"));
    else GM_TRY(gm_rule_join(c, 0, 0, 0));
    for (int d = 0; index && d < index->ndim; d++) GM_TRY(gm_rule_join(c, 1, d, d));
    GM_TRY(gm_rule_join(c, 0, 1, last));
    GM_TRY(gm_rule_no_partial(c));
    GM_TRY(gm_rule_few_columns(c));
    return gm_rule_slices(c);
}

/* As linear; codes are never sliced. */
static gm_status product(gm_rule_call *c)
{
    const gm_value *x = c->in[0], *codes = c->in[1], *bias = c->in[2];
    int             last = x->ndim - 1;
    for (int d = 0; d < last; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    GM_TRY(gm_rule_join(c, 1, 0, last));
    GM_TRY(gm_rule_join(c, 2, 0, last));
    if (x->layout.n_cuts[last] && !codes->layout.n_cuts[1])
        return gm_rule_refuse(c, "x is cut along the dimension summed over, and the weights are not");
    GM_TRY(whole_blocks(c, x->shape[last], gm_layout_parts(&c->r->mesh, &codes->layout, 1)));
    GM_TRY(gm_rule_sum_over(c, 0, last, 1, 1));
    c->fit[0].trim = c->fit[1].trim = 0; /* no padding: blocks are whole */
    if (codes->layout.partial) return gm_rule_refuse(c, "weights of few bits are no sums");
    c->out[0].partial |= x->layout.partial;
    if (bias && bias->layout.partial & ~c->out[0].partial)
        return gm_rule_refuse(c, "the bias is a sum over ranks, and the product is not");
    if (c->out[0].partial && c->attrs->function != GM_FN_none)
        return gm_rule_refuse(c, "the activation needs the sum, and this is a term of it");
    if (bias) c->fit[2].layout.partial = c->out[0].partial;
    return gm_rule_slices(c);
}

gm_status gm_layout_rule_few_bits(gm_rule_call *c)
{
    switch (c->op) {
    case GM_OP_quantize: return quantize(c);
    case GM_OP_dequantize: return dequantize(c);
    default: return product(c);
    }
}
