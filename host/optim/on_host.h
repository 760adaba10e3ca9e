/* on_host.h - updates of optimizer states that rest below a GPU: the host makes them, with the kernels of the CPU
 * (ZeRO-Offload: Ren et al. 2021, arXiv:2101.06840).
 *
 * The states are tensors of the device beside the rank's (gm_rank_beside), in page-locked memory, or in a tier on a
 * disk below that. Of each parameter the gradient comes down, and the parameter where it is no rounded master; the
 * update is made there, and the parameter goes up again. A trip is what one unit of parameters needs for that: while
 * the host updates one unit, the gradients of the next come down in one queue, and the parameters of the one before go
 * up in another. The trap: the host has to know the decision about the step before it begins, so it waits for the
 * device once in each step, and such a step is no part of a CUDA graph.
 *
 *     gm_on_host_decided(h, control, &go)                     // waits for the device; go false: nothing is to be done
 *     gm_trip_add(h, &trip, tensor, GM_TRIP_DOWN, &twin)      // for each tensor of the device
 *     gm_trip_fetch(h, &trip)                                 // the copies begin
 *     gm_trip_arrive(h, &trip)                                // they are there
 *     gm_run(h->device, call of twins)
 *     gm_trip_return(h, &trip)                                // what was changed goes up; nobody waits
 *     gm_trip_end(h, &trip)                                   // waits for that, and frees the twins
 */
#ifndef GM_ON_HOST_H
#define GM_ON_HOST_H

#include "../../kernels/queues.h"
#include "../autograd/value.h"

typedef struct gm_on_host {
    gm_rank   *rank;
    gm_device *device;    /* of the host; borrowed */
    uint64_t   unit;      /* bytes of gradients and parameters that one trip takes, at most; or one parameter */
    gm_queue  *down, *up; /* NULL on meta */
    gm_tensor *control;   /* of the step, as the host sees it */
    gm_tensor *missed;    /* of the parameters of a group */
    gm_tensor *trust;     /* kernels/trust.h; NULL: no trust ratios */
} gm_on_host;

enum { GM_TRIP_DOWN = 1, GM_TRIP_UP = 2 };

typedef struct gm_twin {
    gm_tensor *of;     /* of the device, as it was given */
    gm_tensor *packed; /* the same without gaps: `of` itself, or a copy */
    gm_tensor *here;   /* of the host */
    gm_tensor *from;   /* of the host: `here` becomes it, converted, before it goes up; NULL: it is changed in place */
    int        ways;
    bool       open; /* the storage of `of` */
} gm_twin;

typedef struct gm_trip {
    int        n, room;
    gm_twin   *twins;
    gm_ticket *down, *up; /* under way */
} gm_trip;

/* r: a rank whose device has memory of its own. */
gm_status gm_on_host_new(gm_rank *r, uint64_t unit, gm_on_host **out);
void      gm_on_host_free(gm_on_host *h); /* NULL is allowed */

/* Takes the decision of a step to the host; control NULL: the update is made, and h->control is of no use. */
gm_status gm_on_host_decided(gm_on_host *h, const gm_tensor *control, bool *go);
/* *here: what a group has missed, as the host sees it, borrowed until the next call; NULL: nothing. */
gm_status gm_on_host_missed(gm_on_host *h, const gm_tensor *missed, gm_tensor **here);

/* device += here, behind what is queued; and here = device, which waits for it. Tensors without gaps, of one shape. */
gm_status gm_on_host_add(gm_on_host *h, const gm_tensor *here, gm_tensor *device);
gm_status gm_on_host_read(const gm_on_host *h, const gm_tensor *device, gm_tensor *here);

/* *here: a tensor of the host with the shape and dtype of `of`, borrowed until the trip ends. */
gm_status gm_trip_add(gm_on_host *h, gm_trip *t, gm_tensor *of, int ways, gm_tensor **here);
gm_status gm_trip_fetch(gm_on_host *h, gm_trip *t);
gm_status gm_trip_arrive(gm_on_host *h, gm_trip *t);
gm_status gm_trip_return(gm_on_host *h, gm_trip *t);
/* Frees what belongs to it. It may begin anew. If it cannot wait, memory that a copy may still use stays taken. */
gm_status gm_trip_end(gm_on_host *h, gm_trip *t);

#endif
