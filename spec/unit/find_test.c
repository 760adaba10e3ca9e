/* find_test.c - which table of CPU kernels is the best, for processors that this machine is not. */
#include "unit.h"

#include "../../kernels/cpu/cpu.h"

static void expect_best(const char *name, gm_cpu_tables has, bool pairs_slow)
{
    assert_string_equal(name, gm_cpu_best(has, pairs_slow));
}

void gm_test_find_best(void **state)
{
    (void)state;
    const gm_cpu_tables none = {.avx2 = false}, zen3 = {.avx2 = true}, skylake = {.avx2 = true, .avx512 = true};
    const gm_cpu_tables zen4 = {.avx2 = true, .avx512 = true, .avx512bf16 = true};
    const gm_cpu_tables tiles = {.avx2 = true, .avx512 = true, .avx512bf16 = true, .amx = true};
    const gm_cpu_tables alone = {.avx512bf16 = true}; /* a build with this table only */
    for (int slow = 0; slow < 2; slow++) {
        expect_best("cpu-generic", none, slow);
        expect_best("cpu-avx2", zen3, slow);
        expect_best("cpu-avx512", skylake, slow);
        expect_best(slow ? "cpu-avx512" : "cpu-avx512bf16", zen4, slow);
        expect_best("cpu-amx", tiles, slow);
        expect_best("cpu-avx512bf16", alone, slow);
    }
}

/* The best one is a table of that name, and others can be had by theirs. */
void gm_test_find_names(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu-generic", "cpu-avx2",         "cpu-avx512", "cpu-avx512bf16",
                                        "cpu-amx",     "cpu-amx-emulated", "cpu-other",  "cp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const gm_backend *table = gm_cpu_find(names[i]);
        if (table) assert_string_equal(names[i], table->name);
        if (i == 0) assert_non_null(table);
        if (i > 5) assert_null(table);
    }
    assert_non_null(gm_cpu_find("cpu"));
    assert_ptr_equal(gm_cpu_find("cpu"), gm_cpu_find(gm_cpu_find("cpu")->name));
    assert_string_not_equal("cpu-amx-emulated", gm_cpu_find("cpu")->name);
}
