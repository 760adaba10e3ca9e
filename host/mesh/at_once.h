/* at_once.h - which all_reduces take one round in place of two. All members decide alike, because the number of members
 * and the size alone decide, and so do planners, who know nothing else.
 *
 * Two rounds (slices, then sums of slices) send 2 (p - 1) / p n bytes from each of p members; one round, in which each
 * sends all n bytes to all others, sends (p - 1) n. One round is taken while what it sends more, (p - 1) (p - 2) / p n,
 * costs no more than a round. docs/performance_ranks.md has what was measured. */
#ifndef GM_AT_ONCE_H
#define GM_AT_ONCE_H

#include <stdbool.h>
#include <stddef.h>

#define GM_AT_ONCE_BYTES (16 << 10) /* of the tensor, at most: transports send so much unasked */
#define GM_ROUND_BYTES   (8 << 10)  /* that a rank sends in the time that another round takes */

/* Does an all_reduce of n bytes over p members take one round? */
static inline bool gm_sums_at_once(int p, size_t n)
{
    size_t others = p > 1 ? (size_t)p - 1 : 0;
    return others && n <= GM_AT_ONCE_BYTES && others * (others - 1) * n <= (size_t)p * GM_ROUND_BYTES;
}

#endif
