/* comm_ends_test.c - what the others see of a rank that ends early, over TCP and over shared memory above it. Each test
 * makes one order of events certain that is rare in a job. Ranks are threads, which meet at the loopback interface. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../host/comm/comm_tcp.h"
#include "../../host/life.h"
#include "threads_transport.h"
#include "unit.h"

typedef struct job {
    int world, port;
    int stage;                      /* how far the ranks are together */
    void (*body)(gm_rank *r);       /* of each rank */
    void (*dress)(gm_transport *t); /* changes a rank's transport before the rank has it; NULL: nothing */
    void (*bare)(gm_transport *t);  /* in place of body: of each transport; the transport is its own */
} job;

static job now; /* one at a time */

static void reach(int stage) { __atomic_store_n(&now.stage, stage, __ATOMIC_SEQ_CST); }

static void await(int stage)
{
    while (__atomic_load_n(&now.stage, __ATOMIC_SEQ_CST) < stage) usleep(1000);
}

/* Of the two that are left. */
static void await_all(void)
{
    __atomic_add_fetch(&now.stage, 1, __ATOMIC_SEQ_CST);
    await(2);
}

/* ---- ranks ---- */

/* A port that nobody has, below those which systems give to clients. */
static int free_port(void)
{
    int port = 29000 + (int)(getpid() * 37 % 3000), taken = 1;
    while (taken) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int                fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
        at.sin_port = htons((uint16_t)++port);
        assert_true(fd >= 0 && port < 32768);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
        taken = bind(fd, (struct sockaddr *)&at, sizeof at);
        close(fd);
    }
    return port;
}

static void *sit(void *which)
{
    gm_meeting    m = {.rank = *(int *)which, .world = now.world, .address = "127.0.0.1", .port = now.port, .key = 7};
    gm_rank      *r = NULL;
    gm_transport *t = NULL;
    m.seconds = 120;
    OK(gm_transport_tcp(&m, 120, &t));
    if (now.bare) return now.bare(t), NULL;
    if (now.dress) now.dress(t);
    OK(gm_rank_new(&r));
    OK(gm_rank_connect_over(r, t));
    OK(gm_rank_open_device(r, "cpu", 1));
    gm_comm_set_timeout(r->comm, 120);
    now.body(r);
    return NULL;
}

static void run(job what)
{
    pthread_t thread[3];
    int       rank[3] = {0, 1, 2};
    now = what;
    now.port = free_port();
    for (int i = 0; i < now.world; i++) assert_int_equal(pthread_create(&thread[i], NULL, sit, &rank[i]), 0);
    for (int i = 0; i < now.world; i++) pthread_join(thread[i], NULL);
}

static gm_status barrier(gm_rank *r)
{
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, 1, &g));
    return gm_comm_barrier(r->comm, g);
}

static void blames(gm_rank *r, int rank, const char *text)
{
    FAILS(GM_EPEER, text, barrier(r));
    assert_int_equal(gm_comm_failure(r->comm)->rank, rank);
    assert_int_equal(gm_comm_failure(r->comm)->exit_code, 5);
}

/* ---- a word, and then the end ---- */

/* Rank 1 looks again only when rank 0 has said why, and is gone. */
static void body_in_one_look(gm_rank *r)
{
    if (r->rank == 0) {
        gm_comm_fail(r->comm, 5, "the disk is full");
        gm_rank_free(r);
        reach(1);
        return;
    }
    await(1);
    blames(r, 0, "rank 0 has failed: the disk is full");
    gm_rank_free(r);
}

/* The same, and rank 1 writes first: the system tells it only then that nobody reads any more. */
static void bare_write_first(gm_transport *t)
{
    char   said[GM_NOTICE_MAX] = "", byte = 1;
    size_t n = 0;
    int    from = -1;
    void  *request = NULL;
    if (t->rank == 0) {
        assert_int_equal(t->tell(t, 1, "why", 4), 0);
        t->close(t, false);
        reach(1);
        return;
    }
    await(1);
    for (int i = 0; i < 20; i++) { /* the first bytes are answered by a reset, the next fail */
        assert_int_equal(t->send(t, 0, 3, &byte, 1, &request), 0);
        usleep(1000);
    }
    assert_int_equal(t->hear(t, said, &n, &from), 1);
    assert_true(n == 4 && from == 0 && !strcmp(said, "why"));
    assert_int_equal(t->receive(t, 0, 3, &byte, 1, &request), 0);
    int ended;
    while (!(ended = t->test(t, request, &n))) usleep(1000);
    assert_true(ended < 0 && strstr(t->error, "the connection to rank 0 "));
    t->close(t, false);
}

/* ---- an end because of another rank ---- */

static int (*tcp_tell)(gm_transport *t, int to, const void *bytes, size_t n);

/* Rank 1 never gets what rank 2 says. */
static int not_to_1(gm_transport *t, int to, const void *bytes, size_t n)
{
    return to == 1 ? 0 : tcp_tell(t, to, bytes, n);
}

static void dress_silence(gm_transport *t)
{
    if (t->rank != 2) return;
    tcp_tell = t->tell;
    t->tell = not_to_1;
}

/* Rank 0 ends because of rank 2, and rank 1 sees that end first. */
static void body_passes_on(gm_rank *r)
{
    if (r->rank == 2) {
        gm_comm_fail(r->comm, 5, "the disk is full");
        await(2);
    } else if (r->rank == 1) {
        await(1);
        blames(r, 2, "rank 2 has failed: the disk is full");
        reach(2);
    } else {
        blames(r, 2, "rank 2 has failed: the disk is full");
    }
    int rank = r->rank;
    gm_rank_free(r);
    if (rank == 0) reach(1);
}

/* ---- an end without a word ---- */

static int tells_of_it(gm_transport *t, int to, const void *bytes, size_t n)
{
    int bad = tcp_tell(t, to, bytes, n);
    if (to == 1) reach(3);
    return bad;
}

static void dress_word(gm_transport *t)
{
    if (t->rank != 2) return;
    tcp_tell = t->tell;
    t->tell = tells_of_it;
}

/* Called once a turn of the wait: rank 1 has found that rank 0 is gone, and now rank 2 says why. Rank 1 gets no core
 * for longer than it would wait for that. */
static bool waits_on(void *context)
{
    (void)context;
    if (__atomic_load_n(&now.stage, __ATOMIC_SEQ_CST) < 2) reach(2);
    await(3);
    usleep(700000);
    return false;
}

static void body_word_of_another(gm_rank *r)
{
    if (r->rank == 0) {
        gm_rank_free(r); /* as one that is killed */
        reach(1);
    } else if (r->rank == 1) {
        await(1);
        gm_comm_set_interrupt(r->comm, waits_on, NULL);
        blames(r, 2, "rank 2 has failed: rank 0 was to be killed");
        gm_rank_free(r);
    } else {
        await(2);
        gm_comm_fail(r->comm, 5, "rank 0 was to be killed");
        gm_rank_free(r);
    }
}

/* Nobody has more to say: in a call, in one that is compared before it begins, at the end of a section, at the end. */
static void body_no_word(gm_rank *r)
{
    static const char *const gone = "the connection to rank 0 was closed by it";
    int                      failed, first;
    if (r->rank == 0) {
        gm_rank_free(r);
        return;
    }
    gm_comm_set_timeout(r->comm, 30);
    gm_comm_set_checked(r->comm, r->rank == 2);
    FAILS(GM_ECOMM, gone, barrier(r));
    FAILS(GM_ECOMM, gone, gm_comm_section_end(r->comm, true, NULL, &failed, &first));
    FAILS(GM_ECOMM, gone, gm_comm_leave(r->comm));
    await_all();
    gm_rank_free(r);
}

/* ---- through shared memory ---- */

static int (*tcp_lost)(gm_transport *t, int rank);

/* Rank 1 has found nothing in its window. Before it looks at the connection, rank 0 says why it ends, and ends. */
static int lost_meanwhile(gm_transport *t, int rank)
{
    reach(1);
    await(2);
    return tcp_lost(t, rank);
}

static void dress_lost(gm_transport *t)
{
    if (t->rank != 1) return;
    tcp_lost = t->lost;
    t->lost = lost_meanwhile;
}

static void body_in_the_window(gm_rank *r)
{
    char said[400];
    OK(gm_rank_share_memory(r, true, said, sizeof said));
    assert_true(!strcmp(gm_comm_transport(r->comm), "shared memory"));
    if (r->rank == 0) {
        await(1);
        gm_comm_fail(r->comm, 5, "the disk is full");
        gm_rank_free(r);
        reach(2);
        return;
    }
    blames(r, 0, "rank 0 has failed: the disk is full");
    gm_rank_free(r);
}

void gm_test_comm_ends_in_one_look(void **state)
{
    (void)state;
    run((job){.world = 2, .body = body_in_one_look});
}

void gm_test_comm_ends_after_a_write(void **state)
{
    (void)state;
    run((job){.world = 2, .bare = bare_write_first});
}

void gm_test_comm_ends_because_of_another(void **state)
{
    (void)state;
    run((job){.world = 3, .body = body_passes_on, .dress = dress_silence});
}

void gm_test_comm_ends_without_a_word(void **state)
{
    (void)state;
    run((job){.world = 3, .body = body_word_of_another, .dress = dress_word});
    run((job){.world = 3, .body = body_no_word});
}

void gm_test_comm_ends_through_a_window(void **state)
{
    (void)state;
    run((job){.world = 2, .body = body_in_the_window, .dress = dress_lost});
}
