/* comm_order_test.c - operations that overlap, groups of a mesh, and the accounts, against formulas. */
#include <stdlib.h>

#include "sums.h"
#include "threads_transport.h"
#include "unit.h"
#include "../../host/life.h"

/* ---- groups ---- */

static void body_groups(gm_rank *r, void *context)
{
    (void)context;
    for (uint32_t axes = 0; axes < 8; axes++) {
        gm_group *g = NULL, *again = NULL;
        int       members[8], n = gm_mesh_members(&r->mesh, axes, r->rank, members);
        int32_t   sum = 0;
        OK(gm_comm_group(r->comm, axes, &g));
        OK(gm_comm_group(r->comm, axes, &again));
        assert_ptr_equal(g, again);
        assert_int_equal(gm_group_size(g), n);
        assert_int_equal(gm_group_member(g, gm_group_rank(g)), r->rank);
        gm_tensor *t = NULL;
        OK(gm_tensor_new(r->device, GM_I32, SHAPE(1), &t));
        *(int32_t *)gm_tensor_data(t) = 1 << r->rank;
        OK(gm_comm_all_reduce(r->comm, g, t, GM_SUM, NULL));
        for (int i = 0; i < n; i++) sum += 1 << members[i];
        assert_int_equal(*(int32_t *)gm_tensor_data(t), sum);
        gm_tensor_release(t);
    }
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, 5, &g));
    assert_string_equal(gm_group_name(g), "data.col");
    FAILS(GM_EINVAL, "the mesh has only 3 axes", gm_comm_group(r->comm, 8, &g));
    FAILS(GM_EINVAL, "not among its ranks", gm_comm_group_of(r->comm, "pair", 1, &(int){(r->rank + 1) % 8}, &g));
    FAILS(GM_EINVAL, "comes twice", gm_comm_group_of(r->comm, "pair", 2, (int[]){r->rank, r->rank}, &g));
    /* In the order given: places turn around. */
    int ranks[8];
    for (int i = 0; i < 8; i++) ranks[i] = 7 - i;
    OK(gm_comm_group_of(r->comm, "backwards", 8, ranks, &g));
    assert_int_equal(gm_group_rank(g), 7 - r->rank);
    int64_t    shape = 8;
    gm_tensor *one = NULL, *all = NULL;
    OK(gm_tensor_new(r->device, GM_I32, SHAPE(1), &one));
    OK(gm_tensor_new(r->device, GM_I32, 1, &shape, &all));
    *(int32_t *)gm_tensor_data(one) = r->rank;
    OK(gm_comm_all_gather(r->comm, g, one, 0, all, NULL));
    for (int i = 0; i < 8; i++) assert_int_equal(((int32_t *)gm_tensor_data(all))[i], 7 - i);
    gm_tensor_release(one);
    gm_tensor_release(all);
}

void gm_test_comm_groups(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("data", 2, "row", 2, "col", 2);
    run_ranks(&mesh, body_groups, NULL);
}

/* ---- many under way ---- */

typedef struct flight {
    gm_pending *pending;
    gm_tensor  *in, *out;
    uint32_t    axes;
    int         kind, k;
    int64_t     n;
} flight;

static double term(int rank, int k, int64_t i) { return (double)((rank + 1) * (i % 11 + 1) + k % 7); }

/* awaited: the call waits itself */
static void start(gm_rank *r, flight *f, unit_random *random, int k, bool awaited)
{
    gm_pending **out = awaited ? NULL : &f->pending;
    gm_group    *g = NULL;
    *f = (flight){.k = k};
    f->axes = (uint32_t)unit_below(random, (int64_t)1 << r->mesh.n_axes);
    f->kind = (int)unit_below(random, 3);
    f->n = unit_below(random, 2) ? unit_below(random, 10) : unit_below(random, 5000);
    OK(gm_comm_group(r->comm, f->axes, &g));
    int64_t whole = f->n * gm_group_size(g);
    OK(gm_tensor_new(r->device, GM_F64, 1, f->kind == 2 ? &whole : &f->n, &f->in));
    for (int64_t i = 0; i < gm_tensor_numel(f->in); i++) ((double *)gm_tensor_data(f->in))[i] = term(r->rank, k, i);
    if (f->kind) OK(gm_tensor_new(r->device, GM_F64, 1, f->kind == 1 ? &whole : &f->n, &f->out));
    if (f->kind == 0) OK(gm_comm_all_reduce(r->comm, g, f->in, GM_SUM, out));
    if (f->kind == 1) OK(gm_comm_all_gather(r->comm, g, f->in, 0, f->out, out));
    if (f->kind == 2) OK(gm_comm_reduce_scatter(r->comm, g, f->in, 0, GM_SUM, f->out, out));
}

static void finish(gm_rank *r, flight *f)
{
    int       members[8], n = gm_mesh_members(&r->mesh, f->axes, r->rank, members);
    gm_group *g = NULL;
    OK(gm_comm_finish(r->comm, &f->pending));
    OK(gm_comm_group(r->comm, f->axes, &g));
    gm_tensor *got = f->out ? f->out : f->in;
    for (int64_t i = 0; i < gm_tensor_numel(got); i++) {
        double want = 0;
        if (f->kind == 1) want = term(members[i / f->n], f->k, i % f->n);
        else
            for (int m = 0; m < n; m++) want += term(members[m], f->k, f->kind == 2 ? gm_group_rank(g) * f->n + i : i);
        assert_true(((double *)gm_tensor_data(got))[i] == want);
    }
    gm_tensor_release(f->in);
    gm_tensor_release(f->out);
}

/* The same random calls on every rank, waited for in an order of each rank's own. context: how many. */
static void body_interleaved(gm_rank *r, void *context)
{
    enum { ROOM = 12 };
    flight      held[ROOM];
    int         n = 0, calls_made = *(int *)context, under_way = 0;
    unit_random calls = {17}, order = {(uint64_t)r->rank * 977};
    for (int k = 0; k < calls_made; k++) {
        if (n == ROOM) {
            int which = (int)unit_below(&order, n);
            finish(r, &held[which]);
            held[which] = held[--n];
        }
        start(r, &held[n++], &calls, k, unit_below(&order, 3) == 0);
        if (unit_below(&order, 3) == 0) OK(gm_comm_poll(r->comm));
    }
    for (int i = 0; i < n; i++) under_way += held[i].pending != NULL;
    assert_int_equal(gm_comm_under_way(r->comm), under_way);
    while (n) finish(r, &held[--n]);
    assert_int_equal(gm_comm_under_way(r->comm), 0);
}

/* One that nobody waits for goes on: the others get its part. */
static void body_dropped(gm_rank *r, void *context)
{
    (void)context;
    gm_group   *g = NULL;
    gm_tensor  *t = NULL;
    gm_pending *p = NULL;
    OK(gm_comm_group(r->comm, 7, &g));
    OK(gm_tensor_new(r->device, GM_F64, SHAPE(1000), &t));
    for (int i = 0; i < 1000; i++) ((double *)gm_tensor_data(t))[i] = 1;
    OK(gm_comm_all_reduce(r->comm, g, t, GM_SUM, &p));
    if (r->rank % 2) gm_comm_drop(r->comm, p);
    else OK(gm_comm_wait(r->comm, p));
    gm_tensor_release(t); /* the operation holds it */
    OK(gm_comm_barrier(r->comm, g));
}

/* Short calls go at once where they are awaited, and wait behind others of their group where they are not. */
static void body_interleaved_through_windows(gm_rank *r, void *context)
{
    char said[400];
    OK(gm_rank_share_memory(r, true, said, sizeof said));
    assert_true(!*said);
    body_interleaved(r, context);
}

void gm_test_comm_interleaved_through_windows(void **state)
{
    (void)state;
    gm_mesh two = mesh_of("data", 2, "", 1, "", 1), many = mesh_of("data", 2, "row", 3, "", 1);
    run_ranks(&two, body_interleaved_through_windows, &(int){2000});
    run_ranks(&many, body_interleaved_through_windows, &(int){300});
}

void gm_test_comm_interleaved(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("data", 2, "row", 2, "col", 2);
    run_ranks(&mesh, body_interleaved, &(int){150});
    run_ranks(&mesh, body_dropped, NULL);
    mesh = mesh_of("data", 3, "row", 2, "col", 1);
    run_ranks(&mesh, body_interleaved, &(int){150});
}

/* ---- accounts ---- */

static uint64_t sent(const gm_comm *c, const char *op, gm_phase phase, uint64_t *calls)
{
    gm_traffic e[64];
    int        n = gm_comm_traffic(c, e, 64);
    assert_true(n <= 64);
    *calls = 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(e[i].op, op) && e[i].phase == phase) {
            assert_true(e[i].exposed <= e[i].seconds + 1 && e[i].seconds > 0);
            *calls = e[i].calls;
            return e[i].bytes;
        }
    return 0;
}

typedef struct totals {
    uint64_t all_reduce, all_gather, reduce_scatter, broadcast, reduce, odd;
} totals;

static void body_traffic(gm_rank *r, void *context)
{
    totals   *sum = context;
    uint64_t  p = (uint64_t)r->world, calls, n = 840 * 8; /* 840 divides by 1 ... 8 */
    gm_comm  *c = r->comm;
    gm_group *g = NULL;
    OK(gm_comm_group(c, 1, &g));
    gm_tensor *t = NULL, *block = NULL, *odd = NULL;
    OK(gm_tensor_new(r->device, GM_F64, SHAPE(2, 840 / 2), &t));
    OK(gm_tensor_new(r->device, GM_F64, 2, (int64_t[]){2, 420 / r->world}, &block));
    OK(gm_tensor_new(r->device, GM_F64, SHAPE(1031), &odd));
    memset(gm_tensor_data(t), 0, n);
    memset(gm_tensor_data(block), 0, (size_t)gm_tensor_numel(block) * 8);
    memset(gm_tensor_data(odd), 0, 1031 * 8);
    gm_comm_set_phase(c, GM_PHASE_BACKWARD);
    OK(gm_comm_all_reduce(c, g, t, GM_SUM, NULL));
    OK(gm_comm_all_reduce(c, g, t, GM_MAX, NULL));
    gm_comm_set_phase(c, GM_PHASE_FORWARD);
    bool even = 420 % r->world == 0;
    if (even) OK(gm_comm_all_gather(c, g, block, 1, t, NULL));
    if (even) OK(gm_comm_reduce_scatter(c, g, t, 1, GM_SUM, block, NULL));
    OK(gm_comm_broadcast(c, g, t, 1 % r->world, NULL));
    OK(gm_comm_reduce(c, g, t, 0, GM_SUM, NULL));
    gm_comm_set_phase(c, GM_PHASE_UPDATE);
    OK(gm_comm_all_reduce(c, g, odd, GM_SUM, NULL));
    assert_int_equal(sent(c, "all_reduce", GM_PHASE_BACKWARD, &calls), 2 * sum_bytes(p, n) / p);
    assert_int_equal(calls, 2);
    assert_int_equal(sent(c, "all_reduce", GM_PHASE_FORWARD, &calls), 0);
    if (even) assert_int_equal(sent(c, "all_gather", GM_PHASE_FORWARD, &calls), (p - 1) * n / p);
    if (even) assert_int_equal(sent(c, "reduce_scatter", GM_PHASE_FORWARD, &calls), (p - 1) * n / p);
    uint64_t reduce = sent(c, "reduce", GM_PHASE_FORWARD, &calls);
    assert_int_equal(reduce, (p - 1) * n / p + (r->rank ? n / p : 0));
    __atomic_add_fetch(&sum->broadcast, sent(c, "broadcast", GM_PHASE_FORWARD, &calls), __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&sum->odd, sent(c, "all_reduce", GM_PHASE_UPDATE, &calls), __ATOMIC_SEQ_CST);
    gm_comm_reset_traffic(c);
    assert_int_equal(gm_comm_traffic(c, NULL, 0), 0);
    gm_tensor_release(t);
    gm_tensor_release(block);
    gm_tensor_release(odd);
}

static void check_traffic(int world, const totals *sum)
{
    assert_int_equal(sum->broadcast, (uint64_t)(world - 1) * 840 * 8);
    assert_int_equal(sum->odd, sum_bytes((uint64_t)world, 1031 * 8)); /* exact over all ranks, whatever n */
}

void gm_test_comm_traffic(void **state)
{
    (void)state;
    for (int world = 1; world <= 8; world++) {
        totals sum = {0};
        run_world(world, body_traffic, &sum);
        check_traffic(world, &sum);
    }
}

/* The meta transport counts the same and needs no other rank. */
void gm_test_comm_meta(void **state)
{
    (void)state;
    for (int world = 2; world <= 8; world++) {
        totals sum = {0};
        for (int rank = 0; rank < world; rank++) {
            gm_rank *r = NULL;
            gm_mesh  mesh = gm_mesh_of_one();
            OK(gm_rank_new(&r));
            OK(gm_rank_pretend(r, rank, world));
            OK(gm_mesh_add_axis(&mesh, "data", world));
            OK(gm_rank_set_mesh(r, &mesh));
            OK(gm_rank_open_device(r, "ref", 1));
            assert_false(gm_comm_has_data(r->comm));
            body_traffic(r, &sum);
            gm_rank_free(r);
        }
        check_traffic(world, &sum);
    }
    gm_rank *r = NULL;
    OK(gm_rank_new(&r));
    FAILS(GM_EINVAL, "rank 3 of 3", gm_rank_pretend(r, 3, 3));
    OK(gm_rank_pretend(r, 2, 3));
    FAILS(GM_EINVAL, "connected already (meta, rank 2 of 3)", gm_rank_pretend(r, 0, 3));
    FAILS(GM_EINVAL, "a mesh of 1 ranks for a world of 3", gm_rank_set_mesh(r, &(gm_mesh){0}));
    OK(gm_rank_open_device(r, "meta", 1));
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, 1, &g));
    gm_tensor *in = NULL, *to = NULL;
    OK(gm_tensor_new(r->device, GM_BF16, SHAPE(5, 2), &in));
    OK(gm_tensor_new(r->device, GM_BF16, SHAPE(5, 6), &to));
    OK(gm_comm_all_gather(r->comm, g, in, 1, to, NULL));
    FAILS(GM_ESHAPE, "by 3 is not bf16 (5, 2)", gm_comm_all_to_all(r->comm, g, to, 1, in, 1, NULL));
    gm_tensor_release(in);
    gm_tensor_release(to);
    gm_rank_free(r);
}
