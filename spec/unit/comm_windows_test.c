/* comm_windows_test.c - what ranks read of each other's rings, and when (host/comm/comm_windows.c). One thread drives
 * both ranks, so that each order of events is certain. */
#include <stdlib.h>
#include <unistd.h>

#include "../../host/comm/comm_windows.h"
#include "../../kernels/clock.h"
#include "unit.h"

#define LONG   8192 /* bytes of a message: as many as stay in a ring until they are asked for */
#define SHORT  512
#define RINGED (64 << 10)

/* ---- below the windows: nothing ---- */

static int below_hears(gm_transport *t, void *bytes, size_t *n, int *from)
{
    (void)t, (void)bytes, (void)n, (void)from;
    return 0;
}

static int below_drains(gm_transport *t, int *from)
{
    (void)t, (void)from;
    return 0;
}

static void below_closes(gm_transport *t, bool orderly)
{
    (void)orderly;
    free(t);
}

/* ---- two ranks ---- */

static void make_pair(gm_transport *rank[2])
{
    const gm_window_shape shape = {2, RINGED, 4096};
    const int             ranks[2] = {0, 1}, pids[2] = {0, 0}; /* memory is not read directly */
    const gm_reach        reach[2] = {{0}, {0}};
    gm_window            *own[2], *other[2];
    int                   fd[2];
    for (int i = 0; i < 2; i++) OK(gm_window_make(&shape, 7, &own[i], &fd[i]));
    for (int i = 0; i < 2; i++) OK(gm_window_open(&shape, 7, (int)getpid(), fd[i], &other[i]));
    for (int i = 0; i < 2; i++) {
        gm_transport   *base = calloc(1, sizeof *base);
        gm_window      *window[2] = {i == 0 ? own[0] : other[0], i == 1 ? own[1] : other[1]};
        gm_window_ranks r = {
            .shape = shape, .place = i, .rank = ranks, .cores = 2, .pid = pids, .window = window, .reach = reach};
        assert_non_null(base);
        *base = (gm_transport){.size = sizeof *base, .version = GM_TRANSPORT_VERSION, .rank = i, .world = 2};
        base->has_data = true;
        base->hear = below_hears;
        base->drain = below_drains;
        base->close = below_closes;
        OK(gm_transport_windows(base, &r, &rank[i]));
        close(fd[i]);
    }
}

static void free_pair(gm_transport *rank[2])
{
    for (int i = 0; i < 2; i++) rank[i]->close(rank[i], true);
}

static void *sent(gm_transport *t, int tag, const char *bytes, size_t n)
{
    void *request = NULL;
    assert_int_equal(t->send(t, 1, tag, bytes, n, &request), 0);
    return request;
}

static bool done(gm_transport *t, void *request)
{
    size_t n = 0;
    int    ended = t->test(t, request, &n);
    assert_true(ended >= 0);
    return ended == 1;
}

/* Rank 1 asks for the message of this tag and looks once: it must be there, and be what was sent. */
static void comes(gm_transport *t, int tag, size_t n)
{
    char *got = calloc(n, 1);
    void *request = NULL;
    assert_non_null(got);
    assert_int_equal(t->receive(t, 0, tag, got, n, &request), 0);
    assert_true(done(t, request));
    for (size_t i = 0; i < n; i++) assert_int_equal(got[i], (char)tag);
    free(got);
}

static void send_of(gm_transport *t, int tag, size_t n)
{
    static char bytes[LONG];
    memset(bytes, tag, n);
    assert_true(done(t, sent(t, tag, bytes, n)));
}

/* What lies behind a message in its ring is found by the next look, although the bell has not been rung again. */
void gm_test_comm_windows_left_in_a_ring(void **state)
{
    (void)state;
    gm_transport *rank[2];
    make_pair(rank);
    for (int i = 0; i < 2; i++) {
        size_t n = i ? SHORT : LONG;
        for (int tag = 1; tag <= 5; tag++) send_of(rank[0], tag, n);
        comes(rank[1], 1, n);
        comes(rank[1], 2, n);
        comes(rank[1], 4, n); /* the one before it is kept */
        comes(rank[1], 3, n);
        comes(rank[1], 5, n);
    }
    free_pair(rank);
}

/* Who only listens for notices, and then rests, has all that had come, and does not sleep over it. */
void gm_test_comm_windows_left_at_rest(void **state)
{
    (void)state;
    gm_transport *rank[2];
    char          bytes[GM_NOTICE_MAX];
    size_t        n = 0;
    int           from = -1;
    make_pair(rank);
    for (int tag = 1; tag <= 2; tag++) send_of(rank[0], tag, LONG);
    assert_int_equal(rank[1]->hear(rank[1], bytes, &n, &from), 0);
    double before = gm_now();
    rank[1]->rest(rank[1], 40);
    assert_true(gm_now() - before < 20); /* it has not slept */
    comes(rank[1], 2, LONG);
    comes(rank[1], 1, LONG);
    free_pair(rank);
}

/* A notice passes by the messages that wait. */
void gm_test_comm_windows_notices_pass(void **state)
{
    (void)state;
    gm_transport *rank[2];
    char          bytes[GM_NOTICE_MAX];
    size_t        n = 0;
    int           from = -1;
    make_pair(rank);
    for (int tag = 1; tag <= 3; tag++) send_of(rank[0], tag, LONG);
    comes(rank[1], 1, LONG);
    assert_int_equal(rank[0]->tell(rank[0], 1, "word", 5), 0);
    assert_int_equal(rank[1]->hear(rank[1], bytes, &n, &from), 1);
    assert_int_equal(from, 0);
    assert_string_equal(bytes, "word");
    comes(rank[1], 2, LONG);
    comes(rank[1], 3, LONG);
    free_pair(rank);
}

/* ---- at once ---- */

static bool send_at_once(gm_transport *t, int tag, size_t n)
{
    static char bytes[2 * 16384];
    memset(bytes, tag, n);
    return t->send_now(t, 1, tag, bytes, n);
}

static int came_at_once(gm_transport *t, int tag, size_t n)
{
    static char got[2 * 16384];
    memset(got, 0, sizeof got);
    int came = t->receive_now(t, 0, tag, got, n);
    for (size_t i = 0; came > 0 && i < n; i++) assert_int_equal(got[i], (char)tag);
    return came;
}

/* Short messages that are sent or received at once are the same messages as all others, in the same order. */
void gm_test_comm_windows_at_once(void **state)
{
    static const size_t sizes[] = {0, 8, 48, 49, 1000, 2048, 16384};
    (void)state;
    gm_transport *rank[2];
    make_pair(rank);
    assert_int_equal(came_at_once(rank[1], 1, 8), 0);
    for (int again = 0; again < 40; again++) /* over the end of the ring */
        for (int i = 0; i < 7; i++) {
            assert_true(send_at_once(rank[0], 1 + i, sizes[i]));
            if (!again || came_at_once(rank[1], 1 + i, sizes[i]) < 0) comes(rank[1], 1 + i, sizes[i]);
            send_of(rank[0], 20 + i, sizes[i] % LONG);
            if (came_at_once(rank[1], 20 + i, sizes[i] % LONG) < 0) comes(rank[1], 20 + i, sizes[i] % LONG);
        }
    assert_false(send_at_once(rank[0], 1, 16385)); /* nobody has asked for it */
    for (int tag = 1; tag <= 3; tag++) assert_true(send_at_once(rank[0], tag, 8));
    assert_int_equal(came_at_once(rank[1], 2, 8), -1);  /* another one is first, */
    assert_int_equal(came_at_once(rank[1], 1, 16), -1); /* or of another size */
    assert_int_equal(came_at_once(rank[1], 1, 8), 1);
    comes(rank[1], 3, 8); /* and 2 waits for whoever asks */
    assert_true(send_at_once(rank[0], 2, 16));
    assert_int_equal(came_at_once(rank[1], 2, 16), -1);
    comes(rank[1], 2, 8);
    assert_int_equal(came_at_once(rank[1], 2, 16), 1);
    free_pair(rank);
}

/* Who sleeps is woken by what is sent at once; and what finds no room goes as all others do. */
void gm_test_comm_windows_at_once_wakes(void **state)
{
    (void)state;
    gm_transport *rank[2];
    int           sent_now = 0;
    make_pair(rank);
    assert_true(send_at_once(rank[0], 1, 8));
    assert_int_equal(came_at_once(rank[1], 1, 8), 1);
    (void)rank[1]->hear(rank[1], (char[GM_NOTICE_MAX]){0}, &(size_t){0}, &(int){0}); /* it has looked around */
    assert_true(send_at_once(rank[0], 2, 8));
    double before = gm_now();
    rank[1]->rest(rank[1], 40);
    assert_true(gm_now() - before < 20);
    comes(rank[1], 2, 8);
    while (send_at_once(rank[0], 3, 8)) sent_now++;
    assert_int_equal(sent_now, RINGED / 64);
    void *request = sent(rank[0], 3, "\3\3\3\3\3\3\3", 7);
    assert_false(done(rank[0], request));
    for (int i = 0; i < sent_now; i++) {
        assert_int_equal(came_at_once(rank[1], 3, 8), 1);
        assert_false(send_at_once(rank[0], 4, 8)); /* there is room now, but for what waits */
    }
    rank[0]->rest(rank[0], 0);
    assert_true(done(rank[0], request));
    assert_int_equal(came_at_once(rank[1], 3, 7), 1);
    free_pair(rank);
}

/* A sender that runs ahead is held back by its ring: the receiver takes long messages one by one. */
static void check_held_back(size_t n, int all, int held)
{
    char         *bytes = calloc((size_t)all + 1, n);
    void        **request = calloc((size_t)all + 1, sizeof *request);
    gm_transport *rank[2];
    assert_true(bytes && request);
    make_pair(rank);
    for (int tag = 1; tag <= all; tag++) {
        char *of = bytes + (size_t)tag * n;
        memset(of, tag, n);
        request[tag] = sent(rank[0], tag, of, n);
    }
    for (int tag = 1; tag <= all; tag++) {
        if (tag + held <= all) assert_false(done(rank[0], request[tag + held]));
        comes(rank[1], tag, n);
        rank[0]->rest(rank[0], 0); /* there may be room */
        (void)rank[0]->hear(rank[0], bytes, &(size_t){0}, &(int){0});
    }
    for (int tag = 1; tag <= all; tag++) assert_true(done(rank[0], request[tag]));
    free_pair(rank);
    free(request);
    free(bytes);
}

void gm_test_comm_windows_hold_back(void **state)
{
    (void)state;
    check_held_back(LONG, 20, RINGED / LONG + 1);
    check_held_back(SHORT, 400, RINGED / SHORT + 64 + 1); /* as many are taken before they are asked for */
}
