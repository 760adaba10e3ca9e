/* stored_test.c - parameters that rest in parts, on ranks that are threads: whatever was gathered ahead, kept or put
 * out, a use sees the numbers that the truth (whole parameters in plain arrays) has, and each rank holds one part. */
#include "../../host/gradients/stored.h"
#include "threads_transport.h"

#define LEAVES 6
#define STEPS  4
#define MOST   400

typedef struct world_plan {
    int      world;
    int64_t  keep, ahead;
    int      ndim[LEAVES];
    int64_t  shape[LEAVES][2];
    uint64_t seed;
} world_plan;

typedef struct truth {
    double x[LEAVES][MOST];
} truth;

static int64_t numel(const world_plan *p, int i)
{
    return p->ndim[i] ? p->shape[i][0] * (p->ndim[i] > 1 ? p->shape[i][1] : 1) : 1;
}

/* The leaf as an op sees it: a copy of it, which is a use. */
static void expect_leaf(gm_rank *r, const world_plan *p, const truth *t, gm_value **leaves, int i)
{
    gm_tensor *copy = NULL;
    OK(gm_tensor_new(r->device, GM_F64, leaves[i]->local->ndim, leaves[i]->local->shape, &copy));
    OK(gm_run_one(r->device, GM_OP_copy, NULL, leaves[i]->local, copy));
    const double *got = gm_tensor_data(copy);
    for (int64_t e = 0; e < numel(p, i); e++)
        if (got[e] != t->x[i][e])
            fail_msg("rank %d of %d, leaf %d, element %d: %g, not %g", r->rank, p->world, i, (int)e, got[e],
                     t->x[i][e]);
    gm_tensor_release(copy);
}

/* As an optimizer does it: the part that rests changes. Padding stays zero. */
static void update(gm_rank *r, const world_plan *p, truth *t, gm_value *leaf, int i, double add)
{
    gm_layout  layout;
    gm_tensor *part;
    gm_box     box;
    int64_t    local[GM_MAX_DIMS] = {1, 1}, logical[GM_MAX_DIMS] = {1, 1}, width = p->ndim[i] > 1 ? p->shape[i][1] : 1;
    OK(gm_value_resting(leaf, &layout, &part));
    OK(gm_value_resting_changes(leaf));
    gm_layout_block(&r->mesh, &layout, r->coordinate, leaf->ndim, leaf->shape, &box, local, logical);
    double *x = gm_tensor_data(part);
    int64_t row = p->ndim[i] ? box.offset[0] : 0, column = p->ndim[i] > 1 ? box.offset[1] : 0;
    for (int64_t a = 0; a < logical[0]; a++)
        for (int64_t b = 0; b < logical[1]; b++) {
            double *here = &x[a * local[1] + b];
            if (*here != t->x[i][(row + a) * width + column + b]) fail_msg("leaf %d rests with other numbers", i);
            *here += add;
        }
    for (int64_t e = 0; e < numel(p, i); e++) t->x[i][e] += add;
}

/* A write in place into the whole block, the same on every rank. */
static void write_block(gm_rank *r, const world_plan *p, truth *t, gm_value *leaf, int i, double value)
{
    gm_attrs a = gm_attrs_default();
    a.value = value;
    OK(gm_run_one(r->device, GM_OP_fill, &a, NULL, leaf->local));
    gm_value_touched(leaf);
    for (int64_t e = 0; e < numel(p, i); e++) t->x[i][e] = value;
}

static void make_leaf(gm_rank *r, const world_plan *p, truth *t, int i, gm_value **out)
{
    OK(gm_value_new(r, "leaf", GM_F64, p->ndim[i], p->shape[i], out));
    double *x = gm_tensor_data((*out)->local);
    for (int64_t e = 0; e < numel(p, i); e++) x[e] = t->x[i][e] = (double)(100 * i + e);
    OK(gm_value_require_grad(*out, true));
    OK(gm_parameter_store(*out, gm_mesh_batch_axes(&r->mesh), 2));
    bool rests = p->ndim[i] && p->world > 1 && numel(p, i) >= 2;
    assert_true(((*out)->param->stored != NULL) == rests);
    if (rests) assert_true(gm_tensor_data((*out)->local) == NULL);
}

static void expect_held(gm_rank *r, const world_plan *p, gm_value **leaves)
{
    size_t parts = 0, largest = 0;
    for (int i = 0; i < LEAVES; i++) {
        const gm_parameter *q = leaves[i]->param;
        parts += (q->stored ? q->stored : leaves[i]->local)->storage->bytes;
        if (q->stored && leaves[i]->local->storage->bytes > largest) largest = leaves[i]->local->storage->bytes;
    }
    size_t room = p->keep < 0 ? 2 * largest : (size_t)p->keep > largest ? (size_t)p->keep : largest;
    size_t ahead = p->ahead < 0 || (size_t)p->ahead < largest ? (p->ahead ? largest : 0) : (size_t)p->ahead;
    size_t live = (size_t)gm_pool_stats(r->device->pool).live;
    /* what is under way has scratch of the size of its block, and one of 64 bytes more a part for padding */
    if (live > parts + room + 3 * ahead + 64 * (size_t)(LEAVES * 4))
        fail_msg("%zu bytes are held, where parts take %zu, %zu may stay and %zu come", live, parts, room, ahead);
}

static void live_through(gm_rank *r, void *context)
{
    const world_plan *p = context;
    truth             t;
    gm_value         *leaves[LEAVES];
    unit_random       order = {p->seed};
    for (int i = 0; i < LEAVES; i++) make_leaf(r, p, &t, i, &leaves[i]);
    OK(gm_stored_limits(r, p->keep, p->ahead));
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < 12; k++) {
            int i = step < 2 ? k % LEAVES : (int)unit_below(&order, LEAVES); /* an order that holds, then none */
            if (unit_below(&order, 8) == 0) write_block(r, p, &t, leaves[i], i, (double)k);
            expect_leaf(r, p, &t, leaves, i);
            expect_held(r, p, leaves);
        }
        for (int i = 0; i < LEAVES; i++) update(r, p, &t, leaves[i], i, step + 0.5);
    }
    for (int i = 0; i < LEAVES; i++) gm_value_release(leaves[i]);
    assert_int_equal(gm_comm_under_way(r->comm), 0);
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
}

void gm_test_stored_parameters(void **state)
{
    (void)state;
    static const int64_t limits[][2] = {{0, 0}, {-1, -1}, {0, 4000}, {100000, 100000}, {-1, 0}};
    unit_random          r = {53};
    for (int world = 1; world <= 4; world++)
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            world_plan p = {.world = world, .keep = limits[k][0], .ahead = limits[k][1], .seed = unit_bits(&r)};
            for (int i = 0; i < LEAVES; i++) {
                p.ndim[i] = (int)unit_below(&r, 3);
                for (int d = 0; d < 2; d++) p.shape[i][d] = 1 + unit_below(&r, 20);
            }
            run_world(world, live_through, &p);
        }
}

/* Models one after the other in one program. Each but the last is freed while a block is there that was gathered ahead
 * and that nobody has used: into the block itself, because its rows divide by the ranks. */
static void live_again(gm_rank *r, void *context)
{
    const world_plan *p = context;
    truth             t;
    gm_value         *leaves[LEAVES];
    OK(gm_stored_limits(r, p->keep, p->ahead));
    for (int model = 0; model < 3; model++) {
        for (int i = 0; i < LEAVES; i++) make_leaf(r, p, &t, i, &leaves[i]);
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < LEAVES; i++) expect_leaf(r, p, &t, leaves, i);
            for (int i = 0; i < LEAVES; i++) update(r, p, &t, leaves[i], i, step + 0.5);
        }
        if (model < 2) expect_leaf(r, p, &t, leaves, 0);
        for (int i = 0; i < LEAVES; i++) gm_value_release(leaves[i]);
    }
    assert_int_equal(gm_comm_under_way(r->comm), 0);
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
}

void gm_test_stored_after_another_model(void **state)
{
    (void)state;
    static const int64_t limits[][2] = {{0, 0}, {-1, -1}, {0, 4000}, {100000, 100000}};
    for (int world = 2; world <= 4; world++)
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            world_plan p = {.world = world, .keep = limits[k][0], .ahead = limits[k][1]};
            for (int i = 0; i < LEAVES; i++) {
                p.ndim[i] = 2;
                p.shape[i][0] = 12;
                p.shape[i][1] = 7;
            }
            run_world(world, live_again, &p);
        }
}

/* A model in stages, of which each has another number of parameters of another size; then one whose parameters all
 * ranks share, while the first still lives, and one after it was freed. In a step each parameter is needed so often
 * that the end of the step is not remembered. When blocks leave and are gathered must not depend on the first model:
 * barriers of the same ranks come between. */
static void mesh_after_mesh(gm_rank *r, void *context)
{
    const world_plan *p = context;
    enum { TURNS = 10 };
    truth      t;
    gm_value  *first[LEAVES], *leaves[LEAVES];
    gm_group  *all;
    world_plan stage = *p;
    int        n = 1 + 4 * r->coordinate[0];
    gm_mesh    mesh = mesh_of("data", p->world, "", 1, "", 1);
    OK(gm_stored_limits(r, p->keep, p->ahead));
    for (int i = 0; i < n; i++) {
        stage.shape[i][1] = n;
        make_leaf(r, &stage, &t, i, &first[i]);
        expect_leaf(r, &stage, &t, first, i);
    }
    OK(gm_rank_set_mesh(r, &mesh));
    OK(gm_comm_group(r->comm, 1, &all));
    for (int model = 0; model < 2; model++) {
        for (int i = 0; i < LEAVES; i++) make_leaf(r, p, &t, i, &leaves[i]);
        for (int step = 0; step < 2; step++) {
            for (int k = 0; k < TURNS * LEAVES; k++) {
                expect_leaf(r, p, &t, leaves, k % LEAVES);
                OK(gm_comm_barrier(r->comm, all));
            }
            for (int i = 0; i < LEAVES; i++) update(r, p, &t, leaves[i], i, step + 0.5);
        }
        for (int i = 0; i < LEAVES; i++) gm_value_release(leaves[i]);
        for (int i = 0; i < n && !model; i++) gm_value_release(first[i]);
    }
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
}

void gm_test_stored_on_another_mesh(void **state)
{
    (void)state;
    static const int64_t limits[][2] = {{-1, -1}, {0, 0}, {700, 700}};
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        gm_mesh    mesh = mesh_of("pipeline", 2, "data", 2, "", 1);
        world_plan p = {.world = 4, .keep = limits[k][0], .ahead = limits[k][1]};
        for (int i = 0; i < LEAVES; i++) {
            p.ndim[i] = 2;
            p.shape[i][0] = 12;
            p.shape[i][1] = 1 + i % 3;
        }
        run_ranks(&mesh, mesh_after_mesh, &p);
    }
}

/* One call reads them all: none of them leaves before it has run, however little room there is. */
static void sum_all(gm_rank *r, void *context)
{
    (void)context;
    gm_value  *leaves[3];
    gm_tensor *in[3], *out = NULL;
    gm_attrs   a = gm_attrs_default();
    double     want = 0;
    for (int i = 0; i < 3; i++) {
        OK(gm_value_new(r, "leaf", GM_F64, SHAPE(8, 3), &leaves[i]));
        for (int e = 0; e < 24; e++) {
            ((double *)gm_tensor_data(leaves[i]->local))[e] = i + 1;
            want += (i + 1) * (i + 1);
        }
        OK(gm_value_require_grad(leaves[i], true));
        OK(gm_parameter_store(leaves[i], gm_mesh_batch_axes(&r->mesh), 1));
        in[i] = leaves[i]->local;
    }
    OK(gm_stored_limits(r, 0, 0));
    OK(gm_tensor_new(r->device, GM_F64, 0, NULL, &out));
    gm_call c = {.op = GM_OP_sum_squares, .n_in = 3, .n_out = 1, .in = in, .out = &out, .attrs = &a};
    OK(gm_run(r->device, &c));
    if (*(double *)gm_tensor_data(out) != want) fail_msg("%g, not %g", *(double *)gm_tensor_data(out), want);
    gm_tensor_release(out);
    for (int i = 0; i < 3; i++) gm_value_release(leaves[i]);
}

void gm_test_stored_in_one_call(void **state)
{
    (void)state;
    run_world(2, sum_all, NULL);
}

/* Equal blocks, one of which may stay and one may come. From the second step on each use finds its block under way and
 * starts the next one, and none is gathered twice. */
static void in_order(gm_rank *r, void *context)
{
    (void)context;
    enum { N = 4, TURNS = 3 };
    gm_value  *leaves[N];
    gm_tensor *copy = NULL;
    OK(gm_tensor_new(r->device, GM_F64, SHAPE(8, 3), &copy));
    for (int i = 0; i < N; i++) {
        OK(gm_value_new(r, "leaf", GM_F64, SHAPE(8, 3), &leaves[i]));
        OK(gm_run_one(r->device, GM_OP_fill, NULL, NULL, leaves[i]->local));
        OK(gm_value_require_grad(leaves[i], true));
        OK(gm_parameter_store(leaves[i], gm_mesh_batch_axes(&r->mesh), 1));
    }
    OK(gm_stored_limits(r, 0, 1));
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < N; i++) {
            OK(gm_run_one(r->device, GM_OP_copy, NULL, leaves[i]->local, copy));
            assert_int_equal(gm_comm_under_way(r->comm), turn > 0 && i < N - 1);
            for (int k = 0; k < N; k++) /* what was used stays alone, beside what comes */
                assert_int_equal(leaves[k]->local->storage->block != NULL, k == i || (turn > 0 && k == i + 1));
        }
        for (int i = 0; i < N; i++) OK(gm_value_resting_changes(leaves[i]));
    }
    gm_traffic entries[4];
    uint64_t   bytes = 0;
    for (int i = 0, n = gm_comm_traffic(r->comm, entries, 4); i < n; i++) bytes += entries[i].bytes;
    assert_int_equal(bytes, TURNS * N * 8 * 3 * 8 / 2);
    gm_tensor_release(copy);
    for (int i = 0; i < N; i++) gm_value_release(leaves[i]);
}

void gm_test_stored_order(void **state)
{
    (void)state;
    run_world(2, in_order, NULL);
}
