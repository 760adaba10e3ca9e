/* reducer_rules_test.c - reducers: accumulation, what is refused, axes beside the batch's, several reducers, order. */
#include <stdlib.h>

#include "../../host/gradients/norm.h"
#include "../../host/gradients/reducer.h"
#include "redistribute_blocks.h"
#include "reducer_report.h"
#include "threads_transport.h"
#include "../../host/life.h"

/* ---- accumulation, misuse, other axes ---- */

static gm_value *leaf_of(gm_rank *r, const gm_layout *layout, int64_t n)
{
    gm_value *v = NULL;
    OK(gm_value_new_block(r, "test", GM_F64, layout, 1, &n, &v));
    OK(gm_value_require_grad(v, true));
    return v;
}

/* What a backward does with one leaf: sets its gradient, or adds to it. */
static gm_status give(gm_value *v, double x, uint32_t partial)
{
    gm_tensor *g = NULL;
    GM_TRY(gm_value_grad_buffer(v, &g));
    for (int64_t i = 0; i < gm_tensor_numel(g); i++) {
        double *e = (double *)gm_tensor_data(g) + i;
        *e = v->param->grad_set ? *e + x : x;
    }
    v->param->grad_set = true;
    v->param->grad_partial |= partial;
    return report(v);
}

/* Each of n leaves is read by so many tapes. */
static void await(gm_value **v, int n, int tapes)
{
    for (int i = 0; i < n; i++) v[i]->param->awaited = tapes;
}

static double element(const gm_value *v, int64_t i) { return ((double *)gm_tensor_data(v->param->grad))[i]; }

static uint64_t calls(const gm_comm *c)
{
    gm_traffic entries[16];
    uint64_t   total = 0;
    for (int i = 0, n = gm_comm_traffic(c, entries, 16); i < n; i++) total += entries[i].calls;
    return total;
}

static void accumulate(gm_rank *r, void *context)
{
    (void)context;
    gm_layout   whole = gm_layout_replicated();
    gm_value   *v = leaf_of(r, &whole, 3), *other = leaf_of(r, &whole, 2);
    gm_reducer *d = NULL;
    OK(give(v, 100, 1)); /* what a gradient holds when the reducer is made is kept */
    OK(gm_reducer_new(r, (gm_value *[]){v, other}, 2, 1, true, 0, &d));
    gm_comm_reset_traffic(r->comm);
    OK(give(v, 1 + r->rank, 1));
    OK(give(other, 5, 1));
    OK(give(v, 1 + r->rank, 1));
    assert_int_equal(calls(r->comm), 0); /* not armed: nothing is sent */
    gm_reducer_arm(d, true);
    await((gm_value *[]){v, other}, 2, 1);
    OK(give(other, 5, 1));
    OK(give(v, 1 + r->rank, 1)); /* final now; `other` is the first bucket and was ready before */
    OK(gm_reducer_finish(d));
    assert_int_equal(calls(r->comm), 2);
    for (int i = 0; i < 3; i++) assert_true(element(v, i) == 300 + 3 * (1 + 2 + 3));
    for (int i = 0; i < 2; i++) assert_true(element(other, i) == 30);
    OK(gm_reducer_finish(d)); /* a sum is replicated: summing it again changes nothing */
    assert_true(element(v, 0) == 318);
    gm_reducer_free(d);
    gm_value_release(v);
    gm_value_release(other);
}

/* The first bucket holds a leaf that no tape awaits: its reduction starts all the same. */
static void absent(gm_rank *r, void *context)
{
    (void)context;
    gm_layout   whole = gm_layout_replicated();
    gm_value   *v[3] = {leaf_of(r, &whole, 4), leaf_of(r, &whole, 4), leaf_of(r, &whole, 4)};
    gm_reducer *d = NULL;
    int         unused[3];
    OK(gm_reducer_new(r, v, 3, 64, true, 0, &d)); /* 2 and 1 together, then 0 */
    assert_int_equal(gm_reducer_buckets(d), 2);
    await(v, 2, 1);
    gm_reducer_arm(d, true);
    gm_comm_reset_traffic(r->comm);
    OK(give(v[1], 1, 1));
    assert_int_equal(calls(r->comm), 1);
    OK(give(v[0], 1, 1));
    assert_int_equal(calls(r->comm), 2);
    OK(gm_reducer_finish(d));
    assert_true(element(v[0], 3) == 2 && element(v[1], 3) == 2);
    assert_int_equal(gm_reducer_unused(d, unused), 1);
    assert_int_equal(unused[0], 2);
    gm_reducer_free(d);
    for (int i = 0; i < 3; i++) gm_value_release(v[i]);
}

void gm_test_reducer_absent_leaves(void **state)
{
    (void)state;
    run_world(2, absent, NULL);
}

/* A bucket that fills up last is launched last, even when it was begun first. */
static void order(gm_rank *r, void *context)
{
    (void)context;
    gm_layout   whole = gm_layout_replicated(), by_row = gm_layout_cut(0, 2);
    gm_value   *v[4] = {leaf_of(r, &by_row, 4), leaf_of(r, &whole, 2), leaf_of(r, &whole, 2), leaf_of(r, &by_row, 4)};
    gm_reducer *d = NULL;
    OK(gm_reducer_new(r, v, 4, 0, true, 0, &d));
    gm_reducer_arm(d, true);
    await(v, 4, 1);
    gm_comm_reset_traffic(r->comm);
    OK(give(v[3], 1, 1));
    OK(give(v[2], 1, 1));
    OK(give(v[1], 1, 1));
    assert_int_equal(calls(r->comm), 1);
    OK(give(v[0], 1, 1));
    assert_int_equal(calls(r->comm), 2);
    OK(gm_reducer_finish(d));
    for (int i = 0; i < 4; i++) assert_true(element(v[i], 1) == 2);
    gm_reducer_free(d);
    for (int i = 0; i < 4; i++) gm_value_release(v[i]);
}

void gm_test_reducer_order(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("data", 2, "row", 2, NULL, 1);
    run_ranks(&mesh, order, NULL);
}

/* Six buckets of 32 MiB: reductions hold scratch of as much until they are waited for, so that two are under way. */
void gm_test_reducer_in_flight(void **state)
{
    (void)state;
    gm_rank    *r = NULL;
    gm_layout   whole = gm_layout_replicated();
    gm_reducer *d = NULL;
    gm_tensor  *g = NULL;
    gm_value   *v[6];
    gm_mesh     mesh = gm_mesh_of_one();
    gm_traffic  entry;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, 1, 4));
    OK(gm_mesh_add_axis(&mesh, "data", 4));
    OK(gm_rank_set_mesh(r, &mesh));
    OK(gm_rank_open_device(r, "meta", 0));
    for (int i = 0; i < 6; i++) v[i] = leaf_of(r, &whole, 4 << 20);
    OK(gm_reducer_new(r, v, 6, 0, true, 0, &d));
    for (int step = 0; step < 2; step++) {
        gm_reducer_arm(d, true);
        await(v, 6, 1);
        gm_pool_reset_peak(r->device->pool);
        size_t before = gm_pool_stats(r->device->pool).live;
        for (int i = 5; i >= 0; i--) {
            OK(gm_value_grad_buffer(v[i], &g));
            v[i]->param->grad_set = true;
            v[i]->param->grad_partial = 1;
            OK(report(v[i]));
        }
        OK(gm_reducer_finish(d));
        gm_memory_stats s = gm_pool_stats(r->device->pool);
        assert_int_equal(s.live, before);
        assert_int_equal(s.peak - before, 64 << 20);
    }
    assert_int_equal(gm_comm_traffic(r->comm, &entry, 1), 1);
    assert_int_equal(entry.calls, 2 * 6);
    gm_reducer_free(d);
    for (int i = 0; i < 6; i++) gm_value_release(v[i]);
    gm_rank_free(r);
}

/* As rank 2 of 4 that are not there: what would be sent is counted, nothing is read. */
void gm_test_reducer_on_meta(void **state)
{
    (void)state;
    gm_rank    *r = NULL;
    gm_layout   whole = gm_layout_replicated(), cut;
    gm_reducer *d = NULL;
    gm_traffic  entries[8];
    gm_value   *x = NULL, *y = NULL;
    gm_tensor  *g = NULL;
    uint64_t    bytes = 0;
    double      norm;
    int         unused[2];
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, 2, 4));
    gm_mesh mesh = gm_mesh_of_one();
    OK(gm_mesh_add_axis(&mesh, "data", 4));
    OK(gm_rank_set_mesh(r, &mesh));
    OK(gm_rank_open_device(r, "meta", 0));
    gm_value *v[2] = {leaf_of(r, &whole, 8), leaf_of(r, &whole, 4)};
    OK(gm_reducer_new(r, v, 2, 0, true, 0, &d));
    gm_reducer_arm(d, true);
    OK(gm_value_grad_buffer(v[0], &g));
    v[0]->param->grad_set = true;
    v[0]->param->grad_partial = 1;
    OK(gm_reducer_ready(d, v[0]));
    OK(gm_reducer_finish(d));
    assert_int_equal(gm_reducer_unused(d, unused), 1);
    assert_int_equal(unused[0], 1);
    for (int i = 0, n = gm_comm_traffic(r->comm, entries, 8); i < n; i++) bytes += entries[i].bytes;
    assert_int_equal(bytes, 3 * 12 * 8); /* 12 elements of 8 bytes to each other rank: a small sum goes at once */
    cut = gm_layout_cut(0, 1);
    OK(gm_value_new_block(r, "test", GM_F64, &cut, 1, (int64_t[]){10}, &x));
    OK(gm_gather_value(r, x, &y));
    assert_int_equal(y->local->shape[0], 10);
    OK(gm_layout_norm(r, &(gm_norm_item){x->local, cut, false}, 1, 3, &norm));
    gm_reducer_free(d);
    gm_value_release(y);
    gm_value_release(x);
    for (int i = 0; i < 2; i++) gm_value_release(v[i]);
    gm_rank_free(r);
}

void gm_test_reducer_accumulates(void **state)
{
    (void)state;
    run_world(3, accumulate, NULL);
}

static void misuse(gm_rank *r, void *context)
{
    (void)context;
    gm_layout   whole = gm_layout_replicated();
    gm_value   *v = leaf_of(r, &whole, 3), *w = leaf_of(r, &whole, 3), *plain = NULL;
    gm_reducer *d = NULL, *e = NULL;
    OK(gm_value_new(r, "test", GM_F64, 1, (int64_t[]){2}, &plain));
    FAILS(GM_EINVAL, "tensor 2 is not a parameter", gm_reducer_new(r, (gm_value *[]){v, plain}, 2, 0, true, 0, &d));
    FAILS(GM_EINVAL, "parameters 1 and 3 are the same", gm_reducer_new(r, (gm_value *[]){v, w, v}, 3, 0, true, 0, &d));
    OK(gm_reducer_new(r, (gm_value *[]){v}, 1, 0, true, 0, &d));
    FAILS(GM_EINVAL, "parameter 2 belongs to another reducer",
          gm_reducer_new(r, (gm_value *[]){w, v}, 2, 0, true, 0, &e));
    OK(gm_reducer_new(r, (gm_value *[]){w}, 1, 0, true, 0, &e)); /* two models */
    gm_reducer_arm(d, true);
    OK(give(w, 1, 1)); /* of the one that is not armed */
    OK(give(v, 1, 1));
    FAILS(GM_EINVAL, "a second backward in one step", give(v, 1, 1));
    OK(gm_reducer_finish(d));
    assert_int_equal(w->param->grad_partial, 1);
    assert_true(element(w, 0) == 1);
    gm_reducer_arm(e, true);
    gm_reducer_free(d); /* the chain goes on without it */
    OK(gm_value_require_grad(w, false));
    OK(gm_value_require_grad(w, true));
    FAILS(GM_EINVAL, "parameter 1 was frozen", give(w, 1, 1));
    FAILS(GM_EINVAL, "parameter 1 was frozen", gm_reducer_finish(e));
    gm_reducer_free(e);
    gm_value_release(v);
    gm_value_release(w);
    gm_value_release(plain);
}

void gm_test_reducer_refuses(void **state)
{
    (void)state;
    run_world(2, misuse, NULL);
}

/* On a mesh of data x expert x tensor: nothing is summed over an axis that cuts it, and what is partial over `tensor`
 * is summed over that as well. */
static void other_axes(gm_rank *r, void *context)
{
    (void)context;
    gm_layout   whole = gm_layout_replicated(), by_expert = gm_layout_cut(0, 2), by_tensor = gm_layout_cut(0, 4);
    gm_value   *v[4] = {leaf_of(r, &whole, 3), leaf_of(r, &by_expert, 4), leaf_of(r, &by_tensor, 5),
                        leaf_of(r, &whole, 1)};
    gm_reducer *d = NULL;
    OK(gm_reducer_new(r, v, 4, 0, true, 0, &d));
    assert_int_equal(gm_reducer_buckets(d), 3); /* what another axis cuts is apart */
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 4; i++) gm_value_zero_grad(v[i]);
        for (int i = 0; i < 4; i++) v[i]->param->grad_partial = 0;
        gm_reducer_arm(d, true);
        await(v, 4, 1);
        OK(give(v[0], r->rank, 3));
        OK(give(v[1], r->rank, 1));
        OK(give(v[2], r->rank, 3));
        OK(give(v[3], r->rank, step ? 7 : 3));
        OK(gm_reducer_finish(d));
        /* ranks are 4 data + 2 expert + tensor */
        int tensor = r->rank % 2, expert = r->rank / 2 % 2;
        assert_true(element(v[0], 2) == 0 + 2 + 4 + 6 + 4 * (step ? 0 : tensor));
        assert_true(element(v[1], 1) == 4 + 2 * (2 * expert + tensor));
        assert_true(element(v[2], 0) == 0 + 2 + 4 + 6 + 4 * tensor);
        assert_true(element(v[3], 0) == (step ? 28 : 12 + 4 * tensor));
    }
    gm_reducer_free(d);
    for (int i = 0; i < 4; i++) gm_value_release(v[i]);
}

void gm_test_reducer_axes(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("data", 2, "expert", 2, "tensor", 2);
    run_ranks(&mesh, other_axes, NULL);
}
