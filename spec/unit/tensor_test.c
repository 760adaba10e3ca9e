/* tensor_test.c - views against brute force: beside each view goes the plain list of the storage elements
 * that it should show, in row-major order, made from the parent's list by index arithmetic alone. */
#include <stdlib.h>

#include "unit.h"

#define MOST 4096

typedef struct model {
    int     ndim;
    int64_t shape[GM_MAX_DIMS], n, element[MOST];
} model;

static void coordinates(int ndim, const int64_t *shape, int64_t i, int64_t *at)
{
    for (int d = ndim - 1; d >= 0; d--) {
        at[d] = i % shape[d];
        i /= shape[d];
    }
}

static int64_t position(int ndim, const int64_t *shape, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < ndim; d++) i = i * shape[d] + at[d];
    return i;
}

static int64_t count(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    return n;
}

static void check(const gm_tensor *t, const model *m)
{
    int64_t at[GM_MAX_DIMS];
    assert_int_equal(t->ndim, m->ndim);
    assert_memory_equal(t->shape, m->shape, (size_t)m->ndim * sizeof *m->shape);
    assert_int_equal(gm_tensor_numel(t), m->n);
    for (int64_t i = 0; i < m->n; i++) {
        int64_t offset = t->offset;
        coordinates(m->ndim, m->shape, i, at);
        for (int d = 0; d < m->ndim; d++) offset += at[d] * t->stride[d];
        assert_int_equal(offset, m->element[i]);
    }
}

/* child.element[i] = parent's element at the coordinates that `map` makes of i's coordinates. */
typedef struct step {
    int     kind, dim, order[GM_MAX_DIMS], lead;
    int64_t start;
} step;
enum { PERMUTE, NARROW, SELECT, EXPAND };

static void derive(const model *parent, const step *s, model *child)
{
    int64_t at[GM_MAX_DIMS], from[GM_MAX_DIMS];
    child->n = count(child->ndim, child->shape);
    for (int64_t i = 0; i < child->n; i++) {
        coordinates(child->ndim, child->shape, i, at);
        for (int d = 0; d < parent->ndim; d++) {
            if (s->kind == PERMUTE)
                for (int k = 0; k < parent->ndim; k++) from[s->order[k]] = at[k];
            if (s->kind == NARROW) from[d] = at[d] + (d == s->dim ? s->start : 0);
            if (s->kind == SELECT) from[d] = d == s->dim ? s->start : at[d - (d > s->dim)];
            if (s->kind == EXPAND) from[d] = parent->shape[d] == 1 ? 0 : at[s->lead + d];
        }
        child->element[i] = parent->element[position(parent->ndim, parent->shape, from)];
    }
}

/* One random view of t into *next and its model into *child; false if it would not fit the test. */
static bool random_view(unit_random *r, gm_tensor *t, const model *m, gm_tensor **next, model *child)
{
    step s = {.kind = (int)unit_below(r, 4), .dim = m->ndim ? (int)unit_below(r, m->ndim) : 0};
    if ((s.kind == NARROW || s.kind == SELECT) && (!m->ndim || !m->shape[s.dim])) return false;
    child->ndim = m->ndim;
    memcpy(child->shape, m->shape, sizeof m->shape);
    if (s.kind == PERMUTE) {
        for (int d = 0; d < m->ndim; d++) s.order[d] = d;
        for (int d = m->ndim - 1; d > 0; d--) {
            int k = (int)unit_below(r, d + 1), o = s.order[d];
            s.order[d] = s.order[k];
            s.order[k] = o;
        }
        for (int d = 0; d < m->ndim; d++) child->shape[d] = m->shape[s.order[d]];
        OK(gm_tensor_permute(t, s.order, next));
    } else if (s.kind == NARROW) {
        s.start = unit_below(r, m->shape[s.dim]);
        child->shape[s.dim] = unit_below(r, m->shape[s.dim] - s.start + 1);
        OK(gm_tensor_narrow(t, s.dim, s.start, child->shape[s.dim], next));
    } else if (s.kind == SELECT) {
        s.start = unit_below(r, m->shape[s.dim]);
        child->ndim--;
        for (int d = s.dim; d < child->ndim; d++) child->shape[d] = m->shape[d + 1];
        OK(gm_tensor_select(t, s.dim, s.start, next));
    } else {
        s.lead = m->ndim < 5 ? (int)unit_below(r, 2) : 0;
        child->ndim = m->ndim + s.lead;
        for (int d = 0; d < s.lead; d++) child->shape[d] = 1 + unit_below(r, 3);
        for (int d = 0; d < m->ndim; d++)
            child->shape[d + s.lead] = m->shape[d] == 1 ? 1 + unit_below(r, 3) : m->shape[d];
        if (count(child->ndim, child->shape) > MOST) return false;
        OK(gm_tensor_expand(t, child->ndim, child->shape, next));
    }
    derive(m, &s, child);
    return true;
}

static gm_tensor *random_tensor(unit_random *r, gm_device *dev, model *m)
{
    gm_tensor *t = NULL;
    m->ndim = (int)unit_below(r, 5);
    for (int d = 0; d < m->ndim; d++) m->shape[d] = unit_below(r, 20) == 0 ? 0 : 1 + unit_below(r, 4);
    m->n = count(m->ndim, m->shape);
    for (int64_t i = 0; i < m->n; i++) m->element[i] = i;
    OK(gm_tensor_new(dev, GM_F32, m->ndim, m->shape, &t));
    return t;
}

static gm_device *new_device(void)
{
    gm_device *dev = NULL;
    OK(gm_device_new("ref", 1, &dev));
    return dev;
}

static void free_device(gm_device *dev)
{
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    gm_device_free(dev);
}

void gm_test_tensor_life(void **state)
{
    (void)state;
    gm_device *dev = new_device();
    gm_tensor *t = NULL, *v = NULL;
    OK(gm_tensor_new(dev, GM_F64, SHAPE(3, 5), &t));
    assert_int_equal(gm_pool_stats(dev->pool).live, 120);
    OK(gm_tensor_select(t, 0, 1, &v));
    assert_true((char *)gm_tensor_data(v) == (char *)gm_tensor_data(t) + 40);
    gm_tensor_retain(t);
    gm_tensor_release(t);
    gm_tensor_release(t); /* the view keeps the bytes */
    assert_int_equal(gm_pool_stats(dev->pool).live, 120);
    ((double *)gm_tensor_data(v))[4] = 1;
    gm_tensor_release(v);
    gm_tensor_release(NULL);
    free_device(dev);
}

void gm_test_tensor_views(void **state)
{
    (void)state;
    gm_device   *dev = new_device();
    unit_random  r = {7};
    static model m[2];
    for (int round = 0; round < 3000; round++) {
        gm_tensor *t = random_tensor(&r, dev, &m[0]);
        for (int depth = 0; depth < 4; depth++) {
            gm_tensor *next = NULL;
            if (!random_view(&r, t, &m[0], &next, &m[1])) continue;
            check(next, &m[1]);
            gm_tensor_release(t);
            t = next;
            m[0] = m[1];
        }
        gm_tensor_release(t);
    }
    free_device(dev);
}

/* Whether some strides show the list under another shape: each stride follows from the element one step
 * along its dimension; all others must agree. */
static bool showable(const model *m, int ndim, const int64_t *shape)
{
    int64_t stride[GM_MAX_DIMS], at[GM_MAX_DIMS], step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = shape[d] > 1 ? m->element[step] - m->element[0] : 0;
        if (stride[d] < 0) return false;
        step *= shape[d];
    }
    for (int64_t i = 0; i < m->n; i++) {
        int64_t element = m->element[0];
        coordinates(ndim, shape, i, at);
        for (int d = 0; d < ndim; d++) element += at[d] * stride[d];
        if (element != m->element[i]) return false;
    }
    return true;
}

/* A random shape with n elements. */
static int random_shape(unit_random *r, int64_t n, int64_t *shape)
{
    int ndim = 0;
    while (ndim < 6 && (n > 1 || unit_below(r, 3) == 0)) {
        int64_t f = unit_below(r, 4) == 0 ? 1 : 2 + unit_below(r, 5);
        if (n % f) continue;
        shape[ndim++] = f;
        n /= f;
    }
    if (n != 1) shape[ndim++] = n;
    for (int d = ndim - 1; d > 0; d--) {
        int     k = (int)unit_below(r, d + 1);
        int64_t s = shape[d];
        shape[d] = shape[k];
        shape[k] = s;
    }
    return ndim;
}

void gm_test_tensor_reshape(void **state)
{
    (void)state;
    gm_device   *dev = new_device();
    unit_random  r = {11};
    static model m[2];
    int          yes = 0, no = 0;
    for (int round = 0; round < 20000; round++) {
        gm_tensor *t = random_tensor(&r, dev, &m[0]), *next = NULL;
        for (int depth = 0; depth < 3; depth++) {
            next = NULL;
            if (!random_view(&r, t, &m[0], &next, &m[1])) continue;
            gm_tensor_release(t);
            t = next;
            m[0] = m[1];
        }
        if (m[0].n > 0) {
            m[1] = m[0];
            m[1].ndim = random_shape(&r, m[0].n, m[1].shape);
            bool want = showable(&m[0], m[1].ndim, m[1].shape);
            *(want ? &yes : &no) += 1;
            assert_int_equal(gm_tensor_can_reshape(t, m[1].ndim, m[1].shape), want);
            next = NULL;
            assert_int_equal(gm_tensor_reshape(t, m[1].ndim, m[1].shape, &next), want ? GM_OK : GM_ESHAPE);
            if (want) check(next, &m[1]);
            gm_tensor_release(next);
        }
        gm_tensor_release(t);
    }
    assert_true(yes > 2000 && no > 500); /* both answers were tried */
    free_device(dev);
}

void gm_test_tensor_contiguous(void **state)
{
    (void)state;
    gm_device   *dev = new_device();
    unit_random  r = {13};
    static model m[2];
    int          yes = 0, no = 0;
    for (int round = 0; round < 5000; round++) {
        gm_tensor *t = random_tensor(&r, dev, &m[0]), *next = NULL;
        if (random_view(&r, t, &m[0], &next, &m[1])) {
            bool want = true;
            for (int64_t i = 0; i < m[1].n; i++) want = want && m[1].element[i] == m[1].element[0] + i;
            *(want ? &yes : &no) += 1;
            assert_int_equal(gm_tensor_is_contiguous(next), want);
        }
        gm_tensor_release(next);
        gm_tensor_release(t);
    }
    assert_true(yes > 500 && no > 500);
    free_device(dev);
}

void gm_test_tensor_refusals(void **state)
{
    (void)state;
    gm_device *dev = new_device();
    gm_tensor *t = NULL, *v = NULL;
    char       small[8];
    OK(gm_tensor_new(dev, GM_F32, SHAPE(2, 3), &t));
    FAILS(GM_ESHAPE, "not negative", gm_tensor_new(dev, GM_F32, SHAPE(2, -1), &v));
    FAILS(GM_ESHAPE, "2^47", gm_tensor_new(dev, GM_U8, SHAPE((int64_t)1 << 47, 2), &v));
    FAILS(GM_ESHAPE, "2^47", gm_tensor_new(dev, GM_U8, SHAPE(0, (int64_t)1 << 40, (int64_t)1 << 40), &v));
    FAILS(GM_ESHAPE, "9 dimensions", gm_tensor_new(dev, GM_U8, SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1), &v));
    FAILS(GM_ESHAPE, "past the end", gm_tensor_view(t, SHAPE(2, 3), (int64_t[]){3, 1}, 1, &v));
    FAILS(GM_ESHAPE, "past the end", gm_tensor_view(t, SHAPE(3), (int64_t[]){INT64_MAX / 2 + 1}, 0, &v));
    FAILS(GM_EINVAL, "not negative", gm_tensor_view(t, SHAPE(2), (int64_t[]){-1}, 1, &v));
    FAILS(GM_ESHAPE, "f32 (2, 3) has 6 elements, (4, 2) would have 8", gm_tensor_reshape(t, SHAPE(4, 2), &v));
    FAILS(GM_ESHAPE, "each of the 2 dimensions once", gm_tensor_permute(t, (int[]){0, 0}, &v));
    FAILS(GM_ESHAPE, "3 elements from 2 of dimension 2, which has 3", gm_tensor_narrow(t, 1, 1, 3, &v));
    FAILS(GM_ESHAPE, "narrow", gm_tensor_narrow(t, 1, INT64_MAX, INT64_MAX, &v));
    FAILS(GM_ESHAPE, "dimension 3 of a tensor with 2", gm_tensor_select(t, 2, 0, &v));
    FAILS(GM_ESHAPE, "index 4 of dimension 2, which has 3", gm_tensor_select(t, 1, 3, &v));
    FAILS(GM_ESHAPE, "does not broadcast", gm_tensor_expand(t, SHAPE(2, 4), &v));
    FAILS(GM_ESHAPE, "does not broadcast", gm_tensor_expand(t, SHAPE(3), &v));
    assert_null(v);
    OK(gm_tensor_view(t, SHAPE(2, 2), (int64_t[]){3, 2}, 0, &v));
    assert_string_equal(gm_tensor_describe(v, (char[40]){0}, 40), "f32 (2, 2)");
    assert_string_equal(gm_tensor_describe(v, small, sizeof small), "f32 (2,");
    gm_tensor_release(v);
    gm_tensor_release(t);
    free_device(dev);
}
