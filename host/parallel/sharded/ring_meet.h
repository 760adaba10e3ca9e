/* ring_meet.h - the work of ring attention: the queries of a place meet a block of keys. Private to ring*.c. */
#ifndef GM_RING_MEET_H
#define GM_RING_MEET_H

#include "ring_travel.h"

/* The queries worked on here: q, o, g, dq (batch, rows, heads, size), lse (batch, heads, rows). mask (batch, t) and
 * limits (batch, s, 2) are those of the whole sequence. */
typedef struct gm_ring_queries {
    gm_tensor *q, *o, *lse, *g, *dq, *mask, *limits;
    gm_attrs   attrs;
} gm_ring_queries;

/* All queries worked on here against k and v, the block of step t; dk and dv are added to, or NULL. */
gm_status gm_ring_attend(gm_ring *w, const gm_ring_queries *x, int t, gm_tensor *k, gm_tensor *v, gm_tensor *dk,
                         gm_tensor *dv);

#endif
