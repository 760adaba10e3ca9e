/* muon_plan_test.c - plans of Muon against brute force: each element of each parameter lies in exactly one matrix, the
 * pieces of a block are what lies in both, owners hold a part of what they own, and no rank has much more work than
 * another. */
#include "../../host/optim/muon_plan.h"
#include "unit.h"

#define PARAMETERS 5

/* On data 2, expert 2, row 3: plain, cut by rows, cut further as ZeRO does, a stack of experts, and rows shared out. */
static void shapes_on(const gm_mesh *m, gm_muon_shape *s)
{
    uint32_t  data = gm_mesh_mask(m, "data"), expert = gm_mesh_mask(m, "expert"), row = gm_mesh_mask(m, "row");
    gm_layout rows = gm_layout_cut(0, row), further;
    int64_t   wide[] = {10, 7};
    gm_layout_divide(m, &rows, 2, wide, data | expert, &further);
    s[0] = (gm_muon_shape){.ndim = 2, .shape = {6, 9}, .dtype = GM_F32};
    s[1] = (gm_muon_shape){.layout = rows, .ndim = 2, .shape = {10, 7}, .dtype = GM_F32};
    s[2] = (gm_muon_shape){.layout = further, .ndim = 2, .shape = {10, 7}, .dtype = GM_F64};
    s[3] = (gm_muon_shape){.layout = gm_layout_cut(0, expert), .ndim = 3, .shape = {3, 5, 4}, .dtype = GM_F32};
    s[4] = (gm_muon_shape){
        .layout = rows, .ndim = 2, .shape = {12, 4}, .dtype = GM_F32, .n_parts = 3, .part = {2, 1, 1}};
    gm_layout_copy_dim(&s[3].layout, 2, &rows, 0);
}

static bool has_row(const gm_muon_matrix *m, int64_t slice, int64_t row)
{
    int64_t i = (row - m->first) / m->step, rest = (row - m->first) % m->step;
    return slice == m->slice && row >= m->first && i < m->count && rest < m->length;
}

/* The pieces of a matrix in a rank's block, beside the rows of the block one by one. */
static void check_pieces(const gm_muon_plan *p, const gm_muon_matrix *m, int rank)
{
    gm_muon_block b = gm_muon_block_of(p, m, rank);
    gm_muon_piece piece = {0};
    int64_t       want = 0, have = 0;
    for (int64_t slice = b.slice[0]; slice < b.slice[1]; slice++)
        for (int64_t row = b.row[0]; row < b.row[1]; row++) want += has_row(m, slice, row);
    while (gm_muon_next(m, &b, &piece)) {
        for (int64_t i = 0; i < piece.n; i++) {
            int64_t k = piece.at + i; /* of the matrix: row k % length of group k / length */
            assert_int_equal(piece.row + i, m->first + k / m->length * m->step + k % m->length);
            assert_true(has_row(m, m->slice, piece.row + i));
        }
        have += piece.n;
    }
    if (b.col[0] == b.col[1]) want = 0;
    assert_int_equal(have, want);
    assert_int_equal(gm_muon_elements(m, &b), want * (b.col[1] - b.col[0]));
}

/* How many matrices have a row of a parameter. */
static int count_owners(const gm_muon_plan *p, int parameter, int64_t slice, int64_t row)
{
    int n = 0;
    for (int s = 0; s < p->n_sets; s++)
        for (int k = 0; k < p->set[s].n; k++)
            if (p->set[s].matrix[k].parameter == parameter) n += has_row(&p->set[s].matrix[k], slice, row);
    return n;
}

void gm_test_muon_plan_parts(void **state)
{
    (void)state;
    gm_mesh       m = gm_mesh_of_one();
    gm_muon_shape shape[PARAMETERS];
    gm_muon_plan *p, *other;
    OK(gm_mesh_add_axis(&m, "data", 2));
    OK(gm_mesh_add_axis(&m, "expert", 2));
    OK(gm_mesh_add_axis(&m, "row", 3));
    shapes_on(&m, shape);
    OK(gm_muon_plan_new(&m, 0, shape, PARAMETERS, &p));
    OK(gm_muon_plan_new(&m, 11, shape, PARAMETERS, &other));
    for (int i = 0; i < PARAMETERS; i++)
        for (int64_t slice = 0; slice < (shape[i].ndim == 3 ? 3 : 1); slice++)
            for (int64_t row = 0; row < shape[i].shape[shape[i].ndim - 2]; row++)
                assert_int_equal(count_owners(p, i, slice, row), 1);
    for (int s = 0; s < p->n_sets; s++)
        for (int k = 0; k < p->set[s].n; k++) {
            const gm_muon_matrix *x = &p->set[s].matrix[k];
            gm_muon_block         b = gm_muon_block_of(p, x, x->owner);
            assert_int_equal(x->owner, other->set[s].matrix[k].owner); /* as every rank sees it */
            assert_true(gm_muon_elements(x, &b) > 0);
            assert_int_equal(p->set[s].cut & p->set[s].copies, 0);
            for (int rank = 0; rank < 12; rank++) check_pieces(p, x, rank);
        }
    gm_muon_plan_free(p);
    gm_muon_plan_free(other);
}

/* Equal matrices, as many as two for each rank of a stage, are two for each; and stages have plans of their own. */
void gm_test_muon_plan_owners(void **state)
{
    (void)state;
    gm_mesh       m = gm_mesh_of_one();
    gm_muon_shape shape[8];
    gm_muon_plan *p;
    int           owned[8] = {0};
    OK(gm_mesh_add_axis(&m, "data", 2));
    OK(gm_mesh_add_axis(&m, "pipeline", 2));
    OK(gm_mesh_add_axis(&m, "row", 2));
    for (int i = 0; i < 8; i++) {
        shape[i] = (gm_muon_shape){.ndim = 2, .shape = {6, 8}, .dtype = GM_F32};
        if (i % 2) shape[i].layout = gm_layout_cut(0, gm_mesh_mask(&m, "row"));
    }
    OK(gm_muon_plan_new(&m, 6, shape, 8, &p)); /* data 1, pipeline 1, row 0 */
    assert_int_equal(p->ranks, 4);
    assert_int_equal(p->n_sets, 2);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(gm_muon_round(p, &p->set[s], 0), 4);
        for (int k = 0; k < p->set[s].n; k++) owned[p->set[s].matrix[k].owner]++;
    }
    for (int rank = 0; rank < 8; rank++) assert_int_equal(owned[rank], rank / 2 % 2 ? 2 : 0);
    gm_muon_plan_free(p);
}

void gm_test_muon_plan_refuses(void **state)
{
    (void)state;
    gm_mesh       m = gm_mesh_of_one();
    gm_muon_shape shape = {.ndim = 2, .shape = {10, 7}, .dtype = GM_F32, .n_parts = 2, .part = {2, 2}};
    gm_muon_plan *p;
    FAILS(GM_EINVAL, "10 rows, which cannot be shared out in parts of 4 rows", gm_muon_plan_new(&m, 0, &shape, 1, &p));
    shape.shape[0] = 0; /* nothing to do */
    OK(gm_muon_plan_new(&m, 0, &shape, 1, &p));
    assert_int_equal(p->n_sets, 0);
    gm_muon_plan_free(p);
}
