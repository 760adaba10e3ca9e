/* combine_test.c - the arithmetic of reductions against one element after the other, to the bit: every dtype and
 * operation, several parts, lengths beyond a block, results that replace a part. */
#include <stdlib.h>

#include "../../host/comm/combine.h"
#include "unit.h"

#define MOST  5
#define LARGE 4500 /* elements: more than two blocks, and no multiple of a vector */

typedef struct parts {
    void *part[MOST]; /* LARGE elements each */
} parts;

static double value(unit_random *random, gm_dtype dtype)
{
    bool real = dtype == GM_F32 || dtype == GM_F64 || gm_dtype_is_narrow(dtype);
    if (real && unit_below(random, 50) == 0) return NAN;
    return real ? unit_between(random, -3, 3) : (double)unit_below(random, 20);
}

static void make(parts *p, gm_dtype dtype, unit_random *random)
{
    for (int k = 0; k < MOST; k++) {
        p->part[k] = calloc(LARGE, gm_dtype_size(dtype));
        for (int64_t i = 0; i < LARGE; i++) gm_store(dtype, p->part[k], i, value(random, dtype));
    }
}

static double join(gm_reduction op, double a, double b, bool f64)
{
    if (op == GM_MAX) return isnan(a) || isnan(b) ? NAN : a >= b ? a : b;
    if (op == GM_MIN) return isnan(a) || isnan(b) ? NAN : a <= b ? a : b;
    return f64 ? a + b : (double)((float)a + (float)b); /* whole numbers are small: exact in both */
}

/* What element i is to be, stored into want. */
static void expect(const parts *p, gm_dtype dtype, gm_reduction op, int n_parts, int64_t i, void *want)
{
    bool   f64 = dtype == GM_F64, real = f64 || dtype == GM_F32 || gm_dtype_is_narrow(dtype);
    double sum = gm_load(dtype, p->part[0], i);
    for (int k = 1; k < n_parts; k++) sum = join(op, sum, gm_load(dtype, p->part[k], i), f64);
    if (op == GM_MEAN && real) sum = f64 ? sum / n_parts : (double)((float)sum / (float)n_parts);
    gm_store(dtype, want, 0, sum);
}

static bool same(gm_dtype dtype, const void *out, int64_t i, const void *want)
{
    double a = gm_load(dtype, out, i), b = gm_load(dtype, want, 0);
    return (isnan(a) && isnan(b)) || a == b;
}

/* place: of the part that the result replaces; -1: none. */
static void check(gm_dtype dtype, gm_reduction op, int n_parts, int64_t n, int place, unit_random *random)
{
    parts       p, before;
    unit_random again = *random;
    char        want[8];
    size_t      bytes = LARGE * gm_dtype_size(dtype);
    make(&p, dtype, random);
    make(&before, dtype, &again);
    void *out = place < 0 ? calloc(1, bytes) : p.part[place];
    gm_combine(dtype, op, n_parts, (const void *const *)p.part, out, n, n_parts);
    for (int64_t i = 0; i < n; i++) {
        expect(&before, dtype, op, n_parts, i, want);
        if (!same(dtype, out, i, want))
            fail_msg("%s, operation %d, %d parts, %d replaced: element %" PRId64 " of %" PRId64, gm_dtype_name(dtype),
                     (int)op, n_parts, place, i, n);
    }
    const char *rest = place < 0 ? NULL : before.part[place];
    for (size_t i = (size_t)n * gm_dtype_size(dtype); i < bytes; i++)
        if (((const char *)out)[i] != (rest ? rest[i] : 0)) fail_msg("byte %zu behind the end has changed", i);
    for (int k = 0; k < MOST; k++) {
        if (k != place) assert_memory_equal(p.part[k], before.part[k], bytes);
        free(before.part[k]);
        free(p.part[k]);
    }
    if (place < 0) free(out);
}

void gm_test_combine(void **state)
{
    (void)state;
    const int64_t lengths[] = {1, 7, 33, 2048, LARGE};
    unit_random   random = {11};
    for (int dtype = 0; dtype < GM_DTYPE_COUNT; dtype++)
        for (int op = GM_SUM; op <= GM_MIN; op++)
            for (int n_parts = 1; n_parts <= MOST; n_parts++)
                for (int place = -1; place < n_parts; place++) {
                    if (op == GM_MEAN && !gm_dtype_is_float((gm_dtype)dtype)) continue;
                    check((gm_dtype)dtype, (gm_reduction)op, n_parts, lengths[unit_below(&random, 5)], place, &random);
                }
}
