/* embedding_bag.c - bags of rows of tables whose rows are cut.
 *
 * Each rank adds up the rows that it holds, so the result is partial over the axes of the rows. Nothing is sent,
 * forward or backward: the gradient of the result is whole on every rank, and each rank uses the part for its rows. */
#include "../../autograd/apply_blocks.h"
#include "../../autograd/gradients.h"
#include "../../autograd/padding.h"
#include "rows.h"

enum { W, INDEX, BOUNDS, WEIGHT, N_IN };
enum { SAVED_ROW, SAVED_WEIGHT, SAVED_W, N_SAVED };

static void bag_rule(gm_backward *b)
{
    bool             accumulate;
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, W, &shape);
    gm_rows          k = gm_rows_here(w->rank, layout, 2, shape, 0);
    gm_tensor       *row = gm_backward_saved(b, SAVED_ROW), *weight = gm_backward_saved(b, SAVED_WEIGHT);
    if (gm_backward_is_sparse(b, W)) gm_bag_rule_sparse(b, row, weight);
    else if (gm_backward_wants(b, W)) {
        gm_tensor *dw = gm_backward_target(b, W, &accumulate);
        if (!accumulate && k.count < k.room) gm_work_fill(w, dw, 0);
        if (k.count) gm_bag_rule_table(b, row, weight, gm_work_narrow(w, dw, 0, 0, k.count), accumulate);
    }
    if (gm_backward_wants(b, WEIGHT))
        gm_bag_rule_weight(b, gm_work_narrow(w, gm_backward_saved(b, SAVED_W), 0, 0, k.count), row);
}

/* The block of the result, and the rows of this rank's block at all places; both new. */
static gm_status add_up(gm_rank *r, gm_value *const *fitted, gm_tensor **y, gm_tensor **row)
{
    const gm_value *table = fitted[W];
    gm_attrs        a = gm_attrs_default();
    gm_rows         k = gm_rows_here(r, &table->layout, 2, table->shape, 0);
    gm_tensor      *in[N_IN], *out[2] = {NULL, NULL};
    gm_work         w;
    gm_work_begin(&w, r, "embedding_bag");
    a.first = k.first;
    for (int i = 0; i < N_IN; i++) in[i] = fitted[i] ? fitted[i]->local : NULL;
    in[W] = gm_work_narrow(&w, in[W], 0, 0, k.count);
    gm_work_run_all(&w, GM_OP_embedding_bag, N_IN, in, &a, 2, out);
    *y = gm_work_keep(&w, out[0]);
    *row = gm_work_keep(&w, out[1]);
    return gm_work_end(&w);
}

static gm_status record(gm_rank *r, const gm_attrs *attrs, gm_value *const *fitted, gm_tensor *row, gm_value *y)
{
    gm_value *rows = NULL;
    gm_tensor_retain(row);
    GM_TRY(gm_value_take(r, row, &rows));
    gm_value *saved[N_SAVED] = {rows, fitted[WEIGHT], fitted[WEIGHT] ? fitted[W] : NULL};
    gm_record rec = {.name = "embedding_bag",
                     .rule = bag_rule,
                     .op = GM_OP_embedding_bag,
                     .attrs = attrs,
                     .n_in = N_IN,
                     .in = fitted,
                     .n_out = 1,
                     .out = &y,
                     .n_saved = N_SAVED,
                     .saved = saved};
    gm_status st = gm_tape_record(r, &rec);
    gm_value_release(rows);
    return st;
}

static gm_status sharded(gm_rank *r, gm_value *const *in, const gm_attrs *attrs, const gm_layout *layout,
                         const gm_spec *global, const gm_fit *fit, gm_value **out)
{
    gm_value  *fitted[N_IN], *v = NULL;
    gm_tensor *block = NULL, *row = NULL;
    gm_status  st;
    GM_TRY(gm_fit_all(r, N_IN, in, fit, fitted));
    GM_TRY_OR(add_up(r, fitted, &block, &row), st, done);
    GM_TRY_OR(gm_value_take_block(r, block, layout, global->ndim, global->shape, &v), st, done);
    GM_TRY_OR(gm_padding_finish(v), st, done);
    GM_TRY_OR(record(r, attrs, fitted, row, v), st, done);
    *out = v;
    v = NULL;
done:
    gm_tensor_release(row);
    gm_value_release(v);
    gm_release_all(N_IN, fitted);
    return st;
}

gm_status gm_sharded_embedding_bag(gm_rank *r, const gm_value_call *call, gm_value **out)
{
    gm_value *const *in = call->in;
    gm_attrs         a = *call->attrs;
    gm_spec          global[2];
    gm_layout        layout[2];
    gm_fit           fit[N_IN];
    if (in[W]->ndim != 2 || !in[W]->layout.n_cuts[0]) return gm_apply_blocks(r, call, out);
    GM_TRY(gm_judge_call(call, global));
    gm_rule_call c = gm_rule_begin(r, "embedding_bag", call->op, N_IN, in, &a, 1, global, layout, fit);
    GM_TRY(gm_rule_no_partial(&c));
    GM_TRY(gm_rule_bags(&c));
    layout->partial = gm_layout_dim_axes(&in[W]->layout, 0);
    GM_TRY(gm_rule_slices(&c));
    return sharded(r, in, &a, layout, global, fit, out);
}
