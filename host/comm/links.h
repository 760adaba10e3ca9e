/* links.h - collectives between devices that bypass host memory: NCCL communicators, each on a queue of its device
 * (kernels/queues.h).
 *
 * A link is this device's place in a group of devices. Operations issued on a link run in order. An operation runs
 * after the work that the device had when the operation's ticket was entered, and concurrently with later work. The
 * functions wait neither for the device nor for the other places, except where their comment says "waits".
 *
 *     queues->enter(dev, &ticket)
 *     gm_links_issue(link, ticket, ...)  once gm_links_ready gives true; the moves of one call are one operation
 *     queues->leave(queue, ticket)       once it gives true again; queue: gm_links_queue(link)
 *
 * While the device records a graph, tickets of queues->fork make the operation a part of it (recorded.c).
 *
 * The trap: every place must issue the same operations in the same order, or all of them hang on the device.
 * gm_links_stop ends such a hang on its own place only. */
#ifndef GM_LINKS_H
#define GM_LINKS_H

#include "../../kernels/device.h"
#include "../../kernels/queues.h"

typedef struct gm_link gm_link;

typedef struct gm_link_id { /* identifies a group of places: one of them makes it and sends it to the others */
    char bytes[128];
} gm_link_id;

typedef struct gm_link_facts {
    char library[32]; /* "NCCL 2.28.9" */
    char path[256];   /* of the library */
} gm_link_facts;

typedef enum gm_link_kind {
    GM_LINK_ALL_REDUCE,
    GM_LINK_REDUCE, /* to: looked at at the place `peer` */
    GM_LINK_BROADCAST,
    GM_LINK_ALL_GATHER,     /* count elements of each place, joined */
    GM_LINK_REDUCE_SCATTER, /* count elements to each place */
    GM_LINK_SEND,
    GM_LINK_RECEIVE,
} gm_link_kind;

typedef enum gm_link_sum { GM_LINK_SUM, GM_LINK_MEAN, GM_LINK_MAX, GM_LINK_MIN } gm_link_sum;

typedef struct gm_link_move {
    gm_link_kind kind;
    gm_dtype     dtype;
    gm_link_sum  sum;
    int          peer; /* the other place, or the root */
    const void  *from;
    void        *to;
    size_t       count; /* elements */
} gm_link_move;

/* Loads the library at the first call and describes it. The library is the file that GANYMEDE_CUDA_NCCL names in the
 * environment (for specs), else libnccl.so.2. GM_EINVAL, with the reason: there is no library ("none" was asked for, or
 * this build has no NCCL), or it cannot be used. */
gm_status gm_links_find(gm_link_facts *out);
gm_status gm_links_new_id(gm_link_id *out);
/* Begins to open place `place` of n; every other place must do the same. The link is open when gm_links_ready gives
 * true. dev must have queues. The caller frees the link with gm_links_close. */
gm_status gm_links_open(gm_device *dev, const gm_link_id *id, int n, int place, gm_link **out);
gm_queue *gm_links_queue(gm_link *link);
/* *ready: has the library finished the last call? GM_ECOMM, with the library's message: it has failed, possibly in an
 * operation issued earlier. */
gm_status gm_links_ready(gm_link *link, bool *ready);
gm_status gm_links_issue(gm_link *link, gm_ticket *ticket, const gm_link_move *moves, int n);
/* Ends what runs on the device for these links, whatever the other places do, and waits for that end. Nothing more can
 * be issued. All links that have work on the device belong into one call: that of one may be behind that of another,
 * or in one graph with it. The caller ends graphs that hold operations of them before. */
void gm_links_stop(gm_link *const *links, int n);
/* Frees the link. orderly: promises that all places close and that all operations have passed; otherwise the link is
 * stopped first. NULL is allowed. */
void gm_links_close(gm_link *link, bool orderly);

/* Tests whether the library works here, as far as one GPU can: opens a link of this device with itself and runs every
 * kind of operation on it, at once and as part of a graph. Waits. GM_EINVAL: there is no library. GM_ECOMM, GM_EHANG:
 * it fails; its message. */
gm_status gm_links_try(gm_device *dev, gm_link_facts *out);

#endif
