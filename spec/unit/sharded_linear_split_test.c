/* sharded_linear_split_test.c - backward of gm_sharded_linear in two halves (linear_job.h): the same bits and, but for
 * one gather of 3D, the same bytes as in one piece, whatever kind the layouts call for. */
#include "linear_job.h"

/* Runs it both ways. again: elements that a rank sends once more for the second half; first_sends: is any of it sent in
 * the first? */
static void both_ways(job *j, int64_t again, bool first_sends)
{
    job whole = *j;
    int ranks = gm_mesh_size(&j->mesh);
    j->halves = true;
    run_job(&whole);
    run_job(j);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(j->backward[rank], whole.backward[rank] + (uint64_t)again * gm_dtype_size(j->dtype));
        assert_true(!first_sends == !j->first[rank]);
    }
    for (int what = 0; what < 4; what++)
        for (int rank = 0; rank < ranks && whole.value[what][0]; rank++) {
            const gm_layout *layouts[4] = {&j->y, &j->x, &j->w, &j->b};
            const int64_t   *shapes[4] = {j->y_shape, j->x_shape, j->w_shape, j->w_shape};
            int              ndim = 3 - (what == 2) - 2 * (what == 3);
            block_walk       w = walk_block(&j->mesh, layouts[what], rank, ndim, shapes[what]);
            for (int64_t i = 0; i < w.n; i++) /* padded rows of y are anything */
                if (global_index(&w, i) >= 0) assert_true(j->value[what][rank][i] == whole.value[what][rank][i]);
        }
    release_job(&whole);
    release_job(j);
}

/* The column kind sums dx in the first half, the gather kind scatters it there and gathers x again in the second. */
void gm_test_sharded_linear_split_1d(void **state)
{
    (void)state;
    for (int biased = 0; biased < 2; biased++)
        for (int kind = 0; kind < 3; kind++)
            for (int keep = 0; keep < 2; keep++) {
                job j = kind ? gathered(1, 1, 3, kind - 1, 5, 4, 7, 9) : column(2, 1, 2, 5, 3, 7, 9);
                j.keep = keep;
                j.biased = biased;
                j.f = biased ? GM_FN_sigmoid : GM_FN_none;
                both_ways(&j, 0, true);
            }
}

void gm_test_sharded_linear_split_2d(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++)
        for (int only = 0; only <= OF_W; only++) {
            job j = flat(1, 1, 2, turned, 7, 3, 5, 7);
            j.only = only;
            both_ways(&j, 0, only != OF_W);
        }
    job deep = flat(1, 2, 2, false, 13, 2, 5, 7);
    both_ways(&deep, 0, true);
}

/* Both halves need the gradient of y gathered: the second has it of the first where the rank keeps what it gathers. */
void gm_test_sharded_linear_split_3d(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++)
        for (int second = 0; second < 2; second++) {
            job j = cube(1, 2, second, second, 7, 3, 5, 7);
            j.keep = keep;
            j.f = second ? GM_FN_sigmoid : GM_FN_none;
            both_ways(&j, keep ? 0 : elements(&j, &j.y, 3, j.y_shape), true);
        }
}
