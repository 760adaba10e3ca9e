/* layout_test.c - meshes and layouts against brute force: what each rank holds, counted element by element. */
#include "../../host/mesh/layout.h"
#include "unit.h"

void gm_test_mesh_coordinates(void **state)
{
    (void)state;
    gm_mesh m = gm_mesh_of_one();
    int     c[GM_MAX_AXES];
    assert_int_equal(gm_mesh_size(&m), 1);
    OK(gm_mesh_add_axis(&m, "data", 2));
    OK(gm_mesh_add_axis(&m, "row", 3));
    OK(gm_mesh_add_axis(&m, "col", 4));
    assert_int_equal(gm_mesh_size(&m), 24);
    for (int rank = 0; rank < 24; rank++) { /* the last axis varies fastest */
        gm_mesh_coordinates(&m, rank, c);
        assert_int_equal(c[0], rank / 12);
        assert_int_equal(c[1], rank / 4 % 3);
        assert_int_equal(c[2], rank % 4);
    }
    FAILS(GM_EINVAL, "there is an axis 'row' already", gm_mesh_add_axis(&m, "row", 2));
    FAILS(GM_EINVAL, "at least 1", gm_mesh_add_axis(&m, "depth", 0));
    FAILS(GM_EINVAL, "too long", gm_mesh_add_axis(&m, "a name of more than sixteen", 2));
}

/* Members of a group, by its definition: the ranks that agree with this one on every axis outside of the set. */
void gm_test_mesh_members(void **state)
{
    (void)state;
    gm_mesh  m = gm_mesh_of_one();
    char     text[64], tight[6];
    unsigned bit[3];
    int      members[24], mine[GM_MAX_AXES], other[GM_MAX_AXES];
    OK(gm_mesh_add_axis(&m, "data", 2));
    OK(gm_mesh_add_axis(&m, "expert", 3));
    OK(gm_mesh_add_axis(&m, "col", 4));
    bit[0] = gm_mesh_mask(&m, "data");
    bit[1] = gm_mesh_mask(&m, "expert");
    bit[2] = gm_mesh_mask(&m, "col");
    assert_int_equal(bit[0] | bit[1] | bit[2], 7);
    assert_int_equal(gm_mesh_mask(&m, "row"), 0);
    assert_int_equal(gm_mesh_axis(&m, "row"), -1);
    assert_int_equal(gm_mesh_batch_axes(&m), bit[0] | bit[1]);
    assert_true(gm_mesh_may_lack("row"));
    assert_false(gm_mesh_may_lack("rows"));
    for (uint32_t axes = 0; axes < 8; axes++)
        for (int rank = 0; rank < 24; rank++) {
            int n = gm_mesh_members(&m, axes, rank, members), want = 0;
            gm_mesh_coordinates(&m, rank, mine);
            assert_int_equal(gm_mesh_rank(&m, mine), rank);
            for (int r = 0; r < 24; r++) {
                bool in = true;
                gm_mesh_coordinates(&m, r, other);
                for (int a = 0; a < 3; a++)
                    if (!(axes & bit[a]) && mine[a] != other[a]) in = false;
                if (!in) continue;
                assert_in_range(want, 0, n - 1);
                assert_int_equal(members[want++], r);
            }
            assert_int_equal(n, want);
        }
    assert_string_equal(gm_mesh_describe(&m, 5, text, sizeof text), "data.col");
    assert_string_equal(gm_mesh_describe(&m, 0, text, sizeof text), "");
    assert_string_equal(gm_mesh_describe(&m, 7, tight, sizeof tight), "data."); /* cut off, never over the end */
}

void gm_test_layout_described_and_checked(void **state)
{
    (void)state;
    gm_mesh   m = gm_mesh_of_one();
    gm_layout l = gm_layout_cut(0, 1), same;
    char      text[100], tight[8];
    int64_t   local[2];
    OK(gm_mesh_add_axis(&m, "data", 2));
    OK(gm_mesh_add_axis(&m, "row", 3));
    OK(gm_mesh_add_axis(&m, "col", 2));
    l.cut[1][0] = 2;
    l.n_cuts[1] = 1;
    same = l;
    same.cut[1][1] = 7; /* beyond n_cuts: means nothing */
    assert_true(gm_layout_equal(&l, &same));
    l.partial = 2;
    assert_false(gm_layout_equal(&l, &same));
    assert_string_equal(gm_layout_describe(&m, &l, 2, text, sizeof text), "(data, col) partial row");
    assert_string_equal(gm_layout_describe(&m, &l, 2, tight, sizeof tight), "(data, ");
    same = gm_layout_cut(1, 6);
    assert_string_equal(gm_layout_describe(&m, &same, 3, text, sizeof text), "(-, row.col, -)");
    assert_int_equal(gm_layout_parts(&m, &same, 1), 6);
    assert_int_equal(gm_layout_cut_axes(&l), 5);
    assert_int_equal(gm_layout_dim_axes(&l, 1), 4);
    assert_true(gm_layout_is_even(&m, &same, 2, (int64_t[]){5, 12}));
    assert_false(gm_layout_is_even(&m, &same, 2, (int64_t[]){6, 8}));
    gm_layout_local(&m, &same, 2, (int64_t[]){5, 7}, local);
    assert_int_equal(local[0], 5);
    assert_int_equal(local[1], 2); /* ceil(ceil(7 / 3) / 2) */
    same = gm_layout_replicated();
    assert_string_equal(gm_layout_describe(&m, &same, 2, text, sizeof text), "replicated");
    OK(gm_layout_check(&m, &l, 2));
    FAILS(GM_EINVAL, "cuts dimension 2 of a tensor with 1", gm_layout_check(&m, &l, 1));
    l.partial = 4;
    FAILS(GM_EINVAL, "axis 'col' is used twice", gm_layout_check(&m, &l, 2));
    l.partial = 8;
    FAILS(GM_EINVAL, "partial over an axis that the mesh does not have", gm_layout_check(&m, &l, 2));
    l.partial = 0;
    l.cut[1][0] = 0;
    FAILS(GM_EINVAL, "axis 'data' is used twice", gm_layout_check(&m, &l, 2));
    l.cut[1][0] = 3;
    FAILS(GM_EINVAL, "cut by an axis that the mesh does not have", gm_layout_check(&m, &l, 2));
}

/* A random mesh of up to three axes, and a layout that cuts random dimensions by some of them. */
static void draw(unit_random *r, gm_mesh *mesh, gm_layout *layout, int ndim)
{
    static const char *const names[] = {"a", "b", "c"};
    *mesh = gm_mesh_of_one();
    *layout = gm_layout_replicated();
    for (int a = 0; a < 3; a++) {
        OK(gm_mesh_add_axis(mesh, names[a], 1 + (int)unit_below(r, 3)));
        int64_t d = unit_below(r, ndim + 1);
        if (d < ndim) layout->cut[d][layout->n_cuts[d]++] = (uint8_t)a;
    }
}

/* Every element is held by exactly (ranks / product of cutting axes) ranks; blocks have one padded shape;
 * what a rank holds begins where its coordinates say. */
void gm_test_layout_blocks_tile(void **state)
{
    (void)state;
    unit_random r = {11};
    for (int round = 0; round < 500; round++) {
        int       ndim = 1 + (int)unit_below(&r, 2);
        int64_t   shape[2] = {1 + unit_below(&r, 11), 1 + unit_below(&r, 11)};
        gm_mesh   mesh;
        gm_layout layout;
        int       held[11][11] = {{0}}, copies, c[GM_MAX_AXES];
        draw(&r, &mesh, &layout, ndim);
        if (ndim == 1) shape[1] = 1;
        copies = gm_mesh_size(&mesh);
        for (int d = 0; d < ndim; d++)
            for (int k = 0; k < layout.n_cuts[d]; k++) copies /= mesh.axis[layout.cut[d][k]].size;
        for (int rank = 0; rank < gm_mesh_size(&mesh); rank++) {
            gm_box  box;
            int64_t local[2], logical[2] = {1, 1}, first[2];
            gm_mesh_coordinates(&mesh, rank, c);
            gm_layout_block(&mesh, &layout, c, ndim, shape, &box, local, logical);
            for (int d = 0; d < ndim; d++) {
                int64_t want = shape[d];
                for (int k = 0; k < layout.n_cuts[d]; k++) {
                    int64_t parts = mesh.axis[layout.cut[d][k]].size;
                    want = want / parts + (want % parts != 0);
                }
                assert_int_equal(local[d], want);
                assert_in_range(logical[d], 0, want);
                assert_int_equal(box.shape[d], shape[d]);
            }
            first[0] = box.offset[0];
            first[1] = ndim == 2 ? box.offset[1] : 0;
            for (int64_t i = 0; i < logical[0]; i++)
                for (int64_t j = 0; j < (ndim == 2 ? logical[1] : 1); j++) held[first[0] + i][first[1] + j]++;
        }
        for (int64_t i = 0; i < shape[0]; i++)
            for (int64_t j = 0; j < shape[1]; j++) assert_int_equal(held[i][j], copies);
    }
}

/* The blocks of the innermost axis, one after the other, are the block of the layout without that axis. */
void gm_test_layout_nests(void **state)
{
    (void)state;
    unit_random r = {12};
    for (int round = 0; round < 500; round++) {
        gm_mesh mesh = gm_mesh_of_one();
        OK(gm_mesh_add_axis(&mesh, "outer", 1 + (int)unit_below(&r, 4)));
        OK(gm_mesh_add_axis(&mesh, "inner", 1 + (int)unit_below(&r, 4)));
        gm_layout both = gm_layout_replicated(), parent;
        both.cut[0][0] = 0;
        both.cut[0][1] = 1;
        both.n_cuts[0] = 1;
        parent = both;
        both.n_cuts[0] = 2;
        assert_false(gm_layout_is_replicated(&both));
        int64_t n = 1 + unit_below(&r, 40), local, logical, whole, whole_logical;
        gm_box  box, outer;
        for (int o = 0; o < mesh.axis[0].size; o++) {
            int64_t at;
            gm_layout_block(&mesh, &parent, (int[]){o, 0}, 1, &n, &outer, &whole, &whole_logical);
            at = outer.offset[0];
            for (int i = 0; i < mesh.axis[1].size; i++) {
                gm_layout_block(&mesh, &both, (int[]){o, i}, 1, &n, &box, &local, &logical);
                assert_int_equal(box.offset[0], at);
                at += logical;
            }
            assert_int_equal(at, outer.offset[0] + whole_logical);
        }
    }
}

/* The rule of gm_layout_divide, written again: the share of each dimension that would be padding. */
static int best_dimension(const gm_mesh *mesh, const gm_layout *from, uint32_t axes, int ndim, const int64_t *shape)
{
    int     best = -1, parts = 1;
    double  least = 0;
    int64_t block[GM_MAX_DIMS];
    for (int a = 0; a < mesh->n_axes; a++)
        if (axes & 1u << a) parts *= mesh->axis[a].size;
    gm_layout_local(mesh, from, ndim, shape, block);
    for (int d = 0; d < ndim; d++) {
        int64_t rows = block[d];
        for (int a = 0; a < mesh->n_axes; a++)
            if (axes & 1u << a) rows = (rows + mesh->axis[a].size - 1) / mesh->axis[a].size;
        double padding = (double)(rows * parts - block[d]) / (double)block[d];
        if (best >= 0 && padding >= least) continue;
        best = d;
        least = padding;
        if (padding <= 1.0 / 64) return d;
    }
    return best;
}

void gm_test_layout_divides(void **state)
{
    (void)state;
    unit_random r = {43};
    gm_mesh     m = gm_mesh_of_one();
    OK(gm_mesh_add_axis(&m, "data", 3));
    OK(gm_mesh_add_axis(&m, "expert", 2));
    OK(gm_mesh_add_axis(&m, "col", 2));
    for (int k = 0; k < 2000; k++) {
        int       ndim = (int)unit_below(&r, 4);
        int64_t   shape[3] = {1 + unit_below(&r, 300), 1 + unit_below(&r, 40), 1 + unit_below(&r, 9)};
        gm_layout from = gm_layout_replicated(), to;
        uint32_t  wish = (uint32_t)unit_below(&r, 4), axes = wish;
        if (ndim && unit_below(&r, 2)) from = gm_layout_cut((int)unit_below(&r, ndim), 4);
        if (ndim && unit_below(&r, 4) == 0) { /* cut by one of them already */
            from = gm_layout_cut((int)unit_below(&r, ndim), 2);
            axes &= ~2u;
        }
        int want = axes ? best_dimension(&m, &from, axes, ndim, shape) : -1;
        int dim = gm_layout_divide(&m, &from, ndim, shape, wish, &to);
        assert_int_equal(dim, want);
        OK(gm_layout_check(&m, &to, ndim));
        assert_int_equal(gm_layout_cut_axes(&to), gm_layout_cut_axes(&from) | (want < 0 ? 0 : axes));
        for (int d = 0; d < ndim; d++)
            assert_int_equal(gm_layout_dim_axes(&to, d), gm_layout_dim_axes(&from, d) | (d == want ? axes : 0));
    }
}
