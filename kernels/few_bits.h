/* few_bits.h - weights of 8 or 4 bits: rows of blocks that have one scale each (attributes `bits` and `group`).
 *
 * A row of n numbers is ceil(n / group) blocks, one after the other, and each block is the scale, an f16 of two bytes,
 * and then the codes of `group` numbers. The last block of a row may have fewer; its other codes are those of 0. A
 * number is its code times the scale of its block:
 *     8 bits   a byte from -127 to 127; scale = largest magnitude / 127
 *     4 bits   0 to 15, less 8; scale = the number of largest magnitude / -8, so that this number has the code 0. Of
 *              each 32 numbers, number j is in the low half of byte j, and number j + 16 in its high half
 * Codes are those of the nearest multiples of the scale before it was rounded to f16; of two that are as near, 8 bits
 * take the one away from 0 and 4 bits the upper one. With group = 32 the blocks are q8_0 and q4_0 of GGUF, byte for
 * byte. Blocks are cut between blocks only, so that a part of a row is a row. A byte of zeros is a number 0.
 *
 * The trap: where the largest magnitude of a block is above 65504 times 127 (or 8), its scale is infinite in f16. The
 * header is C for host and kernels of GPUs. */
#ifndef GM_FEW_BITS_H
#define GM_FEW_BITS_H

#include <stdint.h>
#include "philox.h"

#define GM_FEW_UNIT 32 /* groups are multiples of it */

GM_INLINE int64_t gm_few_block_bytes(int64_t bits, int64_t group) { return 2 + group * bits / 8; }
GM_INLINE int64_t gm_few_blocks(int64_t group, int64_t columns) { return (columns + group - 1) / group; }
GM_INLINE int64_t gm_few_row_bytes(int64_t bits, int64_t group, int64_t columns)
{
    return gm_few_blocks(group, columns) * gm_few_block_bytes(bits, group);
}

/* The scale of a block, as f16. */
GM_INLINE uint16_t gm_few_scale(const uint8_t *block) { return (uint16_t)(block[0] | block[1] << 8); }

/* The code of number i of a block, as the whole number that the scale multiplies. */
GM_INLINE int gm_few_code(int64_t bits, const uint8_t *block, int64_t i)
{
    const uint8_t *codes = block + 2;
    if (bits == 8) return (int8_t)codes[i];
    const int byte = codes[i / 32 * 16 + i % 16];
    return (i & 16 ? byte >> 4 : byte & 15) - 8;
}

/* The scale in f32, from the number of largest magnitude. */
GM_INLINE float gm_few_scale_of(int64_t bits, float largest)
{
    return bits == 8 ? (largest < 0 ? -largest : largest) / 127.0f : largest / -8.0f;
}

/* The code of x, as the whole number. inverse: 1 / scale, or 0 where the scale is 0. Sums are in f64, so that no
 * compiler rounds them in one way here and in another there. */
GM_INLINE int gm_few_code_of(int64_t bits, float x, float inverse)
{
    const float  v = x * inverse;
    const double exact = (double)x * (double)inverse, near = (double)v;
    if (!(v > -1e6f && v < 1e6f)) return 0; /* inf and NaN; the scale is no number then either */
    if (bits == 8) {
        const int code = (int)(near < 0 ? near - 0.5 : near + 0.5);
        return code > 127 ? 127 : code < -127 ? -127 : code;
    }
    const int code = (int)(exact + 8.5);
    return (code > 15 ? 15 : code) - 8;
}

/* Writes code i of a block; codes of 4 bits in order of i. */
GM_INLINE void gm_few_put_code(int64_t bits, uint8_t *block, int64_t i, int code)
{
    uint8_t *at = block + 2 + (bits == 8 ? i : i / 32 * 16 + i % 16);
    if (bits == 8) *at = (uint8_t)code;
    else if (i & 16) *at = (uint8_t)(*at | (code + 8) << 4);
    else *at = (uint8_t)(code + 8);
}

/* Writes the codes of n numbers, x[i * step], of a block of `group`, whose scale is there already. */
GM_INLINE void gm_few_put_codes(int64_t bits, int64_t group, const float *x, int64_t n, int64_t step, float inverse,
                                uint8_t *block)
{
    for (int64_t i = 0; i < group; i++)
        gm_few_put_code(bits, block, i, i < n ? gm_few_code_of(bits, x[i * step], inverse) : 0);
}

/* Makes a block of n numbers, x[i * step]. narrow: rounds f32 to f16. Where a number is not finite, the scale is not
 * either, or the block's numbers are NaN. */
#define GM_FEW_ENCODE(narrow, bits, group, x, n, step, block)                               \
    do {                                                                                    \
        float largest_ = 0, strange_ = 0;                                                   \
        for (int64_t i_ = 0; i_ < (n); i_++) {                                              \
            const float v_ = (x)[i_ * (step)], size_ = v_ < 0 ? -v_ : v_;                   \
            if (size_ > (largest_ < 0 ? -largest_ : largest_)) largest_ = v_;               \
            strange_ += v_ * 0;                                                             \
        }                                                                                   \
        const float    scale_ = strange_ == 0 ? gm_few_scale_of(bits, largest_) : strange_; \
        const uint16_t half_ = narrow(scale_);                                              \
        (block)[0] = (uint8_t)half_;                                                        \
        (block)[1] = (uint8_t)(half_ >> 8);                                                 \
        gm_few_put_codes(bits, group, x, n, step, scale_ != 0 ? 1.0f / scale_ : 0, block);  \
    } while (0)

#endif
