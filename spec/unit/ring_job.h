/* ring_job.h - ring attention against attention on whole tensors, for ring_test.c: outputs, every gradient, the bytes
 * that all ranks send, the work of each rank.
 *
 * What is expected is counted query by query and key by key: who works on a query, which keys it sees, where these lie.
 * All operands and the gradient of the result are N(0, 1): a backward that is off by the number of ranks, or that
 * leaves a block out, is off by as much as the gradients are large. */
#ifndef GM_RING_JOB_H
#define GM_RING_JOB_H

#include "../../host/parallel/sharded/ring.h"
#include "threads_transport.h"

enum { OF_Q, OF_K, OF_V, OF_SEED, OF_MASK };
enum { NO_MASK, WHOLE_MASK, CUT_MASK };

#define RING_RANKS 64

typedef struct ring_job {
    gm_mesh         mesh;
    gm_layout       rows;              /* of q (b, s, h, d); k and v are cut alike */
    int64_t         b, s, t, h, hk, d; /* h / hk query heads a key head */
    gm_dtype        dtype;
    bool            causal;
    int64_t         window; /* 0: none */
    double          softcap;
    gm_ring_balance balance;
    double          p, tolerance;
    int             mask;
    uint64_t        sent[2][RING_RANKS]; /* forward, backward */
    double          flops[RING_RANKS];   /* of attention; its gradient must have 2.5 times that */
} ring_job;

/* An operand's block, or the whole of it on every rank. */
gm_value *ring_operand(gm_rank *r, const ring_job *j, int which, bool cut);
gm_attrs  ring_attrs(const ring_job *j);
uint64_t  ring_bytes(gm_comm *c); /* sent since the last question */
/* Forward into *o and backward; notes bytes and FLOPs. in: q, k, v, -, mask. */
void ring_run(gm_rank *r, ring_job *j, gm_value **in, gm_value **o);
/* Both ways on threads, compared; then ring_counts. even: batch and heads are cut evenly. */
void ring_check(ring_job *j, bool even);
/* Bytes and work that were noted are as counted; where even the sum of the work is that of one rank. */
void ring_counts(const ring_job *j, bool even);
bool ring_is_zigzag(const ring_job *j);

#endif
