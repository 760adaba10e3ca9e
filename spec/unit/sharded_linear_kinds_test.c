/* sharded_linear_kinds_test.c - layers of gm_sharded_linear (linear_job.h) along one axis, biases and activations in
 * all kinds, the second storage of 3D, what meta counts, and what is under way while something is multiplied. */
#include <stdatomic.h>
#include <time.h>

#include "linear_job.h"

static int64_t ranks(const job *j) { return gm_mesh_size(&j->mesh); }

static uint32_t mask(const job *j, const char *axis) { return gm_mesh_mask(&j->mesh, axis); }

/* ---- one axis ---- */

/* x (data, sequence, -), w (tensor, -): data, sequence and tensor ranks. */
static job column(int data, int sequence, int tensor, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job j = {.mesh = mesh_of("data", data, "sequence", sequence, "tensor", tensor)};
    sizes(&j, b, s, in, out);
    cut(&j.mesh, &j.x, 0, "data", NULL, NULL);
    cut(&j.mesh, &j.x, 1, "sequence", NULL, NULL);
    cut(&j.mesh, &j.w, 0, "tensor", NULL, NULL);
    j.y = j.x;
    cut(&j.mesh, &j.y, 2, "tensor", NULL, NULL);
    j.dw_partial = j.db_partial = mask(&j, "data") | mask(&j, "sequence");
    cut(&j.mesh, &j.b, 0, "tensor", NULL, NULL);
    return j;
}

static const int worlds[5][3] = {{1, 1, 2}, {1, 1, 3}, {1, 1, 4}, {2, 1, 2}, {2, 2, 2}}; /* data, sequence, tensor */

/* The sum of dx: in a group, twice all but one of the p slices of each of p copies. */
static int64_t sum_of_x(const job *j, int p) { return ranks(j) / p * 2 * (p - 1) * elements(j, &j->x, 3, j->x_shape); }

void gm_test_sharded_linear_column(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++)
        for (int biased = 0; biased < 2; biased++) {
            const int *n = worlds[k];
            job        j = column(n[0], n[1], n[2], 5, 3, 7, k ? 9 : 301); /* uneven; more rows of w than at once */
            j.biased = biased;
            j.f = biased && k != 1 ? GM_FN_sigmoid : GM_FN_none;
            run_job(&j);
            expect_sent(&j, 0, sum_of_x(&j, n[2]));
            release_job(&j);
        }
    job single = column(1, 1, 4, 4, 2, 12, 24);
    single.dtype = GM_F32;
    run_job(&single);
    release_job(&single);
}

/* Nobody asks about x, or w is frozen: only what is wanted is computed and summed. */
void gm_test_sharded_linear_column_one_gradient(void **state)
{
    (void)state;
    for (int only = OF_X; only <= OF_W; only++) {
        job j = column(1, 1, 3, 5, 3, 7, 9);
        j.only = only;
        run_job(&j);
        expect_sent(&j, 0, only == OF_X ? sum_of_x(&j, 3) : 0);
        release_job(&j);
    }
}

/* A bias that is whole, and one that is cut deeper than y's last dimension. */
void gm_test_sharded_linear_column_bias(void **state)
{
    (void)state;
    for (int deeper = 0; deeper < 2; deeper++) {
        job j = column(2, 2, 2, 5, 3, 7, 9);
        j.biased = true;
        if (deeper) cut(&j.mesh, &j.b, 0, "sequence", NULL, NULL);
        else j.b = gm_layout_replicated();
        if (deeper) j.db_partial = mask(&j, "data"); /* its sum over sequence was scattered */
        run_job(&j);
        int64_t b =
            3; /* elements of a block: 9 in 5, in 3; or what a whole one gets of the gradient of the other half */
        if (!deeper) b = 5;
        expect_sent(&j, deeper ? ranks(&j) * b : 0, sum_of_x(&j, 2) + ranks(&j) * b);
        release_job(&j);
    }
}

/* x (data, sequence, tensor), w (-, tensor) -> y partial over tensor. whole: x's last dimension is not cut, or w's. */
static job row(int data, int sequence, int tensor, int whole, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job j = column(data, sequence, tensor, b, s, in, out);
    j.w = j.b = gm_layout_replicated();
    if (whole != OF_X) cut(&j.mesh, &j.x, 2, "tensor", NULL, NULL);
    if (whole != OF_W) cut(&j.mesh, &j.w, 1, "tensor", NULL, NULL);
    j.y = j.x;
    j.y.n_cuts[2] = 0;
    j.y.partial = mask(&j, "tensor");
    return j;
}

void gm_test_sharded_linear_row(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++)
        for (int whole = 0; whole <= OF_W; whole++) {
            const int *n = worlds[k];
            job        j = row(n[0], n[1], n[2], whole, 5, 3, 7, 9);
            j.biased = k != 1;
            run_job(&j);
            int64_t block = (7 + n[2] - 1) / n[2] * (whole == OF_X ? elements(&j, &j.x, 3, j.x_shape) / 7 : 9);
            expect_sent(&j, 0, whole ? ranks(&j) * (n[2] - 1) * block : 0);
            release_job(&j);
        }
}

/* w cut by both axes, rows of x by neither: y is cut and still a sum, in which the bias counts once. */
void gm_test_sharded_linear_column_of_sums(void **state)
{
    (void)state;
    job j = {.mesh = mesh_of("row", 2, "col", 3, NULL, 1), .biased = true};
    sizes(&j, 5, 3, 7, 9);
    cut(&j.mesh, &j.x, 2, "col", NULL, NULL);
    cut(&j.mesh, &j.w, 0, "row", NULL, NULL);
    cut(&j.mesh, &j.w, 1, "col", NULL, NULL);
    cut(&j.mesh, &j.b, 0, "row", NULL, NULL);
    cut(&j.mesh, &j.y, 2, "row", NULL, NULL);
    j.y.partial = mask(&j, "col");
    run_job(&j);
    expect_sent(&j, 0, sum_of_x(&j, 2));
    release_job(&j);
}

/* ---- rows that are gathered ---- */

/* As column, but that x's dimension `dim` is cut by tensor inside. */
static job gathered(int data, int sequence, int tensor, int dim, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job j = column(data, sequence, tensor, b, s, in, out);
    cut(&j.mesh, &j.x, dim, "tensor", NULL, NULL);
    return j;
}

/* x is gathered, gathered again unless it was kept, and its gradient scattered: p - 1 blocks a rank each time. */
static void expect_gathered(const job *j, int p)
{
    int64_t block = ranks(j) * (p - 1) * elements(j, &j->x, 3, j->x_shape);
    int     again = j->only != OF_X && !j->keep, back = j->only != OF_W;
    expect_sent(j, block, (again + back) * block);
}

void gm_test_sharded_linear_gather(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++)
        for (int dim = 0; dim < 2; dim++)
            for (int keep = 0; keep < 2; keep++) {
                const int *n = worlds[k];
                job        j = gathered(n[0], n[1], n[2], dim, 7, 5, 3, k ? 10 : 270);
                j.keep = keep;
                j.biased = k % 2 == 0;
                j.f = j.biased ? GM_FN_sigmoid : GM_FN_none;
                run_job(&j);
                expect_gathered(&j, n[2]);
                release_job(&j);
            }
    job single = gathered(1, 1, 4, 1, 4, 8, 12, 24);
    single.dtype = GM_F32;
    run_job(&single);
    release_job(&single);
}

void gm_test_sharded_linear_gather_one_gradient(void **state)
{
    (void)state;
    for (int only = OF_X; only <= OF_W; only++) {
        job j = gathered(1, 1, 3, 1, 2, 5, 7, 9);
        j.only = only;
        run_job(&j);
        expect_gathered(&j, 3);
        release_job(&j);
    }
}

/* ---- biases and activations of blocks ---- */

enum { ALIKE, DEEPER, WHOLE };

/* b cut by `last` as y is, by `inside` besides, or not at all; rows of y are cut by `rows`, over which db is a sum. */
static void bias(job *j, int how, const char *last, const char *inside, uint32_t rows)
{
    j->biased = true;
    if (how != WHOLE) cut(&j->mesh, &j->b, 0, last, how == DEEPER ? inside : NULL, NULL);
    j->db_partial = rows & ~(how == DEEPER ? mask(j, inside) : 0);
}

void gm_test_sharded_linear_bias_2d(void **state)
{
    (void)state;
    static const int grids[3][3] = {{1, 1, 2}, {1, 1, 3}, {2, 2, 2}}; /* data, depth, q */
    for (int k = 0; k < 3; k++)
        for (int how = ALIKE; how <= WHOLE; how++)
            for (int turned = 0; turned < 2; turned++) {
                const int *n = grids[k];
                job        j = flat(n[0], n[1], n[2], turned, 9, 3, 5, 7);
                bias(&j, how, "col", "row", mask(&j, "data") | mask(&j, "depth") | mask(&j, "row"));
                j.f = how == k ? GM_FN_none : GM_FN_sigmoid;
                run_job(&j);
                release_job(&j);
            }
}

void gm_test_sharded_linear_bias_3d(void **state)
{
    (void)state;
    for (int second = 0; second < 2; second++)
        for (int how = ALIKE; how <= WHOLE; how++) {
            job         j = cube(1, 2, second, how == DEEPER, 5, 3, 6, 7);
            const char *last = second ? "output" : "input", *rows = second ? "input" : "output";
            bias(&j, how, last, "weight", mask(&j, "weight") | mask(&j, rows));
            j.f = how == second ? GM_FN_none : GM_FN_sigmoid;
            j.keep = second;
            run_job(&j);
            release_job(&j);
        }
}

/* w's rows, not its columns, are cut by weight, as those of a table that is tied to an embedding. */
void gm_test_sharded_linear_3d_rows(void **state)
{
    (void)state;
    static const int64_t shapes[3][4] = {{8, 2, 8, 12}, {7, 3, 5, 7}, {5, 1, 9, 50}};
    for (int k = 0; k < 3; k++)
        for (int keep = 0; keep < 2; keep++)
            for (int second = 0; second < 2; second++) {
                const int64_t *s = shapes[k];
                job            j = cube(k == 1 ? 2 : 1, 2, second, true, s[0], s[1], s[2], s[3]);
                j.dtype = k == 0 ? GM_F32 : GM_F64;
                j.keep = keep;
                run_job(&j);
                expect_cube_traffic(&j, 2);
                release_job(&j);
            }
}

/* ---- meta ---- */

/* On meta every rank counts what it sent over real messages, and no operation more than the serial layer has. */
static void expect_same_on_meta(job *j)
{
    uint64_t forward[RANKS], backward[RANKS];
    double   flops = 0, serial = 6 * (double)j->w_shape[0];
    run_job(j);
    memcpy(forward, j->forward, sizeof forward);
    memcpy(backward, j->backward, sizeof backward);
    memset(j->forward, 0, sizeof j->forward);
    memset(j->backward, 0, sizeof j->backward);
    for (int rank = 0; rank < ranks(j); rank++) {
        pretend_layer(j, rank, &flops);
        assert_int_equal(j->forward[rank], forward[rank]);
        assert_int_equal(j->backward[rank], backward[rank]);
    }
    for (int d = 0; d < 3; d++) serial *= (double)j->x_shape[d];
    assert_true(flops == serial);
    release_job(j);
}

void gm_test_sharded_linear_meta_as_real(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        int p = k == 0 ? 4 : k == 1 ? 8 : 9;
        job one = column(1, 1, p, 3, 2, 5, 20), two = row(1, 1, p, 0, 3, 2, 20, 5);
        job three = gathered(1, 1, p, 1, 2, 18 * 4, 5, 20);
        expect_same_on_meta(&one);
        expect_same_on_meta(&two);
        expect_same_on_meta(&three);
    }
    job blocks[] = {flat(1, 1, 2, false, 4, 2, 5, 7),        flat(1, 1, 2, true, 4, 2, 5, 7),
                    flat(1, 2, 2, false, 4, 2, 5, 7),        flat(1, 1, 3, false, 6, 2, 5, 7),
                    cube(1, 2, false, false, 4, 2, 10, 100), cube(1, 2, true, true, 4, 2, 10, 100)};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) expect_same_on_meta(&blocks[i]);
}

/* 1,000 ranks: one of them is enough, all are alike where sizes divide. */
void gm_test_sharded_linear_meta_thousand(void **state)
{
    (void)state;
    double  flops = 0;
    job     all = column(1, 1, 1000, 4, 25, 50, 4000), ten = cube(1, 10, false, false, 200, 1, 1000, 1000);
    int64_t x = 100 * 50;
    pretend_layer(&all, 999, &flops);
    assert_int_equal(all.forward[999 % RANKS], 0);
    assert_int_equal(all.backward[999 % RANKS], 2 * (x - x / 1000) * 8);
    assert_true(flops == 6.0 * 100 * 50 * 4);
    flops = 0;
    pretend_layer(&ten, 0, &flops);
    x = 2 * 100; /* of x and y; and of w 100 x 10 */
    assert_int_equal(ten.forward[0], 9 * (2 * x + 1000) * 8);
    assert_int_equal(ten.backward[0], 9 * (3 * x + 2000) * 8);
    assert_true(flops == 6.0 * 200 * 1000 * 1000 / 1000);
}

/* ---- refusals ---- */

static void expect_refusal(job *j, gm_function f, const char *text)
{
    gm_rank  *r = NULL;
    gm_value *y = NULL, *x = NULL, *w = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, 0, gm_mesh_size(&j->mesh)));
    OK(gm_rank_set_mesh(r, &j->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    OK(gm_value_new_block(r, "test", GM_F32, &j->x, 3, j->x_shape, &x));
    OK(gm_value_new_block(r, "test", GM_F32, &j->w, 2, j->w_shape, &w));
    FAILS(GM_ESHAPE, text, gm_sharded_linear(r, x, w, NULL, f, &y));
    gm_value_release(w);
    gm_value_release(x);
    gm_rank_free(r);
}

void gm_test_sharded_linear_kinds_refuse(void **state)
{
    (void)state;
    job j = row(1, 1, 2, 0, 4, 2, 6, 8);
    expect_refusal(&j, GM_FN_gelu, "activation needs the sum");
    j = column(2, 1, 2, 4, 2, 6, 8); /* columns of w by data: the rows of x are */
    cut(&j.mesh, &j.w, 1, "data", NULL, NULL);
    expect_refusal(&j, GM_FN_none, "the dimension summed over is cut in different ways: x is f32 (4, 2, 6) cut (data");
    j = gathered(1, 2, 2, 1, 4, 8, 6, 8);
    cut(&j.mesh, &j.w, 0, "sequence", NULL, NULL);
    expect_refusal(&j, GM_FN_none, "gathered over one of the axes");
    j = column(1, 1, 2, 4, 2, 6, 8);
    j.w.partial = 1u << 1;
    j.mesh = mesh_of("tensor", 2, "other", 2, NULL, 1);
    expect_refusal(&j, GM_FN_none, "w is still a sum over ranks");
    j.w.partial = 0;
    j.x.partial = 1;
    expect_refusal(&j, GM_FN_none, "a sum over ranks that cut the other");
}

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
    OK(gm_sharded_linear(r, x, weight, NULL, GM_FN_none, &y));
    seed = job_block(r, j, &j->y, 3, j->y_shape, OF_DY);
    OK(gm_tape_backward(y, seed));
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
    OK(gm_sharded_linear(r, v[0], v[1], NULL, GM_FN_none, &v[3]));
    *forward = (int64_t)gm_pool_stats(pool).peak - before;
    before = (int64_t)gm_pool_stats(pool).live;
    gm_pool_reset_peak(pool);
    OK(gm_tape_backward(v[3], v[2]));
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
