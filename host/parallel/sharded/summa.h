/* summa.h - products of matrices that lie in blocks on q x q ranks. Private to this folder. With another product, the
 * operands need not be matrices (convolution2d.c).
 *
 * SUMMA (van de Geijn, Watts 1997) takes q steps. In each step the owners broadcast blocks of the travelling operands,
 * every rank multiplies two blocks, and the products either add up in place or are summed on the rank that owns the
 * result of this step. The three forms are each other's gradients (Xu et al., arXiv:2104.05343):
 *
 *     AB    C(i,j) = sum_l A(i,l) B(l,j)     A travels along rows, B along columns, C stays
 *     AB'   C(i,l) = sum_j A(i,j) B(l,j)'    B travels along columns, A stays, C is summed along rows
 *     A'B   C(l,j) = sum_i A(i,l)' B(i,j)    A travels along rows, B stays, C is summed along columns
 *
 * The broadcasts of step l + 1 and the sums of earlier steps run while step l is multiplied. Elements sent by all
 * members of a group: (q-1) n for each block of n elements that travels, and (q-1) n for each block that is summed.
 * Memory in addition to the operands, whatever q is: two blocks of each operand that travels; two sent and two received
 * blocks of a result that is summed. */
#ifndef GM_SUMMA_H
#define GM_SUMMA_H

#include "../../comm/comm.h"
#include "../../autograd/work.h"

/* The logical size of a dimension of the blocks, without padding. block 0: n in every step. block > 0: n elements are
 * cut into blocks of `block`, and step l has the size of block l. */
typedef struct gm_span {
    int64_t n, block;
} gm_span;

typedef struct gm_operand {
    gm_tensor *block; /* this rank's: (rows, columns), contiguous, with padding */
    bool       transposed;
    gm_group  *along; /* in step l the block of place l goes over this group; NULL: it stays */
} gm_operand;

/* What stands for the product of two blocks: c (+)= a b. */
typedef void (*gm_summa_product)(gm_work *w, const void *context, gm_tensor *a, gm_tensor *b, bool accumulate,
                                 gm_tensor *c);

typedef struct gm_summa {
    gm_work   *work;
    int        steps; /* q; members of each group */
    gm_operand a, b;
    gm_span    m, k, n; /* of the products (m, k) (k, n) */
    gm_tensor *out;     /* this rank's block of the result, contiguous; outside m and n it becomes zero */
    bool       accumulate;
    gm_group  *sum; /* the result of step l belongs to place l of it; NULL: it stays and adds up */

    gm_summa_product product; /* of whole blocks, where m, k and n are not 0; NULL: of matrices */
    const void      *context; /* of the product */
} gm_summa;

/* Runs the product as a step of s->work. Collective over the groups. Allocates all memory before anything is sent, so
 * that GM_ENOMEM can only occur before. */
void gm_summa_run(const gm_summa *s);

/* Multiplies the leading (m, k) of a by the leading (k, n) of b into the leading (m, n) of c; the rest of c becomes
 * zero. accumulate: adds to c and leaves the rest. No communication. */
void gm_block_product(gm_work *w, const gm_operand *a, const gm_operand *b, int64_t m, int64_t k, int64_t n,
                      bool accumulate, gm_tensor *c);

#endif
