/* sharded_summa_test.c - the three products of summa.h on random sizes, blocks stored either way, against their
 * definitions; what blocks are padded with is NaN: none of it may be read. And layouts that no product takes;
 * a rank that never comes. */
#include <stdlib.h>

#include "../../host/life.h"
#include "../../host/parallel/sharded/sharded.h"
#include "../../host/parallel/sharded/summa.h"
#include "calls.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

/* Between -1 and 1: element i of matrix `which`. */
static double number(uint64_t which, int64_t i) { return whole_number(which, i) / 1000; }

enum { AB, ABT, ATB };

typedef struct identity {
    int     form, q;
    bool    ta, tb;
    int64_t m, k, n; /* of the whole product; each cut in q */
    double *out[9];
} identity;

static int64_t up(int64_t n, int q) { return (n + q - 1) / q; }

/* Block (i, j) of an (rows, columns) matrix `which`, stored as it is or transposed; NaN around it. */
static gm_tensor *matrix(gm_rank *r, uint64_t which, int64_t rows, int64_t columns, int q, bool transposed)
{
    int64_t    a = up(rows, q), b = up(columns, q), shape[2] = {transposed ? b : a, transposed ? a : b};
    gm_tensor *t = NULL;
    OK(gm_tensor_new(r->device, GM_F64, 2, shape, &t));
    for (int64_t i = 0; i < a; i++)
        for (int64_t k = 0; k < b; k++) {
            int64_t row = r->coordinate[0] * a + i, column = r->coordinate[1] * b + k;
            bool    inside = row < rows && column < columns;
            double  x = inside ? number(which, row * columns + column) : NAN;
            ((double *)gm_tensor_data(t))[transposed ? k * a + i : i * b + k] = x;
        }
    return t;
}

static gm_span own(int64_t n, int q, int at)
{
    int64_t size = up(n, q), left = n - at * size;
    return (gm_span){left < 0 ? 0 : left < size ? left : size, 0};
}

static void run_identity(gm_rank *r, void *context)
{
    identity  *id = context;
    int        q = id->q, row = r->coordinate[0], col = r->coordinate[1];
    bool       ab = id->form == AB, atb = id->form == ATB;
    gm_group  *along_row = NULL, *along_column = NULL;
    gm_tensor *out = NULL;
    OK(gm_comm_group(r->comm, 2, &along_row));
    OK(gm_comm_group(r->comm, 1, &along_column));
    gm_work  work;
    gm_summa s = {.work = &work, .steps = q};
    int64_t  shape[2] = {up(id->m, q), up(id->n, q)};
    OK(gm_tensor_new(r->device, GM_F64, 2, shape, &out));
    s.out = out;
    s.a.block = atb ? matrix(r, 1, id->k, id->m, q, id->ta) : matrix(r, 1, id->m, id->k, q, id->ta);
    s.b.block = id->form == ABT ? matrix(r, 2, id->n, id->k, q, id->tb) : matrix(r, 2, id->k, id->n, q, id->tb);
    s.a.transposed = id->ta != atb;
    s.b.transposed = id->tb != (id->form == ABT);
    s.a.along = id->form == ABT ? NULL : along_row;
    s.b.along = atb ? NULL : along_column;
    s.sum = ab ? NULL : atb ? along_column : along_row;
    s.m = atb ? (gm_span){id->m, shape[0]} : own(id->m, q, row);
    s.n = id->form == ABT ? (gm_span){id->n, shape[1]} : own(id->n, q, col);
    s.k = ab ? (gm_span){id->k, up(id->k, q)} : own(id->k, q, atb ? row : col);
    gm_work_begin(&work, r, "linear");
    gm_summa_run(&s);
    OK(gm_work_end(&work));
    id->out[r->rank] = malloc((size_t)gm_tensor_numel(out) * sizeof(double));
    assert_true(id->out[r->rank] != NULL);
    memcpy(id->out[r->rank], gm_tensor_data(out), (size_t)gm_tensor_numel(out) * sizeof(double));
    gm_tensor_release(s.a.block);
    gm_tensor_release(s.b.block);
    gm_tensor_release(out);
}

static double element(const identity *id, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < id->k; k++)
        sum += number(1, id->form == ATB ? k * id->m + i : i * id->k + k) *
               number(2, id->form == ABT ? j * id->k + k : k * id->n + j);
    return sum;
}

void gm_test_sharded_linear_summa(void **state)
{
    (void)state;
    unit_random random = {77};
    for (int round = 0; round < 36; round++) {
        identity id = {.form = round % 3, .q = 2 + round / 3 % 2, .ta = round & 4, .tb = round & 8};
        id.m = 1 + unit_below(&random, 11);
        id.k = 1 + unit_below(&random, 11);
        id.n = 1 + unit_below(&random, 11);
        gm_mesh mesh = mesh_of("row", id.q, "col", id.q, NULL, 1);
        int64_t a = up(id.m, id.q), b = up(id.n, id.q);
        run_ranks(&mesh, run_identity, &id);
        for (int64_t i = 0; i < id.q * a; i++)
            for (int64_t j = 0; j < id.q * b; j++) {
                double have = id.out[i / a * id.q + j / b][i % a * b + j % b];
                bool   inside = i < id.m && j < id.n;
                /* at most 11 products of numbers below 1 */
                if (!(fabs(have - (inside ? element(&id, i, j) : 0)) <= (inside ? 1e-14 : 0)))
                    fail_msg("form %d, q %d: element (%d, %d) is %g", id.form, id.q, (int)i, (int)j, have);
            }
        for (int i = 0; i < id.q * id.q; i++) free(id.out[i]);
    }
}

static gm_value *of_layout(gm_rank *r, const gm_layout *l, int ndim, const int64_t *shape)
{
    gm_value *v = NULL;
    OK(gm_value_new_block(r, "test", GM_F32, l, ndim, shape, &v));
    return v;
}

static void expect_refusal(const gm_mesh *mesh, const gm_layout *x, const gm_layout *w, const int64_t *wide,
                           const char *text)
{
    gm_rank *r = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, 0, gm_mesh_size(mesh)));
    OK(gm_rank_set_mesh(r, mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    gm_value *xv = of_layout(r, x, 2, (int64_t[]){8, wide[1]}), *wv = of_layout(r, w, 2, wide), *y = NULL;
    FAILS(GM_ESHAPE, text, call_linear(r, xv, wv, NULL, GM_FN_none, &y));
    gm_value_release(wv);
    gm_value_release(xv);
    gm_rank_free(r);
}

void gm_test_sharded_linear_refuses(void **state)
{
    (void)state;
    gm_mesh   oblong = mesh_of("row", 2, "col", 3, NULL, 1), square = mesh_of("row", 2, "col", 2, NULL, 1);
    gm_layout x = {.n_cuts = {1, 1}, .cut = {{0}, {1}}}, w = {.n_cuts = {1, 1}, .cut = {{1}, {0}}}, other;
    int64_t   wide[2] = {12, 12};
    expect_refusal(&oblong, &x, &w, wide,
                   "axes of different size: x is f32 (8, 12) cut (row, col), w f32 (12, 12) cut");
    other = x;
    other.unit[1] = 4; /* blocks of 8 and 4 columns */
    expect_refusal(&square, &other, &w, wide, "blocks of different size: x is f32 (8, 12) cut (row, col by 4)");
    other = gm_layout_cut(0, 2);
    expect_refusal(&square, &x, &other, wide, "cut"); /* w uncut along I, its O by col: both cuts are col */
}

/* ---- a rank that never comes ---- */

/* Rank 3 fails; those of its row and column need its blocks and end with its failure, blocks under way and all. Rank 0
 * needs nothing of it and may have ended before it hears. */
static void without_one(gm_rank *r, void *context)
{
    gm_layout x = {.n_cuts = {1, 1}, .cut = {{0}, {1}}}, w = {.n_cuts = {1, 1}, .cut = {{1}, {0}}};
    gm_value *xv = of_layout(r, &x, 2, (int64_t[]){300, 40}), *wv = of_layout(r, &w, 2, (int64_t[]){30, 40}), *y = NULL;
    (void)context;
    if (r->rank == 3) {
        gm_comm_fail(r->comm, 5, "out of luck");
    } else {
        gm_status st = call_linear(r, xv, wv, NULL, GM_FN_none, &y);
        assert_true(st == GM_EPEER || (r->rank == 0 && st == GM_OK));
        if (r->rank) assert_int_equal(gm_comm_failure(r->comm)->rank, 3);
    }
    gm_value_release(y);
    gm_value_release(wv);
    gm_value_release(xv);
}

void gm_test_sharded_linear_peer_fails(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("row", 2, "col", 2, NULL, 1);
    run_ranks(&mesh, without_one, NULL);
}
