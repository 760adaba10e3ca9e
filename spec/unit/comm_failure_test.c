/* comm_failure_test.c - what goes wrong between ranks: calls that differ, ranks that fail, hang, or end a section. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../host/comm/state.h"
#include "threads_transport.h"
#include "unit.h"

static gm_group *everybody(gm_rank *r)
{
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, 1, &g));
    return g;
}

static gm_tensor *numbers(gm_rank *r, gm_dtype dtype, int64_t n)
{
    gm_tensor *t = NULL;
    OK(gm_tensor_new(r->device, dtype, 1, &n, &t));
    for (int64_t i = 0; i < n; i++) gm_store(dtype, gm_tensor_data(t), i, r->rank + 1);
    return t;
}

/* ---- calls that differ ---- */

typedef struct difference {
    const char *name;
    bool        shares; /* memory; and nothing is compared before the call */
    int         found, ended;
} difference;

static void share(gm_rank *r)
{
    char said[400];
    OK(gm_rank_share_memory(r, true, said, sizeof said));
    if (*said) fail_msg("%s", said);
}

/* Rank 1 of the world calls something else than the others. */
static gm_status different(gm_rank *r, const char *what)
{
    gm_group  *g = everybody(r);
    bool       odd = r->rank == 1;
    gm_tensor *t = numbers(r, odd && !strcmp(what, "dtype") ? GM_I32 : GM_F32, odd && !strcmp(what, "shape") ? 7 : 12);
    gm_status  st;
    if (!strcmp(what, "operation") && odd) st = gm_comm_broadcast(r->comm, g, t, 1, NULL);
    else if (!strcmp(what, "root")) st = gm_comm_broadcast(r->comm, g, t, odd ? 1 : 0, NULL);
    else st = gm_comm_all_reduce(r->comm, g, t, odd && !strcmp(what, "reduction") ? GM_MAX : GM_SUM, NULL);
    if (st == GM_OK) st = gm_comm_barrier(r->comm, g); /* who noticed nothing does so at the next call */
    gm_tensor_release(t);
    return st;
}

static void body_difference(gm_rank *r, void *context)
{
    difference *d = context;
    gm_comm_set_timeout(r->comm, 30);
    gm_comm_set_checked(r->comm, !strcmp(d->name, "path"));
    if (d->shares) share(r);
    if (r->rank == 1 && !strcmp(d->name, "path")) OK(gm_rank_set_path(r, "blocks.2"));
    gm_status st = different(r, d->name);
    if (st == GM_EMISMATCH) {
        __atomic_add_fetch(&d->found, 1, __ATOMIC_SEQ_CST);
        if (!strstr(gm_last_error(), "rank 1") || !strstr(gm_last_error(), "call 1"))
            fail_msg("%s: %s", d->name, gm_last_error());
        gm_comm_fail(r->comm, 1, gm_last_error());
    } else {
        assert_int_equal(st, GM_EPEER); /* told by one that found it */
        assert_int_equal(gm_comm_failure(r->comm)->exit_code, 1);
        assert_non_null(strstr(gm_comm_failure(r->comm)->text, "rank 1"));
    }
    __atomic_add_fetch(&d->ended, 1, __ATOMIC_SEQ_CST);
}

void gm_test_comm_mismatch(void **state)
{
    static const char *const names[] = {"operation", "dtype", "shape", "root", "reduction", "path"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        difference d = {.name = names[i]};
        run_world(3, body_difference, &d);
        assert_int_equal(d.ended, 3);
        assert_true(d.found >= 1);
    }
}

void gm_test_comm_mismatch_through_windows(void **state)
{
    static const char *const names[] = {"operation", "dtype", "shape", "root", "reduction"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int world = 2; world <= 3; world++) {
            difference d = {.name = names[i], .shares = true};
            run_world(world, body_difference, &d);
            assert_int_equal(d.ended, world);
            assert_true(d.found >= 1);
        }
}

/* Two ranks that disagree on the size of a message, and on rows. */
static void body_sizes(gm_rank *r, void *context)
{
    (void)context;
    gm_group  *g = everybody(r);
    gm_tensor *t = numbers(r, GM_F32, 10 + r->rank);
    gm_tensor *got = numbers(r, GM_F32, 10 + r->rank);
    int64_t    rows[2] = {r->rank ? 4 : 6, r->rank ? 7 : 4}; /* rank 1 sends 4 rows where rank 0 expects 4: fits */
    gm_row_run run[2];
    gm_comm_set_timeout(r->comm, 30);
    gm_row_runs list = gm_row_runs_in_order(rows, 2, run);
    gm_status   st = gm_comm_all_to_all_rows(r->comm, g, t, list, got, list, NULL);
    assert_int_equal(st, GM_OK);
    if (r->rank) rows[0] = 3, rows[1] = 8; /* now 3, where 4 are expected */
    list = gm_row_runs_in_order(rows, 2, run);
    st = gm_comm_all_to_all_rows(r->comm, g, t, list, got, list, NULL);
    if (st == GM_EMISMATCH) gm_comm_fail(r->comm, 1, gm_last_error());
    else assert_int_equal(st, GM_EPEER);
    gm_tensor_release(t);
    gm_tensor_release(got);
}

void gm_test_comm_sizes(void **state)
{
    (void)state;
    run_world(2, body_sizes, NULL);
}

/* ---- calls whose messages are always there ---- */

typedef struct hearing {
    bool interrupted;
    int  ready; /* rank 1 has made all its calls */
} hearing;

static bool is_asked(void *context) { return ((hearing *)context)->interrupted; }

/* Rank 1 is ahead, so that rank 0 never waits: it hears of a failure, and of a user who stops it, all the same. */
static void body_hears(gm_rank *r, void *context)
{
    enum { CALLS = 200 };
    hearing    *h = context;
    gm_group   *g = everybody(r);
    gm_pending *p[CALLS];
    gm_tensor  *t[CALLS];
    gm_status   st = GM_OK;
    int         calls = 0;
    share(r);
    for (int i = 0; i < CALLS; i++) t[i] = numbers(r, GM_F32, 2);
    if (r->rank == 1) {
        for (int i = 0; i < CALLS; i++) OK(gm_comm_all_reduce(r->comm, g, t[i], GM_SUM, &p[i]));
        __atomic_store_n(&h->ready, 1, __ATOMIC_SEQ_CST);
        if (!h->interrupted) gm_comm_fail(r->comm, 3, "the disk is full");
        for (int i = 0; i < CALLS; i++) gm_comm_drop(r->comm, p[i]);
    } else {
        while (!__atomic_load_n(&h->ready, __ATOMIC_SEQ_CST)) usleep(100);
        if (!h->interrupted) usleep(50000); /* until it has been said */
        if (h->interrupted) gm_comm_set_interrupt(r->comm, is_asked, h);
        while (calls < CALLS && st == GM_OK) st = gm_comm_all_reduce(r->comm, g, t[calls++], GM_SUM, NULL);
        assert_int_equal(st, h->interrupted ? GM_EINTERRUPT : GM_EPEER);
        assert_true(calls > 1 && calls < 100);
        if (h->interrupted) gm_comm_fail(r->comm, 3, "stopped");
    }
    for (int i = 0; i < CALLS; i++) gm_tensor_release(t[i]);
}

void gm_test_comm_hears_between_short_calls(void **state)
{
    (void)state;
    run_world(2, body_hears, &(hearing){.interrupted = false});
    run_world(2, body_hears, &(hearing){.interrupted = true});
}

/* ---- failures and hangs ---- */

static void body_fail(gm_rank *r, void *context)
{
    (void)context;
    gm_group  *g = everybody(r);
    gm_tensor *t = numbers(r, GM_F32, 100000);
    if (r->rank == 2) {
        usleep(20000);
        gm_comm_fail(r->comm, 5, "the data is damaged");
    } else {
        FAILS(GM_EPEER, "rank 2 has failed: the data is damaged", gm_comm_all_reduce(r->comm, g, t, GM_SUM, NULL));
        assert_int_equal(gm_comm_failure(r->comm)->rank, 2);
        assert_int_equal(gm_comm_failure(r->comm)->exit_code, 5);
        FAILS(GM_EPEER, "rank 2 has failed", gm_comm_poll(r->comm));
        FAILS(GM_EPEER, "rank 2 has failed", gm_comm_barrier(r->comm, g));
    }
    gm_tensor_release(t);
}

static void body_hang(gm_rank *r, void *context)
{
    int *told = context;
    gm_comm_set_timeout(r->comm, 0.6);
    if (r->rank == 1) { /* neither computes nor answers */
        while (__atomic_load_n(told, __ATOMIC_SEQ_CST) < 2) usleep(1000);
        gm_comm_fail(r->comm, 7, "asleep");
        return;
    }
    gm_status st = gm_comm_barrier(r->comm, everybody(r));
    assert_true(st == GM_EHANG || st == GM_EPEER); /* the second may be told by the first */
    if (st == GM_EHANG) {
        assert_non_null(strstr(gm_last_error(), "rank 1 does not answer"));
        assert_non_null(strstr(gm_last_error(), "barrier (call 1 of data): nothing has moved for 0.6 s"));
        __atomic_add_fetch(&told[1], 1, __ATOMIC_SEQ_CST);
    }
    __atomic_add_fetch(told, 1, __ATOMIC_SEQ_CST);
    gm_comm_fail(r->comm, 7, gm_last_error());
}

/* Two of four sleep: whoever gives up names both. */
static void body_hang_of_two(gm_rank *r, void *context)
{
    int *told = context;
    gm_comm_set_timeout(r->comm, 1.5);
    if (r->rank == 1 || r->rank == 3) {
        while (__atomic_load_n(told, __ATOMIC_SEQ_CST) < 2) usleep(1000);
        gm_comm_fail(r->comm, 7, "asleep");
        return;
    }
    gm_status st = gm_comm_barrier(r->comm, everybody(r));
    assert_true(st == GM_EHANG || st == GM_EPEER);
    if (st == GM_EHANG) {
        for (int rank = 1; rank < 4; rank += 2) {
            char want[40];
            snprintf(want, sizeof want, "rank %d does not answer", rank);
            if (!strstr(gm_last_error(), want)) fail_msg("%s", gm_last_error());
        }
        __atomic_add_fetch(&told[1], 1, __ATOMIC_SEQ_CST);
    }
    __atomic_add_fetch(told, 1, __ATOMIC_SEQ_CST);
    gm_comm_fail(r->comm, 7, gm_last_error());
}

/* The time-out comes before the others would be asked: it waits until they have had time to answer. */
static void body_hang_elsewhere(gm_rank *r, void *context)
{
    int      *told = context;
    gm_group *g = NULL;
    gm_comm_set_timeout(r->comm, r->rank == 0 ? 1.1 : 30);
    if (r->rank == 2) {
        while (!__atomic_load_n(told, __ATOMIC_SEQ_CST)) usleep(1000);
        gm_comm_fail(r->comm, 7, "asleep");
        return;
    }
    OK(gm_comm_group_of(r->comm, "left", 2, (int[]){0, 1}, &g));
    if (r->rank == 1) OK(gm_comm_group_of(r->comm, "right", 2, (int[]){1, 2}, &g));
    gm_status st = gm_comm_barrier(r->comm, g);
    if (r->rank == 1) {
        assert_int_equal(st, GM_EPEER);
        return;
    }
    bool named = st == GM_EHANG && strstr(gm_last_error(), "rank 2 does not answer");
    __atomic_store_n(told, 1, __ATOMIC_SEQ_CST);
    gm_comm_fail(r->comm, 7, "rank 2 sleeps");
    assert_true(named);
}

/* Two ranks that wait in different groups: each names what the other does. */
static void body_crossed(gm_rank *r, void *context)
{
    (void)context;
    gm_group *a = NULL, *b = NULL;
    gm_comm_set_timeout(r->comm, 1.5);
    OK(gm_rank_set_path(r, "blocks.7"));
    OK(gm_comm_group_of(r->comm, "left", 2, (int[]){0, 1}, &a));
    OK(gm_comm_group_of(r->comm, "right", 2, (int[]){0, 1}, &b));
    gm_status st = gm_comm_barrier(r->comm, r->rank ? a : b);
    if (st == GM_EHANG) {
        const char *want = r->rank ? "rank 0 has not come: it waits in barrier (call 1 of right), at blocks.7"
                                   : "rank 1 has not come: it waits in barrier (call 1 of left), at blocks.7";
        if (!strstr(gm_last_error(), want)) fail_msg("%s", gm_last_error());
        gm_comm_fail(r->comm, 7, gm_last_error());
    } else {
        assert_int_equal(st, GM_EPEER);
    }
}

static bool asked(void *context)
{
    (void)context;
    return true;
}

static void body_interrupt(gm_rank *r, void *context)
{
    (void)context;
    gm_group *g = everybody(r);
    if (r->rank == 0) {
        gm_comm_set_interrupt(r->comm, asked, NULL);
        FAILS(GM_EINTERRUPT, "while waiting", gm_comm_barrier(r->comm, g));
        gm_comm_fail(r->comm, 130, "stopped");
    } else {
        FAILS(GM_EPEER, "rank 0 has failed: stopped", ({
                  gm_status st;
                  while ((st = gm_comm_poll(r->comm)) == GM_OK) usleep(1000);
                  st;
              }));
    }
}

/* A rank that comes to its end while others wait for it. */
static void body_left(gm_rank *r, void *context)
{
    (void)context;
    gm_comm_set_timeout(r->comm, 30);
    if (r->rank == 1) {
        FAILS(GM_EPEER, "makes no such call", gm_comm_leave(r->comm));
        return;
    }
    gm_status st = gm_comm_barrier(r->comm, everybody(r));
    if (st == GM_EPEER) return;
    assert_int_equal(st, GM_EMISMATCH);
    assert_non_null(strstr(gm_last_error(), "rank 1 makes no such call: it has come to the end of the program"));
    gm_comm_fail(r->comm, 1, gm_last_error());
}

static void body_alone(gm_rank *r, void *context)
{
    (void)context;
    gm_group *self = NULL;
    OK(gm_comm_group(r->comm, 0, &self));
    gm_comm_set_alone(r->comm, true);
    FAILS(GM_EINVAL, "only this rank runs this", gm_comm_barrier(r->comm, everybody(r)));
    OK(gm_comm_barrier(r->comm, self));
    gm_comm_set_alone(r->comm, false);
    OK(gm_comm_barrier(r->comm, everybody(r)));
}

void gm_test_comm_failures(void **state)
{
    int told[2] = {0};
    (void)state;
    run_world(4, body_fail, NULL);
    run_world(3, body_hang, told);
    assert_true(told[1] >= 1);
    told[0] = told[1] = 0;
    run_world(4, body_hang_of_two, told);
    assert_true(told[1] >= 1);
    told[0] = 0;
    run_world(3, body_hang_elsewhere, told);
    run_world(2, body_crossed, NULL);
    run_world(2, body_interrupt, NULL);
    run_world(3, body_left, NULL);
    run_world(2, body_alone, NULL);
}

/* ---- sections ---- */

/* A section of its own: a rank that went on to fail would be heard of here. */
static void all_is_well(gm_rank *r)
{
    int        failed, first;
    gm_tensor *t = numbers(r, GM_F64, 999);
    OK(gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL));
    for (int i = 0; i < 999; i++) assert_true(((double *)gm_tensor_data(t))[i] == r->world * (r->world + 1) / 2.0);
    gm_tensor_release(t);
    OK(gm_comm_section_end(r->comm, true, NULL, &failed, &first));
    assert_int_equal(failed, 0);
}

/* Twenty sections; in most, a random rank fails after a random number of calls, large ones and small ones under way,
 * some of them dropped. After each, everything must work as if nothing had been. */
static void body_sections(gm_rank *r, void *context)
{
    (void)context;
    gm_comm_set_timeout(r->comm, 60);
    for (int k = 0; k < 20; k++) {
        unit_random random = {(uint64_t)k * 31};
        int         bad = (int)unit_below(&random, r->world), calls = (int)unit_below(&random, 6), failed, first;
        bool        fails = k % 4 != 3, ok = true;
        gm_pending *p[6];
        gm_tensor  *t[6];
        int         n = 0;
        for (int i = 0; i < 6 && ok; i++) {
            if (fails && r->rank == bad && i == calls) {
                ok = false;
                break;
            }
            t[n] = numbers(r, GM_F32, unit_below(&random, 2) ? 5 : 20000);
            gm_status st = gm_comm_all_reduce(r->comm, everybody(r), t[n], GM_SUM, i % 2 ? NULL : &p[n]);
            if (st == GM_OK && i % 2 == 0) n++;
            else gm_tensor_release(t[n]);
            if (st == GM_OK) continue;
            assert_int_equal(st, GM_EPEER); /* the echo of another rank's failure is no failure of ours */
            assert_int_equal(gm_comm_failure(r->comm)->rank, bad);
            break;
        }
        for (int i = 0; i < n; i++) { /* some are waited for, some forgotten */
            if ((r->rank + i) % 2 == 0) gm_comm_drop(r->comm, p[i]);
            else if (ok && !gm_comm_failure(r->comm)) {
                gm_status st = gm_comm_wait(r->comm, p[i]);
                assert_true(st == GM_OK || st == GM_EPEER);
            } else {
                gm_comm_drop(r->comm, p[i]);
            }
            gm_tensor_release(t[i]);
        }
        OK(gm_comm_section_end(r->comm, ok, "this line is wrong", &failed, &first));
        assert_int_equal(failed, fails);
        assert_int_equal(first, fails ? bad : -1);
        assert_null(gm_comm_failure(r->comm));
        all_is_well(r);
    }
    assert_int_equal(gm_comm_under_way(r->comm), 0);
}

/* Every rank fails; then a rank ends its section while another still waits for it: found and survived. */
static void body_all_fail(gm_rank *r, void *context)
{
    int failed, first;
    (void)context;
    OK(gm_comm_section_end(r->comm, false, "no", &failed, &first));
    assert_int_equal(failed, r->world);
    assert_int_equal(first, 0);
    all_is_well(r);
    bool ok = true;
    if (r->rank != 1) {
        gm_status st = gm_comm_barrier(r->comm, everybody(r));
        assert_true(st == GM_EMISMATCH || st == GM_EPEER);
        ok = st != GM_EMISMATCH;
    }
    OK(gm_comm_section_end(r->comm, ok, "nobody came", &failed, &first));
    assert_true(failed >= 1 && first != 1);
    all_is_well(r);
}

static int (*tell_at_once)(gm_transport *t, int to, const void *bytes, size_t n);

static int tell_late(gm_transport *t, int to, const void *bytes, size_t n)
{
    if (to == 2) usleep(600000);
    return tell_at_once(t, to, bytes, n);
}

/* Rank 0 fails, and is not scheduled between what it says to rank 1 and to rank 2. Rank 2 meanwhile asks, and hears of
 * rank 1 that it has come to the end of the section and makes no second call: an echo of the failure, no mismatch. */
static void body_late_news(gm_rank *r, void *context)
{
    int         failed, first;
    gm_tensor  *t = numbers(r, GM_F32, 5), *earlier = numbers(r, GM_F32, 5);
    gm_pending *p;
    (void)context;
    gm_comm_set_timeout(r->comm, 60);
    if (r->rank == 0) {
        tell_at_once = r->comm->transport->tell;
        r->comm->transport->tell = tell_late;
    } else {
        if (r->rank == 2) OK(gm_comm_all_reduce(r->comm, everybody(r), earlier, GM_SUM, &p));
        FAILS(GM_EPEER, "rank 0 has failed: no", gm_comm_all_reduce(r->comm, everybody(r), t, GM_SUM, NULL));
        if (r->rank == 2) gm_comm_drop(r->comm, p);
    }
    OK(gm_comm_section_end(r->comm, r->rank != 0, "no", &failed, &first));
    assert_int_equal(failed, 1);
    assert_int_equal(first, 0);
    if (r->rank == 0) r->comm->transport->tell = tell_at_once;
    gm_tensor_release(t);
    gm_tensor_release(earlier);
    all_is_well(r);
}

/* Rank 1 comes to the end of the section when rank 0 has given up. Rank 0 says so again at once, of sections and of
 * calls: a section that it ended twice, and rank 1 once, would have them in different sections, each waiting. */
static void body_end_fails(gm_rank *r, void *context)
{
    atomic_int *stage = context;
    const char *text = "the end of a section: nothing has been heard for 0.3 s from rank 1";
    int         failed, first;
    if (r->rank == 1) {
        while (atomic_load(stage) < 1) usleep(1000);
        OK(gm_comm_section_end(r->comm, true, NULL, &failed, &first)); /* rank 0 had come there */
        atomic_store(stage, 2);
        FAILS(GM_EPEER, "rank 0 has failed: a hang", gm_comm_barrier(r->comm, everybody(r)));
        return;
    }
    gm_comm_set_timeout(r->comm, 0.3);
    FAILS(GM_EHANG, text, gm_comm_section_end(r->comm, true, NULL, &failed, &first));
    gm_comm_set_timeout(r->comm, 60);
    FAILS(GM_EHANG, text, gm_comm_section_end(r->comm, false, "no", &failed, &first));
    FAILS(GM_EHANG, text, gm_comm_barrier(r->comm, everybody(r)));
    atomic_store(stage, 1);
    while (atomic_load(stage) < 2) usleep(1000);
    gm_comm_fail(r->comm, 7, "a hang");
}

void gm_test_comm_sections(void **state)
{
    (void)state;
    atomic_int stage = 0;
    run_world(2, body_end_fails, &stage);
    for (int world = 2; world <= 5; world++) run_world(world, body_sections, NULL);
    run_world(3, body_all_fail, NULL);
    run_world(3, body_late_news, NULL);
}
