/* ring_plan.h - plans ring attention: which place of the ring works on which queries, and which keys it needs. It does
 * not communicate. Private to ring*.c.
 *
 * Places count along the sequence: place j holds block j of the keys. In step t, place r works on block (r + t) mod p,
 * which place r + 1 had in step t - 1. So blocks move from each place to the one below it. A place needs the first rows
 * of a block, all or some. Rows that place r + 1 had come from there; the others come directly from the block's home,
 * place j. Gradients of blocks travel in the same ways: rows that the next place works on, too, go there, and the
 * others go home. */
#ifndef GM_RING_PLAN_H
#define GM_RING_PLAN_H

#include "../../comm/comm.h"
#include "../../rank/rank.h"
#include "../../mesh/layout.h"

typedef struct gm_ring_run {
    int64_t first, count; /* positions in the whole sequence, without padding */
} gm_ring_run;

typedef struct gm_ring_place {
    int         member;        /* its rank in the group */
    gm_ring_run queries, keys; /* the queries and keys that it holds */
    gm_ring_run work[2];       /* the queries that it works on; each run lies within one block */
} gm_ring_place;

typedef struct gm_ring_plan {
    int            p, here;
    bool           causal, zigzag;
    int64_t        window; /* causal: a query sees the last `window` keys up to its own place; 0: all of them */
    gm_group      *group;
    gm_ring_place *place; /* [p] */
} gm_ring_plan;

/* Makes a plan for s queries and t keys, both cut as dimension 1 of `layout` is. GM_ENOMEM. */
gm_status gm_ring_plan_new(gm_rank *r, const gm_layout *layout, int64_t s, int64_t t, const gm_attrs *attrs,
                           bool zigzag, gm_ring_plan *plan);
void      gm_ring_plan_free(gm_ring_plan *plan);

/* The keys of block j that a run of queries sees, without the mask; count 0: none. */
gm_ring_run gm_ring_seen(const gm_ring_plan *plan, gm_ring_run queries, int j);

/* How many rows of block j place r needs. They are the first rows: those before a window that begins in the block are
 * sent as well. */
int64_t gm_ring_need(const gm_ring_plan *plan, int r, int j);
/* How many of these rows place r receives from place r + 1; 0 for its own block. */
int64_t gm_ring_handed(const gm_ring_plan *plan, int r, int j);

static inline int gm_ring_step(const gm_ring_plan *plan, int r, int by)
{
    return ((r + by) % plan->p + plan->p) % plan->p;
}

/* The queries are 2 p chunks. For chunk k: its positions, the place that holds it (home), and the place that works on
 * it under zigzag (worker). Chunks i and 2 p - 1 - i are pair i; they lie at places i / 2 and p - 1 - i / 2. Of an even
 * pair both chunks are worked on at the first of these places, of an odd pair at the second. So one chunk of every pair
 * stays where it is. Also, no place then waits for another one that had more to do in the step before. */
gm_ring_run       gm_ring_chunk(const gm_ring_plan *plan, int k);
static inline int gm_ring_home(int k) { return k / 2; }
int               gm_ring_worker(const gm_ring_plan *plan, int k);

#endif
