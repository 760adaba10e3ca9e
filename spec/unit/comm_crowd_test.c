/* comm_crowd_test.c - how a rank waits where ranks share cores (host/comm/crowd.h). */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../../host/comm/crowd.h"
#include "../../kernels/clock.h"
#include "unit.h"

static int nobody[4];

static gm_crowd crowd_of(int ranks, int cores) { return (gm_crowd){.ranks = ranks, .cores = cores, .pid = nobody}; }

/* Pauses after long yields, one after the other: each is waited off. */
static void check_pauses(gm_crowd *c, const unsigned *pauses, int n)
{
    for (int i = 0; i < n; i++) {
        gm_crowd_was_long(c);
        assert_int_equal(c->pause, pauses[i]);
    }
}

/* The cores are not known to be ours at first, so pauses double up to 256. */
void gm_test_comm_crowd_pauses_double(void **state)
{
    (void)state;
    gm_crowd c = crowd_of(4, 2);
    check_pauses(&c, (unsigned[]){2, 4, 8, 16, 32, 64, 128, 256, 256}, 9);
}

/* 2 cores and 10 ms are 20 ms of cores: 16 ms of the ranks are most of it, 14 ms are not. */
void gm_test_comm_crowd_judges_by_the_share_of_the_ranks(void **state)
{
    (void)state;
    gm_crowd c = crowd_of(4, 2);
    gm_crowd_judge(&c, 100, 7);
    gm_crowd_judge(&c, 100.010001, 7.016);
    assert_true(c.ours);
    check_pauses(&c, (unsigned[]){0, 0}, 2);
    gm_crowd_judge(&c, 100.015, 7.017); /* too early: as before */
    assert_true(c.ours);
    gm_crowd_judge(&c, 100.020002, 7.030);
    assert_false(c.ours);
    check_pauses(&c, (unsigned[]){2, 4}, 2);
    gm_crowd_judge(&c, 100.030003, 7.046);
    assert_true(c.ours);
    check_pauses(&c, (unsigned[]){0}, 1);
    gm_crowd_judge(&c, 100.040004, 7.046);
    check_pauses(&c, (unsigned[]){2}, 1); /* from the start again */
}

typedef struct bell {
    gm_window  *window;
    atomic_bool go;
} bell;

static void *ring(void *which)
{
    bell *b = which;
    while (!atomic_load(&b->go)) sched_yield();
    gm_window_ring(b->window);
    return NULL;
}

static gm_window *make_window(void)
{
    gm_window *w = NULL;
    int        fd = -1;
    assert_int_equal(gm_window_make(&(gm_window_shape){2, 4096, 64}, 5, &w, &fd), GM_OK);
    close(fd);
    return w;
}

/* Until the bell is rung, and not at all where each rank has a core, or in a pause. */
void gm_test_comm_crowd_yields_until_the_bell(void **state)
{
    (void)state;
    bell      b = {.window = make_window()};
    gm_crowd  c = crowd_of(2, 1), roomy = crowd_of(2, 2);
    uint32_t  seen = gm_window_rung(b.window);
    pthread_t other;
    c.ours = true; /* and judged in the future: a busy machine's long yields do not end this test */
    c.judged = gm_now() + 1e6;
    double began = gm_now(), deadline = began + 60;
    assert_false(gm_crowd_yield(&c, b.window, seen));                                 /* nobody rings */
    while (c.yielded == 0 && gm_now() < deadline) gm_crowd_yield(&c, b.window, seen); /* long yields do not count */
    assert_true(c.yielded > 0 && c.yielded <= gm_now() - began);
    assert_int_equal(pthread_create(&other, NULL, ring, &b), 0);
    atomic_store(&b.go, true);
    bool rung = false;
    deadline = gm_now() + 60;
    while (!rung && gm_now() < deadline) rung = gm_crowd_yield(&c, b.window, seen);
    assert_true(rung);
    pthread_join(other, NULL);
    assert_false(gm_crowd_yield(&roomy, b.window, seen)); /* it does not look, although the bell has been rung */
    c.pause = 2;
    assert_false(gm_crowd_yield(&c, b.window, seen));
    assert_false(gm_crowd_yield(&c, b.window, seen));
    assert_true(gm_crowd_yield(&c, b.window, seen));
    assert_true(roomy.yielded == 0);
    gm_window_close(b.window);
}

/* Yields between looks go on for GM_CROWD_SECONDS; the rest that comes behind them does not yield as long again. */
void gm_test_comm_crowd_gives_way_between_looks(void **state)
{
    (void)state;
    gm_crowd   c = crowd_of(2, 1), roomy = crowd_of(2, 2);
    gm_window *w = make_window();
    double     end = 0, none = 0, began = gm_now();
    uint32_t   seen = gm_window_rung(w);
    c.ours = true;
    c.judged = began + 1e6;
    while (gm_crowd_give_way(&c, &end)) assert_true(gm_now() < began + 60);
    assert_true(gm_now() - began >= GM_CROWD_SECONDS);
    gm_window_ring(w);
    assert_false(gm_crowd_yield(&c, w, seen)); /* it has not yielded, and so not looked */
    double deadline = gm_now() + 60;
    while (!gm_crowd_yield(&c, w, seen)) assert_true(gm_now() < deadline); /* the next one does */
    c.pause = 2;
    assert_false(gm_crowd_give_way(&c, &none));
    assert_int_equal(c.pause, 2); /* the rest counts the waits */
    assert_false(gm_crowd_give_way(&roomy, &none));
    assert_true(none == 0);
    gm_window_close(w);
}
