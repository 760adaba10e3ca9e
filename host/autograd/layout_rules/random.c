/* random.c - layouts of random ops: a block draws the numbers of its elements in the whole tensor. */
#include "family.h"

#include <string.h>

gm_status gm_rule_box(gm_rank *r, gm_attrs *attrs, const gm_layout *layout, int ndim, const int64_t *shape)
{
    gm_box  block, *box = &attrs->box;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &block, local, logical);
    if (!box->ndim) {
        *box = (gm_box){.ndim = ndim};
        memcpy(box->shape, shape, (size_t)ndim * sizeof *shape);
    }
    for (int d = 0; d < ndim; d++) box->offset[d] += block.offset[d];
    /* padding of rows draws what rows further on would: the first size does not enter element indices */
    if (ndim && box->shape[0] < box->offset[0] + local[0]) box->shape[0] = box->offset[0] + local[0];
    return GM_OK;
}

gm_status gm_draw_inside(gm_value *v, gm_op op, const gm_attrs *attrs)
{
    gm_device *dev = v->rank->device;
    gm_tensor *inside = NULL;
    gm_status  st = GM_OK;
    int64_t    logical[GM_MAX_DIMS];
    gm_value_logical(v, logical);
    GM_TRY(gm_tensor_view(v->local, v->ndim, logical, v->local->stride, v->local->offset, &inside));
    if (gm_tensor_numel(inside) < gm_tensor_numel(v->local)) st = gm_run_one(dev, GM_OP_fill, NULL, NULL, v->local);
    if (st == GM_OK && gm_tensor_numel(inside)) st = gm_run_one(dev, op, attrs, NULL, inside);
    gm_tensor_release(inside);
    return st;
}

gm_status gm_draw_block(gm_value *v, gm_op op, const gm_attrs *attrs)
{
    gm_attrs a = *attrs;
    int64_t  local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    char     have[256];
    if (v->layout.partial)
        return GM_FAIL(GM_ESHAPE, "%s: %s is a sum over ranks; fill a tensor that is not", gm_op_name(op),
                       gm_value_describe(v, have, sizeof have));
    gm_layout_block(&v->rank->mesh, &v->layout, v->rank->coordinate, v->ndim, v->shape, &a.box, local, logical);
    if (op == GM_OP_fill) a.box.ndim = 0;
    return gm_draw_inside(v, op, &a);
}

gm_status gm_layout_rule_random(gm_rule_call *c)
{
    if (c->op != GM_OP_dropout) return gm_layout_rule_optimizer(c);
    for (int d = 0; d < c->in[0]->ndim; d++) GM_TRY(gm_rule_join(c, 0, d, d));
    c->out[0].partial = c->in[0]->layout.partial;
    GM_TRY(gm_rule_slices(c));
    return gm_rule_box(c->r, c->attrs, &c->out[0], c->in[0]->ndim, c->in[0]->shape);
}
