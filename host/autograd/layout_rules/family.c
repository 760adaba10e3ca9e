/* family.c - gm_layout_rule, and what the families share; see family.h. */
#include "family.h"

#include <stdio.h>
#include <string.h>

static gm_status (*const families[GM_OP_COUNT])(gm_rule_call *) = {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = gm_layout_rule_##rule,
#include "../../../kernels/ops.def"
#undef GM_OP
};

gm_rule_call gm_rule_begin(gm_rank *r, const char *name, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs,
                           int n_out, const gm_spec *global, gm_layout *out, gm_fit *fit)
{
    gm_rule_call c = {.r = r,
                      .name = name,
                      .op = op,
                      .n_in = n_in,
                      .n_out = n_out,
                      .in = in,
                      .attrs = attrs,
                      .global = global,
                      .out = out,
                      .fit = fit};
    memset(c.to, -1, sizeof c.to);
    for (int i = 0; i < n_in; i++) fit[i] = (gm_fit){.layout = in[i] ? in[i]->layout : gm_layout_replicated()};
    for (int i = 0; i < n_out; i++) out[i] = gm_layout_replicated();
    return c;
}

gm_status gm_layout_rule(gm_rank *r, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs, int n_out,
                         const gm_spec *global, gm_layout *out, gm_fit *fit)
{
    gm_rule_call c = gm_rule_begin(r, gm_op_called(op, attrs), op, n_in, in, attrs, n_out, global, out, fit);
    return families[op](&c);
}

gm_status gm_rule_refuse(const gm_rule_call *c, const char *why)
{
    char   text[900], one[256];
    size_t n = 0;
    for (int i = 0; i < c->n_in && n < sizeof text; i++)
        if (c->in[i])
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "",
                                  gm_value_describe(c->in[i], one, sizeof one));
    return GM_FAIL(GM_ESHAPE, "%s: %s: %s; " GM_RULE_CURE, c->name, why, text);
}

bool gm_rule_counts(const gm_rank *r, uint32_t axes)
{
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (axes & 1u << a && r->coordinate[a]) return false;
    return true;
}

gm_status gm_rule_join(gm_rule_call *c, int i, int d, int to)
{
    const gm_value *v = c->in[i];
    char            why[96];
    if (!v) return GM_OK;
    int n = v->layout.n_cuts[d];
    if (v->shape[d] != c->global[0].shape[to]) { /* broadcast */
        return n ? gm_rule_refuse(c, "a dimension of one element that is cut cannot be repeated") : GM_OK;
    }
    c->to[i][d] = (int8_t)to;
    if (!gm_layout_dims_agree(&v->layout, d, &c->out[0], to)) {
        snprintf(why, sizeof why, "dimension %d of the result is cut in different ways", to + 1);
        return gm_rule_refuse(c, why);
    }
    if (n > c->out[0].n_cuts[to]) gm_layout_copy_dim(&c->out[0], to, &v->layout, d);
    return GM_OK;
}

gm_status gm_rule_whole(const gm_rule_call *c, int i, int d, const char *why)
{
    return c->in[i] && c->in[i]->layout.n_cuts[d] ? gm_rule_refuse(c, why) : GM_OK;
}

gm_status gm_rule_sum_over(gm_rule_call *c, int i, int d, int j, int e)
{
    gm_layout *a = &c->fit[i].layout, *b = &c->fit[j].layout;
    if (!a->n_cuts[d]) gm_layout_copy_dim(a, d, b, e);
    if (!b->n_cuts[e]) gm_layout_copy_dim(b, e, a, d);
    if (!a->n_cuts[d]) return GM_OK;
    if (a->n_cuts[d] != b->n_cuts[e] || !gm_layout_dims_agree(a, d, b, e))
        return gm_rule_refuse(c, "the dimension summed over is cut in different ways");
    c->fit[i].trim |= 1u << d;
    c->fit[j].trim |= 1u << e;
    c->out[0].partial |= gm_layout_dim_axes(a, d);
    return GM_OK;
}

gm_status gm_rule_no_partial(const gm_rule_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && c->in[i]->layout.partial)
            return gm_rule_refuse(
                c, "an operand is still a sum over ranks, and the op is not linear in it (gather() makes the sum)");
    return GM_OK;
}

void gm_rule_terms(gm_rule_call *c, int first)
{
    uint32_t partial = 0;
    for (int i = first; i < c->n_in; i++)
        if (c->in[i]) partial |= c->in[i]->layout.partial;
    for (int i = first; i < c->n_in; i++)
        if (c->in[i]) c->fit[i].layout.partial = partial;
    c->out[0].partial |= partial;
}

gm_status gm_rule_slices(gm_rule_call *c)
{
    bool legal = gm_layout_check(&c->r->mesh, &c->out[0], c->global[0].ndim) == GM_OK;
    for (int i = 0; i < c->n_in && legal; i++) {
        if (!c->in[i]) continue;
        gm_layout *l = &c->fit[i].layout;
        for (int d = 0; d < c->in[i]->ndim; d++) {
            int to = c->to[i][d];
            if (to < 0 || c->out[0].n_cuts[to] <= l->n_cuts[d] || c->in[i]->shape[d] == 1) continue;
            gm_layout_copy_dim(l, d, &c->out[0], to);
        }
        legal = gm_layout_check(&c->r->mesh, l, c->in[i]->ndim) == GM_OK;
    }
    if (!legal) return gm_rule_refuse(c, "an axis would cut two dimensions, or cut a sum over itself");
    for (int i = 1; i < c->n_out; i++) c->out[i] = c->out[0];
    return GM_OK;
}
