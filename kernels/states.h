/* states.h - moments of optimizers in fewer bits than 32: bf16, or 8 bits in blocks (attribute `states`).
 *
 * Blocks: Dettmers et al. 2021, arXiv:2110.02861. A moment of n elements is one tensor of bytes: n codes, then from the
 * next multiple of 4 on a scale of f32 for each block of GM_STATE_BLOCK elements. An element is the value of its code
 * times the scale of its block. Codes are the paper's dynamic ones: 7 decades, each with twice as many evenly spaced
 * values as the one below it. A moment of squares has codes without a sign, and so twice as many values.
 *
 * Blocks run along rows: the last dimensions together, as many as it takes to have a block's elements, are a row. So a
 * cut of a dimension before these does not move a border. The last block of a row may be shorter.
 *
 * Two rules differ from bitsandbytes. The scale has the sign of the largest element, which has the code of 1 for this
 * reason: there is no code of -1. So numbers that were decoded have the same codes and scales when they are encoded
 * again, and a checkpoint holds them in f32. And a square above 0 never becomes 0, because updates are divided by its
 * root.
 *
 * bf16: rounded by chance, with 16 random bits of an element, because an average that moves by a thousandth of itself
 * would otherwise stay where it is: half a unit of bf16 is at least 1/512 of a number. */
#ifndef GM_STATES_H
#define GM_STATES_H

#include <stdint.h>
#include "philox.h"

enum { GM_STATES_F32, GM_STATES_BF16, GM_STATES_BLOCKS, GM_STATES_KINDS };

#define GM_STATE_BLOCK 256

/* Where the blocks of a moment are. */
typedef struct gm_state_rows {
    int64_t n, columns, per_row, blocks; /* columns: elements of a row; per_row: blocks of one */
} gm_state_rows;

GM_INLINE gm_state_rows gm_state_rows_of(int ndim, const int64_t *shape)
{
    gm_state_rows r = {1, 1, 0, 0};
    for (int d = ndim - 1; d >= 0; d--) {
        if (r.columns < GM_STATE_BLOCK) r.columns *= shape[d];
        r.n *= shape[d];
    }
    r.per_row = (r.columns + GM_STATE_BLOCK - 1) / GM_STATE_BLOCK;
    r.blocks = r.n ? r.n / r.columns * r.per_row : 0;
    return r;
}

GM_INLINE int64_t gm_state_scales_at(int64_t n) { return (n + 3) / 4 * 4; }
GM_INLINE int64_t gm_state_bytes(gm_state_rows r) { return gm_state_scales_at(r.n) + 4 * r.blocks; }

/* The first element of block b, and how many it has. */
GM_INLINE int64_t gm_state_first(gm_state_rows r, int64_t b)
{
    return b / r.per_row * r.columns + b % r.per_row * GM_STATE_BLOCK;
}

GM_INLINE int gm_state_length(gm_state_rows r, int64_t b)
{
    int64_t left = r.columns - b % r.per_row * GM_STATE_BLOCK;
    return (int)(left < GM_STATE_BLOCK ? left : GM_STATE_BLOCK);
}

/* ---- codes ---- */

/* The middle of part j of n, into which [0.1, 1) is cut, of a decade. */
#define GM_CODE(s, ten, n, j)  (float)(s ten * (0.1 + 0.9 * ((j) + 0.5) / (n)))
#define GM_CODE2(s, t, n, j)   GM_CODE(s, t, n, j), GM_CODE(s, t, n, (j) + 1)
#define GM_CODE4(s, t, n, j)   GM_CODE2(s, t, n, j), GM_CODE2(s, t, n, (j) + 2)
#define GM_CODE8(s, t, n, j)   GM_CODE4(s, t, n, j), GM_CODE4(s, t, n, (j) + 4)
#define GM_CODE16(s, t, n, j)  GM_CODE8(s, t, n, j), GM_CODE8(s, t, n, (j) + 8)
#define GM_CODE32(s, t, n, j)  GM_CODE16(s, t, n, j), GM_CODE16(s, t, n, (j) + 16)
#define GM_CODE64(s, t, n, j)  GM_CODE32(s, t, n, j), GM_CODE32(s, t, n, (j) + 32)
#define GM_CODE128(s, t, n, j) GM_CODE64(s, t, n, j), GM_CODE64(s, t, n, (j) + 64)
#define GM_CODES_OF_A_SIGN(s)                                                                          \
    GM_CODE(s, 1e-6, 1, 0), GM_CODE2(s, 1e-5, 2, 0), GM_CODE4(s, 1e-4, 4, 0), GM_CODE8(s, 1e-3, 8, 0), \
        GM_CODE16(s, 1e-2, 16, 0), GM_CODE32(s, 1e-1, 32, 0), GM_CODE64(s, 1.0, 64, 0)

#ifndef GM_CODE_TABLE
#define GM_CODE_TABLE static const
#endif

/* Bit 7 is the sign, but that 128, which would be -0, is 1. So codes 0 to 128 ascend. */
GM_CODE_TABLE float gm_codes_signed[256] = {0, GM_CODES_OF_A_SIGN(+), 1, GM_CODES_OF_A_SIGN(-)};
GM_CODE_TABLE float gm_codes_unsigned[256] = {0,
                                              GM_CODE2(+, 1e-6, 2, 0),
                                              GM_CODE4(+, 1e-5, 4, 0),
                                              GM_CODE8(+, 1e-4, 8, 0),
                                              GM_CODE16(+, 1e-3, 16, 0),
                                              GM_CODE32(+, 1e-2, 32, 0),
                                              GM_CODE64(+, 1e-1, 64, 0),
                                              GM_CODE128(+, 1.0, 128, 0),
                                              1};

/* The last of the codes 0 to `top` whose value is at most u, or nearest above it: u from 0 to 1. From the middle of two
 * values on it is the upper. */
GM_INLINE int gm_code_nearest(const float *values, int top, float u)
{
    int code = 0;
    for (int step = 128; step; step /= 2)
        if (code + step <= top && u >= 0.5f * (values[code + step - 1] + values[code + step])) code += step;
    return code;
}

/* The code of an element, given that of its size. ratio: the element over the scale. */
GM_INLINE uint8_t gm_code_signed(float ratio, int size)
{
    if (ratio >= 0) return (uint8_t)size;
    return (uint8_t)(size == 0 ? 0 : size > 127 ? 255 : size + 128);
}

GM_INLINE uint8_t gm_code_unsigned(float ratio, int size) { return (uint8_t)(ratio > 0 && size == 0 ? 1 : size); }

/* The scale of a block, given its largest element, its least one, and the largest size as the bits of an f32, of which
 * those of NaN are above all others. A block with a number that is not finite becomes NaN as a whole. */
GM_INLINE float gm_state_scale(float largest, float least, uint32_t size_bits)
{
    const float zero = 0;
    if (size_bits >= 0x7f800000u) return zero / zero;
    if (size_bits < 0x00800000u) return 0; /* the quotients of smaller numbers would lose their digits */
    return largest >= -least ? largest : least;
}

/* ---- bf16 ---- */

/* The key of the random words of moments, given that of the parameter; an element has the word of its index in the
 * global tensor, of which moment k takes these bits. */
GM_INLINE uint64_t gm_state_key(uint64_t key) { return key ^ 0x6d6f6d656e747321u; }

GM_INLINE uint32_t gm_state_word(uint32_t word, int k) { return k == 0 ? word : k == 1 ? word << 16 : word << 8; }

#endif
