/* unit.h - what the C unit tests share. tests.def lists them all; each is void gm_test_<name>(void **). */
#ifndef GM_UNIT_H
#define GM_UNIT_H

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../kernels/device.h"
#include "../../kernels/philox.h"

#define GM_TEST(name) void gm_test_##name(void **state);
#include "tests.def"
#undef GM_TEST

/* The call succeeds, or the test fails with its message. */
#define OK(expr)                                                         \
    do {                                                                 \
        if ((expr) != GM_OK) fail_msg("%s: %s", #expr, gm_last_error()); \
    } while (0)

/* The call fails with this status and a message that contains text. */
#define FAILS(status, text, expr)                                                          \
    do {                                                                                   \
        assert_int_equal((expr), (status));                                                \
        if (!strstr(gm_last_error(), (text)))                                              \
            fail_msg("%s: the message is '%s', not '%s'", #expr, gm_last_error(), (text)); \
    } while (0)

/* Random numbers for inputs: the same in every run. */
typedef struct unit_random {
    uint64_t n;
} unit_random;
static inline uint64_t unit_bits(unit_random *r) { return gm_mix64(r->n++); }
static inline int64_t  unit_below(unit_random *r, int64_t n) { return (int64_t)(unit_bits(r) % (uint64_t)n); }
static inline double   unit_between(unit_random *r, double low, double high)
{
    return low + (high - low) * (double)(unit_bits(r) >> 11) * 0x1p-53;
}

#define SHAPE(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

#endif
