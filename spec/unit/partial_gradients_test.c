/* partial_gradients_test.c - rules that communicate, written wrongly and rightly: a sum over ranks that is taken for a
 * block is found, and gradients of outputs that are laid out differently do not spoil one another. */
#include "redistribute_blocks.h"
#include "threads_transport.h"

#define ROWS  3
#define WIDTH 5 /* blocks of 3 and 2 */

/* y = all of x; the rule takes this rank's part of y's gradient, summed over the ranks or not. */
static void gather_rule(gm_backward *b)
{
    gm_rank         *r = gm_backward_rank(b);
    const int64_t   *shape;
    const gm_layout *x = gm_backward_input_layout(b, 0, &shape);
    gm_layout        from = gm_layout_replicated();
    gm_tensor       *dx = NULL;
    bool             sums = gm_backward_extra(b)[0];
    if (sums) from.partial = gm_backward_partial(b);
    OK(gm_redistribute_block(r, gm_backward_grad(b, 0), &from, x, 2, shape, &dx));
    if (sums) gm_backward_set_partial(b, 0, 0);
    gm_backward_give(b, 0, gm_work_hold(gm_backward_work(b), dx));
}

static gm_value *gathered(gm_rank *r, gm_value *x, bool sums)
{
    gm_layout  whole = gm_layout_replicated();
    gm_tensor *t = NULL;
    gm_value  *y = NULL;
    OK(gm_redistribute_block(r, x->local, &x->layout, &whole, x->ndim, x->shape, &t));
    OK(gm_value_take(r, t, &y));
    gm_record rec = {.name = "all of it", .rule = gather_rule, .n_in = 1, .in = &x, .n_out = 1, .out = &y};
    rec.extra[0] = sums;
    OK(gm_tape_record(r, &rec));
    return y;
}

static gm_value *leaf(gm_rank *r, const gm_layout *l, uint64_t which)
{
    gm_value *v = NULL;
    OK(gm_value_take_block(r, block_of(r, l, 2, (int64_t[]){ROWS, WIDTH}, which, 0), l, 2, (int64_t[]){ROWS, WIDTH},
                           &v));
    OK(gm_value_require_grad(v, true));
    return v;
}

static gm_value *seed_of(gm_rank *r, const gm_value *z)
{
    gm_value *seed = NULL;
    OK(gm_value_take_block(r, block_of(r, &z->layout, 2, z->shape, 77, 0), &z->layout, 2, z->shape, &seed));
    return seed;
}

/* z = (all of x) factor, each rank has its block of the factor: the gradient of all of x is a sum over the ranks. */
static void lost(gm_rank *r, void *context)
{
    gm_layout columns = gm_layout_cut(1, 1);
    (void)context;
    for (int sums = 0; sums < 2; sums++) {
        gm_value *x = leaf(r, &columns, 1), *factor = leaf(r, &columns, 2), *y = gathered(r, x, sums);
        gm_value *z = multiplied(r, y, factor), *seed = seed_of(r, z);
        if (sums) {
            OK(gm_tape_backward(z, seed, false));
            block_walk w = walk_block(&r->mesh, &columns, r->rank, 2, x->shape);
            for (int64_t i = 0; i < w.n; i++) {
                int64_t at = global_index(&w, i);
                double  want = at < 0 ? 0 : whole_number(2, at) * whole_number(77, at);
                assert_true(gm_load(GM_F64, gm_tensor_data(x->param->grad), i) == want);
            }
        } else
            FAILS(GM_ESHAPE,
                  "all of it: the gradient of input 1, which is laid out (-, tensor), is still a sum over "
                  "tensor",
                  gm_tape_backward(z, seed, false));
        gm_value_release(x), gm_value_release(factor), gm_value_release(y), gm_value_release(z);
        gm_value_release(seed);
    }
}

void gm_test_partial_gradients_lost(void **state)
{
    gm_mesh mesh = mesh_of("tensor", 2, "", 1, "", 1);
    (void)state;
    run_ranks(&mesh, lost, NULL);
}

/* Outputs: x itself, cut, and all of it. dx = the first one's gradient + this rank's part of the other's sum. */
static void both_rule(gm_backward *b)
{
    gm_rank         *r = gm_backward_rank(b);
    const int64_t   *shape;
    const gm_layout *x = gm_backward_input_layout(b, 0, &shape);
    gm_layout        from = gm_layout_replicated();
    gm_tensor       *dx = NULL, *cut = gm_backward_grad(b, 0);
    gm_attrs         a = gm_attrs_default();
    from.partial = gm_backward_partial(b);
    OK(gm_redistribute_block(r, gm_backward_grad(b, 1), &from, x, 2, shape, &dx));
    OK(gm_run(r->device, &(gm_call){.op = GM_OP_axpy, .n_in = 1, .n_out = 1, .in = &cut, .out = &dx, .attrs = &a}));
    gm_backward_set_partial(b, 0, 0);
    gm_backward_give(b, 0, gm_work_hold(gm_backward_work(b), dx));
}

static void several(gm_rank *r, void *context)
{
    gm_layout  columns = gm_layout_cut(1, 1), whole = gm_layout_replicated();
    gm_value  *x = leaf(r, &columns, 1), *factor = leaf(r, &columns, 2), *out[2];
    gm_tensor *t = NULL;
    gm_attrs   a = gm_attrs_default();
    (void)context;
    gm_tensor_retain(x->local);
    OK(gm_value_take_block(r, x->local, &columns, 2, x->shape, &out[0]));
    OK(gm_redistribute_block(r, x->local, &columns, &whole, 2, x->shape, &t));
    OK(gm_value_take(r, t, &out[1]));
    gm_record rec = {.name = "both", .rule = both_rule, .n_in = 1, .in = &x, .n_out = 2, .out = out};
    OK(gm_tape_record(r, &rec));
    gm_value *z = multiplied(r, out[0], factor), *v = multiplied(r, out[1], factor), *sum = NULL;
    a.function = GM_FN_add;
    OK(gm_apply(r, GM_OP_binary, 2, (gm_value *[]){z, v}, &a, 1, NULL, &sum));
    gm_value *seed = seed_of(r, sum);
    OK(gm_tape_backward(sum, seed, false));
    block_walk w = walk_block(&r->mesh, &columns, r->rank, 2, x->shape);
    for (int64_t i = 0; i < w.n; i++) {
        int64_t at = global_index(&w, i);
        double  want = at < 0 ? 0 : 2 * whole_number(2, at) * whole_number(77, at);
        assert_true(gm_load(GM_F64, gm_tensor_data(x->param->grad), i) == want);
    }
    gm_value *all[] = {x, factor, out[0], out[1], z, v, sum, seed};
    for (int i = 0; i < 8; i++) gm_value_release(all[i]);
}

void gm_test_partial_gradients_of_several_outputs(void **state)
{
    gm_mesh mesh = mesh_of("tensor", 2, "", 1, "", 1);
    (void)state;
    run_ranks(&mesh, several, NULL);
}
