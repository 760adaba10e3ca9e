/* sharded_linear_kinds_test.c - layers of gm_sharded_linear (linear_job.h) along one axis, biases and activations in
 * all kinds, the second storage of 3D, and what meta counts. */
#include "calls.h"
#include "linear_job.h"
#include "sums.h"
#include "../../host/life.h"

static int64_t ranks(const job *j) { return gm_mesh_size(&j->mesh); }

static uint32_t mask(const job *j, const char *axis) { return gm_mesh_mask(&j->mesh, axis); }

/* ---- one axis ---- */

static const int worlds[5][3] = {{1, 1, 2}, {1, 1, 3}, {1, 1, 4}, {2, 1, 2}, {2, 2, 2}}; /* data, sequence, tensor */

/* Elements of the sum of dx, of f64, in each group of p. */
static int64_t sum_of_x(const job *j, int p)
{
    return ranks(j) / p * (int64_t)sum_bytes((uint64_t)p, 8 * (uint64_t)elements(j, &j->x, 3, j->x_shape)) / 8;
}

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
    job heads = column(1, 1, 4, 5, 3, 7, 9); /* of 3 outputs, which stay whole: the last rank has none */
    heads.w.unit[0] = heads.b.unit[0] = heads.y.unit[2] = 3;
    heads.biased = true;
    heads.f = GM_FN_sigmoid;
    run_job(&heads);
    release_job(&heads);
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
    job heads = gathered(1, 1, 4, 1, 2, 5, 7, 9);
    heads.w.unit[0] = heads.b.unit[0] = heads.y.unit[2] = 3;
    heads.biased = true;
    run_job(&heads);
    release_job(&heads);
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
    run_cubes(true);
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
    FAILS(GM_ESHAPE, text, call_linear(r, x, w, NULL, f, &y));
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
