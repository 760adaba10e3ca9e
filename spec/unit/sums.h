/* sums.h - what all p members together send of an all_reduce of n bytes, for tests. It is written from what
 * docs/ranks.md says, and asks nothing of the code under test. */
#ifndef GM_SUMS_H
#define GM_SUMS_H

#include <stdint.h>

/* One round, in which each sends all to all others, where that sends at most 8 KiB a member more than two do. */
static inline uint64_t sum_bytes(uint64_t p, uint64_t n)
{
    uint64_t two_rounds = 2 * (p - 1) * n, one_round = p * (p - 1) * n;
    return n <= 16384 && one_round <= two_rounds + p * 8192 ? one_round : two_rounds;
}

#endif
