/* ring_plan.h - who of a ring works on which queries, and which keys it needs. No communication. Private to ring*.c.
 *
 * Places count along the sequence: place j holds block j. In step t place r works on block (r + t) mod p, which place
 * r + 1 had in step t - 1: blocks go down the places. What r needs of a block is always its first rows; those that
 * r + 1 had come from there, the others straight from the block's home. Gradients of blocks go the same ways: rows that
 * the next place works on too go there, the others home. */
#ifndef GM_RING_PLAN_H
#define GM_RING_PLAN_H

#include "../../comm/comm.h"
#include "../../rank/rank.h"
#include "../../mesh/layout.h"

typedef struct gm_ring_run {
    int64_t first, count; /* positions in the whole sequence, without padding */
} gm_ring_run;

typedef struct gm_ring_place {
    int         member;        /* its place in the group */
    gm_ring_run queries, keys; /* that lie there */
    gm_ring_run work[2];       /* queries worked on there; each is within one block */
    int64_t     end;           /* keys from here on are seen by none of them */
} gm_ring_place;

typedef struct gm_ring_plan {
    int            p, here;
    bool           causal, zigzag;
    gm_group      *group;
    gm_ring_place *place; /* [p] */
} gm_ring_plan;

/* Queries (s) and keys (t) cut as dimension 1 of `layout` is. GM_ENOMEM. */
gm_status gm_ring_plan_new(gm_rank *r, const gm_layout *layout, int64_t s, int64_t t, bool causal, bool zigzag,
                           gm_ring_plan *plan);
void      gm_ring_plan_free(gm_ring_plan *plan);

/* Rows of block j that place r works with: the first ones. */
int64_t gm_ring_need(const gm_ring_plan *plan, int r, int j);
/* Of these, those that place r has from place r + 1; 0 for its own block. */
int64_t gm_ring_handed(const gm_ring_plan *plan, int r, int j);

static inline int gm_ring_step(const gm_ring_plan *plan, int r, int by)
{
    return ((r + by) % plan->p + plan->p) % plan->p;
}

/* Chunk k of 2 p, of the queries: which positions, where it lies, and where zigzag has it worked on. Pair i of chunks
 * is (i, 2 p - 1 - i), which lie at places i / 2 and p - 1 - i / 2: even pairs are worked on at the first of these, odd
 * ones at the second, so that of every pair one chunk stays where it is. Besides, no place then waits for another that
 * has more to do in the step before. */
gm_ring_run       gm_ring_chunk(const gm_ring_plan *plan, int k);
static inline int gm_ring_home(int k) { return k / 2; }
int               gm_ring_worker(const gm_ring_plan *plan, int k);

#endif
