/* lane.h - a lane: the link of a group, or of one direction between two of its members. Private to lane.c, which has
 * the way of an operation along it, lane_moves.c and recorded.c, which has that of operations in graphs. */
#ifndef GM_LANE_H
#define GM_LANE_H

#include "links.h"
#include "state.h"

struct gm_lane {
    gm_lane    *next;
    gm_link    *link; /* NULL: not opened */
    gm_link_id  id;
    gm_pending *connecting;        /* sends or receives the id; NULL: done */
    int         size, place;       /* of this rank */
    uint64_t    turns, left, done; /* operations that have begun, are queued on the device, have passed it */
};

/* Is it a message between two members, whose lane is that of its direction? */
bool gm_lane_is_message(const gm_pending *p);
/* Where the lane of this operation is kept; *at NULL: it is not made yet. */
gm_lane **gm_lane_place(const gm_pending *p);

/* ---- lane_moves.c: what it moves ---- */

/* Memory for blocks of in and out, where they do not lie one after the other. */
gm_status gm_lane_take_blocks(gm_pending *p);
/* Packs and unpacks them in the lane's queue, where they need it. */
gm_status gm_lane_pack(gm_pending *p);
gm_status gm_lane_unpack(gm_pending *p);
/* Gives the operation to the library. */
gm_status gm_lane_move(gm_pending *p);

/* ---- recorded.c: operations of a graph ---- */

/* Called for an operation that begins while its device records: the graph keeps its tensors. GM_EINVAL: its link is not
 * made yet, or nobody has begun the recording by gm_comm_record_begin. */
gm_status gm_recorded_take(gm_pending *p);
/* The order of collectives in a graph: p comes behind those that were recorded before; later ones come behind p. */
gm_status gm_recorded_follow(gm_pending *p);
gm_status gm_recorded_left(gm_pending *p);
/* Launches the graph of a replay behind everything that lanes have been given; does nothing where something is still on
 * its way to the device. */
gm_status gm_recorded_launch(gm_pending *p);

#endif
