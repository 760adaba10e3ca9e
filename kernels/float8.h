/* float8.h - floats of 8 bits with a scale for a whole tensor, or for blocks of 128 of its numbers: a number is the
 * value of its code times the scale.
 *
 * format  codes                                                            largest  smallest normal  smallest
 * E4M3    sign, 4 bits of exponent (bias 7), 3 of fraction; no infinity      448        2^-6           2^-9
 * E5M2    sign, 5 bits of exponent (bias 15), 2 of fraction                57344        2^-14          2^-16
 * (Micikevicius et al. 2022, arXiv:2209.05433.) The first is for values and weights, the second for gradients.
 *
 * A scale is a power of two: the least with which the largest magnitude of the tensor still has a code. Then dividing
 * by it is exact, a number of 8 bits is exact in bf16 and in f32, too, and a tensor whose largest element is elsewhere
 * gets other codes only for its smallest elements. The scale grows with the magnitude, so the largest scale of the
 * parts of a tensor is that of the tensor. It is infinite if an element is not finite; then no result of the tensor is
 * finite, which a step notices (step_control.h). A tensor of zeros has the least scale, 2^-126.
 *
 * A code is the nearest one, of two that are as near the even one. What is beyond the largest becomes the largest, NaN
 * stays NaN, without its sign: so do the conversions of GPUs (PTX: cvt.rn.satfinite). An infinite number of a tensor
 * becomes NaN (float8_encode), so that no scale makes it finite.
 *
 * Blocks (DeepSeek-V3's report, arXiv:2412.19437, section 3.3; NVIDIA's documentation of cuBLAS, "128-element 1D and
 * 128x128 2D Block Scaling For FP8 Data Types"). A matrix has m rows of k numbers, along which a product sums. Its
 * scales are
 *     rows     one for each 128 neighbours in a row:     scales[l][i], of row i and columns 128 l ..
 *     square   one for each 128 rows and 128 columns:    scales[j][l], of rows 128 j .. and columns 128 l ..
 * The last block of a dimension is smaller where 128 does not divide it. In this order cuBLASLt reads the scales of
 * "rows"; of "square" it reads rows of scales that begin at multiples of 4 numbers (blas.c of the CUDA backend makes
 * them). Each block has the scale that a tensor of its numbers alone would have. So a number that is not finite, or is
 * much larger than the others, changes its own block and no other.
 * The header is C for host and kernels of GPUs. */
#ifndef GM_FLOAT8_H
#define GM_FLOAT8_H

#include <stdint.h>
#include "philox.h"

enum { GM_FLOAT8_E4M3, GM_FLOAT8_E5M2, GM_FLOAT8_FORMATS };

#define GM_FLOAT8_NAN   127 /* the code of NaN, in both */
#define GM_FLOAT8_BLOCK 128 /* numbers along each side of a block */

GM_INLINE int64_t gm_float8_blocks(int64_t n) { return (n + GM_FLOAT8_BLOCK - 1) / GM_FLOAT8_BLOCK; }

GM_INLINE int gm_float8_fraction(int format) { return format == GM_FLOAT8_E4M3 ? 3 : 2; }
GM_INLINE int gm_float8_bias(int format) { return format == GM_FLOAT8_E4M3 ? 7 : 15; }
/* The code of the largest number. */
GM_INLINE uint32_t gm_float8_most(int format) { return format == GM_FLOAT8_E4M3 ? 0x7e : 0x7b; }

/* The code of a number that is given as the bits of an f32: x / scale. Without branches, so that loops of it become
 * vectors. */
GM_INLINE uint8_t gm_float8_code(int format, uint32_t x)
{
    const int      fraction = gm_float8_fraction(format), bias = gm_float8_bias(format), drop = 23 - fraction;
    const uint32_t size = x & 0x7fffffffu, most = gm_float8_most(format), off = (uint32_t)(127 - bias) << fraction;
    /* below the smallest normal number: multiples of the smallest, so more digits are dropped; 25 drop all of them */
    const int      less = 128 - bias - (int)(size >> 23), more = less > 0 ? less : 0;
    const int      shift = drop + more < 25 ? drop + more : 25;
    const uint32_t digits = more ? (size & 0x7fffffu) | 0x800000u : size;
    const uint32_t up = digits + (1u << (shift - 1)) - 1 + (digits >> shift & 1);
    const uint32_t code = (up >> shift) - (more ? 0 : off);
    const uint32_t found = size >= (most + off) << drop ? most : code;
    return (uint8_t)(size > 0x7f800000u ? GM_FLOAT8_NAN : (x >> 24 & 128) | found);
}

/* A double as the bits of an f32, rounded to an odd one where it lies between two: its code and the scale of its
 * magnitude are the same. What is too large for f32 becomes infinite. */
GM_INLINE uint32_t gm_float8_narrow(uint64_t x)
{
    const uint32_t sign = (uint32_t)(x >> 32) & 0x80000000u;
    const uint64_t size = x & 0x7fffffffffffffffu;
    const int64_t  exponent = (int64_t)(size >> 52) - 1023 + 127;
    if (size > 0x7ff0000000000000u) return sign | 0x7fc00000u;
    if (exponent >= 255) return sign | 0x7f800000u;
    if (exponent <= 0) return sign;
    return sign | (uint32_t)exponent << 23 | (uint32_t)(size >> 29 & 0x7fffffu) | ((size & 0x1fffffffu) != 0);
}

/* The value of a code, as the bits of an f32. Infinities of E5M2 stay such. */
GM_INLINE uint32_t gm_float8_value(int format, uint8_t code)
{
    const int      fraction = gm_float8_fraction(format), bias = gm_float8_bias(format);
    const uint32_t sign = (uint32_t)(code & 128) << 24, size = code & 127;
    if (format == GM_FLOAT8_E4M3 ? size == GM_FLOAT8_NAN : size > 0x7c) return sign | 0x7fc00000u;
    if (size == 0x7c && format == GM_FLOAT8_E5M2) return sign | 0x7f800000u;
    if (size >> fraction) return sign | (size + ((uint32_t)(127 - bias) << fraction)) << (23 - fraction);
    uint32_t digits = size, exponent = (uint32_t)(128 - bias); /* shifted until the leading one is in its place */
    if (!digits) return sign;
    while (!(digits >> fraction)) digits <<= 1, exponent--;
    return sign | exponent << 23 | (digits & ((1u << fraction) - 1)) << (23 - fraction);
}

/* The scale of a tensor whose largest magnitude has these bits of an f32, as the bits of an f32. */
GM_INLINE uint32_t gm_float8_scale(int format, uint32_t magnitude)
{
    const int      fraction = gm_float8_fraction(format);
    const uint32_t most = gm_float8_most(format) & ((1u << fraction) - 1);
    const int      top = (int)(gm_float8_most(format) >> fraction) - gm_float8_bias(format); /* 8, 15 */
    if (magnitude >= 0x7f800000u) return 0x7f800000u;
    const int beyond = (magnitude & 0x7fffffu) > most << (23 - fraction);
    const int exponent = (int)(magnitude >> 23) - top + beyond;
    return exponent > 1 ? (uint32_t)exponent << 23 : 1u << 23;
}

/* 1 / scale of a scale that gm_float8_scale gave, as the bits of an f32; 0 of an infinite one. */
GM_INLINE uint32_t gm_float8_inverse(uint32_t scale) { return scale >= 0x7f800000u ? 0 : 0x7f000000u - scale; }

#endif
