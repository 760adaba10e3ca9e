/* attention_drop.cuh - which weights dropout drops (kernels/drop.h), for the tensor-core kernels of attention.
 *
 * A lane has two neighbouring weights of eight, so lanes share out the blocks of Philox and tell each other by shuffles
 * what they drop: each lane draws as many blocks as an eighth of its weights. All lanes of a warp come here together.
 *
 * A word has a bit for each of a lane's weights, in two rows of N columns: gm_mma_bit<N>(row 0 or 1, group j of eight
 * columns, column e of the lane's two), 16 bits at most. */
#ifndef GM_CUDA_ATTENTION_DROP_CUH
#define GM_CUDA_ATTENTION_DROP_CUH

#include "attention.cuh"

template <int N> GM_DEVICE int gm_mma_bit(int half, int j, int e) { return half * (N / 4) + e * (N / 8) + j; }

/* Four bytes of b a (a has the lower ones), of which nibble n of `which` names byte n: 0 to 7, or 8 more, for 255 where
 * that byte's highest bit is set, else 0 (PTX ISA, prmt). */
GM_DEVICE uint32_t gm_bytes(uint32_t a, uint32_t b, uint32_t which)
{
    uint32_t bytes = 0;
#ifdef GM_EMULATED
    for (int n = 0; n < 4; n++) {
        const uint32_t name = which >> 4 * n & 15, byte = (name & 4 ? b : a) >> (name & 3) * 8 & 255;
        bytes |= (name & 8 ? byte / 128 * 255 : byte) << 8 * n;
    }
#else
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(which));
#endif
    return bytes;
}

/* Which of two halves of 16 bits are less than those of `than`: the highest bits of the halves; the others say nothing.
 * Where the highest bits are equal, the lower ones decide, by a subtraction that borrows nothing from the next half. */
GM_DEVICE uint32_t gm_halves_less(uint32_t halves, uint32_t than)
{
    const uint32_t high = 0x80008000u, rest = (halves | high) - (than & ~high);
    return (~halves & than) | (~(halves ^ than) & ~rest);
}

/* Of the block of query i that key j begins: the highest bit of each half of `less` says whether its weight is dropped.
 */
GM_DEVICE void gm_attention_drop_block(const gm_attention_args *a, const gm_attention_drops *d, int i, int j,
                                       uint32_t *less)
{
    const uint64_t  row = (uint64_t)(uint32_t)i * (uint32_t)a->drop_blocks[2]; /* it fits (attention.c) */
    const gm_philox block = gm_drop_block(a->drop.round_keys, d->first + row + (uint32_t)j / GM_DROP_EACH, d->step);
    GM_UNROLL
    for (int k = 0; k < 4; k++) less[k] = gm_halves_less(block.v[k], a->drop.threshold * 0x10001u);
}

/* Does key 0 begin a block? */
GM_DEVICE bool gm_attention_is_aligned(const gm_attention_args *a) { return a->drop_first % GM_DROP_EACH == 0; }

/* Of a lane's keys, key + 8 j + its column + e, 32 in all, those that query i drops, and those that query i + 8 drops.
 * Four lanes have the keys of a query, in four blocks: each draws one of each query. */
GM_DEVICE uint32_t gm_attention_drop_keys(const gm_attention_args *a, const gm_attention_drops *d, int i, int key)
{
    const int me = gm_thread & 3; /* draws block `me`, has word `me` of each */
    uint32_t  bits = 0, all[2];
    if (!gm_attention_is_aligned(a)) {
        GM_ROLLED
        for (int k = 0; k < 16; k++) {
            const int half = k / 8, e = k / 4 % 2, j = k % 4;
            bits |= (uint32_t)gm_attention_dropped(a, d, i + 8 * half, key + 8 * j + 2 * me + e)
                    << gm_mma_bit<32>(half, j, e);
        }
        return bits;
    }
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        uint32_t less[4];
        gm_attention_drop_block(a, d, i + 8 * half, key + 8 * me, less);
        const uint32_t low = gm_bytes(less[0], less[1], 0xfbd9), high = gm_bytes(less[2], less[3], 0xfbd9);
        /* byte n: word n of each block; bit 4 e + j of it: half e of that of block j */
        all[half] = (gm_bytes(low, high, 0x5410) & 0x01010101u) | (gm_bytes(low, high, 0x7632) & 0x10101010u);
        all[half] <<= me;
        all[half] |= gm_shuffle_xor(all[half], 1);
        all[half] |= gm_shuffle_xor(all[half], 2);
    }
    return gm_bytes(all[0], all[1], 0x40u + 0x11u * (uint32_t)me) & 0xffffu;
}

/* Of a lane's queries, query + 8 j + its column + e, 16 in all, those that drop its key, and those that drop the key 8
 * further. key: the warp's first; the lane's is as many further as its row. Eight lanes have the keys of four queries,
 * in eight blocks: each draws one. */
GM_DEVICE uint32_t gm_attention_drop_queries(const gm_attention_args *a, const gm_attention_drops *d, int query,
                                             int key)
{
    const int row = (gm_thread & 31) / 4, me = row & 3, first = query + (gm_thread & 3) * 2;
    uint32_t  bits = 0, less[4];
    if (!gm_attention_is_aligned(a)) {
        GM_ROLLED
        for (int k = 0; k < 8; k++) {
            const int half = k / 4, e = k / 2 % 2, j = k % 2;
            bits |= (uint32_t)gm_attention_dropped(a, d, first + 8 * j + e, key + row + 8 * half)
                    << gm_mma_bit<16>(half, j, e);
        }
        return bits;
    }
    /* Rows 0 to 3 draw for keys 0 to 7, rows 4 to 7 for keys 8 to 15, each for query `me`. They keep what is for rows 0
     * to 3, or 4 to 7, and get the same of the other block. */
    gm_attention_drop_block(a, d, first + me % 2 * 8 + me / 2, key + row / 4 * 8, less);
    const uint32_t low = gm_bytes(less[0], less[1], 0xfdb9), high = gm_bytes(less[2], less[3], 0xfdb9);
    const uint32_t mask = row < 4 ? 0x0f0f0f0fu : 0xf0f0f0f0u, keep = row < 4 ? low : high;
    uint32_t       send = row < 4 ? high : low, all = (keep & mask) | (gm_shuffle_xor(send, 16) & ~mask);
    /* byte n: key n of the four; bit 4 b + me of it: of block b, for query `me` */
    all &= 0x11111111u << me;
    all |= gm_shuffle_xor(all, 4);
    all |= gm_shuffle_xor(all, 8);
    return gm_bytes(all, 0, (uint32_t)me) & 0xffu;
}

#endif
