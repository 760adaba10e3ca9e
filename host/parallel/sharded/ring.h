/* ring.h - attention over a cut sequence: sequence parallelism whose degree only the length of the sequence limits.
 *
 * Keys and values travel round the p ranks that cut the sequence, and every rank's queries stay. A rank attends to each
 * block as it passes and merges the result with the previous ones by the log of the sum of exp (online softmax:
 * Milakov, Gimelshein 2018; ring self-attention: Li et al. arXiv:2105.13120; ring attention: Liu et al.
 * arXiv:2310.01889). The next block travels while the rank works on the present one. In backward keys and values travel
 * round again; the gradient of each block travels with it and arrives home at the end. A rank holds only a few blocks:
 * memory is O(s / p), and no scores are kept.
 *
 * Causal: a block, or half of one, that no query of a rank sees is neither sent to it nor computed. With contiguous
 * queries the last rank has 2 - 1/p times the mean work. Zigzag therefore redistributes the queries during the op: of
 * 2 p chunks a rank works on chunks i and 2 p - 1 - i, one of which is its own. All ranks then compute equally many
 * pairs of query and key, except for one pair of chunks. Values stay cut into contiguous blocks outside of the op.
 *
 * Elements sent in forward, the mean over p ranks, where blocks have S positions and n = b S d of a rank's batch
 * (padding is not sent; in backward keys and values count twice, as their gradients travel as far):
 *     not causal        2 (p-1) hk n
 *     causal            (p-1) hk n: need(r, j) rows of block j for rank r, which is all of those before its own
 *     causal, zigzag    (3p-2)/2 hk n, and n h for half of every block of queries there and half of o back, which
 *                       backward has for the gradients of o and q (p even; p odd: 1/p less of n h, and hk n / 2p less
 *                       of keys and values)
 *
 * A window: blocks that none of a rank's queries sees are neither sent nor computed. With a window that is no longer
 * than a block, a rank needs the block before its own at most, and AUTO leaves the queries where they are.
 *
 * Limits name keys of the whole sequence. What they leave only the device knows, so that every block travels as without
 * them; keys outside of them cost no work.
 *
 * The trap: the mask of hidden keys and the limits must be whole on every rank; where they are cut they are gathered, a
 * byte a key and 16 bytes a query. */
#ifndef GM_RING_H
#define GM_RING_H

#include "sharded.h"

/* gm_attrs.balance: are the queries of a causal attention shared out anew? AUTO: where each rank has
 * GM_RING_BALANCED_ROWS of them. With S rows a rank it saves the last rank 7 (p-1) S S h d operations, forward and
 * backward, and sends (3p+4)/2 S h d elements more: 1.4 S operations an element on two ranks, up to 4.7 S on many. From
 * 128 rows on that is more than a core computes while it moves a number. */
typedef enum gm_ring_balance { GM_RING_AUTO, GM_RING_CONTIGUOUS, GM_RING_ZIGZAG } gm_ring_balance;
#define GM_RING_BALANCED_ROWS 128

#endif
