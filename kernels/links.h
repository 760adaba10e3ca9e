/* links.h - collectives between devices that no byte of which passes through host memory: what a backend offers to
 * host/comm (gm_backend.links), NCCL on "cuda".
 *
 * A link is this device's place in a group of devices, with a queue (stream) of its own beside the device's. What is
 * issued on a link runs in order, behind what the device had been given when the operation was entered, and beside
 * what it is given later; gm_links.order makes the device's later work come behind it. So nothing here waits: not for
 * the device, and not for the other places, which need not have come.
 *
 *     enter(link, &ticket)       behind what is queued on the device now
 *     issue(link, ticket, ...)   when ready(link) says so; the moves of one call are one operation
 *     leave(link, ticket)        when ready(link) says so again: the ticket can now be ordered after and asked for
 *     order(link, ticket)        the device's work from here on comes behind it
 *     give(link, ticket)         may be done before it has passed
 *
 * The trap: every place must issue the same operations in the same order, or all hang on the device; stop ends that,
 * on this place alone. */
#ifndef GM_LINKS_H
#define GM_LINKS_H

#include "dtype.h"
#include "status.h"

struct gm_device;

typedef struct gm_link   gm_link;
typedef struct gm_ticket gm_ticket;

typedef struct gm_link_id { /* of a group of places: made by one of them, the same at all */
    char bytes[128];
} gm_link_id;

typedef struct gm_link_facts {
    char library[32]; /* "NCCL 2.28.9" */
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

typedef struct gm_links {
    /* GM_EINVAL: there is no library, or it does not serve, with the reason. */
    gm_status (*find)(struct gm_device *dev, gm_link_facts *out);
    gm_status (*new_id)(struct gm_device *dev, gm_link_id *out);
    /* Begins to make place `place` of n; the others must do so too. ready says when it is made. */
    gm_status (*open)(struct gm_device *dev, const gm_link_id *id, int n, int place, gm_link **out);
    /* GM_ECOMM: the library has failed here, also after operations were issued; its words. */
    gm_status (*ready)(gm_link *link, bool *ready);

    gm_status (*enter)(struct gm_device *dev, gm_ticket **out);
    gm_status (*issue)(gm_link *link, gm_ticket *ticket, const gm_link_move *moves, int n);
    gm_status (*leave)(gm_link *link, gm_ticket *ticket);
    gm_status (*order)(struct gm_device *dev, gm_ticket *ticket);
    /* begun: the device has come to it. Before `leave`, done is false. */
    gm_status (*passed)(struct gm_device *dev, gm_ticket *ticket, bool *begun, bool *done);
    void (*give)(struct gm_device *dev, gm_ticket *ticket); /* NULL is allowed */

    /* Kernels launched from here on go to the link's queue, behind the ticket's entry; NULL: to the device's again. */
    gm_status (*launch_on)(struct gm_device *dev, gm_link *link, gm_ticket *ticket);

    /* What runs on the device for this link ends, whatever the others do; nothing more can be issued. */
    void (*stop)(gm_link *link);
    /* orderly: all places close, and everything has passed. Otherwise as stop. Frees; NULL is allowed. */
    void (*close)(gm_link *link, bool orderly);
} gm_links;

/* Opens a link of this device with itself and passes every kind of operation through it: does the library work here?
 * What can be tried with one GPU. Waits. GM_EINVAL: there is none; GM_ECOMM, GM_EHANG: it fails, with its words. */
gm_status gm_links_try(struct gm_device *dev, gm_link_facts *out);

#endif
