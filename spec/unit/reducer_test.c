/* reducer_test.c - gradients in buckets, summed over ranks that are threads: against sums in the order of ranks (16-bit
 * types in f32, rounded once), to the bit, whatever the size of the buckets, the overlap, and the order in which a
 * rank's backward finishes. */
#include <stdlib.h>

#include "../../host/gradients/norm.h"
#include "../../host/gradients/reducer.h"
#include "reducer_report.h"
#include "threads_transport.h"
#include "../../host/life.h"

#define LEAVES 12
#define STEPS  3

typedef enum use { USED, UNUSED, UNUSED_HERE, NEGATIVE_ZERO, WHOLE } use;

typedef struct plan {
    size_t   bucket_bytes;
    bool     overlap, shared_out; /* shared_out: over the batch axes, and in two passes */
    gm_dtype dtype[LEAVES];
    int      ndim[LEAVES];
    int64_t  shape[LEAVES][2];
    use      uses[STEPS][LEAVES];
    uint64_t seed;
    int      world, buckets; /* buckets: what rank 0 got */
} plan;

static int64_t numel(const plan *p, int i)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim[i]; d++) n *= p->shape[i][d];
    return n;
}

/* Element e of what a rank's backward gives leaf i in a step; not a whole number, so that the order of sums shows. */
static double term(const plan *p, int step, int i, int64_t e, int rank)
{
    unit_random r = {gm_mix64(p->seed + (uint64_t)(step * LEAVES + i) * 1000 + (uint64_t)rank) + (uint64_t)e};
    if (p->uses[step][i] == WHOLE) r.n = gm_mix64(p->seed + (uint64_t)i) + (uint64_t)e; /* the same on every rank */
    if (p->uses[step][i] == NEGATIVE_ZERO) return -0.0;
    return unit_between(&r, -1, 1);
}

static bool touches(const plan *p, int step, int i, int rank)
{
    use u = p->uses[step][i];
    return u == UNUSED_HERE ? rank == p->world - 1 : u != UNUSED;
}

/* As if the tape had run: leaves in a random order, each of them final when it is written. */
static void backward(gm_rank *r, const plan *p, int step, gm_value **leaves)
{
    unit_random order = {p->seed + (uint64_t)(100 * r->rank + step)};
    int         list[LEAVES];
    for (int i = 0; i < LEAVES; i++) {
        int k = (int)unit_below(&order, i + 1);
        list[i] = list[k];
        list[k] = i;
    }
    for (int i = 0; i < LEAVES; i++) leaves[i]->param->awaited = touches(p, step, i, r->rank);
    for (int k = 0; k < LEAVES; k++) {
        int        i = list[k];
        gm_tensor *g = NULL;
        if (!touches(p, step, i, r->rank)) continue;
        OK(gm_value_grad_buffer(leaves[i], &g));
        for (int64_t e = 0; e < numel(p, i); e++)
            gm_store(g->dtype, gm_tensor_data(g), e, term(p, step, i, e, r->rank));
        leaves[i]->param->grad_set = true;
        leaves[i]->param->grad_partial = p->uses[step][i] == WHOLE ? 0 : gm_mesh_batch_axes(&r->mesh);
        OK(report(leaves[i]));
        OK(gm_comm_poll(r->comm));
    }
}

/* The sum as it should be, in the dtype of the leaf. */
static double expected(const plan *p, int step, int i, int64_t e)
{
    unsigned char bytes[8] = {0};
    gm_dtype      t = p->dtype[i];
    double        sum = 0;
    bool          any = false, whole = p->uses[step][i] == WHOLE;
    for (int rank = 0; rank < (whole ? 1 : p->world); rank++) {
        if (!touches(p, step, i, rank)) continue;
        gm_store(t, bytes, 0, term(p, step, i, e, rank));
        double x = gm_load(t, bytes, 0);
        sum = !any ? x : t == GM_F64 ? sum + x : (double)((float)sum + (float)x);
        any = true;
    }
    gm_store(t, bytes, 0, sum);
    return gm_load(t, bytes, 0);
}

/* Calls check(context, e, place) for each element of this rank's part of a leaf: its number in the leaf, or -1 for
 * padding, and its place in the part. */
static void each_owned(const gm_value *v, const gm_layout *layout, void (*check)(void *, int64_t, int64_t),
                       void *context)
{
    gm_box  box;
    int64_t local[GM_MAX_DIMS] = {1, 1}, logical[GM_MAX_DIMS] = {1, 1}, width = v->ndim > 1 ? v->shape[1] : 1;
    gm_layout_block(&v->rank->mesh, layout, v->rank->coordinate, v->ndim, v->shape, &box, local, logical);
    int64_t row = v->ndim > 0 ? box.offset[0] : 0, column = v->ndim > 1 ? box.offset[1] : 0;
    for (int64_t i = 0; i < local[0]; i++)
        for (int64_t j = 0; j < local[1]; j++) {
            bool inside = i < logical[0] && j < logical[1];
            check(context, inside ? (row + i) * width + column + j : -1, i * local[1] + j);
        }
}

typedef struct expectation {
    const plan *p;
    int         step, leaf, rank, passes;
    gm_tensor  *got;
} expectation;

static void expect_element(void *context, int64_t e, int64_t place)
{
    const expectation *x = context;
    double             got = gm_load(x->got->dtype, (char *)gm_tensor_data(x->got), place);
    double             want = e < 0 ? 0 : x->passes * expected(x->p, x->step, x->leaf, e);
    if (got != want)
        fail_msg("rank %d of %d, step %d, leaf %d (%s), element %d: %.17g, not %.17g", x->rank, x->p->world, x->step,
                 x->leaf, gm_dtype_name(x->got->dtype), (int)e, got, want);
}

static void expect_step(gm_rank *r, const plan *p, int step, gm_reducer *d, gm_value **leaves)
{
    int unused[LEAVES], n = gm_reducer_unused(d, unused), at = 0;
    for (int i = 0; i < LEAVES; i++) {
        bool none = p->uses[step][i] == UNUSED;
        if (none != (at < n && unused[at] == i)) fail_msg("leaf %d of step %d: reported wrongly", i, step);
        at += none;
        gm_layout   layout;
        expectation x = {p, step, i, r->rank, leaves[i]->param->own ? 2 : 1, gm_value_final_grad(leaves[i], &layout)};
        assert_int_equal(x.got != NULL, !none);
        assert_int_equal(layout.partial, 0);
        if (!none) each_owned(leaves[i], &layout, expect_element, &x);
    }
    assert_int_equal(at, n);
}

static void make_leaves(gm_rank *r, const plan *p, gm_value **leaves)
{
    for (int i = 0; i < LEAVES; i++) {
        OK(gm_value_new(r, "test", p->dtype[i], p->ndim[i], p->shape[i], &leaves[i]));
        OK(gm_value_require_grad(leaves[i], true));
    }
}

/* ---- parameters that come back ---- */

static void set_element(void *context, int64_t e, int64_t place)
{
    gm_value *v = context;
    (void)place;
    if (e >= 0) gm_store(v->local->dtype, gm_tensor_data(v->local), e, (double)(e % 100 + 1));
}

/* Each owner writes its part, and all of them get the whole. */
static void expect_gathered(gm_reducer *d, gm_value **leaves)
{
    gm_attrs wrong = gm_attrs_default();
    wrong.value = -7;
    for (int i = 0; i < LEAVES; i++) {
        gm_value *v = leaves[i];
        OK(gm_run_one(v->rank->device, GM_OP_fill, &wrong, NULL, v->local));
        each_owned(v, v->param->own ? &v->param->owned : &v->layout, set_element, v);
    }
    OK(gm_reducer_gather(d));
    for (int i = 0; i < LEAVES; i++)
        for (int64_t e = 0; e < gm_tensor_numel(leaves[i]->local); e++)
            if (gm_load(leaves[i]->local->dtype, gm_tensor_data(leaves[i]->local), e) != (double)(e % 100 + 1))
                fail_msg("leaf %d, element %d is not what its owner wrote", i, (int)e);
}

static void train(gm_rank *r, void *context)
{
    plan       *p = context;
    uint32_t    owners = p->shared_out ? gm_mesh_batch_axes(&r->mesh) : 0;
    gm_value   *leaves[LEAVES];
    gm_reducer *d = NULL;
    size_t      bytes = 0, sent = 0;
    make_leaves(r, p, leaves);
    OK(gm_reducer_new(r, leaves, LEAVES, p->bucket_bytes, p->overlap, owners, &d));
    for (int i = 0; i < LEAVES; i++) bytes += (size_t)numel(p, i) * gm_dtype_size(p->dtype[i]);
    assert_int_equal(gm_reducer_bytes(d), bytes);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LEAVES; i++) gm_value_zero_grad(leaves[i]);
        gm_comm_reset_traffic(r->comm);
        for (int pass = 0; pass < (p->shared_out ? 2 : 1); pass++) {
            for (int i = 0; i < LEAVES; i++) /* sums that are not shared out begin again */
                if (!leaves[i]->param->own) gm_value_zero_grad(leaves[i]);
            gm_reducer_arm(d, true);
            backward(r, p, step, leaves);
            if (!p->overlap) assert_int_equal(gm_comm_under_way(r->comm), 0);
            OK(gm_reducer_finish(d));
        }
        assert_int_equal(gm_comm_under_way(r->comm), 0);
        expect_step(r, p, step, d, leaves);
    }
    gm_traffic entries[16];
    for (int i = 0, n = gm_comm_traffic(r->comm, entries, 16); i < n; i++) sent += entries[i].bytes;
    if (p->world == 2 && !owners) assert_int_equal(sent, bytes); /* 2 (p - 1) / p: with two ranks nothing is rounded */
    if (r->rank == 0) p->buckets = gm_reducer_buckets(d);
    expect_gathered(d, leaves);
    gm_reducer_free(d);
    assert_null(r->reducer);
    for (int i = 0; i < LEAVES; i++) {
        assert_null(leaves[i]->param->own);
        if (!owners) assert_non_null(leaves[i]->param->grad); /* an ordinary gradient now */
        gm_value_release(leaves[i]);
    }
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
}

static void draw_plan(unit_random *r, plan *p, int world, size_t bucket_bytes, bool overlap)
{
    static const gm_dtype dtypes[] = {GM_F32, GM_F64, GM_F32, GM_BF16, GM_F16};
    *p = (plan){.bucket_bytes = bucket_bytes, .overlap = overlap, .world = world, .seed = unit_bits(r)};
    for (int i = 0; i < LEAVES; i++) {
        p->dtype[i] = dtypes[unit_below(r, 5)];
        p->ndim[i] = (int)unit_below(r, 3);
        for (int d = 0; d < 2; d++) p->shape[i][d] = 1 + unit_below(r, 20);
        for (int step = 0; step < STEPS; step++) {
            static const use uses[] = {USED, USED, USED, UNUSED, UNUSED_HERE, NEGATIVE_ZERO, WHOLE};
            p->uses[step][i] = uses[unit_below(r, 7)];
        }
    }
}

void gm_test_reducer_sums(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 3000, 0};
    unit_random         r = {37};
    for (int world = 1; world <= 5; world++)
        for (int k = 0; k < 4; k++)
            for (int overlap = 0; overlap < 2; overlap++) {
                plan p;
                draw_plan(&r, &p, world, sizes[k], overlap);
                run_world(world, train, &p);
                if (k == 0) assert_int_equal(p.buckets, LEAVES); /* each alone: all are larger than a byte */
                if (k == 3) assert_in_range(p.buckets, 1, 4);    /* one a dtype */
            }
}

/* The sums of two passes, shared out over their owners: the same numbers, each at its owner. */
void gm_test_reducer_shares_out(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 3000, 0};
    unit_random         r = {41};
    for (int world = 2; world <= 5; world++)
        for (int k = 0; k < 4; k++)
            for (int overlap = 0; overlap < 2; overlap++) {
                plan p;
                draw_plan(&r, &p, world, sizes[k], overlap);
                p.shared_out = true;
                run_world(world, train, &p);
            }
}
