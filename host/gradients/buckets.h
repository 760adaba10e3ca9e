/* buckets.h - what a reducer is made of. Private to reducer.c, which runs the steps, and owned.c, which shares the sums
 * out (ZeRO). */
#ifndef GM_BUCKETS_H
#define GM_BUCKETS_H

#include "parts.h"
#include "reducer.h"

/* A parameter in its bucket. */
typedef struct slot {
    gm_value  *leaf;
    gm_tensor *view;         /* of its bucket: where the gradient's sum ends */
    int        bucket, next; /* next slot of the bucket, -1: the last */
    bool       ready;        /* final since armed */
    bool       used;         /* this rank had a gradient when its bucket was launched */
    bool       unused;       /* nobody had, in the last step */

    gm_parts parts; /* how the sum is shared out; and then */
    int64_t  at;    /* the member's place in the part of each owner */
} slot;

typedef struct bucket {
    gm_dtype    dtype, held; /* of the gradients and their sums; of the parameters */
    uint32_t    cut;         /* axes that cut its members, all alike: never summed over */
    uint32_t    owners;      /* axes over which the sums are shared out; 0: every rank has all of them */
    bool        stored;      /* the parameters rest in parts, too (stored.h) */
    int64_t     numel;       /* of flat */
    int64_t     bytes;       /* of the members' gradients as backward makes them */
    int         first, last; /* slots; the last has the lowest place among the leaves */
    int         members, waiting;
    gm_tensor  *flat; /* sums: of all elements, or of this rank's part */
    bool        launched;
    bool        summed; /* over more than this rank */
    gm_pending *pending;

    /* of sums that are shared out, while they are under way: */
    gm_tensor *packed; /* the parts of all owners */
    gm_tensor *sum;    /* this rank's part: flat, or another tensor where flat has the sum of an earlier pass */
    uint32_t   rest;   /* further axes to sum over */
} bucket;

struct gm_reducer {
    gm_rank    *rank;
    gm_reducer *chain;       /* the next one of r->reducer */
    uint32_t    owners;      /* axes over which sums are shared out */
    uint32_t    summed_over; /* since armed: all axes of sums that are shared out */
    bool        overlap, armed;
    bool        looked;             /* since armed: leaves that no tape awaits have been found */
    int         n, n_buckets, next; /* next: bucket to launch */
    int         oldest;             /* launched and perhaps not waited for */
    size_t      in_flight;          /* bytes of buckets under way: each has as much scratch, until it is waited for */
    slot       *slots;              /* as the leaves were given */
    bucket     *buckets;            /* in order of launch */
    int        *table;              /* hash of leaves: slot + 1 */
    int         table_room;
};

/* ---- reducer.c ---- */

/* Is this rank's gradient of the member a term of its sum over `axes`? One that is replicated over some of them counts
 * at their coordinate 0. */
bool gm_slot_counts(const gm_reducer *d, const slot *s, uint32_t axes);

/* ---- owned.c ---- */

/* Makes the bucket's flat and the views, which become gm_parameter.own. */
gm_status gm_owned_make(gm_reducer *d, bucket *b);
/* Packs the gradients, frees them, and begins to sum over the owners. axes: all that are to be summed over. */
gm_status gm_owned_launch(gm_reducer *d, bucket *b, uint32_t axes);
/* Waits, sums over the remaining axes, and adds the result to the members' own gradients. */
gm_status gm_owned_finish(gm_reducer *d, bucket *b);
/* When all sums are there: finds which members have a gradient. */
gm_status gm_owned_settle(gm_reducer *d);
/* Forgets what is under way. */
void gm_owned_drop(bucket *b);

#endif
