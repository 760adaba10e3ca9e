/* embedding.c - rows of a table whose vocabulary is cut.
 *
 * Each rank looks up what it holds; where the row is elsewhere it has zeros, so that the result is a sum over the axes
 * of the vocabulary. Nothing is sent, forward or backward: the gradient of a sum is whole on every rank, which keeps
 * what concerns its rows. The trap: padding_index counts in the whole table, a kernel's in the block. */
#include <inttypes.h>

#include "../../autograd/apply_blocks.h"
#include "rows.h"

enum { W, INDEX, N_IN };

static gm_rows_places locate(gm_rows *w, gm_tensor *index)
{
    return gm_rows_locate(w, index, NULL, "embedding", "index", "rows");
}

/* i64 (lines): rows of the block; owned, u8 (lines, 1): those that count. */
static gm_tensor *local_rows(gm_rows *w, gm_tensor *index, gm_tensor **owned)
{
    gm_rows_places p = locate(w, index);
    gm_tensor     *at = gm_rows_cast(w, p.local, GM_I64);
    *owned = p.owned;
    return w->st == GM_OK ? gm_rows_shaped(w, at, 1, at->shape) : NULL;
}

/* t (lines, width) where owned, zero elsewhere. */
static gm_tensor *mask(gm_rows *w, gm_tensor *owned, gm_tensor *t)
{
    return w->st == GM_OK ? gm_rows_where(w, owned, t, gm_rows_scalar(w, t->dtype, 0)) : NULL;
}

static gm_status embedding_rule(gm_backward *b)
{
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, W, &shape);
    gm_attrs         a = gm_attrs_default();
    gm_tensor       *index, *dw, *in[2], *owned;
    gm_rows          w;
    int64_t          padding = gm_backward_attrs(b)->padding_index;
    GM_TRY(gm_backward_saved(b, 0, &index));
    GM_TRY(gm_backward_target(b, W, &dw, &a.accumulate));
    gm_rows_begin(&w, gm_backward_rank(b), layout, 2, shape, 0);
    if (padding >= w.first && padding < w.first + w.count) a.padding_index = padding - w.first;
    in[0] = local_rows(&w, index, &owned);
    in[1] = mask(&w, owned, gm_rows_flat(&w, gm_backward_grad(b, 0)));
    gm_rows_into(&w, GM_OP_embedding_grad, 2, in, &a, 1, &dw);
    return gm_rows_end(&w);
}

/* The result's block, new. */
static gm_status look_up(gm_rank *r, gm_value *const *fitted, int ndim, gm_tensor **y)
{
    const gm_value *table = fitted[W], *index = fitted[INDEX];
    gm_attrs        a = gm_attrs_default();
    gm_tensor      *owned, *t;
    gm_rows         w;
    int64_t         shape[GM_MAX_DIMS];
    gm_rank_place(r, "embedding");
    gm_rows_begin(&w, r, &table->layout, 2, table->shape, 0);
    gm_tensor *at = local_rows(&w, index->local, &owned);
    gm_rows_run(&w, GM_OP_embedding, 2, (gm_tensor *[]){table->local, at}, &a, 1, &t);
    for (int d = 0; d < index->ndim; d++) shape[d] = index->local->shape[d];
    shape[ndim - 1] = table->local->shape[1];
    *y = gm_rows_keep(&w, gm_rows_shaped(&w, mask(&w, owned, t), ndim, shape));
    return gm_rows_end(&w);
}

static gm_status sharded(gm_rank *r, gm_value *const *in, const gm_attrs *attrs, const gm_layout *layout,
                         const gm_spec *global, const gm_fit *fit, gm_value **y)
{
    gm_value  *fitted[N_IN], *v = NULL;
    gm_tensor *block = NULL;
    gm_status  st;
    GM_TRY(gm_fit_all(r, N_IN, in, fit, fitted));
    GM_TRY_OR(look_up(r, fitted, global->ndim, &block), st, done);
    GM_TRY_OR(gm_value_take_block(r, block, layout, global->ndim, global->shape, &v), st, done);
    gm_record rec = {.name = "embedding",
                     .rule = embedding_rule,
                     .op = GM_OP_embedding,
                     .attrs = attrs,
                     .n_in = N_IN,
                     .in = fitted,
                     .n_out = 1,
                     .out = &v,
                     .n_saved = 1,
                     .saved = &fitted[INDEX]};
    GM_TRY_OR(gm_tape_record(r, &rec), st, done);
    *y = v;
    v = NULL;
done:
    gm_value_release(v);
    gm_release_all(N_IN, fitted);
    return st;
}

gm_status gm_sharded_embedding(gm_rank *r, gm_value *w, gm_value *index, int64_t padding_index, gm_value **y)
{
    gm_value *in[N_IN] = {w, index};
    gm_attrs  a = gm_attrs_default();
    gm_spec   global;
    gm_layout layout;
    gm_fit    fit[N_IN];
    a.padding_index = padding_index;
    if (gm_all_replicated(r, N_IN, in) || w->ndim != 2 || !w->layout.n_cuts[0])
        return gm_apply(r, GM_OP_embedding, N_IN, in, &a, 1, NULL, y);
    GM_TRY(gm_judge_call(GM_OP_embedding, N_IN, in, &a, 1, &global));
    if (padding_index < -1 || padding_index >= w->shape[0])
        return GM_FAIL(GM_EINVAL, "embedding: padding_index %" PRId64 " is neither -1 nor one of %" PRId64 " rows",
                       padding_index, w->shape[0]);
    gm_rule_call c = gm_rule_begin(r, "embedding", GM_OP_embedding, N_IN, in, &a, 1, &global, &layout, fit);
    GM_TRY(gm_rule_no_partial(&c));
    for (int d = 0; d < index->ndim; d++) GM_TRY(gm_rule_join(&c, INDEX, d, d));
    GM_TRY(gm_rule_join(&c, W, 1, index->ndim));
    layout.partial = gm_layout_dim_axes(&w->layout, 0);
    GM_TRY(gm_rule_slices(&c));
    return sharded(r, in, &a, &layout, &global, fit, y);
}
