/* tables.c - backward rules of lookups in tables. A table whose gradient is sparse (sparse.h) gets the rows that were
 * touched; places behind the end of a padded index name none. */
#include "gradients.h"

#include "padding.h"

#define OUT(j) (GM_SLOT_OUTPUT + (j))

/* rows: i64, cut and padded as `layout` says. A copy of them, i64, with -1 in the padding. */
static gm_tensor *without_padding(gm_backward *b, gm_tensor *rows, const gm_layout *layout, const int64_t *shape)
{
    gm_work   *w = gm_backward_work(b);
    gm_tensor *copy = gm_work_cast(w, rows, GM_I64);
    GM_STEP(w, gm_padding_fill(w->rank, layout, copy->ndim, shape, copy, -1));
    return copy;
}

void gm_embedding_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    gm_tensor       *index = gm_backward_saved(b, 1), *g = gm_backward_grad(b, 0);
    gm_attrs         a = *gm_backward_attrs(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, 1, &shape);
    if (w->st != GM_OK) return;
    if (gm_backward_is_sparse(b, 0)) {
        gm_backward_give_rows(b, 0, without_padding(b, index, layout, shape), g, NULL, a.padding_index);
        return;
    }
    gm_tensor *in[2] = {index, g}, *dw = gm_backward_target(b, 0, &a.accumulate);
    gm_work_into(w, GM_OP_embedding_grad, 2, in, &a, 1, &dw);
}

void gm_bag_rule_table(gm_backward *b, gm_tensor *row, gm_tensor *weight, gm_tensor *dw, bool accumulate)
{
    gm_work   *w = gm_backward_work(b);
    gm_attrs   a = gm_attrs_default();
    gm_tensor *in[3] = {row, gm_backward_grad(b, 0), weight}, *out[2];
    if (w->st != GM_OK) return;
    a.accumulate = accumulate;
    a.part = true;
    if (row->shape[2] == 1 && !weight) in[0] = gm_work_shaped(w, gm_work_contiguous(w, row), 2, row->shape);
    else {
        gm_work_run_all(w, GM_OP_embedding_rows, 3, in, NULL, 2, out);
        if (w->st == GM_OK) in[0] = out[0], in[1] = out[1];
    }
    gm_work_into(w, GM_OP_embedding_grad, 2, in, &a, 1, &dw);
}

void gm_bag_rule_weight(gm_backward *b, gm_tensor *table, gm_tensor *row)
{
    gm_tensor *in[3] = {table, row, gm_backward_grad(b, 0)};
    if (!gm_backward_wants(b, 3)) return;
    gm_backward_give(b, 3, gm_work_run(gm_backward_work(b), GM_OP_embedding_bag_weight_grad, 3, in, NULL));
}

void gm_bag_rule_sparse(gm_backward *b, gm_tensor *row, gm_tensor *weight)
{
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, 1, &shape);
    if (gm_backward_work(b)->st != GM_OK) return;
    gm_backward_give_rows(b, 0, without_padding(b, row, layout, shape), gm_backward_grad(b, 0), weight, -1);
}

void gm_embedding_bag_rule(gm_backward *b)
{
    bool       accumulate;
    gm_tensor *row = gm_backward_saved(b, OUT(1)), *weight = gm_backward_saved(b, 3);
    if (gm_backward_is_sparse(b, 0)) gm_bag_rule_sparse(b, row, weight);
    else if (gm_backward_wants(b, 0)) {
        gm_tensor *dw = gm_backward_target(b, 0, &accumulate);
        gm_bag_rule_table(b, row, weight, dw, accumulate);
    }
    if (gm_backward_wants(b, 3)) gm_bag_rule_weight(b, gm_backward_saved(b, 0), row);
}
