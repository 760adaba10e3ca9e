/* space_test.c - which parts of a buffer leave (host/tier/space.h), in cases that can be seen at a glance. */
#include "../../host/tier/space.h"

#include "unit.h"

static uint64_t used(const void *owner) { return *(const uint64_t *)owner; }

/* A buffer of four parts of 10 bytes each, last used at these times; what leaves so that there are `bytes` in a row. */
static int leaves(const uint64_t times[4], size_t bytes, int *first)
{
    gm_space s = {.size = 40};
    for (int i = 0; i < 4; i++) {
        bool   taken;
        size_t at;
        OK(gm_space_take(&s, 10, (void *)(uintptr_t)&times[i], &taken, &at));
        assert_true(taken);
        assert_int_equal(at, 10 * i);
    }
    *first = -1;
    int n = gm_space_window(&s, bytes, used, first);
    gm_space_free(&s);
    return n;
}

void gm_test_space_window(void **state)
{
    const uint64_t S = GM_SPACE_STAYS;
    int            first;
    (void)state;
    assert_int_equal(leaves((uint64_t[]){4, 1, 3, 2}, 10, &first), 1); /* the oldest */
    assert_int_equal(first, 1);
    assert_int_equal(leaves((uint64_t[]){9, 1, 5, 2}, 20, &first), 2); /* the newest of a pair counts, not its last */
    assert_int_equal(first, 1);
    assert_int_equal(leaves((uint64_t[]){9, 8, 5, 6}, 15, &first), 2);
    assert_int_equal(first, 2);
    assert_int_equal(leaves((uint64_t[]){5, S, 1, 2}, 20, &first), 2); /* what stays is no neighbour */
    assert_int_equal(first, 2);
    assert_int_equal(leaves((uint64_t[]){5, S, 1, 2}, 30, &first), 0); /* not even behind something old */
    assert_int_equal(leaves((uint64_t[]){S, 1, S, 1}, 20, &first), 0);
}
