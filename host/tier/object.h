/* object.h - what a tier is made of. Inside of host/tier alone: tier.c moves objects in and out of the ring, carry.c
 * moves their bytes to where they rest. */
#ifndef GM_TIER_OBJECT_H
#define GM_TIER_OBJECT_H

#include "order.h"
#include "passage.h"
#include "space.h"
#include "tier.h"

typedef enum state {
    RESTING, /* in the tier alone */
    COMING,  /* being read into the ring */
    HERE,    /* in the ring, as in the tier unless it is open */
    GOING    /* in the ring, being written; may be open, too */
} gm_object_state;

typedef struct gm_object {
    gm_home           home; /* the first, so that a home is its object */
    gm_tier          *tier;
    gm_storage       *storage;
    uint64_t          at, room; /* in the file */
    gm_tensor        *below;    /* in the tier of the host below a GPU, instead */
    char             *memory;   /* in the ring; NULL on meta */
    gm_object_state   state;
    int               opens;
    uint64_t          used; /* the clock at its last use */
    bool              changed;
    bool              blank;    /* what the tier has of it is of no use: nothing was written yet, or it was discarded */
    gm_disk_transfer *transfer; /* COMING, GOING: of a disk, */
    gm_passage       *way;      /* or to and from the host */
    int32_t           recorded; /* of what is under way: its id in the record of the step (journal.h); 0: none */
    int               place;    /* in gm_tier.objects; -1: it is on the stack */
    struct gm_object *over, *under; /* on the stack */
} gm_object;

struct gm_tier {
    int           refs; /* the owner's, and one for each object */
    gm_device    *device;
    gm_disk      *disk;  /* NULL: of the host, or on meta */
    gm_tier      *below; /* of the host, where the bytes of a device with memory of its own rest; NULL: here */
    gm_passages  *ways;  /* to it */
    gm_block     *block; /* of the ring */
    char         *memory;
    gm_space      ring;
    uint64_t      clock;   /* goes up with each use */
    gm_object   **objects; /* by place; NULL: has gone */
    int           n_objects;
    gm_order      order;  /* in which they were opened */
    gm_object    *top;    /* of the stack */
    uint64_t      coming; /* bytes */
    gm_tier_stats stats;
};

/* Have bytes that are here a place in a ring? */
static inline bool gm_tier_has_ring(const gm_tier *t) { return t->stats.kind == GM_TIER_DISK || t->below; }

/* ---- carry.c ---- */

uint64_t  gm_tier_pages(uint64_t bytes); /* rounded up to whole pages, of which there is one at least */
gm_status gm_tier_check_limit(const gm_tier *t, uint64_t bytes);
/* Begin to read or write an object's bytes, between the ring and where they rest; and end what was begun. */
gm_status gm_object_read(gm_object *o);
gm_status gm_object_write(gm_object *o);
gm_status gm_object_settle(gm_object *o);

#endif
