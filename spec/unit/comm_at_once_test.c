/* comm_at_once_test.c - small all_reduces in one round: what they send, the bits of their results, and how their
 * messages go through windows. The truth for bits is a long tensor that has the same elements somewhere: it is summed
 * in two rounds, and an element does not depend on its neighbours. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "../../host/comm/state.h"
#include "../../host/life.h"
#include "../../kernels/clock.h"
#include "sums.h"
#include "threads_transport.h"
#include "unit.h"

#define LONG 20000 /* elements: more bytes than go at once, of any dtype */

static gm_group *everybody(gm_rank *r)
{
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, (1u << r->mesh.n_axes) - 1, &g));
    return g;
}

/* ---- bytes ---- */

static uint64_t sent_by(int rank, int world, int64_t n)
{
    gm_rank   *r = NULL;
    gm_mesh    mesh = gm_mesh_of_one();
    gm_tensor *t = NULL;
    gm_traffic e[4];
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, world));
    OK(gm_mesh_add_axis(&mesh, "data", world));
    OK(gm_rank_set_mesh(r, &mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    OK(gm_tensor_new(r->device, GM_U8, 1, &n, &t));
    OK(gm_comm_all_reduce(r->comm, everybody(r), t, GM_MAX, NULL));
    assert_int_equal(gm_comm_traffic(r->comm, e, 4), 1);
    uint64_t bytes = e[0].bytes;
    gm_tensor_release(t);
    gm_rank_free(r);
    return bytes;
}

/* The largest tensor that goes at once, and one byte more. */
void gm_test_comm_at_once_bytes(void **state)
{
    (void)state;
    static const int64_t largest[9] = {0, 0, 16384, 12288, 5461, 3413, 2457, 1911, 1560};
    for (int p = 2; p <= 8; p++)
        for (int64_t n = largest[p]; n <= largest[p] + 1; n++) {
            uint64_t all = 0;
            for (int rank = 0; rank < p; rank++) all += sent_by(rank, p, n);
            assert_int_equal(all, (uint64_t)(n > largest[p] ? 2 : p) * (uint64_t)(p - 1) * (uint64_t)n);
            assert_int_equal(all, sum_bytes((uint64_t)p, (uint64_t)n));
        }
}

/* ---- bits ---- */

static gm_tensor *tensor(gm_rank *r, gm_dtype dtype, int64_t n, bool shared)
{
    gm_tensor *t = NULL;
    OK((shared ? gm_tensor_new_shared : gm_tensor_new)(r->device, dtype, 1, &n, &t));
    return t;
}

static void fill(gm_rank *r, gm_tensor *t)
{
    unit_random random = {100 + (uint64_t)r->rank};
    for (int64_t i = 0; i < gm_tensor_numel(t); i++)
        gm_store(t->dtype, gm_tensor_data(t), i,
                 gm_dtype_is_float(t->dtype) ? unit_between(&random, -3, 3) : (double)unit_below(&random, 100));
}

/* Sums of n elements from `at` on: of a tensor of their own, waited for or not, and of the long one. */
static void compare(gm_rank *r, const gm_tensor *terms, const gm_tensor *sums, gm_reduction op, int64_t at, int64_t n,
                    bool shared)
{
    size_t      size = gm_dtype_size(terms->dtype), bytes = (size_t)n * size;
    gm_tensor  *t = tensor(r, terms->dtype, n, shared);
    gm_pending *p = NULL;
    memcpy(gm_tensor_data(t), (char *)gm_tensor_data(terms) + (size_t)at * size, bytes);
    OK(gm_comm_all_reduce(r->comm, everybody(r), t, op, n % 2 ? &p : NULL));
    OK(gm_comm_finish(r->comm, &p));
    if (memcmp(gm_tensor_data(t), (char *)gm_tensor_data(sums) + (size_t)at * size, bytes))
        fail_msg("%s, %d elements from %d on, reduction %d, %d ranks: other bits at once", gm_dtype_name(t->dtype),
                 (int)n, (int)at, (int)op, r->world);
    gm_tensor_release(t);
}

static void compare_all(gm_rank *r, gm_dtype dtype, gm_reduction op, bool shared)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 31, 100, 195, 397, 780};
    gm_tensor           *terms = tensor(r, dtype, LONG, shared), *sums = tensor(r, dtype, LONG, shared);
    fill(r, terms);
    memcpy(gm_tensor_data(sums), gm_tensor_data(terms), LONG * gm_dtype_size(dtype));
    OK(gm_comm_all_reduce(r->comm, everybody(r), sums, op, NULL));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        compare(r, terms, sums, op, (int64_t)(i * 2003 % (LONG - 1000)), sizes[i], shared);
    gm_tensor_release(terms);
    gm_tensor_release(sums);
}

static void share(gm_rank *r, bool on)
{
    char said[400];
    OK(gm_rank_share_memory(r, on, said, sizeof said));
    if (*said) fail_msg("%s", said);
}

static void body_bits(gm_rank *r, void *context)
{
    (void)context;
    gm_comm_set_timeout(r->comm, 60);
    for (int windows = 0; windows < 2; windows++) {
        if (windows) share(r, true);
        for (int shared = 0; shared <= windows; shared++)
            for (int dtype = 0; dtype < GM_DTYPE_COUNT; dtype++)
                for (int op = GM_SUM; op <= GM_MIN; op++)
                    if (op != GM_MEAN || gm_dtype_is_float((gm_dtype)dtype))
                        compare_all(r, (gm_dtype)dtype, (gm_reduction)op, shared);
    }
    share(r, false);
}

void gm_test_comm_at_once_bits(void **state)
{
    (void)state;
    for (int world = 2; world <= 8; world++) run_world(world, body_bits, NULL);
}

/* ---- messages ---- */

static _Atomic int lent;

static int counting_lend(gm_transport *t, int to, int tag, void *bytes, size_t n, bool *filled, void **request)
{
    lent++;
    *filled = false;
    return t->send(t, to, tag, bytes, n, request);
}

/* What nobody folds is not lent: else it would not go at once, but by way of requests. */
static void body_lent(gm_rank *r, void *context)
{
    static const int64_t sizes[] = {4000, 2 << 20}; /* slices of 5 KiB, and of 2.7 MiB */
    (void)context;
    gm_comm_set_timeout(r->comm, 60);
    share(r, true);
    for (int i = 0; i < 2; i++) {
        gm_transport *t = r->comm->transport;
        int (*before)(gm_transport *, int, int, void *, size_t, bool *, void **) = t->lend;
        gm_tensor *x = tensor(r, GM_F32, sizes[i], false);
        memset(gm_tensor_data(x), 0, (size_t)sizes[i] * 4);
        OK(gm_comm_barrier(r->comm, everybody(r)));
        if (r->rank == 0) lent = 0;
        OK(gm_comm_barrier(r->comm, everybody(r)));
        t->lend = counting_lend;
        OK(gm_comm_all_reduce(r->comm, everybody(r), x, GM_SUM, NULL));
        t->lend = before;
        OK(gm_comm_barrier(r->comm, everybody(r)));
        assert_int_equal(lent, i ? 3 * 2 : 0);
        gm_tensor_release(x);
    }
    share(r, false);
}

void gm_test_comm_at_once_lent(void **state)
{
    (void)state;
    run_world(3, body_lent, NULL);
}

/* ---- ranks that share cores ---- */

#define TOO_LONG 20 /* seconds that a call gives its core away */

static _Thread_local int asked_for; /* receives that go by way of requests */
static _Atomic int       too_long;  /* calls that never ended by themselves */
static int (*plain_receive)(gm_transport *t, int from, int tag, void *bytes, size_t n, void **request);

static int counting_receive(gm_transport *t, int from, int tag, void *bytes, size_t n, void **request)
{
    asked_for++;
    return plain_receive(t, from, tag, bytes, n, request);
}

static bool patient(gm_transport *t, double *end)
{
    (void)t;
    if (*end == 0) *end = gm_now() + TOO_LONG;
    sched_yield();
    bool late = gm_now() >= *end;
    too_long += late;
    return !late;
}

/* As where there are fewer cores than ranks, but for the patience. */
static void crowd(gm_rank *r)
{
    share(r, true);
    gm_transport *t = r->comm->transport;
    if (r->rank == 0) plain_receive = t->receive;
    OK(gm_comm_barrier(r->comm, everybody(r)));
    t->crowded = true;
    t->give_way = patient;
    t->receive = counting_receive;
}

/* Short messages are looked for until they have come: none becomes a request, but those of the first call that came
 * while this rank was in the barrier. */
static void body_crowded(gm_rank *r, void *context)
{
    (void)context;
    gm_tensor *x = tensor(r, GM_F32, 2, false);
    memset(gm_tensor_data(x), 0, 8);
    crowd(r);
    for (int i = 0; i < 200; i++) {
        OK(gm_comm_all_reduce(r->comm, everybody(r), x, GM_SUM, NULL));
        if (i == 0) asked_for = 0;
    }
    assert_int_equal(asked_for, 0);
    OK(gm_comm_barrier(r->comm, everybody(r)));
    share(r, false);
    gm_tensor_release(x);
}

void gm_test_comm_at_once_crowded(void **state)
{
    (void)state;
    run_world(4, body_crowded, NULL);
    assert_int_equal(too_long, 0);
}

static gm_group *pair(gm_rank *r, int a, int b)
{
    gm_group *g = NULL;
    OK(gm_comm_group_of(r->comm, "pair", 2, (int[]){a, b}, &g));
    return g;
}

static _Atomic bool begun;

/* Who looks for short messages does not leave others alone with an operation that it has begun before: rank 1 waits for
 * that of rank 0, rank 2 for rank 1, and rank 0 for a short message of rank 2. */
static void body_chain(gm_rank *r, void *context)
{
    gm_tensor  *x = tensor(r, GM_F32, LONG, false), *y = tensor(r, GM_F32, 2, false);
    gm_pending *p = NULL;
    (void)context;
    memset(gm_tensor_data(x), 0, (size_t)LONG * 4);
    memset(gm_tensor_data(y), 0, 8);
    crowd(r);
    while (r->rank == 1 && !begun) sched_yield(); /* rank 0's part is not over when it begins */
    if (r->rank < 2) OK(gm_comm_all_reduce(r->comm, pair(r, 0, 1), x, GM_SUM, r->rank ? NULL : &p));
    if (r->rank == 0) begun = true;
    if (r->rank > 0) OK(gm_comm_all_reduce(r->comm, pair(r, 1, 2), y, GM_SUM, NULL));
    if (r->rank != 1) OK(gm_comm_all_reduce(r->comm, pair(r, 0, 2), y, GM_SUM, NULL));
    OK(gm_comm_finish(r->comm, &p));
    share(r, false);
    gm_tensor_release(x);
    gm_tensor_release(y);
}

void gm_test_comm_at_once_beside_another(void **state)
{
    (void)state;
    run_world(3, body_chain, NULL);
    assert_int_equal(too_long, 0);
}

/* ---- two messages from one member ---- */

static _Thread_local int looks;
static int (*plain_receive_now)(gm_transport *t, int from, int tag, void *bytes, size_t n);

static int early_at_first(gm_transport *t, int from, int tag, void *bytes, size_t n)
{
    if (looks++) return plain_receive_now(t, from, tag, bytes, n);
    nanosleep(&(struct timespec){0, 1000000}, NULL); /* meanwhile both come */
    return -1;
}

static gm_status step_pair(gm_pending *p, int round)
{
    int other = 1 - p->group->rank;
    (void)round;
    for (size_t i = 0; i < 2; i++) gm_pending_send(p, other, p->from + 4 * i, 4, true);
    for (size_t i = 0; i < 2; i++) gm_pending_receive(p, other, p->to + 4 * i, 4, true);
    return GM_OK;
}

/* Where the first of two cannot be taken at once, the second does not come in its place. */
static void body_pair(gm_rank *r, void *context)
{
    gm_tensor  *x = tensor(r, GM_I32, 2, false), *y = tensor(r, GM_I32, 2, false);
    gm_pending *p = NULL;
    int32_t    *in = gm_tensor_data(x), *out = gm_tensor_data(y);
    (void)context;
    share(r, true);
    if (r->rank == 0) plain_receive_now = r->comm->transport->receive_now;
    OK(gm_comm_barrier(r->comm, everybody(r)));
    r->comm->transport->receive_now = early_at_first;
    for (int k = 0; k < 20; k++) {
        for (int i = 0; i < 2; i++) in[i] = 100 * k + 10 * r->rank + i;
        OK(gm_pending_new(r->comm, everybody(r), GM_CALL_all_gather, x, y, 0, 4, &p));
        p->step = step_pair;
        looks = 0;
        OK(gm_pending_start(p, NULL));
        for (int i = 0; i < 2; i++) assert_int_equal(out[i], 100 * k + 10 * (1 - r->rank) + i);
    }
    share(r, false);
    gm_tensor_release(x);
    gm_tensor_release(y);
}

void gm_test_comm_at_once_in_order(void **state)
{
    (void)state;
    run_world(2, body_pair, NULL);
}

/* ---- what is expected ---- */

static _Thread_local size_t told;
static _Thread_local int    told_ranks;

static void listening_expect(gm_transport *t, int tag, size_t bytes, int ranks)
{
    (void)t, (void)tag;
    told += bytes;
    told_ranks = ranks;
}

/* A transport hears how much the long messages of an operation have, and how many ranks receive the same one; not of
 * terms of sums. */
static void body_expects(gm_rank *r, void *context)
{
    enum { N = 20000, RANKS = 3 };
    gm_tensor *whole = tensor(r, GM_F32, RANKS * N, false), *out = tensor(r, GM_F32, RANKS * N, false),
              *block = tensor(r, GM_F32, N, false);
    (void)context;
    memset(gm_tensor_data(whole), 0, (size_t)RANKS * N * 4);
    memset(gm_tensor_data(block), 0, (size_t)N * 4);
    share(r, true);
    r->comm->transport->expect = listening_expect;
    OK(gm_comm_all_to_all(r->comm, everybody(r), whole, 0, out, 0, NULL));
    assert_int_equal(told, (RANKS - 1) * N * 4);
    assert_int_equal(told_ranks, 1);
    told = 0;
    OK(gm_comm_all_gather(r->comm, everybody(r), block, 0, out, NULL));
    assert_int_equal(told, N * 4);
    assert_int_equal(told_ranks, RANKS - 1);
    told = 0;
    OK(gm_comm_reduce_scatter(r->comm, everybody(r), whole, 0, GM_SUM, block, NULL));
    assert_int_equal(told, 0);
    share(r, false);
    gm_tensor_release(whole);
    gm_tensor_release(out);
    gm_tensor_release(block);
}

void gm_test_comm_expects(void **state)
{
    (void)state;
    run_world(3, body_expects, NULL);
}
