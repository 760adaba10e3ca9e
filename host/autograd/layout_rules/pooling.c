/* pooling.c - layouts of pooling: x (n, c, ...) and its result are cut alike, by images and by channels, and along the
 * first dimension of space where the ranks exchange what they need of it (host/parallel/sharded/pooling.c). An average
 * is linear, so that x may be partial; where the largest element lies only the whole sum says. */
#include "family.h"

gm_status gm_layout_rule_pooling(gm_rule_call *c)
{
    if (c->op != GM_OP_max_pool && c->op != GM_OP_avg_pool) return gm_layout_rule_optimizer(c);
    return gm_rule_pooling(c, 2);
}

gm_status gm_rule_pooling(gm_rule_call *c, int first)
{
    const gm_value *x = c->in[0];
    if (c->op == GM_OP_max_pool) GM_TRY(gm_rule_no_partial(c));
    for (int d = first; d < x->ndim; d++)
        GM_TRY(gm_rule_whole(c, 0, d, "windows move along a dimension that is cut (gather it first)"));
    GM_TRY(gm_rule_join(c, 0, 0, 0));
    GM_TRY(gm_rule_join(c, 0, 1, 1));
    c->out[0].partial |= x->layout.partial;
    return gm_rule_slices(c);
}
