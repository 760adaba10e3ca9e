/* find_test.c - tables of CPU kernels: which is the best, for processors that this machine is not; how they leave this
 * one. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/cpu/cpu.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

/* Are upper halves of the first 16 vector registers in use? Of AVX, or of AVX-512. An Intel core knows. */
static bool has_upper_halves(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low & (1 << 2 | 1 << 6);
#else
    return false;
#endif
}

static bool knows_upper_halves(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b, c, d;
    return gm_cpu_is_intel() && __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && a & 4;
#else
    return false;
#endif
}

/* Code without AVX that follows a kernel, such as that of LuaJIT, is slow where they are: GCC 12 left them so here. */
void gm_test_find_clean(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu-avx2", "cpu-avx512", "cpu-avx512bf16", "cpu-amx"};
    const int64_t            shape[] = {65536};
    gm_device               *dev;
    gm_tensor               *x, *y;
    if (!knows_upper_halves()) skip();
    OK(gm_device_new("cpu", 1, &dev));
    OK(gm_tensor_new(dev, GM_F32, 1, shape, &x));
    OK(gm_tensor_new(dev, GM_F32, 1, shape, &y));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const gm_backend *table = gm_cpu_find(names[i]);
        gm_attrs          at = gm_attrs_default();
        if (!table) continue;
        at.value = 1.7;
        OK(gm_run_with(dev, table, &(gm_call){GM_OP_fill, 0, 1, NULL, &x, &at}));
        assert_false(has_upper_halves());
        at.function = GM_FN_power;
        OK(gm_run_with(dev, table, &(gm_call){GM_OP_unary, 1, 1, &x, &y, &at}));
        assert_false(has_upper_halves());
    }
    gm_tensor_release(x);
    gm_tensor_release(y);
    gm_device_free(dev);
}

/* The first processor's line of /proc/cpuinfo with this name, behind the colon; "" if there is none. */
static void read_cpuinfo(const char *name, char *value, size_t size)
{
    char  line[4096];
    FILE *f = fopen("/proc/cpuinfo", "r");
    *value = 0;
    while (f && !*value && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, name, strlen(name)) != 0) continue;
        snprintf(value, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f) fclose(f);
}

/* The system says the same of this processor. */
void gm_test_find_maker(void **state)
{
    (void)state;
    char vendor[64], family[64];
    read_cpuinfo("vendor_id", vendor, sizeof vendor);
    read_cpuinfo("cpu family", family, sizeof family);
    if (!*vendor || !*family) skip();
    assert_int_equal(gm_cpu_is_intel(), !strcmp(vendor, "GenuineIntel"));
    assert_int_equal(gm_cpu_is_zen5(), !strcmp(vendor, "AuthenticAMD") && atoi(family) >= 26);
}
