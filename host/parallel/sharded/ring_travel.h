/* ring_travel.h - the messages of ring attention: keys and values round the ring, their gradients home, queries to
 * where they are worked on. Private to ring*.c.
 *
 * What travels has the sequence first: keys and values are (rows, 2, batch, key heads, size), queries and what
 * belongs to them (rows, batch, heads, size), so that any rows are one message. Messages between two places match in
 * order: every place makes its calls of a step in the order of the functions here. */
#ifndef GM_RING_TRAVEL_H
#define GM_RING_TRAVEL_H

#include "ring_plan.h"

#define GM_RING_FLIGHTS 4

typedef struct gm_flights {
    int         n;
    gm_pending *pending[GM_RING_FLIGHTS];
} gm_flights;

typedef struct gm_ring {
    gm_rank     *rank;
    gm_device   *dev;
    gm_comm     *comm;
    gm_ring_plan plan;
    gm_dtype     dtype;
    int64_t      batch, heads, key_heads, size; /* of the blocks */
    bool         sent;                          /* others may have had their part of something */

    gm_tensor *home, *passing[2]; /* keys and values: this place's; others', by step */
    gm_flights key_sends, key_receives;

    gm_tensor *gradient, *part[2], *before,
        *returned[2]; /* of home; of the block of a step; what others add to these */
    gm_flights part_sends[2], before_receives, returned_receives[2];

    gm_flights moves;
} gm_ring;

gm_status gm_ring_open(gm_rank *r, gm_ring *w);
void      gm_ring_close(gm_ring *w); /* what is under way is left to itself */

/* A new tensor, undefined contents; and filled with zeros. */
gm_status gm_ring_new(gm_ring *w, int ndim, const int64_t *shape, gm_tensor **out);
gm_status gm_ring_zero(gm_ring *w, gm_tensor *t);
gm_status gm_ring_copy(gm_ring *w, gm_tensor *from, gm_tensor *to);
/* (rows, batch, heads, size) of any strides as (batch, rows, heads, size), or the other way: a view. */
gm_status gm_ring_turn(gm_tensor *t, gm_tensor **out);

/* ---- keys and values: step t of 0 .. p - 1 ---- */

/* Takes memory, for gradients too if asked, then packs k and v (batch, room, heads, size), whose first rows are this
 * place's. */
gm_status gm_ring_keys_pack(gm_ring *w, gm_tensor *k, gm_tensor *v, bool gradients);
/* *k and *v (batch, rows, heads, size): what this place needs of the block of step t, waited for; the next is on its
 * way from now on. NULL: it needs nothing. New references. */
gm_status gm_ring_keys_step(gm_ring *w, int t, gm_tensor **k, gm_tensor **v);

/* ---- gradients of keys and values ---- */

/* Before gm_ring_keys_step: what other places have of the gradient of step t's block may come. */
gm_status gm_ring_gradient_await(gm_ring *w, int t);
/* After it: *dk and *dv, as the k and v of step t, to be added to. */
gm_status gm_ring_gradient_step(gm_ring *w, int t, gm_tensor **dk, gm_tensor **dv);
/* After the work of step t: its gradient leaves. */
gm_status gm_ring_gradient_leave(gm_ring *w, int t);
/* After the last step: all is done, and the gradient of this place's block is in dk and dv (batch, room, heads,
 * size), whose rows behind the block become zero. */
gm_status gm_ring_gradient_home(gm_ring *w, gm_tensor *dk, gm_tensor *dv);
/* After the last step, where there are no gradients. */
gm_status gm_ring_keys_end(gm_ring *w);

/* ---- queries: zigzag ---- */

/* Starts to move rows from where they lie (`home`) to where they are worked on (`work`), or back. Both are (rows,
 * batch, heads, size), contiguous; work has the place's two runs one after the other. */
gm_status gm_ring_move(gm_ring *w, bool back, gm_tensor *home, gm_tensor *work);
gm_status gm_ring_moved(gm_ring *w); /* waits */

#endif
