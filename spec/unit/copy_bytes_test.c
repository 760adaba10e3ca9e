/* copy_bytes_test.c - gm_copy_bytes (kernels/copy_bytes.h) at all distances at which it copies by a loop of its own. */
#include <stdlib.h>

#include "../../kernels/copy_bytes.h"
#include "unit.h"

#define SIDE 4096
#define MOST (GM_COPY_LONG + 67)

/* Each byte differs from its neighbours; what lies before and behind the target stays. */
static void copy_at(char *memory, size_t from, size_t behind, size_t n)
{
    char *source = memory + from, *target = memory + 4 * SIDE + from + behind;
    memset(memory + 4 * SIDE, '.', 4 * SIDE);
    for (size_t i = 0; i < n; i++) source[i] = (char)(i * 7 + i / 256);
    gm_copy_bytes(target, source, n);
    assert_memory_equal(target, source, n);
    assert_int_equal(target[-1], '.');
    assert_int_equal(target[n], '.');
}

void gm_test_copy_bytes(void **state)
{
    static const size_t sizes[] = {0, 1, GM_COPY_LONG - 1, GM_COPY_LONG, GM_COPY_LONG + 1, GM_COPY_LONG + 31, MOST};
    char               *memory = aligned_alloc(SIDE, 8 * SIDE);
    (void)state;
    assert_non_null(memory);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t behind = 0; behind <= GM_COPY_NEAR; behind++)
            for (size_t from = 16; from < 20; from++) copy_at(memory, from, behind, sizes[k]);
    free(memory);
}
