/* elementwise.c - layouts of ops that work element by element, with broadcasting: fill to where in ops.def.
 *
 * Partial operands: copies between floats, negation, factors, sums and differences, one side of a product, the
 * numerator, both branches of where. A product of terms over different axes is a term over both. */
#include "family.h"

static gm_status linear_function(gm_rule_call *c)
{
    const gm_value *a = c->in[0], *b = c->n_in > 1 ? c->in[1] : NULL;
    gm_function     f = c->attrs->function;
    if (c->op == GM_OP_unary) return f == GM_FN_neg ? GM_OK : gm_rule_no_partial(c);
    if (f == GM_FN_add || f == GM_FN_sub) {
        gm_rule_terms(c, 0);
        return GM_OK;
    }
    if (f == GM_FN_mul && !(a->layout.partial & b->layout.partial)) return GM_OK;
    if (f == GM_FN_div && !b->layout.partial) return GM_OK;
    return gm_rule_no_partial(c);
}

/* What may be partial, and the partial axes of the result. */
static gm_status partial(gm_rule_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i]) c->out[0].partial |= c->in[i]->layout.partial;
    if (!c->out[0].partial) return GM_OK;
    switch (c->op) {
    case GM_OP_copy: return gm_dtype_is_float(c->global[0].dtype) ? GM_OK : gm_rule_no_partial(c);
    case GM_OP_affine:
        if (!gm_rule_counts(c->r, c->out[0].partial)) c->attrs->beta = 0;
        return GM_OK;
    case GM_OP_unary:
    case GM_OP_binary: return linear_function(c);
    case GM_OP_where:
        if (c->in[0]->layout.partial) return gm_rule_no_partial(c);
        gm_rule_terms(c, 1);
        return GM_OK;
    default: return gm_rule_no_partial(c);
    }
}

gm_status gm_layout_rule_elementwise(gm_rule_call *c)
{
    int ndim = c->global[0].ndim;
    for (int i = 0; i < c->n_in; i++)
        for (int d = 0; c->in[i] && d < c->in[i]->ndim; d++) GM_TRY(gm_rule_join(c, i, d, d + ndim - c->in[i]->ndim));
    GM_TRY(partial(c));
    return gm_rule_slices(c);
}
