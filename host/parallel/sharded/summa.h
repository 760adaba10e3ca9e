/* summa.h - products of matrices that lie in blocks on q x q ranks. Private to this folder.
 *
 * SUMMA (van de Geijn, Watts 1997): q steps, in each of which blocks of what travels go to those who need them, every
 * rank multiplies two blocks, and the products either add up where they are or are summed on the rank that owns the
 * result of this step. The three forms are each other's gradients (Xu et al., arXiv:2104.05343):
 *
 *     AB    C(i,j) = sum_l A(i,l) B(l,j)     A travels along rows, B along columns, C stays
 *     AB'   C(i,l) = sum_j A(i,j) B(l,j)'    B travels along columns, A stays, C is summed along rows
 *     A'B   C(l,j) = sum_i A(i,l)' B(i,j)    A travels along rows, B stays, C is summed along columns
 *
 * What step l + 1 needs is under way while step l is multiplied, and so are sums of steps before. Elements sent by all
 * members of a group: (q-1) n for each block of n that travels, (q-1) n for each that is summed. Memory besides the
 * operands, whatever q: two blocks of each operand that travels; of a result that is summed, two that are sent and two
 * that come. */
#ifndef GM_SUMMA_H
#define GM_SUMMA_H

#include "../../comm/comm.h"
#include "../../autograd/work.h"

/* How much of a dimension of the blocks is not padding: `n` in every step, or, of n elements cut into blocks of `block`
 * (block > 0), what block l holds. */
typedef struct gm_span {
    int64_t n, block;
} gm_span;

typedef struct gm_operand {
    gm_tensor *block; /* this rank's: (rows, columns), contiguous, with padding */
    bool       transposed;
    gm_group  *along; /* in step l the block of place l goes over this group; NULL: it stays */
} gm_operand;

typedef struct gm_summa {
    gm_work   *work;
    int        steps; /* q; members of each group */
    gm_operand a, b;
    gm_span    m, k, n; /* of the products (m, k) (k, n) */
    gm_tensor *out;     /* this rank's block of the result, contiguous; outside m and n it becomes zero */
    bool       accumulate;
    gm_group  *sum; /* the result of step l belongs to place l of it; NULL: it stays and adds up */
} gm_summa;

/* A step of the work. Collective over the groups. Memory is taken before anything is sent: GM_ENOMEM only then. */
void gm_summa_run(const gm_summa *s);

/* c (+)= a b of the leading (m, k) and (k, n) of blocks, into the leading (m, n) of c; the rest of c becomes zero
 * unless accumulate. No communication. */
void gm_block_product(gm_work *w, const gm_operand *a, const gm_operand *b, int64_t m, int64_t k, int64_t n,
                      bool accumulate, gm_tensor *c);

#endif
