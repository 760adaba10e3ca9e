/* drop.h - what dropout sets to zero: 16 bits of Philox decide for each element, and for each weight of attention.
 *
 * One block of Philox (philox.h) decides for eight elements whose indices follow each other, 8 n to 8 n + 7:
 *     key     = the stream's, as for all random numbers
 *     counter = { block_lo, block_hi, step_lo, step_hi }, block = index / 8
 * Number i of a block is the low (i even) or high half of word i / 2. An element is dropped if its number is below the
 * threshold. The index is that in the global tensor, so that ranks that have parts of it draw what one rank draws. The
 * weights of attention are a tensor (batch, heads, queries, keys) with the keys rounded up to a multiple of 8. So each
 * of its rows begins a block, whatever the number of keys.
 *
 * p becomes a multiple of 2^-16, and what is kept is multiplied with 1 / (1 - that multiple), so that the mean does not
 * change. The trap: 1 / (1 - p) of what the caller said is another number. p below 2^-17 drops nothing. One in 65,536
 * is kept where p would become 1. The factor is rounded to f64 for f64, and to f32 for all other dtypes, before it
 * multiplies. So every backend rounds alike.
 *
 * There are 7 rounds: the fewest with which Philox4x32 passes all tests of BigCrush in "Parallel random numbers: as
 * easy as 1, 2, 3" (Salmon et al., SC'11, table 2). The authors take 10 as a margin for uses that they do not know.
 * This use is known: a mask compares each number once with a threshold, and training adds up what comes of millions of
 * them. All other random numbers have 10 rounds. */
#ifndef GM_DROP_H
#define GM_DROP_H

#include "sample.h"

#define GM_DROP_EACH   8 /* elements of a block */
#define GM_DROP_ROUNDS 7

/* What is the same for all elements of a call; without dropout the threshold is 0. */
typedef struct gm_drop {
    uint32_t round_keys[2 * GM_DROP_ROUNDS]; /* made once, so that kernels need not add them up */
    uint32_t threshold;                      /* at most 65,535 */
} gm_drop;

GM_INLINE gm_drop gm_drop_of(uint64_t key, double p)
{
    double  numbers = p * 65536 + 0.5;
    gm_drop d = {{0}, numbers >= 65535 ? 65535u : (uint32_t)numbers};
    for (int round = 0; round < GM_DROP_ROUNDS; round++) {
        d.round_keys[2 * round] = gm_philox_key0(key, round);
        d.round_keys[2 * round + 1] = gm_philox_key1(key, round);
    }
    return d;
}

/* What is kept is multiplied with this. */
GM_INLINE double gm_drop_keep(uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

/* From row to row of attention's weights, in indices. keys: the local ones. */
GM_INLINE uint64_t gm_weight_row(const gm_box *box, int64_t keys)
{
    uint64_t all = (uint64_t)(box->ndim ? box->shape[3] : keys);
    return (all + GM_DROP_EACH - 1) / GM_DROP_EACH * GM_DROP_EACH;
}

/* The index of the weight at local (batch, head, query, key). shape: the local shape. */
GM_INLINE uint64_t gm_weight_index(const gm_box *box, const int64_t *shape, const int64_t *at)
{
    uint64_t key = (uint64_t)(at[3] + (box->ndim ? box->offset[3] : 0));
    return gm_box_index(box, 3, shape, at) * gm_weight_row(box, shape[3]) + key;
}

GM_INLINE gm_philox gm_drop_block(const uint32_t *round_keys, uint64_t block, uint64_t step)
{
    gm_philox c = gm_philox_counter(block, step);
    for (int round = 0; round < GM_DROP_ROUNDS; round++)
        gm_philox_round(&c, round_keys[2 * round], round_keys[2 * round + 1]);
    return c;
}

/* Number i (0 to 7) of a block. */
GM_INLINE uint32_t gm_drop_number(gm_philox block, int i)
{
    return gm_philox_pick(block, i / 2) >> (i % 2 * 16) & 0xffffu;
}

GM_INLINE bool gm_is_dropped(const uint32_t *round_keys, uint32_t threshold, uint64_t index, uint64_t step)
{
    gm_philox block = gm_drop_block(round_keys, index / GM_DROP_EACH, step);
    return gm_drop_number(block, (int)(index % GM_DROP_EACH)) < threshold;
}

#endif
