/* windows_test.c - shared memory between ranks: rings, bells, and every collective with the bits that it has over
 * messages. Ranks are threads; a window is opened through /proc, as between processes. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../host/comm/window.h"
#include "../../kernels/arena.h"
#include "../../kernels/clock.h"
#include "threads_transport.h"
#include "unit.h"

static gm_group *everybody(gm_rank *r)
{
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, (1u << r->mesh.n_axes) - 1, &g));
    return g;
}

static void share(gm_rank *r, bool on)
{
    char said[400];
    OK(gm_rank_share_memory(r, on, said, sizeof said));
    if (*said) fail_msg("%s", said);
    assert_true(!strcmp(gm_comm_transport(r->comm), on ? "shared memory" : "threads"));
}

/* "rings": as where the system does not let a process read another one's memory. "direct": as where messages are too
 * long for copies in the arena. */
static void through(const char *way, int world, void (*body)(gm_rank *r, void *context))
{
    setenv("GANYMEDE_SHARED_MEMORY", way, 1);
    run_world(world, body, NULL);
    unsetenv("GANYMEDE_SHARED_MEMORY");
}

/* ---- rings ---- */

static void both(const gm_window_shape *shape, gm_window **owner, gm_window **other)
{
    int fd = -1;
    OK(gm_window_make(shape, 7, owner, &fd));
    OK(gm_window_open(shape, 7, (int)getpid(), fd, other));
    close(fd);
}

/* Two ranks, at places 0 and 1, and the ends of a ring from the first to the second. */
typedef struct pair {
    gm_window *own[2], *other[2]; /* of each rank, as it and as its peer see it */
    gm_ring    writer, reader;
} pair;

static pair make_pair(const gm_window_shape *shape, bool small)
{
    pair p = {0};
    for (int i = 0; i < 2; i++) both(shape, &p.own[i], &p.other[i]);
    p.writer = gm_ring_of(p.own[0], 0, p.other[1], 1, small);
    p.reader = gm_ring_of(p.other[0], 0, p.own[1], 1, small);
    return p;
}

static void free_pair(pair *p)
{
    for (int i = 0; i < 2; i++) gm_window_close(p->own[i]), gm_window_close(p->other[i]);
}

/* Of any length, over the end of the ring and back to its start, and over the end of its counts. */
static void check_ring(bool small)
{
    gm_window_shape shape = {2, 256, 64};
    unit_random     random = {3};
    char            bytes[256], want = 0, next = 0;
    size_t          n, came = 0, moved = 0;
    pair            p = make_pair(&shape, small);
    gm_ring back = gm_ring_of(p.own[1], 1, p.other[0], 0, small), twin = gm_ring_of(p.own[0], 0, p.other[1], 1, !small);
    for (int round = 0; round < 2000; round++) {
        int    m = (int)unit_below(&random, 200);
        size_t first = (size_t)m / 3;
        for (int i = 0; i < m; i++) bytes[i] = (char)(next + i);
        size_t put = gm_ring_put(&p.writer, (struct iovec[]){{bytes, first}, {bytes + first, (size_t)m - first}}, 2);
        assert_true(put <= (size_t)m);
        next = (char)(next + (char)put);
        came += put;
        const char *there = gm_ring_look(&p.reader, &n);
        size_t      take = (size_t)unit_below(&random, (int64_t)n + 1);
        assert_true(n <= came - moved);
        for (size_t i = 0; i < take; i++) assert_true(there[i] == (char)(want + (char)i));
        want = (char)(want + (char)take);
        moved += take;
        gm_ring_skip(&p.reader, take);
    }
    assert_true(moved > 8192); /* counts begin less than that before their end */
    (void)gm_ring_look(&back, &n);
    assert_int_equal(n, 0); /* another ring */
    (void)gm_ring_look(&twin, &n);
    assert_int_equal(n, 0);
    free_pair(&p);
}

void gm_test_windows_rings(void **state)
{
    (void)state;
    check_ring(false);
    check_ring(true);
}

/* What a letter repeats, by itself and behind something else; and the same bytes in the ring. */
void gm_test_windows_letters(void **state)
{
    (void)state;
    gm_window_shape shape = {2, 4096, 64};
    unit_random     random = {5};
    pair            p = make_pair(&shape, false);
    char            bytes[128] = "", got[128], many[4032] = "";
    for (int round = 0; round < 3000; round++) {
        uint64_t head = (uint64_t)round, label = 1000 + head;
        size_t   n = (size_t)unit_below(&random, 60), whole = (sizeof head + n + 63) / 64 * 64, here, there, before = 0;
        bool     plain = unit_below(&random, 3) == 0, behind = unit_below(&random, 3) == 0;
        for (size_t i = 0; i < n; i++) bytes[i] = (char)(round + 3 * (int)i);
        struct iovec parts[] = {{&head, sizeof head}, {bytes, n}, {bytes + n, whole - sizeof head - n}};
        if (behind) before = gm_ring_put(&p.writer, &(struct iovec){bytes, 64}, 1);
        if (plain) assert_int_equal(gm_ring_put(&p.writer, parts, 3), whole);
        else assert_true(gm_ring_put_letter(&p.writer, parts, whole, label));
        bool repeated = !plain && !behind && n <= GM_LETTER;
        assert_int_equal(gm_ring_read_letter(&p.reader, label + 1, whole, got, n), -1);
        assert_int_equal(gm_ring_read_letter(&p.reader, label, whole + 128, got, n), -1);
        assert_int_equal(gm_ring_read_letter(&p.reader, label, whole, got, n), repeated ? 1 : -1);
        if (repeated) assert_int_equal(memcmp(got, bytes, n), 0);
        assert_ptr_equal(gm_ring_look(&p.reader, &here), gm_ring_look_at_once(&p.reader, &there));
        assert_int_equal(here, there);
        gm_ring_skip(&p.reader, before); /* no wrap within what is put: all are lines */
        const char *lies = gm_ring_look(&p.reader, &here);
        if (here == whole) assert_int_equal(memcmp(lies + sizeof head, bytes, n), 0);
        gm_ring_skip(&p.reader, whole);
        assert_int_equal(gm_ring_read_letter(&p.reader, label, whole, got, n), 0);
    }
    assert_int_equal(gm_ring_put(&p.writer, &(struct iovec){many, sizeof many}, 1), sizeof many);
    struct iovec parts[] = {{bytes, 8}, {bytes, 8}};
    assert_false(gm_ring_put_letter(&p.writer, parts, 128, 1)); /* all or nothing */
    assert_true(gm_ring_put_letter(&p.writer, parts, 64, 1));
    free_pair(&p);
}

void gm_test_windows_room(void **state)
{
    (void)state;
    gm_window_shape shape = {2, 256, 64};
    char            bytes[300] = "";
    size_t          n;
    pair            p = make_pair(&shape, false);
    uint32_t        seen = gm_window_rung(p.own[0]), heard = gm_window_rung(p.own[1]);
    assert_int_equal(gm_ring_put(&p.writer, &(struct iovec){bytes, 256}, 1), 256);
    assert_int_equal(gm_window_rung(p.own[1]), heard + 1);
    gm_ring_skip(&p.reader, 0); /* the writer does not wait yet */
    assert_int_equal(gm_ring_put(&p.writer, &(struct iovec){bytes, 1}, 1), 0);
    (void)gm_ring_look(&p.reader, &n);
    assert_int_equal(n, 256);
    gm_ring_skip(&p.reader, 100); /* less than half is free */
    assert_int_equal(gm_window_rung(p.own[0]), seen);
    gm_ring_skip(&p.reader, 28);
    assert_int_equal(gm_window_rung(p.own[0]), seen + 1);
    gm_ring_skip(&p.reader, 28); /* it was told once */
    assert_int_equal(gm_window_rung(p.own[0]), seen + 1);
    assert_int_equal(gm_ring_put(&p.writer, &(struct iovec){bytes, 300}, 1), 156);
    free_pair(&p);
}

static void *ring_later(void *window)
{
    usleep(30000);
    gm_window_ring(window);
    return NULL;
}

void gm_test_windows_bell(void **state)
{
    (void)state;
    gm_window_shape shape = {1, 64, 64};
    gm_window      *owner = NULL, *other = NULL;
    pthread_t       thread;
    both(&shape, &owner, &other);
    uint32_t seen = gm_window_rung(owner);
    gm_window_ring(other);
    double began = gm_now();
    gm_window_sleep(owner, seen, 20); /* it was rung before: no sleep */
    seen = gm_window_rung(owner);
    assert_int_equal(pthread_create(&thread, NULL, ring_later, other), 0);
    gm_window_sleep(owner, seen, 20);
    pthread_join(thread, NULL);
    assert_true(gm_window_rung(owner) != seen);
    assert_true(gm_now() - began < 15);
    gm_window_close(other);
    gm_window_close(owner);
}

void gm_test_windows_strangers(void **state)
{
    (void)state;
    gm_window_shape shape = {1, 64, 64}, larger = {2, 64, 64};
    gm_window      *owner = NULL, *other = NULL;
    int             fd = -1, null = dup(0);
    OK(gm_window_make(&shape, 7, &owner, &fd));
    FAILS(GM_EINVAL, "belongs to another job", gm_window_open(&shape, 8, (int)getpid(), fd, &other));
    FAILS(GM_EINVAL, "has another size", gm_window_open(&larger, 7, (int)getpid(), fd, &other));
    FAILS(GM_EINVAL, "is another process's file", gm_window_open(&shape, 7, (int)getpid(), null, &other));
    close(fd);
    close(null);
    FAILS(GM_EINVAL, "No such file", gm_window_open(&shape, 7, (int)getpid(), fd, &other));
    gm_window_close(owner);
    uint64_t key = 7;
    assert_true(gm_reads_memory((int)getpid(), (uintptr_t)&key, 7));
    assert_false(gm_reads_memory((int)getpid(), (uintptr_t)&key, 8));
    assert_false(gm_reads_memory((int)getpid(), 8, 7));
}

/* ---- the same bits as over messages ---- */

/* Where tensors lie: in memory of their ranks alone, in memory that ranks share, or some here and some there. */
typedef enum placement { APART, SHARED, MIXED } placement;

static bool lies_shared(const gm_rank *r, const gm_tensor *t)
{
    const char *at = gm_tensor_data(t), *base = r->arena ? gm_arena_base(r->arena) : NULL;
    return base && at >= base && at < base + gm_arena_size(r->arena);
}

static gm_tensor *random_tensor(gm_rank *r, gm_dtype dtype, int64_t n, uint64_t seed, placement where)
{
    unit_random random = {seed * 1000003 + (uint64_t)r->rank};
    gm_tensor  *t = NULL;
    bool        shared = where == SHARED || (where == MIXED && ((uint64_t)r->rank + seed) % 2);
    OK((shared ? gm_tensor_new_shared : gm_tensor_new)(r->device, dtype, 1, &n, &t));
    bool large = (size_t)n * gm_dtype_size(dtype) >= GM_SHARED_LEAST, may = r->shares && r->arena;
    assert_true(lies_shared(r, t) == (shared && may && large));
    for (int64_t i = 0; i < n; i++)
        gm_store(dtype, gm_tensor_data(t), i,
                 gm_dtype_is_float(dtype) ? unit_between(&random, -3, 3) : (double)unit_below(&random, 100));
    return t;
}

static uint64_t hash_of(const gm_tensor *t, uint64_t h)
{
    const unsigned char *bytes = gm_tensor_data(t);
    size_t               n = (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype);
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Two runs of each of p members: n rows, one after the other; or (apart) second halves behind all first ones. */
static gm_row_runs halves(int p, int64_t n, bool apart, gm_row_run *run)
{
    int64_t a = n / 2, b = n - a;
    for (int i = 0; i < p; i++) {
        run[2 * i] = (gm_row_run){i, apart ? i * a : i * n, a};
        run[2 * i + 1] = (gm_row_run){i, apart ? p * a + i * b : i * n + a, b};
    }
    return (gm_row_runs){run, 2 * p};
}

/* Every collective on tensors of some p n elements; a hash of all results on this rank. */
static uint64_t all_calls(gm_rank *r, gm_group *g, gm_dtype dtype, int64_t n, gm_reduction op, placement where)
{
    int         p = gm_group_size(g), me = gm_group_rank(g);
    uint64_t    h = 1;
    int64_t     rows[16];
    gm_row_run  run[4 * 16];
    gm_pending *sent = NULL;
    gm_tensor  *t = random_tensor(r, dtype, p * n + p - 1, 1, where);
    gm_tensor  *whole = random_tensor(r, dtype, p * n, 2, where);
    gm_tensor  *block = random_tensor(r, dtype, n, 3, where), *out = random_tensor(r, dtype, p * n, 4, where);
    OK(gm_comm_all_reduce(r->comm, g, t, op, NULL)); /* slices of different sizes */
    h = hash_of(t, h);
    OK(gm_comm_reduce(r->comm, g, t, p - 1, op, NULL));
    h = hash_of(t, h);
    OK(gm_comm_reduce_scatter(r->comm, g, whole, 0, op, block, NULL));
    h = hash_of(block, h);
    OK(gm_comm_all_gather(r->comm, g, block, 0, out, NULL));
    h = hash_of(out, h);
    OK(gm_comm_all_to_all(r->comm, g, out, 0, whole, 0, NULL));
    h = hash_of(whole, h);
    OK(gm_comm_broadcast(r->comm, g, whole, p / 2, NULL));
    h = hash_of(whole, h);
    OK(gm_comm_gather(r->comm, g, block, 0, p / 2, out, NULL));
    OK(gm_comm_scatter(r->comm, g, out, 0, p / 2, block, NULL));
    h = hash_of(block, h);
    for (int i = 0; i < p; i++) rows[i] = n;
    gm_row_runs list = gm_row_runs_in_order(rows, p, run);
    OK(gm_comm_all_to_all_rows(r->comm, g, whole, list, out, list, NULL));
    h = hash_of(out, h);
    OK(gm_comm_all_to_all_rows(r->comm, g, out, halves(p, n, false, run), whole, halves(p, n, true, run + 2 * p),
                               NULL));
    h = hash_of(whole, h);
    OK(gm_comm_all_to_all_rows(r->comm, g, whole, halves(p, n, true, run), out, halves(p, n, false, run + 2 * p),
                               NULL));
    h = hash_of(out, h);
    if (p > 1) OK(gm_comm_send(r->comm, g, out, (me + 1) % p, &sent));
    if (p > 1) OK(gm_comm_receive(r->comm, g, whole, (me + p - 1) % p, NULL));
    OK(gm_comm_finish(r->comm, &sent));
    h = hash_of(whole, h);
    OK(gm_comm_barrier(r->comm, g));
    gm_tensor *all[] = {t, whole, block, out};
    for (int i = 0; i < 4; i++) gm_tensor_release(all[i]);
    return h;
}

static void compare(gm_rank *r, gm_group *g, gm_dtype dtype, int64_t n, gm_reduction op)
{
    uint64_t plain = all_calls(r, g, dtype, n, op, APART);
    share(r, true);
    for (int where = APART; where <= MIXED; where++)
        if (all_calls(r, g, dtype, n, op, (placement)where) != plain)
            fail_msg("%s of %d elements on %d ranks: other bits through shared memory, placement %d",
                     gm_dtype_name(dtype), (int)n, r->world, where);
    share(r, false);
}

static void body_same_bits(gm_rank *r, void *context)
{
    (void)context;
    gm_comm_set_timeout(r->comm, 60);
    for (int dtype = 0; dtype < GM_DTYPE_COUNT; dtype++) compare(r, everybody(r), (gm_dtype)dtype, 131, GM_SUM);
    for (int dtype = 0; dtype < GM_DTYPE_COUNT; dtype++) /* short ones, that go at once */
        for (int64_t n = 1; n < 40; n = 3 * n + 2) compare(r, everybody(r), (gm_dtype)dtype, n, GM_SUM);
    compare(r, everybody(r), GM_BF16, 3, GM_MEAN);
    compare(r, everybody(r), GM_F64, 1, GM_MIN);
    gm_group *alone = NULL;
    OK(gm_comm_group(r->comm, 0, &alone));
    compare(r, alone, GM_F32, 16411, GM_SUM);
    compare(r, everybody(r), GM_F32, 16411, GM_MEAN); /* longer than what is sent unasked */
    if (r->world == 8) return;
    compare(r, everybody(r), GM_BF16, 32801, GM_SUM);
    compare(r, everybody(r), GM_I64, 8231, GM_SUM);
    compare(r, everybody(r), GM_U8, 65551, GM_MAX);
}

void gm_test_windows_same_bits(void **state)
{
    (void)state;
    for (int world = 2; world <= 8; world += world < 4 ? 1 : 4) run_world(world, body_same_bits, NULL);
    through("rings", 3, body_same_bits);
    through("direct", 3, body_same_bits);
}

/* Sums along both axes of a mesh that are under way together, waited for in another order on each rank: none waits for
 * a stream that another one holds. */
static void body_crossed(gm_rank *r, void *context)
{
    enum { N = 6 };
    gm_tensor  *t[N];
    gm_pending *p[N];
    gm_group   *g[N];
    (void)context;
    share(r, true);
    for (int i = 0; i < N; i++) {
        int64_t n = 400000 + i;
        OK((i % 2 ? gm_tensor_new_shared : gm_tensor_new)(r->device, GM_F32, 1, &n, &t[i]));
        for (int64_t k = 0; k < n; k++) ((float *)gm_tensor_data(t[i]))[k] = (float)(r->rank + i);
        OK(gm_comm_group(r->comm, (uint32_t[]){1, 2, 3}[i % 3], &g[i]));
        OK(gm_comm_all_reduce(r->comm, g[i], t[i], GM_SUM, &p[i]));
    }
    for (int k = 0; k < N; k++) {
        int   i = (k * (r->rank % 2 ? 5 : 1) + r->rank) % N;
        float want = 0;
        OK(gm_comm_wait(r->comm, p[i]));
        for (int m = 0; m < gm_group_size(g[i]); m++) want += (float)(gm_group_member(g[i], m) + i);
        for (int64_t at = 0; at < 400000 + i; at++) assert_true(((float *)gm_tensor_data(t[i]))[at] == want);
    }
    for (int i = 0; i < N; i++) gm_tensor_release(t[i]);
}

void gm_test_windows_crossed(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("row", 2, "col", 3, "", 1);
    run_ranks(&mesh, body_crossed, NULL);
    setenv("GANYMEDE_SHARED_MEMORY", "rings", 1);
    run_ranks(&mesh, body_crossed, NULL);
    setenv("GANYMEDE_SHARED_MEMORY", "direct", 1);
    run_ranks(&mesh, body_crossed, NULL);
    unsetenv("GANYMEDE_SHARED_MEMORY");
}

/* ---- what goes wrong ---- */

/* A rank that does not come to a large sum: what the others have begun is taken back, and they go on. */
static void body_given_up(gm_rank *r, void *context)
{
    int failed, first;
    (void)context;
    gm_comm_set_timeout(r->comm, 20);
    share(r, true);
    for (int bad = 0; bad < r->world; bad++) {
        gm_tensor *t = random_tensor(r, GM_F32, 300000, 1, bad % 2 ? SHARED : MIXED);
        gm_tensor *few = random_tensor(r, GM_F32, 3, 1, APART);
        OK(gm_comm_all_reduce(r->comm, everybody(r), few, GM_SUM, NULL)); /* messages of every kind are counted */
        gm_tensor_release(few);
        OK(gm_comm_section_end(r->comm, true, NULL, &failed, &first)); /* or a rank still in it hears of the failure */
        gm_status st = r->rank == bad ? GM_EINVAL : gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL);
        assert_int_equal(st, r->rank == bad ? GM_EINVAL : GM_EPEER);
        OK(gm_comm_section_end(r->comm, r->rank != bad, "it does not come", &failed, &first));
        assert_int_equal(failed, 1);
        assert_int_equal(first, bad);
        for (int64_t i = 0; i < 300000; i++) ((float *)gm_tensor_data(t))[i] = (float)(i % 97 + r->rank);
        OK(gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL));
        for (int64_t i = 0; i < 300000; i++)
            assert_true(((float *)gm_tensor_data(t))[i] == (float)(i % 97 * r->world + r->world * (r->world - 1) / 2));
        /* Without it a rank that is still in this sum would hear of the next failure. */
        OK(gm_comm_section_end(r->comm, true, NULL, &failed, &first));
        assert_int_equal(failed, 0);
        gm_tensor_release(t);
    }
}

void gm_test_windows_given_up(void **state)
{
    (void)state;
    run_world(3, body_given_up, NULL);
    through("rings", 3, body_given_up);
    through("direct", 3, body_given_up);
}

/* A rank that never comes is named after the time-out, and only it. */
static void body_absent(gm_rank *r, void *context)
{
    (void)context;
    gm_comm_set_timeout(r->comm, 1);
    share(r, true);
    gm_tensor *t = random_tensor(r, GM_F32, 300000, 1, SHARED);
    if (r->rank == 2) {
        usleep(3000000); /* and answers nobody */
        gm_comm_fail(r->comm, 1, "it slept");
    } else {
        gm_status st = gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL);
        if (st == GM_EHANG) {
            assert_true(strstr(gm_last_error(), "nothing has moved for 1 s; rank 2 does not answer") != NULL);
            assert_true(!strstr(gm_last_error(), "has come, but its data has not"));
            gm_comm_fail(r->comm, 7, "it hangs");
        } else {
            assert_int_equal(st, GM_EPEER); /* the other one has found it first */
        }
    }
    gm_tensor_release(t);
}

void gm_test_windows_absent(void **state)
{
    (void)state;
    run_world(3, body_absent, NULL);
}

/* The system gives no memory to share: it is said, and messages go as before. */
static void body_refused(gm_rank *r, void *context)
{
    char        said[400];
    const char *text = context;
    OK(gm_rank_share_memory(r, true, said, sizeof said));
    bool well = *text ? strstr(said, "rank 0: memory cannot be shared: ") == said && strstr(said, text) : !*said;
    if (!well) fail_msg("'%s', not '%s'", said, text);
    assert_true(!strcmp(gm_comm_transport(r->comm), "threads"));
    int32_t    one = 1;
    gm_tensor *t = NULL;
    OK(gm_tensor_new(r->device, GM_I32, SHAPE(1), &t));
    memcpy(gm_tensor_data(t), &one, sizeof one);
    OK(gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL));
    assert_int_equal(*(int32_t *)gm_tensor_data(t), r->world);
    gm_tensor_release(t);
}

void gm_test_windows_refused(void **state)
{
    struct rlimit before, small;
    char          text[] = " bytes: File too large; it talks through threads";
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    void (*then)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    run_world(2, body_refused, text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, then);
    setenv("GANYMEDE_SHARED_MEMORY", "none", 1);
    run_world(2, body_refused, "");
    unsetenv("GANYMEDE_SHARED_MEMORY");
}
