/* float8.h - floats of 8 bits with a scale for a whole tensor: a number is the value of its code times the scale.
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
 * becomes NaN (float8_encode), so that no scale makes it finite. The header is C for host and
 * kernels of GPUs. */
#ifndef GM_FLOAT8_H
#define GM_FLOAT8_H

#include <stdint.h>
#include "philox.h"

enum { GM_FLOAT8_E4M3, GM_FLOAT8_E5M2, GM_FLOAT8_FORMATS };

#define GM_FLOAT8_NAN 127 /* the code of NaN, in both */

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

#endif
