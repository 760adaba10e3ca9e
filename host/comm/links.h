/* links.h - collectives between devices that no byte of which passes through host memory: communicators of NCCL, each
 * on a queue of its device's (kernels/queues.h).
 *
 * A link is this device's place in a group of devices. What is issued on it runs in order, behind what the device had
 * been given when the operation's ticket was entered, and beside what it is given later. Nothing here waits, but what
 * says so: not for the device, and not for the other places, which need not have come.
 *
 *     queues->enter(dev, &ticket)
 *     gm_links_issue(link, ticket, ...)  when gm_links_ready says so; the moves of one call are one operation
 *     queues->leave(queue, ticket)       when it says so again; queue: gm_links_queue(link)
 *
 * The trap: every place must issue the same operations in the same order, or all hang on the device; stop ends that,
 * on this place alone. */
#ifndef GM_LINKS_H
#define GM_LINKS_H

#include "../../kernels/device.h"
#include "../../kernels/queues.h"

typedef struct gm_link gm_link;

typedef struct gm_link_id { /* of a group of places: made by one of them, the same at all */
    char bytes[128];
} gm_link_id;

typedef struct gm_link_facts {
    char library[32]; /* "NCCL 2.28.9" */
    bool revokes;     /* a link that fails is revoked; else it is aborted */
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

/* The library, loaded the first time: GANYMEDE_CUDA_NCCL in the environment, which is for specs, else libnccl.so.2.
 * GM_EINVAL: there is none ("none" is asked for, or this build is without), or it does not serve, with the reason. */
gm_status gm_links_find(gm_link_facts *out);
gm_status gm_links_new_id(gm_link_id *out);
/* Begins to make place `place` of n; the others must do so too. ready says when it is made. The device has queues. */
gm_status gm_links_open(gm_device *dev, const gm_link_id *id, int n, int place, gm_link **out);
gm_queue *gm_links_queue(gm_link *link);
/* Is the library through with what it was given? GM_ECOMM: it has failed here, also after operations were issued; its
 * words. */
gm_status gm_links_ready(gm_link *link, bool *ready);
gm_status gm_links_issue(gm_link *link, gm_ticket *ticket, const gm_link_move *moves, int n);
/* What runs on the device for this link ends, whatever the others do; nothing more can be issued. Waits some seconds
 * for a library that does not answer. */
void gm_links_stop(gm_link *link);
/* orderly: all places close, and everything has passed. Otherwise as stop. Frees; NULL is allowed. */
void gm_links_close(gm_link *link, bool orderly);

/* Opens a link of this device with itself and passes every kind of operation through it: does the library work here?
 * What can be tried with one GPU. Waits. GM_EINVAL: there is none; GM_ECOMM, GM_EHANG: it fails, with its words. */
gm_status gm_links_try(gm_device *dev, gm_link_facts *out);

#endif
