/* blocks.c - see blocks.h. The formats are GGML's; a block of 256 ("K") has 8 or 16 parts with scales of 6 or 8 bits.
 */
#include "blocks.h"

static float half_at(const unsigned char *p) { return gm_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

static uint32_t word_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* 32 numbers of 4 bits: low halves of the 16 bytes first, then the upper ones; a fifth bit comes from `high`. */
static void decode_nibbles(const unsigned char *q, uint32_t high, float scale, float offset, float *out)
{
    for (int i = 0; i < 16; i++) {
        uint32_t low = (q[i] & 15u) | (high >> i & 1) << 4, upper = q[i] >> 4 | (high >> (i + 16) & 1) << 4;
        out[i] = (float)low * scale + offset;
        out[i + 16] = (float)upper * scale + offset;
    }
}

static void decode_q8_0(const unsigned char *b, float *out)
{
    float d = half_at(b);
    for (int i = 0; i < 32; i++) out[i] = (float)(int8_t)b[2 + i] * d;
}

/* Scale and minimum of part i of 8: 6 bits each, packed into 12 bytes. */
static void scale_of_part(const unsigned char *s, int i, float *scale, float *minimum)
{
    if (i < 4) {
        *scale = (float)(s[i] & 63);
        *minimum = (float)(s[i + 4] & 63);
        return;
    }
    *scale = (float)((s[i + 4] & 15) | s[i - 4] >> 6 << 4);
    *minimum = (float)(s[i + 4] >> 4 | s[i] >> 6 << 4);
}

/* Q4_K and Q5_K: 8 parts of 32. high: the fifth bits, bit i of byte k is that of number k of part i; NULL: none. */
static void decode_parts(const unsigned char *b, const unsigned char *high, const unsigned char *q, float *out)
{
    float d = half_at(b), dmin = half_at(b + 2), scale, minimum;
    for (int part = 0; part < 8; part++) {
        scale_of_part(b + 4, part, &scale, &minimum);
        for (int i = 0; i < 32; i++) {
            int nibble = part & 1 ? q[32 * (part / 2) + i] >> 4 : q[32 * (part / 2) + i] & 15;
            int fifth = high ? high[i] >> part & 1 : 0;
            out[32 * part + i] = d * scale * (float)(nibble | fifth << 4) - dmin * minimum;
        }
    }
}

/* Q6_K: two halves of 128, of which each number has 4 low bits, 2 high bits, and a scale for 16 of them. */
static void decode_q6_k(const unsigned char *b, float *out)
{
    float d = half_at(b + 208);
    for (int half = 0; half < 2; half++) {
        const unsigned char *low = b + 64 * half, *high = b + 128 + 32 * half, *scale = b + 192 + 8 * half;
        for (int i = 0; i < 128; i++) {
            int quarter = i / 32, k = i % 32;
            int nibble = quarter < 2 ? low[32 * (quarter & 1) + k] & 15 : low[32 * (quarter & 1) + k] >> 4;
            int q = (nibble | (high[k] >> 2 * quarter & 3) << 4) - 32;
            out[128 * half + i] = d * (float)(int8_t)scale[i / 16] * (float)q;
        }
    }
}

void gm_block_decode(gm_element e, const unsigned char *b, float *out)
{
    float d = half_at(b);
    switch (e) {
    case GM_ELEMENT_Q4_0: decode_nibbles(b + 2, 0, d, -8 * d, out); break;
    case GM_ELEMENT_Q4_1: decode_nibbles(b + 4, 0, d, half_at(b + 2), out); break;
    case GM_ELEMENT_Q5_0: decode_nibbles(b + 6, word_at(b + 2), d, -16 * d, out); break;
    case GM_ELEMENT_Q5_1: decode_nibbles(b + 8, word_at(b + 4), d, half_at(b + 2), out); break;
    case GM_ELEMENT_Q8_0: decode_q8_0(b, out); break;
    case GM_ELEMENT_Q4_K: decode_parts(b, NULL, b + 16, out); break;
    case GM_ELEMENT_Q5_K: decode_parts(b, b + 16, b + 48, out); break;
    default: decode_q6_k(b, out); break;
    }
}
