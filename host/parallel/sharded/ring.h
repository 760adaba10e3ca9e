/* ring.h - attention over a sequence that is cut: sequence parallelism of the kind that has no limit but the sequence.
 *
 * Keys and values go round the p ranks that cut the sequence while every rank's queries stay; each block is attended to
 * as it passes, its result merged with what came before by the log of the sum of exp (online softmax: Milakov,
 * Gimelshein 2018; ring self-attention: Li et al. arXiv:2105.13120; ring attention: Liu et al. arXiv:2310.01889). The
 * next block is under way while the present one is worked on. In backward keys and values go round again, and the gradient of each
 * block goes with it and is home when the block has been everywhere. No rank ever holds more than a few blocks: memory
 * is O(s / p), of scores nothing is kept.
 *
 * Causal: a block, or the half of it, that no query of a rank sees is neither sent there nor computed. Left so, the
 * last rank has the work of 2 - 1/p mean ones, so the queries are shared out anew for the time of the op: of 2 p chunks
 * rank r works on r and 2p - 1 - r (zigzag), and all ranks compute as many pairs of query and key, but for one pair of
 * chunks. Values stay cut into contiguous blocks: this is seen by nobody outside.
 *
 * The trap: a mask of hidden keys is whole on every rank (one that is cut is gathered, a byte a key). */
#ifndef GM_RING_H
#define GM_RING_H

#include "../../autograd/apply.h"

/* Are the queries of a causal attention shared out anew? AUTO: where each rank has at least GM_RING_BALANCED_ROWS of
 * them. Fewer, and moving them costs more time than the even work saves. */
#define GM_RING_BALANCED_ROWS 128

typedef enum gm_ring_balance { GM_RING_AUTO, GM_RING_CONTIGUOUS, GM_RING_ZIGZAG } gm_ring_balance;
#define GM_RING_BALANCED_ROWS 128

/* o = attention as GM_OP_attention: q (b, s, h, d), k and v (b, t, hk, d), key_mask u8 (b, t) or NULL; attrs: causal,
 * scale, p with stream and box. The sequences are cut alike by one axis or more; batch and heads may be cut by others
 * as that op's layout rule allows, key_mask may be cut along t. o is cut as q. Where no sequence is cut it is that op,
 * bit for bit. Dropped are the same probabilities as on one rank. One reference to *o. Collective over the axes of the
 * sequence, in forward and in backward.
 *
 * Elements sent, of blocks of S positions (padding is not sent), n = b S d of this rank's batch and heads:
 *     not causal      forward 2 (p-1) hk n a rank, backward twice that
 *     causal          let need(r, j) be how many rows of block j rank r sees: all ranks together forward
 *                     2 hk (n / S) sum of need(r, j) over r != j, backward twice that: half of the above
 *     causal, zigzag  the same sum, about 3/4; and every chunk of queries that is not worked on where it lies, once
 *                     there and once back (h c d b elements of a chunk of c rows), in backward too
 *
 * GM_ESHAPE: what GM_OP_attention refuses; sequences cut in different ways; a causal attention of s != t. GM_EINVAL:
 * memory that ran out after something was sent. */
gm_status gm_ring_attention(gm_rank *r, gm_value *q, gm_value *k, gm_value *v, gm_value *key_mask,
                            const gm_attrs *attrs, gm_ring_balance balance, gm_value **o);

#endif
