/* main.c - runs the C unit tests of tests.def. unit_tests [PATTERN]: those whose name matches. */
#include "unit.h"

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
#define GM_TEST(name) {#name, gm_test_##name, NULL, NULL, NULL},
#include "tests.def"
#undef GM_TEST
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
