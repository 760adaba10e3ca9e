/* redistribute_norm_test.c - norms of lists of blocks against sums over the global tensors.
 *
 * Numbers are whole up to 1000 in f64: sums of them, their squares and cubes (below 2^53) are exact in any order, so
 * norms must come out to the bit but for the root, which is taken of equal numbers. */
#include <stdlib.h>

#include "../../host/gradients/norm.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

#define ITEMS  6
#define POWERS 4

static const double powers[POWERS] = {1, 2, 3, INFINITY};

typedef struct lists {
    int       ndim[ITEMS];
    int64_t   shape[ITEMS][MOST_DIMS];
    gm_layout layout[ITEMS];
    uint64_t  which;
    double    norm[MOST_RANKS][POWERS], with_nan[MOST_RANKS][POWERS];
    int       nan_on; /* rank that holds one NaN */
} lists;

static void measure(gm_rank *r, void *context)
{
    lists       *l = context;
    gm_norm_item items[ITEMS] = {0};
    for (int i = 0; i < ITEMS; i++) {
        items[i].layout = l->layout[i];
        items[i].block = block_of(r, &l->layout[i], l->ndim[i], l->shape[i], l->which + (uint64_t)i, 0);
    }
    for (int k = 0; k < POWERS; k++) OK(gm_layout_norm(r, items, ITEMS, powers[k], &l->norm[r->rank][k]));
    gm_tensor *first = items[0].block; /* whole on every rank, or a term: then the NaN is in the sum of all */
    if (r->rank == l->nan_on) ((double *)gm_tensor_data(first))[0] = NAN;
    for (int k = 0; k < POWERS; k++) OK(gm_layout_norm(r, items, ITEMS, powers[k], &l->with_nan[r->rank][k]));
    for (int i = 0; i < ITEMS; i++) gm_tensor_release(items[i].block);
}

static double serial(const lists *l, double p)
{
    double total = 0;
    for (int i = 0; i < ITEMS; i++) {
        int64_t n = 1;
        for (int d = 0; d < l->ndim[i]; d++) n *= l->shape[i][d];
        for (int64_t e = 0; e < n; e++) {
            double x = fabs(whole_number(l->which + (uint64_t)i, e));
            if (isinf(p)) total = x > total ? x : total;
            else total += p == 1 ? x : p == 2 ? x * x : x * x * x;
        }
    }
    return isinf(p) || p == 1 ? total : p == 2 ? sqrt(total) : pow(total, 1 / p);
}

void gm_test_redistribute_norms(void **state)
{
    (void)state;
    unit_random r = {31};
    for (int round = 0; round < 25; round++) {
        gm_mesh mesh = draw_mesh(&r);
        lists   l = {.which = 50000 + 100 * (uint64_t)round};
        int     world = gm_mesh_size(&mesh);
        for (int i = 0; i < ITEMS; i++) {
            l.ndim[i] = 1 + (int)unit_below(&r, MOST_DIMS);
            for (int d = 0; d < l.ndim[i]; d++) l.shape[i][d] = 1 + unit_below(&r, 11);
            l.layout[i] = draw_layout_of(&r, &mesh, l.ndim[i], i % 2);
        }
        l.layout[0] = gm_layout_cut(0, (1u << mesh.n_axes) - 1);
        l.shape[0][0] = world;
        l.nan_on = (int)unit_below(&r, world);
        run_ranks(&mesh, measure, &l);
        for (int k = 0; k < POWERS; k++)
            for (int rank = 0; rank < world; rank++) {
                if (l.norm[rank][k] != serial(&l, powers[k]))
                    fail_msg("%g-norm on rank %d of %d: %.17g, not %.17g", powers[k], rank, world, l.norm[rank][k],
                             serial(&l, powers[k]));
                assert_true(isnan(l.with_nan[rank][k]));
            }
    }
}

static void refusals(gm_rank *r, void *context)
{
    (void)context;
    double       norm = 7;
    gm_norm_item item = {.layout = gm_layout_replicated()};
    int64_t      n = 600000; /* more than one piece */
    OK(gm_layout_norm(r, NULL, 0, 2, &norm));
    assert_true(norm == 0);
    OK(gm_tensor_new(r->device, GM_F32, 1, &n, &item.block));
    for (int64_t i = 0; i < n; i++) ((float *)gm_tensor_data(item.block))[i] = i % 2 ? -0.5f : 0.5f;
    OK(gm_layout_norm(r, &item, 1, 1, &norm));
    assert_true(norm == 300000);
    OK(gm_layout_norm(r, &item, 1, 2, &norm));
    assert_true(norm == sqrt(150000));
    OK(gm_layout_norm(r, &item, 1, INFINITY, &norm));
    assert_true(norm == 0.5);
    FAILS(GM_EINVAL, "p is 0; it should be above 0", gm_layout_norm(r, &item, 1, 0, &norm));
    FAILS(GM_EINVAL, "p is nan", gm_layout_norm(r, &item, 1, NAN, &norm));
    gm_tensor_release(item.block);
}

void gm_test_redistribute_norm_pieces(void **state)
{
    (void)state;
    run_world(1, refusals, NULL);
}
