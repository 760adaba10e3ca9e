/* combine.c - see combine.h. Blocks of BLOCK elements stay in the first cache while parts are added to them; two parts
 * need no block: their sum goes straight into `out`.
 *
 * Every function below that works on elements is compiled for several instruction sets. The system's loader chooses
 * the best one of the machine. An element never depends on its neighbours, so all of them give the same bits. */
#include "combine.h"

#include <math.h>
#include <string.h>
#include "../../kernels/each_cpu.h"

#define BLOCK 2048

/* Element i of what is written depends on elements i alone, which `out` may share with a part. */
#define EACH(i, n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); i++)

/* The larger (sign 1) or smaller; NaN if either is. */
#define BETTER_FLOAT(a, b, sign) (isnan(a) || ((sign) > 0 ? (a) >= (b) : (a) <= (b)) ? (a) : (b))
#define BETTER_PLAIN(a, b, sign) (((sign) > 0 ? (a) >= (b) : (a) <= (b)) ? (a) : (b))

/* Arithmetic on the type that is worked in. name: of that type; order: it is compared as. */
#define PAIRS(name, type, order, BETTER)                                                                  \
    GM_FOR_EACH_CPU static void add_##name(const type *a, const type *b, type *out, int64_t n)            \
    {                                                                                                     \
        EACH(i, n) out[i] = (type)(a[i] + b[i]);                                                          \
    }                                                                                                     \
    GM_FOR_EACH_CPU static void best_##name(const type *a, const type *b, type *out, int64_t n, int sign) \
    {                                                                                                     \
        if (sign > 0) EACH(i, n) out[i] = (type)BETTER((order)a[i], (order)b[i], 1);                      \
        else EACH(i, n) out[i] = (type)BETTER((order)a[i], (order)b[i], -1);                              \
    }                                                                                                     \
    GM_FOR_EACH_CPU static void divide_##name(const type *a, type by, type *out, int64_t n)               \
    {                                                                                                     \
        EACH(i, n) out[i] = (type)(a[i] / by);                                                            \
    }                                                                                                     \
    static void pair_##name(gm_reduction op, const type *a, const type *b, type *out, int64_t n)          \
    {                                                                                                     \
        if (op == GM_MAX || op == GM_MIN) best_##name(a, b, out, n, op == GM_MAX ? 1 : -1);               \
        else add_##name(a, b, out, n);                                                                    \
    }
PAIRS(f32, float, float, BETTER_FLOAT)
PAIRS(f64, double, double, BETTER_FLOAT)
PAIRS(i32, uint32_t, int32_t, BETTER_PLAIN)
PAIRS(i64, uint64_t, int64_t, BETTER_PLAIN)
PAIRS(u8, uint8_t, uint8_t, BETTER_PLAIN)

/* parts[0] op parts[1] op ... of a type that is worked in as it is. The last pair goes into `out`; no pair before it
 * does, because `out` may be a part that is still to come. divide: what a mean is divided by. */
#define COMBINE(name, type, divide)                                                                                  \
    static void combine_##name(gm_reduction op, int n_parts, const void *const *parts, void *out, int64_t n, int of) \
    {                                                                                                                \
        type sum[BLOCK];                                                                                             \
        for (int64_t at = 0; at < n; at += BLOCK) {                                                                  \
            int64_t     m = n - at < BLOCK ? n - at : BLOCK;                                                         \
            type       *to = (type *)out + at;                                                                       \
            const type *term = (const type *)parts[0] + at;                                                          \
            for (int k = 1; k < n_parts; k++) {                                                                      \
                type *here = k == n_parts - 1 ? to : sum;                                                            \
                pair_##name(op, term, (const type *)parts[k] + at, here, m);                                         \
                term = here;                                                                                         \
            }                                                                                                        \
            if (op == GM_MEAN) divide_##name(term, divide, to, m);                                                   \
            else if (term != to) memcpy(to, term, (size_t)m * sizeof *to);                                           \
        }                                                                                                            \
    }
COMBINE(f32, float, (float)of)
COMBINE(f64, double, (double)of)
COMBINE(i32, uint32_t, (uint32_t)of)
COMBINE(i64, uint64_t, (uint64_t)of)
COMBINE(u8, uint8_t, (uint8_t)of)

GM_FOR_EACH_CPU static void widen_bf16(const uint16_t *from, float *to, int64_t n)
{
    EACH(i, n) to[i] = gm_bf16_to_f32(from[i]);
}

GM_FOR_EACH_CPU static void narrow_bf16(const float *from, uint16_t *to, int64_t n)
{
    EACH(i, n) to[i] = gm_f32_to_bf16(from[i]);
}

static void widen_f16(const uint16_t *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = gm_f16_to_f32(from[i]);
}

static void narrow_f16(const float *from, uint16_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = gm_f32_to_f16(from[i]);
}

/* The same of a type of 16 bits, which is worked in as f32. */
#define COMBINE_16(name)                                                                                             \
    static void combine_##name(gm_reduction op, int n_parts, const void *const *parts, void *out, int64_t n, int of) \
    {                                                                                                                \
        float sum[BLOCK], term[BLOCK];                                                                               \
        for (int64_t at = 0; at < n; at += BLOCK) {                                                                  \
            int64_t m = n - at < BLOCK ? n - at : BLOCK;                                                             \
            widen_##name((const uint16_t *)parts[0] + at, sum, m);                                                   \
            for (int k = 1; k < n_parts; k++) {                                                                      \
                widen_##name((const uint16_t *)parts[k] + at, term, m);                                              \
                pair_f32(op, sum, term, sum, m);                                                                     \
            }                                                                                                        \
            if (op == GM_MEAN) divide_f32(sum, (float)of, sum, m);                                                   \
            narrow_##name(sum, (uint16_t *)out + at, m);                                                             \
        }                                                                                                            \
    }
COMBINE_16(bf16)
COMBINE_16(f16)

void gm_combine(gm_dtype dtype, gm_reduction op, int n_parts, const void *const *parts, void *out, int64_t n, int of)
{
    switch (dtype) {
#define GM_DTYPE(NAME, name, bytes, kind)               \
    case GM_##NAME:                                     \
        combine_##name(op, n_parts, parts, out, n, of); \
        break;
#include "../../kernels/dtypes.def"
#undef GM_DTYPE
    default: break;
    }
}

void gm_copy_rows(char *to, size_t to_step, const char *from, size_t from_step, size_t bytes, int64_t n)
{
    if (!bytes) return;
    for (int64_t i = 0; i < n; i++) memmove(to + (size_t)i * to_step, from + (size_t)i * from_step, bytes);
}
