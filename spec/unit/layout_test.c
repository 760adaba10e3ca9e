/* layout_test.c - meshes and layouts against brute force: what each rank holds, counted element by element. */
#include "../../host/parallel/layout.h"
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
