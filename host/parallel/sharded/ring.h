/* ring.h - attention over a sequence that is cut: sequence parallelism of the kind that has no limit but the sequence.
 *
 * Keys and values go round the p ranks that cut the sequence while every rank's queries stay; each block is attended to
 * as it passes, its result merged with what came before by the log of the sum of exp (online softmax: Milakov,
 * Gimelshein 2018; ring self-attention: Li et al. arXiv:2105.13120; ring attention: Liu et al. arXiv:2310.01889). The
 * next block is under way while the present one is worked on. In backward keys and values go round again, and the
 * gradient of each block goes with it and is home when the block has been everywhere. No rank ever holds more than a
 * few blocks: memory is O(s / p), of scores nothing is kept.
 *
 * Causal: a block, or the half of it, that no query of a rank sees is neither sent there nor computed. Left so, the
 * last rank has the work of 2 - 1/p mean ones, so the queries are shared out anew for the time of the op: of 2 p chunks
 * a rank works on an early one and its counterpart, i and 2 p - 1 - i (zigzag), one of which is its own, and all ranks
 * compute as many pairs of query and key, but for one pair of chunks. Values stay cut into contiguous blocks: this is
 * seen by nobody outside.
 *
 * Elements sent in forward, the mean over p ranks, where blocks have S positions and n = b S d of a rank's batch
 * (padding is not sent; in backward keys and values count twice, as their gradients travel as far):
 *     not causal        2 (p-1) hk n
 *     causal            (p-1) hk n: need(r, j) rows of block j for rank r, which is all of those before its own
 *     causal, zigzag    (3p-2)/2 hk n, and n h for half of every block of queries there and half of o back, which
 *                       backward has for the gradients of o and q (p even; p odd: 1/p less of n h, and hk n / 2p less
 *                       of keys and values)
 *
 * The trap: a mask of hidden keys is whole on every rank (one that is cut is gathered, a byte a key). */
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
