/* rules_test.c - layouts of reshapes against the elements themselves, on every rank of random meshes. Nothing is sent:
 * a rank is a coordinate. */
#include <stdio.h>
#include "../../host/autograd/layout_rules/rules.h"
#include "unit.h"

#define MOST 4096 /* elements of a block */

/* The numbers of the elements of a block, row by row; -1 for padding. */
static int64_t numbers_of(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, int64_t *numbers)
{
    gm_box  box;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS], n = 1;
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &box, local, logical);
    for (int d = 0; d < ndim; d++) n *= local[d];
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, step = 1, number = 0;
        bool    inside = true;
        for (int d = ndim - 1; d >= 0; d--) {
            int64_t at = rest % local[d];
            inside = inside && at < logical[d];
            number += (box.offset[d] + at) * step;
            step *= shape[d];
            rest /= local[d];
        }
        numbers[i] = inside ? number : -1;
    }
    return n;
}

/* A list of factors, put together to a random shape of the same number of elements. */
static int group(unit_random *random, int n, const int64_t *factors, int64_t *shape)
{
    int ndim = 0;
    shape[0] = 1;
    for (int i = 0; i < n; i++) {
        shape[ndim] *= factors[i];
        if (unit_below(random, 2) && ndim < 5) shape[++ndim] = 1; /* some dimensions of one element, too */
    }
    return ndim + 1;
}

/* A random cut of one or two dimensions by the axes of a mesh. */
static gm_layout random_cut(unit_random *random, const gm_mesh *mesh, int ndim)
{
    gm_layout l = gm_layout_replicated();
    for (int a = 0; a < mesh->n_axes; a++) {
        int d = (int)unit_below(random, ndim + 1) - 1;
        if (unit_below(random, 3)) d = 0; /* mostly rows */
        if (d >= 0) l.cut[d][l.n_cuts[d]++] = (uint8_t)a;
    }
    return l;
}

/* On every rank the block of the result holds what the block of x holds, in the same order. */
static void check_blocks(gm_rank *r, const gm_value *x, const gm_layout *layout, int ndim, const int64_t *shape)
{
    int64_t before[MOST], after[MOST];
    for (int rank = 0; rank < gm_mesh_size(&r->mesh); rank++) {
        gm_mesh_coordinates(&r->mesh, rank, r->coordinate);
        int64_t n = numbers_of(r, &x->layout, x->ndim, x->shape, before);
        assert_int_equal(n, numbers_of(r, layout, ndim, shape, after));
        assert_memory_equal(before, after, (size_t)n * sizeof *before);
    }
}

void gm_test_rules_reshape(void **state)
{
    unit_random random = {11};
    int         taken = 0, cut = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        gm_rank   r = {.mesh = gm_mesh_of_one()};
        gm_tensor header = {.dtype = GM_F32};
        gm_value  x = {.rank = &r, .local = &header};
        int64_t   factors[6], shape[GM_MAX_DIMS];
        int       n = 1 + (int)unit_below(&random, 4);
        OK(gm_mesh_add_axis(&r.mesh, "a", 2 + (int)unit_below(&random, 3)));
        if (unit_below(&random, 2)) OK(gm_mesh_add_axis(&r.mesh, "b", 2 + (int)unit_below(&random, 2)));
        for (int i = 0; i < n; i++) factors[i] = 1 + unit_below(&random, 7);
        x.ndim = group(&random, n, factors, x.shape);
        int       ndim = group(&random, n, factors, shape);
        gm_layout layout;
        x.layout = random_cut(&random, &r.mesh, x.ndim);
        if (gm_layout_reshape(&x, ndim, shape, &layout) != GM_OK) continue;
        OK(gm_layout_check(&r.mesh, &layout, ndim));
        assert_int_equal(gm_layout_cut_axes(&layout), gm_layout_cut_axes(&x.layout));
        check_blocks(&r, &x, &layout, ndim, shape);
        taken++;
        cut += gm_layout_cut_axes(&layout) != 0;
        gm_value  y = x; /* and back again, unless dimensions of one element were cut */
        gm_layout back;
        y.layout = layout;
        y.ndim = ndim;
        memcpy(y.shape, shape, sizeof shape);
        if (gm_layout_reshape(&y, x.ndim, x.shape, &back) == GM_OK) check_blocks(&r, &y, &back, x.ndim, x.shape);
    }
    assert_true(taken > 1000 && cut > 500); /* most are legal: what is refused is cut inside of a group */
}

/* gm_layout_gradient: an axis a, all states of an input and an output. */
void gm_test_rules_gradient(void **state)
{
    gm_layout whole = gm_layout_replicated(), cut = gm_layout_cut(0, 1), partial = {.partial = 1};
    (void)state;
    assert_int_equal(gm_layout_gradient(&whole, &whole, 0), 0);   /* all ranks do the same */
    assert_int_equal(gm_layout_gradient(&whole, &whole, 1), 1);   /* linear in the gradient */
    assert_int_equal(gm_layout_gradient(&whole, &cut, 0), 1);     /* each rank saw its rows */
    assert_int_equal(gm_layout_gradient(&whole, &partial, 0), 1); /* each rank made a term */
    assert_int_equal(gm_layout_gradient(&cut, &cut, 0), 0);
    assert_int_equal(gm_layout_gradient(&cut, &partial, 0), 0); /* a sum over rows */
    assert_int_equal(gm_layout_gradient(&partial, &partial, 0), 0);
    assert_int_equal(gm_layout_gradient(&whole, &whole, 6), 6);
}
