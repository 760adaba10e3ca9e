/* embedding.c - rows of a table whose vocabulary is cut: embedding, and dequantize with an index.
 *
 * Each rank looks up the rows that it holds and gives zeros for the others, so the result is partial over the axes of
 * the vocabulary. Nothing is sent, forward or backward: the gradient of the result is whole on every rank, and each
 * rank uses the part for its rows. The trap: padding_index counts in the whole table, but a kernel's in the block. */
#include <inttypes.h>

#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "rows.h"

enum { W, INDEX, N_IN };

/* Indices counted in this rank's rows, i64 in the index's shape: one that another rank holds is outside of them.
 * GM_EINVAL, on all ranks alike: one that is no row of the table. */
static gm_tensor *local_rows(gm_work *w, const gm_rows *k, gm_tensor *index)
{
    gm_rows_places p = gm_rows_locate(w, k, index, NULL, "index", "rows");
    gm_tensor     *at = gm_work_cast(w, gm_work_affine(w, p.global, 1, -(double)k->first), GM_I64);
    return w->st == GM_OK ? gm_work_shaped(w, at, index->ndim, index->shape) : NULL;
}

/* The rows of t, a block of the table or of its gradient, that are not padding. */
static gm_tensor *held_rows(gm_work *w, const gm_rows *k, gm_tensor *t) { return gm_work_narrow(w, t, 0, 0, k->count); }

/* Of a table whose gradient is sparse: the rows that this rank holds, -1 elsewhere. */
static void sparse_rule(gm_backward *b, const gm_rows *k, int64_t padding)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, INDEX, &shape);
    gm_tensor       *index = gm_backward_saved(b, 0);
    gm_rows_places   p = gm_rows_locate(w, k, index, NULL, "index", "rows");
    gm_tensor       *here = gm_work_affine(w, p.global, 1, -(double)k->first);
    gm_tensor       *at = gm_work_cast(w, gm_work_where(w, p.owned, here, gm_work_scalar(w, GM_F64, -1)), GM_I64);
    if (w->st != GM_OK) return;
    at = gm_work_shaped(w, at, index->ndim, index->shape);
    GM_STEP(w, gm_padding_fill(w->rank, layout, index->ndim, shape, at, -1));
    if (w->st == GM_OK) gm_backward_give_rows(b, W, at, gm_backward_grad(b, 0), NULL, padding);
}

static void embedding_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, W, &shape);
    gm_attrs         a = gm_attrs_default();
    gm_rows          k = gm_rows_here(w->rank, layout, 2, shape, 0);
    int64_t          padding = gm_backward_attrs(b)->padding_index;
    if (padding >= k.first && padding < k.first + k.count) a.padding_index = padding - k.first;
    if (gm_backward_is_sparse(b, W)) {
        sparse_rule(b, &k, a.padding_index);
        return;
    }
    gm_tensor *index = gm_backward_saved(b, 0), *dw = gm_backward_target(b, W, &a.accumulate);
    a.part = true;
    if (!a.accumulate && k.count < k.room) gm_work_fill(w, dw, 0);
    gm_tensor *in[2] = {local_rows(w, &k, index), gm_backward_grad(b, 0)}, *rows = held_rows(w, &k, dw);
    if (k.count) gm_work_into(w, GM_OP_embedding_grad, 2, in, &a, 1, &rows);
}

/* The result's block, new. attrs: of dequantize, or of no meaning. */
static gm_status look_up(gm_rank *r, gm_op op, const gm_attrs *attrs, gm_value *const *fitted, gm_tensor **y)
{
    const gm_value *table = fitted[W], *index = fitted[INDEX];
    gm_attrs        a = op == GM_OP_dequantize ? *attrs : gm_attrs_default();
    gm_rows         k = gm_rows_here(r, &table->layout, 2, table->shape, 0);
    gm_work         w;
    gm_work_begin(&w, r, gm_op_name(op));
    a.part = true;
    gm_tensor *in[2] = {held_rows(&w, &k, table->local), local_rows(&w, &k, index->local)};
    *y = gm_work_keep(&w, gm_work_run(&w, op, 2, in, &a));
    return gm_work_end(&w);
}

static gm_status sharded(gm_rank *r, gm_op op, gm_value *const *in, const gm_attrs *attrs, const gm_layout *layout,
                         const gm_spec *global, const gm_fit *fit, gm_value **y)
{
    gm_value  *fitted[N_IN], *v = NULL;
    gm_tensor *block = NULL;
    gm_status  st;
    GM_TRY(gm_fit_all(r, N_IN, in, fit, fitted));
    GM_TRY_OR(look_up(r, op, attrs, fitted, &block), st, done);
    GM_TRY_OR(gm_value_take_block(r, block, layout, global->ndim, global->shape, &v), st, done);
    GM_TRY_OR(gm_padding_finish(v), st, done);
    gm_record rec = {.name = "embedding",
                     .rule = embedding_rule,
                     .op = GM_OP_embedding,
                     .attrs = attrs,
                     .n_in = N_IN,
                     .in = fitted,
                     .n_out = 1,
                     .out = &v,
                     .n_saved = 1,
                     .saved = &fitted[INDEX],
                     .splits = true};
    if (op == GM_OP_embedding) GM_TRY_OR(gm_tape_record(r, &rec), st, done);
    *y = v;
    v = NULL;
done:
    gm_value_release(v);
    gm_release_all(N_IN, fitted);
    return st;
}

gm_status gm_sharded_embedding(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value *const *in = call->in;
    const gm_value  *w = in[W];
    gm_attrs         a = *call->attrs;
    gm_spec          global;
    gm_layout        layout;
    gm_fit           fit[N_IN];
    if (w->ndim != 2 || !w->layout.n_cuts[0]) return gm_apply_blocks(r, call, out);
    GM_TRY(gm_judge_call(call, &global));
    if (a.padding_index < -1 || a.padding_index >= w->shape[0])
        return GM_FAIL(GM_EINVAL, "embedding: padding_index %" PRId64 " is neither -1 nor one of %" PRId64 " rows",
                       a.padding_index, w->shape[0]);
    gm_rule_call c = gm_rule_begin(r, "embedding", call->op, N_IN, in, &a, 1, &global, &layout, fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d < in[INDEX]->ndim; d++) GM_TRY(gm_rule_join(&c, INDEX, d, d));
    GM_TRY(gm_rule_join(&c, W, 1, in[INDEX]->ndim));
    layout.partial = gm_layout_dim_axes(&w->layout, 0);
    GM_TRY(gm_rule_slices(&c));
    return sharded(r, call->op, in, &a, &layout, &global, fit, out);
}

gm_status gm_sharded_dequantize(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value *const *in = call->in;
    gm_attrs         a = *call->attrs;
    gm_spec          global;
    gm_layout        layout;
    gm_fit           fit[N_IN];
    if (in[W]->ndim != 2 || !in[W]->layout.n_cuts[0] || !in[INDEX]) return gm_apply_blocks(r, call, out);
    GM_TRY(gm_judge_call(call, &global));
    gm_rule_call c = gm_rule_begin(r, "dequantize", call->op, N_IN, in, &a, 1, &global, &layout, fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d < in[INDEX]->ndim; d++) GM_TRY(gm_rule_join(&c, INDEX, d, d));
    GM_TRY(gm_rule_few_columns(&c, in[INDEX]->ndim));
    layout.partial = gm_layout_dim_axes(&in[W]->layout, 0);
    GM_TRY(gm_rule_slices(&c));
    return sharded(r, call->op, in, &a, &layout, &global, fit, out);
}
