/* combine.c - see combine.h. Blocks of BLOCK elements stay in the first cache while parts are added to them. */
#include "combine.h"

#include <math.h>
#include <string.h>

#define BLOCK 1024

/* view_ gives elements at .. at + n - 1 in the type that is worked in: where they are, or converted into room. */
static const float *view_bf16(const void *from, int64_t at, int64_t n, float *room)
{
    for (int64_t i = 0; i < n; i++) room[i] = gm_bf16_to_f32(((const uint16_t *)from)[at + i]);
    return room;
}
static void store_bf16(void *to, int64_t at, int64_t n, const float *from)
{
    for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[at + i] = gm_f32_to_bf16(from[i]);
}
static const float *view_f16(const void *from, int64_t at, int64_t n, float *room)
{
    for (int64_t i = 0; i < n; i++) room[i] = gm_f16_to_f32(((const uint16_t *)from)[at + i]);
    return room;
}
static void store_f16(void *to, int64_t at, int64_t n, const float *from)
{
    for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[at + i] = gm_f32_to_f16(from[i]);
}

#define PLAIN(name, type)                                                               \
    static const type *view_##name(const void *from, int64_t at, int64_t n, type *room) \
    {                                                                                   \
        (void)n, (void)room;                                                            \
        return (const type *)from + at;                                                 \
    }                                                                                   \
    static void store_##name(void *to, int64_t at, int64_t n, const type *from)         \
    {                                                                                   \
        memcpy((type *)to + at, from, (size_t)n * sizeof *from);                        \
    }
PLAIN(f32, float)
PLAIN(f64, double)
PLAIN(i32, uint32_t)
PLAIN(i64, uint64_t)
PLAIN(u8, uint8_t)

/* The larger (sign 1) or smaller; NaN if either is. */
#define BETTER_FLOAT(a, b, sign) (isnan(a) || ((sign) > 0 ? (a) >= (b) : (a) <= (b)) ? (a) : (b))
#define BETTER_PLAIN(a, b, sign) (((sign) > 0 ? (a) >= (b) : (a) <= (b)) ? (a) : (b))

/* name: of the dtype; type: worked in; order: compared as; scale: what a mean does. */
#define COMBINE(name, type, order, BETTER, scale)                                                             \
    static void combine_##name(gm_reduction op, int n_parts, const void *const *parts, void *out, int64_t n)  \
    {                                                                                                         \
        type sum[BLOCK], room[BLOCK];                                                                         \
        for (int64_t at = 0; at < n; at += BLOCK) {                                                           \
            int64_t     m = n - at < BLOCK ? n - at : BLOCK;                                                  \
            const type *term = view_##name(parts[0], at, m, sum);                                             \
            if (term != sum) memcpy(sum, term, (size_t)m * sizeof *sum);                                      \
            for (int k = 1; k < n_parts; k++) {                                                               \
                term = view_##name(parts[k], at, m, room);                                                    \
                if (op == GM_MAX)                                                                             \
                    for (int64_t i = 0; i < m; i++) sum[i] = (type)BETTER((order)sum[i], (order)term[i], 1);  \
                else if (op == GM_MIN)                                                                        \
                    for (int64_t i = 0; i < m; i++) sum[i] = (type)BETTER((order)sum[i], (order)term[i], -1); \
                else                                                                                          \
                    for (int64_t i = 0; i < m; i++) sum[i] = (type)(sum[i] + term[i]);                        \
            }                                                                                                 \
            if (op == GM_MEAN)                                                                                \
                for (int64_t i = 0; i < m; i++) sum[i] = (type)(sum[i] / scale);                              \
            store_##name(out, at, m, sum);                                                                    \
        }                                                                                                     \
    }
COMBINE(f32, float, float, BETTER_FLOAT, (float)n_parts)
COMBINE(f64, double, double, BETTER_FLOAT, (double)n_parts)
COMBINE(bf16, float, float, BETTER_FLOAT, (float)n_parts)
COMBINE(f16, float, float, BETTER_FLOAT, (float)n_parts)
COMBINE(i32, uint32_t, int32_t, BETTER_PLAIN, 1)
COMBINE(i64, uint64_t, int64_t, BETTER_PLAIN, 1)
COMBINE(u8, uint8_t, uint8_t, BETTER_PLAIN, 1)

void gm_combine(gm_dtype dtype, gm_reduction op, int n_parts, const void *const *parts, void *out, int64_t n)
{
    switch (dtype) {
#define GM_DTYPE(NAME, name, bytes, kind)           \
    case GM_##NAME:                                 \
        combine_##name(op, n_parts, parts, out, n); \
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
