/* reduction.c - layouts of sum, max, min and argmax. A sum over a cut dimension leaves the padding out and gives
 * a partial result; the others need the dimension whole, for there is no maximum of nothing. */
#include "family.h"

gm_status gm_layout_rule_reduction(gm_rule_call *c)
{
    const gm_value *x = c->in[0];
    uint32_t        dims = c->attrs->dims;
    int             at = 0;
    if (c->op == GM_OP_scatter) return gm_layout_rule_optimizer(c);
    if (c->op != GM_OP_sum) {
        int64_t dim = c->attrs->dim < 0 ? c->attrs->dim + x->ndim : c->attrs->dim;
        GM_TRY(gm_rule_no_partial(c));
        GM_TRY(gm_rule_whole(c, 0, (int)dim, "the dimension that is reduced is cut"));
        dims = 1u << dim;
    }
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = !dims || dims >> d & 1;
        if (!reduced) GM_TRY(gm_rule_join(c, 0, d, at));
        else if (x->layout.n_cuts[d]) {
            c->out[0].partial |= gm_layout_dim_axes(&x->layout, d);
            c->fit[0].trim |= 1u << d;
        }
        at += !reduced || c->attrs->keepdim;
    }
    c->out[0].partial |= x->layout.partial;
    return gm_rule_slices(c);
}
