/* sharded_linear_flow_test.c - what is under way while gm_sharded_linear multiplies, that it moves, and how much memory
 * a layer takes besides its operands. */
#include <stdatomic.h>
#include <time.h>

#include "calls.h"
#include "linear_job.h"
#include "../../host/life.h"

/* ---- what is under way while something is multiplied ---- */

#define PRODUCTS 32

/* Watches one rank's products; each rank is a thread. */
typedef struct watch {
    const gm_backend *plain;
    gm_comm          *comm;
    int               under_way[PRODUCTS], n; /* operations that nobody had waited for, at each product */
} watch;

static _Thread_local watch *watching;

static gm_status watched(gm_device *dev, const gm_call *call)
{
    assert_true(watching->n < PRODUCTS);
    watching->under_way[watching->n++] = gm_comm_under_way(watching->comm);
    return watching->plain->kernel[call->op](dev, call);
}

typedef struct overlap {
    job        j;
    const int *want; /* at least, at each product of forward, dx and dw, on every rank; then -1 */
} overlap;

static void watched_layer(gm_rank *r, void *context)
{
    const overlap *o = context;
    const job     *j = &o->j;
    watch          w = {.plain = r->device->backend, .comm = r->comm};
    gm_backend     hooked = *r->device->backend;
    gm_value      *x = job_block(r, j, &j->x, 3, j->x_shape, OF_X), *y = NULL, *seed = NULL;
    gm_value      *weight = job_block(r, j, &j->w, 2, j->w_shape, OF_W);
    hooked.kernel[GM_OP_matmul] = hooked.kernel[GM_OP_linear] = watched;
    watching = &w;
    r->device->backend = &hooked;
    OK(gm_value_require_grad(x, true));
    OK(gm_value_require_grad(weight, true));
    OK(call_linear(r, x, weight, NULL, GM_FN_none, &y));
    seed = job_block(r, j, &j->y, 3, j->y_shape, OF_DY);
    OK(gm_tape_backward(y, seed, false));
    r->device->backend = w.plain;
    for (int i = 0; i < w.n; i++)
        if (w.under_way[i] < o->want[i])
            fail_msg("rank %d: %d operations under way at product %d, not %d", r->rank, w.under_way[i], i, o->want[i]);
    assert_int_equal(o->want[w.n], -1);
    gm_value_release(seed);
    gm_value_release(y);
    gm_value_release(weight);
    gm_value_release(x);
}

/* The least that is under way: nothing where nothing comes before it. */
void gm_test_sharded_linear_overlap(void **state)
{
    (void)state;
    static const int summa[] = {2, 2, 0, 3, 3, 1, 3, 3, 1, -1}; /* next blocks of x and w; of w, and two sums; of x */
    static const int turned[] = {3, 3, 1, 2, 2, 0, 3, 3, 1, -1};
    static const int sum[] = {0, 0, 1, -1}, again[] = {0, 1, 1, -1}; /* dx; x that is gathered again, then dx */
    overlap          kinds[] = {
                 {flat(1, 1, 3, false, 6, 2, 6, 9), summa},
                 {flat(1, 1, 3, true, 6, 2, 6, 9), turned},
                 {column(1, 1, 3, 6, 2, 6, 9), sum},
                 {gathered(1, 1, 3, 1, 2, 6, 6, 9), again},
                 {cube(1, 2, false, false, 8, 2, 8, 8), again},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) run_ranks(&kinds[i].j.mesh, watched_layer, &kinds[i]);
}

/* ---- messages move while something is multiplied ---- */

#define NUMBERS 4096

typedef struct meeting {
    _Atomic int awaited, sent, multiplied, seen;
} meeting;

/* Returns when *flag is set; nothing moves meanwhile, as it would in a wait of the comm. */
static void wait_still(_Atomic int *flag)
{
    for (int i = 0; i < 20000 && !*flag; i++) nanosleep(&(struct timespec){0, 500000}, NULL);
    assert_true(*flag);
}

static gm_tensor *numbers(gm_rank *r, int64_t rows, int64_t columns, double value)
{
    gm_tensor *t = NULL;
    OK(gm_tensor_new(r->device, GM_F64, 2, (int64_t[]){rows, columns}, &t));
    for (int64_t i = 0; i < rows * columns; i++) ((double *)gm_tensor_data(t))[i] = value;
    return t;
}

static void multiply_meanwhile(gm_rank *r)
{
    gm_tensor *a = numbers(r, 64, 64, 1), *c = numbers(r, 64, 64, 0);
    gm_attrs   attrs = gm_attrs_default();
    gm_call call = {.op = GM_OP_matmul, .n_in = 2, .n_out = 1, .in = (gm_tensor *[]){a, a}, .out = &c, .attrs = &attrs};
    OK(gm_run(r->device, &call));
    gm_tensor_release(a);
    gm_tensor_release(c);
}

/* A broadcast from rank 0 comes to rank 3 through rank 2, which multiplies and does not wait. */
static void meet(gm_rank *r, void *context)
{
    meeting    *m = context;
    gm_tensor  *t = numbers(r, 1, NUMBERS, r->rank ? 0 : 7);
    gm_pending *p = NULL;
    gm_group   *g;
    OK(gm_comm_group(r->comm, 1, &g));
    if (r->rank == 0) wait_still(&m->awaited);
    OK(gm_comm_broadcast(r->comm, g, t, 0, &p));
    if (r->rank == 0) m->sent = 1;
    if (r->rank == 2) {
        m->awaited = 1;
        wait_still(&m->sent);
        multiply_meanwhile(r);
        m->multiplied = 1;
        wait_still(&m->seen);
    }
    if (r->rank == 3) {
        wait_still(&m->multiplied);
        for (int i = 0; i < NUMBERS; i++) assert_true(((double *)gm_tensor_data(t))[i] == 7);
        m->seen = 1;
    }
    OK(gm_comm_wait(r->comm, p));
    gm_tensor_release(t);
}

void gm_test_sharded_linear_messages_move(void **state)
{
    (void)state;
    meeting m = {0};
    run_world(4, meet, &m);
}

/* ---- memory ---- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* A layer on meta, as rank `at` of q x q; w's and x's gradients in place. Bytes that forward and backward took. */
static void measure(job *j, int at, int64_t *forward, int64_t *backward)
{
    gm_rank  *r = NULL;
    gm_value *v[4] = {NULL}; /* x, w, seed, y */
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, at, gm_mesh_size(&j->mesh)));
    OK(gm_rank_set_mesh(r, &j->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    OK(gm_value_new_block(r, "test", j->dtype, &j->x, 3, j->x_shape, &v[0]));
    OK(gm_value_new_block(r, "test", j->dtype, &j->w, 2, j->w_shape, &v[1]));
    OK(gm_value_new_block(r, "test", j->dtype, &j->y, 3, j->y_shape, &v[2]));
    for (int i = 0; i < 2; i++) {
        gm_tensor *g;
        OK(gm_value_require_grad(v[i], true));
        OK(gm_value_grad_buffer(v[i], &g));
    }
    gm_pool *pool = r->device->pool;
    int64_t  before = (int64_t)gm_pool_stats(pool).live;
    gm_pool_reset_peak(pool);
    OK(call_linear(r, v[0], v[1], NULL, GM_FN_none, &v[3]));
    *forward = (int64_t)gm_pool_stats(pool).peak - before;
    before = (int64_t)gm_pool_stats(pool).live;
    gm_pool_reset_peak(pool);
    OK(gm_tape_backward(v[3], v[2], false));
    *backward = (int64_t)gm_pool_stats(pool).peak - before;
    for (int i = 3; i >= 0; i--) gm_value_release(v[i]);
    gm_rank_free(r);
}

/* Two blocks of what travels, and four of what is summed, whether 2 or 12 ranks share a row. */
void gm_test_sharded_linear_memory(void **state)
{
    (void)state;
    static const int sides[2] = {2, 12};
    for (int k = 0; k < 2; k++) {
        int     q = sides[k];
        job     j = flat(1, 1, q, false, 4 * q, 10, 20 * q, 50 * q), t = flat(1, 1, q, true, 4 * q, 10, 20 * q, 50 * q);
        int64_t x = 800 * 8, w = 1000 * 8, y = 2000 * 8, forward, backward,
                spare = q == 2; /* one of a pair is not used */
        measure(&j, 0, &forward, &backward);
        assert_int_equal(forward, y + (2 - spare) * (x + w));
        assert_int_equal(backward,
                         larger((2 - spare) * w + 2 * (2 - spare) * x, (2 - spare) * x + 2 * (2 - spare) * w));
        measure(&t, 0, &forward, &backward);
        assert_int_equal(forward, y + (2 - spare) * w + 2 * (2 - spare) * y);
        assert_int_equal(backward, larger((2 - spare) * (y + w), (2 - spare) * y + 2 * (2 - spare) * w));
    }
}
