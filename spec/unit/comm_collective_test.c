/* comm_collective_test.c - every collective against index arithmetic, on worlds of 1 to 8 threads.
 *
 * The truth is a global tensor whose element i is value(i): blocks are compared with what they must hold, sums
 * with the sum computed in order. Values are small whole numbers, so that sums are exact in every dtype. */
#include <stdlib.h>

#include "../../host/comm/state.h"
#include "threads_transport.h"
#include "unit.h"

static double value(int64_t i) { return (double)(i * 7 % 13); }

static gm_tensor *tensor(gm_rank *r, gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_tensor *t = NULL;
    OK(gm_tensor_new(r->device, dtype, ndim, shape, &t));
    return t;
}

static gm_group *everybody(gm_rank *r)
{
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, (1u << r->mesh.n_axes) - 1, &g));
    return g;
}

/* Where local element i of block `place` along dim lies in a tensor of this shape. */
static int64_t global_index(const int64_t *shape, const gm_tensor *block, int dim, int place, int64_t i)
{
    int64_t at[GM_MAX_DIMS], index = 0;
    for (int d = block->ndim - 1; d >= 0; d--) {
        at[d] = i % block->shape[d] + (d == dim ? place * block->shape[d] : 0);
        i /= block->shape[d];
    }
    for (int d = 0; d < block->ndim; d++) index = index * shape[d] + at[d];
    return index;
}

/* The block of the global tensor along dim (-1: all of it), times a factor. */
static gm_tensor *block_of(gm_rank *r, gm_dtype dtype, int ndim, const int64_t *shape, int dim, int parts, int place,
                           double factor)
{
    int64_t local[GM_MAX_DIMS];
    for (int d = 0; d < ndim; d++) local[d] = d == dim ? shape[d] / parts : shape[d];
    gm_tensor *t = tensor(r, dtype, ndim, local);
    for (int64_t i = 0; i < gm_tensor_numel(t); i++)
        gm_store(dtype, gm_tensor_data(t), i, factor * value(global_index(shape, t, dim, place, i)));
    return t;
}

static void same(const gm_tensor *got, const gm_tensor *want)
{
    assert_true(gm_tensor_same_shape(got, want));
    for (int64_t i = 0; i < gm_tensor_numel(want); i++) {
        double a = gm_load(got->dtype, gm_tensor_data(got), i), b = gm_load(want->dtype, gm_tensor_data(want), i);
        if (a != b) fail_msg("element %d of %d: %g, not %g", (int)i, (int)gm_tensor_numel(want), a, b);
    }
}

static void release2(gm_tensor *a, gm_tensor *b)
{
    gm_tensor_release(a);
    gm_tensor_release(b);
}

/* machine: by rank, on which it is; NULL: nobody knows. */
static void lie_on(gm_rank *r, const int *machine)
{
    if (machine) OK(gm_comm_know_machines(r->comm, machine));
}

/* ---- reductions ---- */

static double reduced(gm_reduction op, int p, double x)
{
    /* terms x * (k + 1), k = 0 .. p - 1, x >= 0 */
    switch (op) {
    case GM_SUM: return x * p * (p + 1) / 2;
    case GM_MEAN: return (double)((float)(x * p * (p + 1) / 2) / (float)p);
    case GM_MAX: return x * p;
    default: return x;
    }
}

static void body_all_reduce(gm_rank *r, void *context)
{
    static const int64_t sizes[] = {0, 1, 2, 5, 64, 1031};
    lie_on(r, context);
    gm_group *g = everybody(r);
    for (int dtype = 0; dtype < GM_DTYPE_COUNT; dtype++)
        for (int op = GM_SUM; op <= GM_MIN; op++)
            for (size_t s = 0; s < 6; s++) {
                if (op == GM_MEAN && !gm_dtype_is_float((gm_dtype)dtype)) continue;
                gm_tensor *t = block_of(r, (gm_dtype)dtype, 1, &sizes[s], -1, 1, 0, r->rank + 1);
                gm_tensor *want = tensor(r, (gm_dtype)dtype, 1, &sizes[s]);
                for (int64_t i = 0; i < sizes[s]; i++) {
                    double x = reduced((gm_reduction)op, r->world, value(i));
                    if (op == GM_MEAN && dtype == GM_F64) x = value(i) * r->world * (r->world + 1) / 2 / r->world;
                    if (dtype == GM_U8) x = (double)((int64_t)x & 255);
                    gm_store((gm_dtype)dtype, gm_tensor_data(want), i, x);
                }
                OK(gm_comm_all_reduce(r->comm, g, t, (gm_reduction)op, NULL));
                same(t, want);
                release2(t, want);
            }
}

void gm_test_comm_all_reduce(void **state)
{
    (void)state;
    for (int world = 1; world <= 8; world++) run_world(world, body_all_reduce, NULL);
}

/* 1 + 2^-8 + 2^-8: rounded after each addition it stays 1 in bf16, rounded once it is 1 + 2^-7. */
static void body_rounds_once(gm_rank *r, void *context)
{
    lie_on(r, context);
    const int64_t one = 1;
    const double  small[2] = {0x1p-8, 0x1p-11};
    for (int k = 0; k < 2; k++) {
        gm_dtype   dtype = k ? GM_F16 : GM_BF16;
        gm_tensor *t = tensor(r, dtype, 1, &one);
        gm_store(dtype, gm_tensor_data(t), 0, r->rank ? small[k] : 1);
        OK(gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL));
        assert_true(gm_load(dtype, gm_tensor_data(t), 0) == 1 + 2 * small[k]);
        gm_tensor_release(t);
    }
}

/* The order of the sum is that of the ranks, on every rank: bits equal a sum in a loop. NaN is never lost. */
static void body_order(gm_rank *r, void *context)
{
    (void)context;
    enum { N = 777 };
    gm_group  *g = everybody(r);
    gm_tensor *t = tensor(r, GM_F32, SHAPE(N)), *m = tensor(r, GM_F32, SHAPE(N));
    float     *x = gm_tensor_data(t), *y = gm_tensor_data(m), want[N];
    for (int k = 0; k < r->world; k++) {
        unit_random random = {(uint64_t)k * 1000003};
        for (int i = 0; i < N; i++) {
            float term = (float)(unit_between(&random, -1, 1) * exp2(unit_between(&random, -20, 20)));
            want[i] = k ? want[i] + term : term;
            if (k == r->rank) x[i] = term;
        }
    }
    for (int i = 0; i < N; i++) y[i] = i % r->world == r->rank ? NAN : (float)i;
    OK(gm_comm_all_reduce(r->comm, g, t, GM_SUM, NULL));
    assert_memory_equal(x, want, sizeof want);
    OK(gm_comm_all_reduce(r->comm, g, m, r->world % 2 ? GM_MAX : GM_MIN, NULL));
    for (int i = 0; i < N; i++) assert_true(isnan(y[i]));
    release2(t, m);
}

void gm_test_comm_sums(void **state)
{
    (void)state;
    run_world(3, body_rounds_once, NULL);
    for (int world = 2; world <= 7; world++) run_world(world, body_order, NULL);
}

static void body_reduce(gm_rank *r, void *context)
{
    lie_on(r, context);
    gm_group *g = everybody(r);
    for (int root = 0; root < r->world; root++)
        for (int64_t n = 0; n <= 40; n += 13) {
            double     sum = r->world * (r->world + 1) / 2.0;
            gm_tensor *t = block_of(r, GM_F64, 1, &n, -1, 1, 0, r->rank + 1);
            gm_tensor *want = block_of(r, GM_F64, 1, &n, -1, 1, 0, r->rank == root ? sum : r->rank + 1);
            OK(gm_comm_reduce(r->comm, g, t, root, GM_SUM, NULL));
            same(t, want); /* at the root the sum, elsewhere what was there */
            release2(t, want);
            t = block_of(r, GM_I32, 1, &n, -1, 1, 0, root == r->rank ? 3 : 0);
            want = block_of(r, GM_I32, 1, &n, -1, 1, 0, 3);
            OK(gm_comm_broadcast(r->comm, g, t, root, NULL));
            same(t, want);
            release2(t, want);
        }
}

void gm_test_comm_roots(void **state)
{
    (void)state;
    for (int world = 1; world <= 8; world++) run_world(world, body_reduce, NULL);
}

/* ---- blocks along any dimension ---- */

static void check_blocks(gm_rank *r, gm_dtype dtype, const int64_t *shape, int dim)
{
    int        p = r->world;
    gm_group  *g = everybody(r);
    gm_tensor *block = block_of(r, dtype, 3, shape, dim, p, r->rank, 1);
    gm_tensor *whole = block_of(r, dtype, 3, shape, -1, 1, 0, 1), *got = tensor(r, dtype, 3, shape);
    OK(gm_comm_all_gather(r->comm, g, block, dim, got, NULL));
    same(got, whole);
    gm_tensor_release(got);

    double     sum = p * (p + 1) / 2.0;
    gm_tensor *mine = block_of(r, dtype, 3, shape, -1, 1, 0, r->rank + 1);
    gm_tensor *want = block_of(r, dtype, 3, shape, dim, p, r->rank, sum);
    got = tensor(r, dtype, 3, block->shape);
    OK(gm_comm_reduce_scatter(r->comm, g, mine, dim, GM_SUM, got, NULL));
    same(got, want);
    release2(mine, want);
    gm_tensor_release(got);

    int root = (dim + 1) % p;
    got = r->rank == root ? tensor(r, dtype, 3, shape) : NULL;
    OK(gm_comm_gather(r->comm, g, block, dim, root, got, NULL));
    if (got) same(got, whole);
    gm_tensor_release(got);
    got = tensor(r, dtype, 3, block->shape);
    OK(gm_comm_scatter(r->comm, g, r->rank == root ? whole : NULL, dim, root, got, NULL));
    same(got, block);
    gm_tensor_release(got);
    release2(block, whole);
}

/* Cut along `join` before, along `split` after. */
static void check_all_to_all(gm_rank *r, const int64_t *shape, int split, int join)
{
    gm_tensor *in = block_of(r, GM_I64, 3, shape, join, r->world, r->rank, 1);
    gm_tensor *want = block_of(r, GM_I64, 3, shape, split, r->world, r->rank, 1);
    gm_tensor *to = tensor(r, GM_I64, 3, want->shape);
    OK(gm_comm_all_to_all(r->comm, everybody(r), in, split, to, join, NULL));
    same(to, want);
    release2(in, to);
    gm_tensor_release(want);
}

static void body_blocks(gm_rank *r, void *context)
{
    lie_on(r, context);
    int p = r->world;
    for (int dim = 0; dim < 3; dim++)
        for (int k = 0; k < 4; k++) {
            int64_t shape[3] = {k == 1 ? 1 : 3, 2, k == 2 ? 0 : 5};
            shape[dim] = (k == 3 ? 3 : 1) * p;
            check_blocks(r, (gm_dtype)(dim == 0 ? GM_F32 : dim == 1 ? GM_BF16 : GM_I64), shape, dim);
            for (int other = 0; other < 3; other++)
                if (other != dim) {
                    int64_t both[3] = {shape[0], shape[1], shape[2]};
                    both[other] = 2 * p;
                    check_all_to_all(r, both, dim, other);
                }
        }
}

void gm_test_comm_blocks(void **state)
{
    (void)state;
    for (int world = 1; world <= 6; world++) run_world(world, body_blocks, NULL);
}

/* Rank i sends (i + 2 j) % 4 rows to rank j; row k of that message is 100 i + 10 j + k. */
static void body_rows(gm_rank *r, void *context)
{
    (void)context;
    int     p = r->world;
    int64_t send[8], receive[8], out = 0, in = 0;
    for (int j = 0; j < p; j++) {
        out += send[j] = (r->rank + 2 * j) % 4;
        in += receive[j] = (j + 2 * r->rank) % 4;
    }
    gm_tensor *from = tensor(r, GM_F64, SHAPE(out, 2)), *to = tensor(r, GM_F64, SHAPE(in, 2));
    double    *x = gm_tensor_data(from), *y = gm_tensor_data(to);
    for (int j = 0, at = 0; j < p; j++)
        for (int k = 0; k < send[j]; k++, at++) x[2 * at] = x[2 * at + 1] = 100 * r->rank + 10 * j + k;
    gm_row_run  runs[16];
    gm_row_runs sends = gm_row_runs_in_order(send, p, runs), receives = gm_row_runs_in_order(receive, p, runs + 8);
    OK(gm_comm_all_to_all_rows(r->comm, everybody(r), from, sends, to, receives, NULL));
    for (int i = 0, at = 0; i < p; i++)
        for (int k = 0; k < receive[i]; k++, at++)
            assert_true(y[2 * at] == 100 * i + 10 * r->rank + k && y[2 * at + 1] == y[2 * at]);
    release2(from, to);
}

/* A ring of messages, strings of every length, a barrier. */
static void body_messages(gm_rank *r, void *context)
{
    (void)context;
    int         p = r->world;
    gm_group   *g = everybody(r);
    gm_pending *sent[3];
    gm_tensor  *t[3], *got = tensor(r, GM_I32, SHAPE(100));
    for (int k = 0; k < 3 && p > 1; k++) { /* in order, though all are under way */
        t[k] = tensor(r, GM_I32, SHAPE(100));
        for (int i = 0; i < 100; i++) ((int32_t *)gm_tensor_data(t[k]))[i] = 1000 * r->rank + 100 * k + i;
        OK(gm_comm_send(r->comm, g, t[k], (r->rank + 1) % p, &sent[k]));
    }
    for (int k = 0; k < 3 && p > 1; k++) {
        int from = (r->rank - 1 + p) % p;
        OK(gm_comm_receive(r->comm, g, got, from, NULL));
        for (int i = 0; i < 100; i++) assert_int_equal(((int32_t *)gm_tensor_data(got))[i], 1000 * from + 100 * k + i);
    }
    for (int k = 0; k < 3 && p > 1; k++) {
        OK(gm_comm_wait(r->comm, sent[k]));
        gm_tensor_release(t[k]);
    }
    gm_tensor_release(got);
    char   text[4000], *all = NULL;
    size_t sizes[8], n = (size_t)r->rank * 500, at = 0;
    memset(text, 'a' + r->rank, sizeof text);
    OK(gm_comm_exchange(r->comm, g, text, n, &all, sizes));
    for (int i = 0; i < p; i++) {
        assert_int_equal(sizes[i], i * 500);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(all[at++], 'a' + i);
    }
    free(all);
    OK(gm_comm_barrier(r->comm, g));
}

void gm_test_comm_messages(void **state)
{
    (void)state;
    for (int world = 1; world <= 8; world++) {
        run_world(world, body_rows, NULL);
        run_world(world, body_messages, NULL);
    }
}

/* No rank leaves a barrier before all have come. */
static void body_barrier(gm_rank *r, void *context)
{
    int *come = context;
    for (int k = 1; k <= 50; k++) {
        __atomic_add_fetch(come, 1, __ATOMIC_SEQ_CST);
        OK(gm_comm_barrier(r->comm, everybody(r)));
        assert_true(__atomic_load_n(come, __ATOMIC_SEQ_CST) >= k * r->world);
        OK(gm_comm_barrier(r->comm, everybody(r)));
    }
}

void gm_test_comm_barrier(void **state)
{
    (void)state;
    for (int world = 2; world <= 7; world++) {
        int come = 0;
        run_world(world, body_barrier, &come);
    }
}

/* ---- several machines ---- */

#define WORLDS 9
static const int machines[][WORLDS] = {
    {0, 0, 1, 1, 2, 2, 3, 3}, {5, 5, 5, 5, 9, 9, 9, 9}, {0, 1, 0, 1, 0, 1, 0, 1},
    {0, 1, 2, 0, 1, 2, 0, 1}, {7, 3, 3, 3, 3, 3, 3, 3}, {0, 0, 0, 1, 2, 1, 1, 1},
};

void gm_test_comm_over_machines(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
        for (int world = 2; world <= 8; world += k == 0 ? 1 : 3) {
            run_world(world, body_all_reduce, (void *)(uintptr_t)machines[k]);
            run_world(world, body_reduce, (void *)(uintptr_t)machines[k]);
            if (world == 3) run_world(world, body_rounds_once, (void *)(uintptr_t)machines[k]);
            if (world <= 6) run_world(world, body_blocks, (void *)(uintptr_t)machines[k]);
        }
}

/* Several operations under way at once, some of which others have not begun, give what they give one by one. */
static void body_many(gm_rank *r, void *context)
{
    enum { MANY = 12 };
    gm_group   *g = everybody(r);
    gm_pending *p[MANY];
    gm_tensor  *t[MANY], *got[MANY];
    lie_on(r, context);
    for (int k = 0; k < MANY; k++) {
        int64_t n = (k * 37 % 5 + 1) * r->world;
        t[k] = block_of(r, GM_F64, 1, &n, -1, 1, 0, k % 3 == 1 ? 1 : r->rank + 1);
        got[k] = NULL;
        int64_t whole = n * r->world, part = n / r->world;
        if (k % 3 == 1) got[k] = tensor(r, GM_F64, 1, &whole);
        if (k % 3 == 2) got[k] = tensor(r, GM_F64, 1, &part);
        if (k % 3 == 0) OK(gm_comm_all_reduce(r->comm, g, t[k], GM_SUM, &p[k]));
        if (k % 3 == 1) OK(gm_comm_all_gather(r->comm, g, t[k], 0, got[k], &p[k]));
        if (k % 3 == 2) OK(gm_comm_reduce_scatter(r->comm, g, t[k], 0, GM_SUM, got[k], &p[k]));
    }
    for (int k = MANY - 1; k >= 0; k--) {
        OK(gm_comm_wait(r->comm, p[k]));
        gm_tensor    *out = got[k] ? got[k] : t[k];
        const double *x = gm_tensor_data(out);
        int64_t       n = (k * 37 % 5 + 1) * r->world, part = n / r->world;
        double        sum = r->world * (r->world + 1) / 2.0;
        for (int64_t i = 0; i < gm_tensor_numel(out); i++) {
            double want = k % 3 == 1 ? value(i % n) : sum * value(k % 3 == 2 ? r->rank * part + i : i);
            if (x[i] != want) fail_msg("operation %d, element %d: %g, not %g", k, (int)i, x[i], want);
        }
        if (got[k]) gm_tensor_release(got[k]);
        gm_tensor_release(t[k]);
    }
}

void gm_test_comm_many_over_machines(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
        for (int world = 4; world <= 8; world += 2) run_world(world, body_many, (void *)(uintptr_t)machines[k]);
}

/* Messages to other machines: with two machines of 4, one of each member in a gather, and one of the sum of 4 members
 * in each half of an all-reduce; straight it would be four. */
static void body_crossings(gm_rank *r, void *context)
{
    const int *machine = context;
    int64_t    n = 64, whole = 64 * 8;
    gm_group  *g = everybody(r);
    gm_tensor *block = block_of(r, GM_F32, 1, &n, -1, 1, 0, 1), *all = tensor(r, GM_F32, 1, &whole);
    uint64_t   before[8], crossed[3];
    lie_on(r, machine);
    for (int call = 0; call < 3; call++) {
        memcpy(before, r->comm->sent, sizeof before);
        if (call == 0) OK(gm_comm_all_gather(r->comm, g, block, 0, all, NULL));
        if (call == 1) OK(gm_comm_all_reduce(r->comm, g, all, GM_SUM, NULL));
        if (call == 2) OK(gm_comm_broadcast(r->comm, g, all, 3, NULL));
        crossed[call] = 0;
        for (int i = 0; i < 8; i++)
            if (machine[i] != machine[r->rank]) crossed[call] += r->comm->sent[i] - before[i];
    }
    assert_int_equal(crossed[0], 1);
    assert_int_equal(crossed[1], 2);
    assert_int_equal(crossed[2], r->rank == 3);
    release2(block, all);
}

void gm_test_comm_crossings(void **state)
{
    (void)state;
    run_world(8, body_crossings, (void *)(uintptr_t)machines[1]);
}
