/* comm_rows_test.c - all_to_all_rows of runs: rows that lie in several places on one side, on both, or on none, against
 * index arithmetic, with the bytes that are sent and copied.
 *
 * Of each pair of members, the numbers of runs and of their rows follow from a hash, many of them 0. A side lies in
 * order of its runs, or in an order that its rank has drawn. Row r of run k from i to j is the number of all four. */
#include <stdlib.h>

#include "../../host/comm/state.h"
#include "threads_transport.h"
#include "unit.h"

enum { RUNS = 3, MOST = 8 * RUNS, WIDTH = 2 };

typedef struct layout {
    bool drawn_sends, drawn_receives; /* their order */
    int  seed;
} layout;

static uint64_t hash(const layout *l, int i, int j, int k)
{
    return gm_mix64((uint64_t)l->seed * 4096 + (uint64_t)(i * 8 + j) * 8 + (uint64_t)k);
}

static int runs_of(const layout *l, int i, int j) { return (int)(hash(l, i, j, 7) % (RUNS + 1)); }
/* Every third run, and all of one pair of members, are empty. */
static int64_t rows_of(const layout *l, int i, int j, int k)
{
    uint64_t h = hash(l, i, j, k);
    return h % 3 == 0 || hash(l, i, j, 6) % 5 == 0 ? 0 : (int64_t)(h / 3 % 4) + 1;
}

static double number(int i, int j, int k, int64_t r) { return ((i * 8 + j) * 8 + k) * 16 + (double)r; }

static gm_group *everybody(gm_rank *r)
{
    gm_group *g = NULL;
    OK(gm_comm_group(r->comm, (1u << r->mesh.n_axes) - 1, &g));
    return g;
}

/* The runs of a side, in order of places; where they lie, from 0 on without a gap: in this order or in a drawn one.
 * Returns the rows. */
static int64_t list_side(const layout *l, int rank, int p, bool sends, gm_row_run *run, int *n)
{
    int         order[MOST];
    int64_t     at = 0;
    unit_random random = {(uint64_t)(l->seed * 100 + rank * 2 + sends)};
    *n = 0;
    for (int other = 0; other < p; other++) {
        int i = sends ? rank : other, j = sends ? other : rank;
        for (int k = 0; k < runs_of(l, i, j); k++) run[(*n)++] = (gm_row_run){other, 0, rows_of(l, i, j, k)};
    }
    for (int i = 0; i < *n; i++) order[i] = i;
    for (int i = *n - 1; i > 0 && (sends ? l->drawn_sends : l->drawn_receives); i--) {
        int k = (int)unit_below(&random, i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (int i = 0; i < *n; at += run[order[i++]].n) run[order[i]].first = at;
    return at;
}

static void fill(gm_tensor *t, const gm_row_run *run, int n, int rank, bool sends, bool check)
{
    double *x = gm_tensor_data(t);
    for (int i = 0, k = 0; i < n; i++) {
        int other = run[i].place;
        k = i && run[i - 1].place == other ? k + 1 : 0;
        for (int64_t r = 0; r < run[i].n; r++)
            for (int c = 0; c < WIDTH; c++) {
                double *at = &x[(run[i].first + r) * WIDTH + c];
                double  want = number(sends ? rank : other, sends ? other : rank, k, r);
                if (!check) *at = want;
                else if (*at != want) fail_msg("row %d of run %d from %d: %g, not %g", (int)r, k, other, *at, want);
            }
    }
}

/* Bytes of runs for other members; with `apart`, of those members alone whose runs do not lie one after the other. */
static uint64_t bytes_elsewhere(const gm_row_run *run, int n, int rank, bool apart)
{
    uint64_t rows = 0;
    for (int i = 0, last; i < n; i = last) {
        uint64_t of_place = 0;
        int64_t  end = -1;
        bool     gap = false;
        for (last = i; last < n && run[last].place == run[i].place; last++) {
            if (!run[last].n) continue;
            gap |= end >= 0 && run[last].first != end;
            end = run[last].first + run[last].n;
            of_place += (uint64_t)run[last].n;
        }
        if (run[i].place != rank && (gap || !apart)) rows += of_place;
    }
    return rows * WIDTH * sizeof(double);
}

static uint64_t own_bytes(const gm_row_run *run, int n, int rank)
{
    uint64_t rows = 0;
    for (int i = 0; i < n; i++) rows += run[i].place == rank ? (uint64_t)run[i].n : 0;
    return rows * WIDTH * sizeof(double);
}

static gm_traffic traffic(gm_comm *c)
{
    gm_traffic entries[32], found = {0};
    for (int i = 0, n = gm_comm_traffic(c, entries, 32); i < n; i++)
        if (!strcmp(entries[i].op, "all_to_all_rows")) found = entries[i];
    gm_comm_reset_traffic(c);
    return found;
}

static void body_runs(gm_rank *r, void *context)
{
    const layout *l = context;
    gm_row_run    send[MOST], receive[MOST];
    gm_tensor    *from = NULL, *to = NULL;
    int           n_send, n_receive;
    int64_t       out = list_side(l, r->rank, r->world, true, send, &n_send);
    int64_t       in = list_side(l, r->rank, r->world, false, receive, &n_receive);
    OK(gm_tensor_new(r->device, GM_F64, SHAPE(out, WIDTH), &from));
    OK(gm_tensor_new(r->device, GM_F64, SHAPE(in, WIDTH), &to));
    fill(from, send, n_send, r->rank, true, false);
    for (int64_t i = 0; i < in * WIDTH; i++) ((double *)gm_tensor_data(to))[i] = -1;
    gm_comm_reset_traffic(r->comm);
    gm_row_runs sends = {n_send ? send : NULL, n_send}, receives = {n_receive ? receive : NULL, n_receive};
    OK(gm_comm_all_to_all_rows(r->comm, everybody(r), from, sends, to, receives, NULL));
    fill(to, receive, n_receive, r->rank, false, true);
    gm_traffic t = traffic(r->comm);
    assert_int_equal(t.calls, 1);
    assert_int_equal(t.bytes, bytes_elsewhere(send, n_send, r->rank, false));
    assert_int_equal(t.copied, own_bytes(send, n_send, r->rank) + bytes_elsewhere(send, n_send, r->rank, true) +
                                   bytes_elsewhere(receive, n_receive, r->rank, true));
    gm_tensor_release(from);
    gm_tensor_release(to);
}

void gm_test_comm_runs(void **state)
{
    (void)state;
    for (int world = 1; world <= 6; world++)
        for (int seed = 0; seed < 12; seed++) {
            layout l = {seed & 1, seed & 2, seed};
            run_world(world, body_runs, &l);
        }
}

/* Three under way at once, waited for in another order. */
static void body_runs_at_once(gm_rank *r, void *context)
{
    enum { MANY = 3 };
    gm_row_run  send[MANY][MOST], receive[MANY][MOST];
    gm_tensor  *from[MANY], *to[MANY];
    int         n_send, n_receive[MANY];
    gm_pending *p[MANY];
    (void)context;
    for (int k = 0; k < MANY; k++) {
        layout  l = {k != 1, k != 2, 50 + k};
        int64_t out = list_side(&l, r->rank, r->world, true, send[k], &n_send);
        int64_t in = list_side(&l, r->rank, r->world, false, receive[k], &n_receive[k]);
        OK(gm_tensor_new(r->device, GM_F64, SHAPE(out, WIDTH), &from[k]));
        OK(gm_tensor_new(r->device, GM_F64, SHAPE(in, WIDTH), &to[k]));
        fill(from[k], send[k], n_send, r->rank, true, false);
        OK(gm_comm_all_to_all_rows(r->comm, everybody(r), from[k], (gm_row_runs){send[k], n_send}, to[k],
                                   (gm_row_runs){receive[k], n_receive[k]}, &p[k]));
    }
    for (int k = MANY - 1; k >= 0; k--) {
        OK(gm_comm_wait(r->comm, p[k]));
        fill(to[k], receive[k], n_receive[k], r->rank, false, true);
        gm_tensor_release(from[k]);
        gm_tensor_release(to[k]);
    }
}

void gm_test_comm_runs_at_once(void **state)
{
    (void)state;
    for (int world = 2; world <= 5; world++) run_world(world, body_runs_at_once, NULL);
}

/* ---- what is refused ---- */

static void refuse(gm_rank *r, const char *text, gm_row_runs send, gm_row_runs receive)
{
    gm_tensor *t = NULL, *got = NULL;
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(4, 3), &t));
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(4, 3), &got));
    FAILS(GM_ESHAPE, text, gm_comm_all_to_all_rows(r->comm, everybody(r), t, send, got, receive, NULL));
    gm_tensor_release(t);
    gm_tensor_release(got);
}

#define LIST(...) \
    (gm_row_runs) { (gm_row_run[]){__VA_ARGS__}, (int)(sizeof((gm_row_run[]){__VA_ARGS__}) / sizeof(gm_row_run)) }

static void body_refused(gm_rank *r, void *context)
{
    gm_row_runs good = LIST({0, 0, 2}, {1, 2, 2});
    gm_tensor  *t = NULL, *other = NULL;
    (void)context;
    refuse(r, "runs overlap, or leave rows out", LIST({0, 0, 2}, {1, 1, 2}), good);
    refuse(r, "runs overlap, or leave rows out", good, LIST({0, 0, 2}, {1, 3, 1}));
    refuse(r, "runs overlap, or leave rows out", LIST({0, 0, 3}, {1, 1, 3}), good);
    refuse(r, "runs overlap, or leave rows out", good, LIST({0, 0, INT64_MAX}, {1, 2, 2}));
    refuse(r, "runs overlap, or leave rows out", good, LIST({0, 0, 2}, {1, 3, 2}));
    refuse(r, "what is received once, which is f32 (4, 3)", good, LIST({0, 0, 2}));
    refuse(r, "what is sent once", LIST({0, 0, 5}), good);
    refuse(r, "run 2 is of place 0; runs should be in order of places, 0 to 1", LIST({1, 2, 2}, {0, 0, 2}), good);
    refuse(r, "run 1 is of place 2", LIST({2, 0, 4}), good);
    refuse(r, "run 1 is of place -1", good, LIST({-1, 0, 4}));
    refuse(r, "a run has a negative number of rows", LIST({0, 0, -1}, {1, 0, 4}), good);
    if (r->rank) refuse(r, "1 rows in 1 runs are to become 2 in 1", LIST({0, 0, 3}, {1, 3, 1}), good);
    else refuse(r, "2 rows in 2 runs are to become 2 in 1", LIST({0, 0, 1}, {0, 1, 1}, {1, 2, 2}), good);
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(4, 3), &t));
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(4, 2), &other));
    FAILS(GM_ESHAPE, "rows of the two tensors differ",
          gm_comm_all_to_all_rows(r->comm, everybody(r), t, good, other, good, NULL));
    gm_tensor_release(t);
    gm_tensor_release(other);
}

void gm_test_comm_runs_refused(void **state)
{
    (void)state;
    run_world(2, body_refused, NULL);
}

/* Rank 1 sends 3 rows in two runs, where rank 0 expects 2 in two. Rank 0's wait finds it and says both in bytes. So it
 * is in checked mode, too: its comparison of calls does not see the numbers of rows. */
static void body_disagree(gm_rank *r, void *context)
{
    gm_tensor *t = NULL, *got = NULL;
    int64_t    extra = r->rank;
    gm_comm_set_timeout(r->comm, 30);
    gm_comm_set_checked(r->comm, *(bool *)context);
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(2 + extra, 3), &t));
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(2, 3), &got));
    int         other = 1 - r->rank;
    gm_row_runs send = LIST({other, 0, 1}, {other, 1, 1 + extra});
    gm_row_runs receive = LIST({other, 1, 1}, {other, 0, 1}); /* not in the order of rows: through scratch memory */
    gm_status   st = gm_comm_all_to_all_rows(r->comm, everybody(r), t, send, got, receive, NULL);
    if (st == GM_EMISMATCH) {
        assert_int_equal(r->rank, 0);
        if (!strstr(gm_last_error(), "rank 1 sent at least 36 bytes where 24 were expected"))
            fail_msg("%s", gm_last_error());
        gm_comm_fail(r->comm, 1, gm_last_error());
    } else {
        assert_true(r->rank == 1 && (st == GM_EPEER || st == GM_OK));
    }
    gm_tensor_release(t);
    gm_tensor_release(got);
}

void gm_test_comm_runs_disagree(void **state)
{
    (void)state;
    for (int checked = 0; checked < 2; checked++) run_world(2, body_disagree, &(bool){checked});
}
