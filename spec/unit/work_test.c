/* work_test.c - host/autograd/work.h: whose a tensor is, what a failure leaves undone, and what is copied. */
#include "../../host/autograd/work.h"
#include "../../host/life.h"
#include "unit.h"

static gm_rank *open_rank(void)
{
    gm_rank *r = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_open_device(r, "cpu", 1));
    return r;
}

static void close_rank(gm_rank *r)
{
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
    gm_rank_free(r);
}

static uint64_t allocations(const gm_rank *r) { return gm_pool_stats(r->device->pool).allocations; }

void gm_test_work_owns_what_it_makes(void **state)
{
    gm_rank *r = open_rank();
    gm_work  w;
    (void)state;
    gm_work_begin(&w, r, "test");
    gm_tensor *x = gm_work_full(&w, GM_F64, SHAPE(2, 3), 2), *y = gm_work_affine(&w, x, 3, 1);
    gm_tensor *view = gm_work_narrow(&w, y, 0, 0, 1), *kept = gm_work_keep(&w, y);
    assert_ptr_equal(kept, y);
    assert_int_equal(y->storage->refs, 2);
    OK(gm_work_end(&w));
    (void)view;
    assert_int_equal(y->refs, 1);
    assert_int_equal(y->storage->refs, 1);
    assert_true(gm_load(GM_F64, gm_tensor_data(y), 5) == 7);

    gm_work_begin(&w, r, "test"); /* what was only borrowed is kept by a reference of its own */
    assert_ptr_equal(gm_work_keep(&w, gm_work_contiguous(&w, y)), y);
    OK(gm_work_end(&w));
    assert_int_equal(y->refs, 2);
    gm_tensor_release(y);
    gm_tensor_release(y);
    close_rank(r);
}

void gm_test_work_yields_alone(void **state)
{
    gm_rank *r = open_rank();
    gm_work  w;
    (void)state;
    gm_work_begin(&w, r, "test");
    gm_tensor *x = gm_work_full(&w, GM_F32, SHAPE(2, 3), 1), *flat = gm_work_shaped(&w, x, SHAPE(6));
    assert_ptr_equal(gm_work_yield(&w, flat), flat); /* x goes: nobody else has the bytes */
    assert_int_equal(flat->storage->refs, 1);
    gm_tensor *part = gm_work_narrow(&w, flat, 0, 1, 2);
    assert_ptr_equal(gm_work_yield(&w, part), part); /* flat is somebody's, and stays */
    assert_int_equal(flat->refs, 1);
    assert_int_equal(flat->storage->refs, 2);
    gm_tensor *twice = gm_work_share(&w, gm_work_scalar(&w, GM_F32, 1));
    assert_ptr_equal(gm_work_yield(&w, twice), twice); /* once, of two */
    assert_int_equal(twice->refs, 2);
    OK(gm_work_end(&w));
    assert_int_equal(twice->refs, 1);
    gm_tensor_release(twice);
    gm_tensor_release(part);
    gm_tensor_release(flat);
    close_rank(r);
}

void gm_test_work_after_failure(void **state)
{
    gm_rank   *r = open_rank();
    gm_tensor *own = NULL;
    gm_work    w;
    (void)state;
    gm_work_begin(&w, r, "test");
    gm_tensor *x = gm_work_full(&w, GM_F32, SHAPE(2, 3), 1);
    assert_null(gm_work_narrow(&w, x, 0, 1, 2));
    uint64_t before = allocations(r);
    assert_null(gm_work_affine(&w, x, 1, 1));
    assert_null(gm_work_sum_to(&w, NULL, SHAPE(1)));
    assert_null(gm_work_keep(&w, x));
    GM_STEP(&w, GM_FAIL(GM_ENOMEM, "comes too late"));
    OK(gm_tensor_new(r->device, GM_F32, SHAPE(4), &own));
    assert_null(gm_work_hold(&w, own)); /* released */
    assert_int_equal(allocations(r), before + 1);
    FAILS(GM_ESHAPE, "narrow: 2 elements from", gm_work_end(&w));

    gm_work_begin(&w, r, "test"); /* others had a part: a second try would repeat it on this rank alone */
    w.sent = true;
    GM_STEP(&w, GM_FAIL(GM_ENOMEM, "no memory"));
    assert_int_equal(gm_work_end(&w), GM_EINVAL);
    close_rank(r);
}

void gm_test_work_copies_only_where_it_must(void **state)
{
    gm_rank *r = open_rank();
    gm_work  w;
    (void)state;
    gm_work_begin(&w, r, "test");
    gm_tensor *x = gm_work_full(&w, GM_F32, SHAPE(2, 3, 4), 1);
    gm_tensor *turned = gm_work_permute(&w, x, (int[]){1, 0, 2}), *part = gm_work_narrow(&w, x, 2, 0, 2);
    uint64_t   before = allocations(r);
    assert_ptr_equal(gm_work_contiguous(&w, x), x);
    assert_ptr_equal(gm_work_flat(&w, x)->storage, x->storage);
    assert_ptr_equal(gm_work_flat(&w, part)->storage, x->storage);
    assert_ptr_equal(gm_work_sum_to(&w, x, SHAPE(2, 3, 4)), x);
    assert_int_equal(allocations(r), before);
    assert_ptr_not_equal(gm_work_flat(&w, turned)->storage, x->storage);
    assert_true(gm_tensor_is_contiguous(gm_work_compact(&w, part)));
    assert_int_equal(allocations(r), before + 2);
    gm_work_drop(&w, 1); /* all but x */
    assert_int_equal(w.n_held, 1);
    for (int i = 1; i < GM_WORK_HELD; i++) gm_work_narrow(&w, x, 0, 0, 1);
    assert_int_equal(w.st, GM_OK);
    gm_work_narrow(&w, x, 0, 0, 1);
    FAILS(GM_EINVAL, "test holds more than", gm_work_end(&w));
    close_rank(r);
}
