/* dtype.h - element types, their names and sizes, and conversion of single elements.
 *
 * All dtypes can be stored and cast. Arithmetic works on the floats f32, f64, bf16 and f16. Ops on bf16 and f16
 * compute in f32 and round once, when they store the result. Sums, statistics, losses and moments of such tensors are
 * kept in f32 (gm_dtype_wide; ops.def marks them). bf16 and f16 round to nearest even; NaN stays NaN. A cast from a
 * float to an integer truncates toward zero and saturates at the ends of the range; NaN becomes 0. */
#ifndef GM_DTYPE_H
#define GM_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum gm_dtype {
#define GM_DTYPE(NAME, name, bytes, kind) GM_##NAME,
#include "dtypes.def"
#undef GM_DTYPE
    GM_DTYPE_COUNT,
    GM_DTYPE_NONE = -1, /* where an op lets the caller choose a dtype: the dtype of the input */
} gm_dtype;

typedef enum gm_dtype_kind { GM_WIDE, GM_NARROW, GM_WHOLE } gm_dtype_kind; /* see dtypes.def */

size_t        gm_dtype_size(gm_dtype t);
const char   *gm_dtype_name(gm_dtype t);                     /* "f32", ... */
const char   *gm_dtype_file_name(gm_dtype t);                /* "F32", ...: the name in files of tensors */
bool          gm_dtype_parse(const char *name, gm_dtype *t); /* false: no such dtype */
gm_dtype_kind gm_dtype_kind_of(gm_dtype t);
bool          gm_dtype_is_float(gm_dtype t); /* true of GM_DTYPE_NONE */
bool          gm_dtype_is_narrow(gm_dtype t);

/* The dtype in which statistics, losses and moments of tensors of dtype t are kept: f32 for bf16 and f16, else t. */
static inline gm_dtype gm_dtype_wide(gm_dtype t) { return gm_dtype_is_narrow(t) ? GM_F32 : t; }

/* bf16: the upper half of an f32, rounded to nearest even. */
static inline float gm_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t gm_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40); /* keep NaN quiet */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

float    gm_f16_to_f32(uint16_t h);
uint16_t gm_f32_to_f16(float f);

/* Rounds f stochastically to t (bf16 or f16); returns its bits. f lies between two neighbouring values of t. The result
 * is the neighbour further from 0 with the probability (f - nearer) / (further - nearer), else the one nearer to 0. The
 * upper 16 bits of `word`, which are random, decide. A value that t can represent, an infinity and NaN stay as they
 * are. */
uint16_t gm_round_by_chance(gm_dtype t, float f, uint32_t word);

/* Reads or writes element i of an array of dtype t, through double: exact for all but i64 beyond 2^53. */
double gm_load(gm_dtype t, const void *base, int64_t i);
void   gm_store(gm_dtype t, void *base, int64_t i, double v);

#endif
