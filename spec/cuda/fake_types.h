/* fake_types.h - the types of matrices that fake_cublas.c knows: reading and writing their elements, in double. */
#ifndef GM_FAKE_TYPES_H
#define GM_FAKE_TYPES_H

#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>

#include "../../kernels/dtype.h"

static inline bool is_float8(int32_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

static inline size_t size_of(int32_t type) { return is_float8(type) ? 1 : type == CUDA_R_32F ? 4 : 2; }

/* By the definition (arXiv:2209.05433, table 1). */
static inline double float8(int32_t type, uint8_t code)
{
    bool   e4m3 = type == CUDA_R_8F_E4M3;
    int    fraction = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, size = code & 127;
    int    exponent = size >> fraction, digits = size % (1 << fraction);
    double v = ldexp(exponent ? (1 << fraction) + digits : digits, (exponent ? exponent : 1) - bias - fraction);
    if (e4m3 ? size == 127 : size > 124) return NAN;
    if (!e4m3 && size == 124) v = INFINITY;
    return code & 128 ? -v : v;
}

static inline double element(int32_t type, const void *p, int64_t i)
{
    if (is_float8(type)) return float8(type, ((const uint8_t *)p)[i]);
    return gm_load(type == CUDA_R_32F ? GM_F32 : type == CUDA_R_16BF ? GM_BF16 : GM_F16, p, i);
}

static inline void put(int32_t type, void *p, int64_t i, double v)
{
    gm_store(type == CUDA_R_32F ? GM_F32 : type == CUDA_R_16BF ? GM_BF16 : GM_F16, p, i, (double)(float)v);
}

#endif
