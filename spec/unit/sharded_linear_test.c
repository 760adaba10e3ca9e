/* sharded_linear_test.c - SUMMA and 3D layers of gm_sharded_linear (linear_job.h), up to 16 ranks; the other kinds are
 * in sharded_linear_kinds_test.c. */
#include "calls.h"
#include "linear_job.h"

/* ---- tests ---- */

void gm_test_sharded_linear_2d(void **state)
{
    (void)state;
    static const int64_t shapes[4][4] = {{12, 2, 12, 24}, {7, 3, 5, 7}, {4, 1, 4, 50}, {1, 2, 7, 2}};
    for (int q = 2; q <= 3; q++)
        for (int turned = 0; turned < 2; turned++)
            for (int k = 0; k < 4; k++) {
                const int64_t *s = shapes[k];
                job            j = flat(1, 1, q, turned, s[0], s[1], s[2], s[3]);
                j.dtype = k == 0 ? GM_F32 : GM_F64;
                run_job(&j);
                expect_flat_traffic(&j, q, turned);
                release_job(&j);
            }
}

/* More terms than there is room for at once. */
void gm_test_sharded_linear_four_by_four(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        job j = flat(1, 1, 4, turned, 7, 3, 10, 13);
        run_job(&j);
        expect_flat_traffic(&j, 4, turned);
        release_job(&j);
    }
}

/* Heads of 3 outputs stay whole, as the attention after them wants, and what comes in is cut by pairs. */
static void units(job *j)
{
    j->w.unit[0] = j->y.unit[2] = 3;
    j->w.unit[1] = j->x.unit[2] = 2;
}

void gm_test_sharded_linear_units(void **state)
{
    (void)state;
    job j = flat(1, 1, 2, false, 5, 2, 10, 15);
    units(&j);
    run_job(&j);
    expect_flat_traffic(&j, 2, false);
    release_job(&j);
    j = cube(1, 2, true, false, 5, 2, 10, 15);
    units(&j);
    run_job(&j);
    expect_cube_traffic(&j, 2);
    release_job(&j);
}

/* Products of more rows than are multiplied at once. */
void gm_test_sharded_linear_tall(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        job j = flat(1, 1, 2, turned, 301, 2, 5, 270);
        run_job(&j);
        release_job(&j);
    }
}

void gm_test_sharded_linear_depth(void **state)
{
    (void)state;
    static const int worlds[3][3] = {{1, 2, 2}, {2, 1, 2}, {2, 2, 2}}; /* data, depth, q */
    for (int k = 0; k < 3; k++)
        for (int turned = 0; turned < 2; turned++) {
            const int *w = worlds[k];
            job        j = flat(w[0], w[1], w[2], turned, 13, 2, 5, 7);
            run_job(&j);
            expect_flat_traffic(&j, w[2], turned);
            release_job(&j);
        }
}

/* A mesh with a depth of one rank, against one without. */
void gm_test_sharded_linear_depth_one(void **state)
{
    (void)state;
    job two = flat(1, 1, 3, false, 7, 2, 11, 8), one = two;
    one.mesh = gm_mesh_of_one();
    OK(gm_mesh_add_axis(&one.mesh, "depth", 1));
    OK(gm_mesh_add_axis(&one.mesh, "row", 3));
    OK(gm_mesh_add_axis(&one.mesh, "col", 3));
    one.x = one.w = gm_layout_replicated();
    cut(&one.mesh, &one.x, 0, "depth", "row", NULL);
    cut(&one.mesh, &one.x, 2, "col", NULL, NULL);
    cut(&one.mesh, &one.w, 0, "col", NULL, NULL);
    cut(&one.mesh, &one.w, 1, "row", NULL, NULL);
    one.y = one.x;
    one.dw_partial = 1; /* of a sum of one term */
    run_job(&two);
    run_job(&one);
    for (int rank = 0; rank < 9; rank++) {
        int64_t n[3] = {elements(&two, &two.y, 3, two.y_shape), elements(&two, &two.x, 3, two.x_shape),
                        elements(&two, &two.w, 2, two.w_shape)};
        for (int what = 0; what < 3; what++)
            assert_memory_equal(one.value[what][rank], two.value[what][rank], (size_t)n[what] * sizeof(double));
    }
    release_job(&two);
    release_job(&one);
}

void gm_test_sharded_linear_3d(void **state)
{
    (void)state;
    run_cubes(false);
}

/* Of rows that nobody asks about, or of a weight that is frozen, nothing is computed or gathered. */
void gm_test_sharded_linear_one_gradient(void **state)
{
    (void)state;
    for (int only = OF_X; only <= OF_W; only++)
        for (int keep = 0; keep < 2; keep++) {
            job j = cube(1, 2, false, false, 6, 2, 5, 7), two = flat(1, 1, 2, keep, 6, 2, 5, 7);
            j.keep = keep;
            j.only = two.only = only;
            run_job(&j);
            run_job(&two);
            expect_cube_traffic(&j, 2);
            expect_flat_traffic(&two, 2, keep);
            release_job(&j);
            release_job(&two);
        }
}

/* ---- on meta ---- */

/* 64 and 27 ranks: bytes by the formulas, and exactly the operations of the serial layer, shared out. */
static void pretend_job(job *j)
{
    double flops = 0, serial_flops = 6;
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) pretend_layer(j, rank, &flops);
    for (int d = 0; d < 3; d++) serial_flops *= (double)j->x_shape[d];
    assert_true(flops == serial_flops * (double)j->w_shape[0]);
}

static void expect_folded(const job *j, int64_t forward, int64_t backward)
{
    int64_t sent[2] = {0, 0};
    for (int i = 0; i < RANKS; i++) {
        sent[0] += (int64_t)j->forward[i];
        sent[1] += (int64_t)j->backward[i];
    }
    assert_int_equal(sent[0], forward * 8);
    assert_int_equal(sent[1], backward * 8);
}

void gm_test_sharded_linear_meta(void **state)
{
    (void)state;
    job j = flat(1, 4, 4, false, 64, 10, 50, 257); /* 16 rows of blocks, 13 x 65 of w */
    pretend_job(&j);
    expect_folded(&j, 64 * 3 * (4 * 10 * 13 + 65 * 13), 64 * 3 * 2 * (4 * 10 * 13 + 65 * 13));
    j = cube(1, 3, false, false, 18, 5, 50, 100); /* x 2 x 5 x 17, w 34 x 6, y 2 x 5 x 34 */
    pretend_job(&j);
    expect_folded(&j, 27 * 2 * (170 + 204 + 340), 27 * 2 * (340 + 2 * (170 + 204)));
}

/* ---- plain layers ---- */

static void plain(gm_rank *r, void *context)
{
    const job *j = context;
    gm_value  *x = job_block(r, j, &j->x, 3, j->x_shape, OF_X), *w = job_block(r, j, &j->w, 2, j->w_shape, OF_W);
    gm_value  *y = NULL, *z = NULL;
    gm_comm_reset_traffic(r->comm);
    OK(call_linear(r, x, w, NULL, GM_FN_none, &y));
    assert_int_equal(bytes_sent(r->comm), 0);
    OK(call_linear(r, x, w, NULL, GM_FN_none, &z));
    assert_true(gm_layout_equal(&y->layout, &j->y) && gm_layout_equal(&z->layout, &j->y));
    assert_memory_equal(gm_tensor_data(y->local), gm_tensor_data(z->local),
                        (size_t)gm_tensor_numel(y->local) * sizeof(double));
    gm_value_release(z);
    gm_value_release(y);
    gm_value_release(w);
    gm_value_release(x);
}

/* 1D: nothing is sent. Cut along O, so is y; along I, y is partial. */
void gm_test_sharded_linear_plain(void **state)
{
    (void)state;
    for (int row = 0; row < 2; row++) {
        job j = {.mesh = mesh_of("data", 2, "tensor", 2, NULL, 1)};
        sizes(&j, 4, 3, 6, 8);
        cut(&j.mesh, &j.x, 0, "data", NULL, NULL);
        j.y = j.x;
        if (row) cut(&j.mesh, &j.x, 2, "tensor", NULL, NULL);
        cut(&j.mesh, &j.w, row, "tensor", NULL, NULL);
        if (row) j.y.partial = gm_mesh_mask(&j.mesh, "tensor");
        else cut(&j.mesh, &j.y, 2, "tensor", NULL, NULL);
        run_ranks(&j.mesh, plain, &j);
    }
}
