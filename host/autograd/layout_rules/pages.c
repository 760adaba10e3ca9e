/* pages.c - the layout of attention to keys and values in pages: only heads may be cut, and in the pools as in the
 * queries. Rows of a batch share one pool, so that a batch is whole. */
#include "family.h"

/* q (b, s, h, d), pools (pages, hk, page, d), index (b, n), count (b) */
static gm_status attention_paged(gm_rule_call *c)
{
    GM_TRY(gm_rule_no_partial(c));
    for (int d = 0; d < 4; d++)
        if (d != 2) GM_TRY(gm_rule_whole(c, 0, d, "only the heads of the queries may be cut"));
    for (int i = 1; i < 3; i++)
        for (int d = 0; d < 4; d++)
            if (d != 1) GM_TRY(gm_rule_whole(c, i, d, "only the heads of a pool may be cut"));
    for (int i = 3; i < 5; i++)
        for (int d = 0; d < c->in[i]->ndim; d++) GM_TRY(gm_rule_whole(c, i, d, "the pages of rows are cut"));
    GM_TRY(gm_rule_join(c, 0, 2, 2));
    int64_t heads = c->in[0]->shape[2], key_heads = c->in[1]->shape[1];
    int     parts = gm_layout_parts(&c->r->mesh, &c->out[0], 2);
    for (int i = 1; i < 3; i++) {
        const gm_layout *k = &c->in[i]->layout, *q = &c->in[0]->layout;
        if (k->n_cuts[1] != q->n_cuts[2] || gm_layout_dim_axes(k, 1) != gm_layout_dim_axes(q, 2))
            return gm_rule_refuse(c, "query heads and the heads of a pool are cut in different ways");
    }
    if (parts > 1 && heads != key_heads && key_heads % parts)
        return gm_rule_refuse(c, "the parts that the heads are cut into do not divide the key heads");
    return gm_rule_slices(c);
}

gm_status gm_layout_rule_pages(gm_rule_call *c)
{
    return c->op == GM_OP_attention_paged ? attention_paged(c) : gm_layout_rule_optimizer(c);
}
