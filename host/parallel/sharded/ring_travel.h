/* ring_travel.h - the messages of ring attention: keys and values go round the ring, their gradients go home, queries
 * go to the places that work on them. Private to ring*.c.
 *
 * In tensors that travel the sequence is the first dimension: keys and values are (rows, 2, batch, key heads, size),
 * queries and tensors of their shape are (rows, batch, heads, size). So any range of rows is one message. Messages
 * between two places match in order, so every place must call the functions of a step in the order given here. */
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
    int64_t      batch, heads, key_heads, size; /* the shape of a block */
    bool         sent;                          /* other ranks may have received something: no second try */

    gm_tensor *home, *passing[2]; /* keys and values: those of this place, and those of others, by step */
    gm_flights key_sends, key_receives;

    /* The gradient of home; the gradient of the block of a step; what other places add to these. */
    gm_tensor *gradient, *part[2], *before, *returned[2];
    gm_flights part_sends[2], before_receives, returned_receives[2];

    gm_flights moves;
} gm_ring;

gm_status gm_ring_open(gm_rank *r, gm_ring *w);
void      gm_ring_close(gm_ring *w); /* leaves messages under way to the comm (gm_comm_drop) */

/* Makes a tensor with undefined values. gm_ring_zero fills one with zeros. */
gm_status gm_ring_new(gm_ring *w, int ndim, const int64_t *shape, gm_tensor **out);
gm_status gm_ring_zero(gm_ring *w, gm_tensor *t);
gm_status gm_ring_copy(gm_ring *w, gm_tensor *from, gm_tensor *to);
/* A view of (rows, batch, heads, size), of any strides, as (batch, rows, heads, size), or the other way round. */
gm_status gm_ring_turn(gm_tensor *t, gm_tensor **out);

/* ---- keys and values: step t of 0 .. p - 1 ---- */

/* Allocates the tensors that travel, with `gradients` also those of the gradients. Then packs k and v (batch, room,
 * heads, size), of which the first rows are this place's keys and values, and the others padding. */
gm_status gm_ring_keys_pack(gm_ring *w, gm_tensor *k, gm_tensor *v, bool gradients);
/* Waits for the rows that this place needs of the block of step t, and gives them as *k and *v (batch, rows, heads,
 * size), new references; NULL: it needs none. Also starts the messages of the next step. */
gm_status gm_ring_keys_step(gm_ring *w, int t, gm_tensor **k, gm_tensor **v);

/* ---- gradients of keys and values ---- */

/* Called before gm_ring_keys_step: posts the receives of what other places add to the gradient of step t's block. */
gm_status gm_ring_gradient_await(gm_ring *w, int t);
/* Called after it: gives *dk and *dv, of the shape of k and v of step t, to which the caller adds. */
gm_status gm_ring_gradient_step(gm_ring *w, int t, gm_tensor **dk, gm_tensor **dv);
/* Called after the work of step t: sends its gradient on. */
gm_status gm_ring_gradient_leave(gm_ring *w, int t);
/* Called after the last step: waits for all messages. Writes the gradient of this place's block into dk and dv (batch,
 * room, heads, size); their rows behind the block become zero. */
gm_status gm_ring_gradient_home(gm_ring *w, gm_tensor *dk, gm_tensor *dv);
/* Called after the last step if there are no gradients. */
gm_status gm_ring_keys_end(gm_ring *w);

/* ---- queries: zigzag ---- */

/* Starts to move rows from the places that hold them (`home`) to the places that work on them (`work`), or back. Both
 * tensors are (rows, batch, heads, size), contiguous. `work` has the two runs of the place one after the other. */
gm_status gm_ring_move(gm_ring *w, bool back, gm_tensor *home, gm_tensor *work);
gm_status gm_ring_moved(gm_ring *w); /* waits until they have moved */

#endif
