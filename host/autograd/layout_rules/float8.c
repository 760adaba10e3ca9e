/* float8.c - layouts of floats of 8 bits (kernels/float8.h). Codes are cut as the numbers are. A scale is that of the
 * whole tensor, so it is replicated, and finding it for a tensor that is cut needs communication
 * (host/parallel/sharded/float8.c). */
#include "family.h"

static gm_status scale(gm_rule_call *c)
{
    for (int d = 0; d < c->in[0]->ndim; d++) GM_TRY(gm_rule_whole(c, 0, d, "x is cut"));
    return gm_rule_no_partial(c);
}

static gm_status encode(gm_rule_call *c)
{
    const gm_value *x = c->in[0];
    int             last = x->ndim - 1;
    for (int d = 0; d <= last; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    GM_TRY(gm_rule_no_partial(c));
    GM_TRY(gm_rule_slices(c));
    gm_layout_copy_dim(&c->out[1], 0, &c->out[0], last);
    for (int d = 0; d < last; d++) gm_layout_copy_dim(&c->out[1], d + 1, &c->out[0], d);
    return GM_OK;
}

/* As linear. */
static gm_status product(gm_rule_call *c)
{
    int last = c->in[0]->ndim - 1;
    for (int d = 0; d < last; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    GM_TRY(gm_rule_join(c, 1, 0, last));
    GM_TRY(gm_rule_join(c, 4, 0, last));
    for (int i = 0; i < 4; i++)
        if (c->in[i]->layout.partial) return gm_rule_refuse(c, "codes and scales are no sums");
    GM_TRY(gm_rule_sum_over(c, 0, last, 1, 1));
    if (c->in[4] && c->in[4]->layout.partial & ~c->out[0].partial)
        return gm_rule_refuse(c, "the bias is a sum over ranks, and the product is not");
    if (c->in[4]) c->fit[4].layout.partial = c->out[0].partial;
    return gm_rule_slices(c);
}

/* Blocks of a part of a tensor are those of the tensor only where it is cut between blocks (linear_float8 looks). */
static gm_status whole(gm_rule_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        for (int d = 0; c->in[i] && d < c->in[i]->ndim; d++)
            GM_TRY(gm_rule_whole(c, i, d, "blocks of 128 are those of whole tensors (linear_float8 takes others)"));
    return gm_rule_no_partial(c);
}

gm_status gm_layout_rule_float8(gm_rule_call *c)
{
    switch (c->op) {
    case GM_OP_float8_block_encode:
    case GM_OP_float8_block_product: return whole(c);
    case GM_OP_float8_scale: return scale(c);
    case GM_OP_float8_encode: return encode(c);
    default: return product(c);
    }
}
