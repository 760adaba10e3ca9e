/* few_bits.c - layouts of weights of few bits. Their rows are bytes, in whole blocks (kernels/few_bits.h), so a cut of
 * the bytes is a cut of the numbers only where every part has whole blocks. */
#include <string.h>

#include "family.h"

/* columns: of the row. Parts that fall between units of several numbers, such as heads, must be even too. */
static gm_status whole_blocks(const gm_rule_call *c, const gm_value *v, int d, int64_t columns)
{
    int     parts = gm_layout_parts(&c->r->mesh, &v->layout, d);
    int64_t unit = v->layout.unit[d] > 1 ? v->layout.unit[d] : 1;
    if (parts == 1 || (columns % (parts * c->attrs->group) == 0 && columns / unit % parts == 0)) return GM_OK;
    return gm_rule_refuse(c, "the ranks that share a row of weights would share a block; choose a group that divides "
                             "each rank's part of the row, or fewer ranks");
}

/* Dimension `to` of the result, numbers or bytes, is cut as dimension d of v, bytes or numbers. */
static void cut_alike(gm_layout *out, int to, const gm_value *v, int d)
{
    gm_layout_copy_dim(out, to, &v->layout, d);
    out->unit[to] = 0;
}

static gm_status quantize(gm_rule_call *c)
{
    const gm_value *w = c->in[0];
    GM_TRY(gm_rule_join(c, 0, 0, 0));
    GM_TRY(whole_blocks(c, w, 1, w->shape[1]));
    GM_TRY(gm_rule_no_partial(c));
    cut_alike(&c->out[0], 1, w, 1);
    return gm_rule_slices(c);
}

gm_status gm_rule_few_columns(gm_rule_call *c, int to)
{
    const gm_value *codes = c->in[0];
    GM_TRY(whole_blocks(c, codes, 1, c->attrs->columns));
    c->attrs->columns /= gm_layout_parts(&c->r->mesh, &codes->layout, 1);
    cut_alike(&c->out[0], to, codes, 1);
    return GM_OK;
}

static gm_status dequantize(gm_rule_call *c)
{
    const gm_value *index = c->in[1];
    if (index) GM_TRY(gm_rule_whole(c, 0, 0, "the rows of the table are cut"));
    else GM_TRY(gm_rule_join(c, 0, 0, 0));
    for (int d = 0; index && d < index->ndim; d++) GM_TRY(gm_rule_join(c, 1, d, d));
    GM_TRY(gm_rule_no_partial(c));
    GM_TRY(gm_rule_few_columns(c, index ? index->ndim : 1));
    return gm_rule_slices(c);
}

/* Which axes cut the dimension that is summed over: those of the codes, which are never sliced. */
static gm_status summed_over(gm_rule_call *c)
{
    const gm_value *x = c->in[0], *codes = c->in[1];
    int             last = x->ndim - 1, n = codes->layout.n_cuts[1];
    if (x->layout.n_cuts[last] && !n)
        return gm_rule_refuse(c, "x is cut along the dimension summed over, and the weights are not");
    if (x->layout.n_cuts[last] &&
        (x->layout.n_cuts[last] != n || memcmp(x->layout.cut[last], codes->layout.cut[1], (size_t)n)))
        return gm_rule_refuse(c, "the dimension summed over is cut in different ways");
    GM_TRY(whole_blocks(c, codes, 1, x->shape[last]));
    GM_TRY(whole_blocks(c, x, last, x->shape[last]));
    if (n && !x->layout.n_cuts[last]) cut_alike(&c->fit[0].layout, last, codes, 1);
    c->out[0].partial |= gm_layout_dim_axes(&codes->layout, 1);
    return GM_OK;
}

/* As linear. */
static gm_status product(gm_rule_call *c)
{
    const gm_value *x = c->in[0], *codes = c->in[1], *bias = c->in[2];
    int             last = x->ndim - 1;
    for (int d = 0; d < last; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    GM_TRY(gm_rule_join(c, 1, 0, last));
    GM_TRY(gm_rule_join(c, 2, 0, last));
    GM_TRY(summed_over(c));
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
