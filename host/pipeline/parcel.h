/* parcel.h - a parcel is the asynchronous messages of one transfer between two stages, one message a value.
 *
 * A value that is replicated over the `scatter` axes is sent in slices. Each of these t ranks sends ceil(n / t) of the
 * n elements of its block (the last slices are padded with zeros), and the receivers gather the slices: M h / t bytes a
 * rank along the pipeline for a block of M h bytes (Narayanan et al. 2021, arXiv:2104.04473, section 4.1).
 *
 * A header (form.h) may come first: a message of GM_PARCEL_HEAD bytes that begins with the header's length, and a
 * second message with the rest of a longer header.
 *
 * The trap: gm_parcel_open is collective among the ranks that share slices, so they open parcels in one order. */
#ifndef GM_PARCEL_H
#define GM_PARCEL_H

#include "../comm/comm.h"
#include "form.h"

#define GM_PIPELINE_PATH "pipeline" /* in place of a module path, in accounts and reports */
#define GM_PARCEL_HEAD   1024

/* Where parcels go. */
typedef struct gm_route {
    gm_rank  *rank;
    gm_comm  *comm;
    gm_group *group;   /* along the pipeline */
    uint32_t  scatter; /* axes */
} gm_route;

typedef enum gm_parcel_state {
    GM_PARCEL_NEW,
    GM_PARCEL_HEADED, /* the header is awaited, */
    GM_PARCEL_REST,   /* its second message */
    GM_PARCEL_UNDER_WAY,
    GM_PARCEL_DONE
} gm_parcel_state;

typedef struct gm_parcel {
    struct gm_parcel *next;
    gm_parcel_state   state;
    int               peer, action; /* its place in the list; for the owner */
    gm_form          *form;         /* of a receive: of what comes */
    gm_tensor        *head, *rest;
    int               n, n_pending;
    gm_tensor        *part[GM_BORDER_MAX]; /* of a receive: what comes, whole blocks or slices */
    gm_pending       *pending[GM_BORDER_MAX + 2];
    int               n_ids; /* of its receives in the record of a step (gm_comm_take_id) */
    int32_t           ids[GM_BORDER_MAX + 2];
} gm_parcel;

/* Begins to send n values, after a header unless header is NULL. Values are borrowed; the parcel retains their blocks
 * until they are sent. */
gm_status gm_parcel_send(const gm_route *route, gm_parcel *p, const gm_form *header, int n, gm_value *const *v);

/* The same for gradients, without a header. Sums partial gradients first, over the scatter axes by a reduce_scatter
 * into the slices to be sent. Collective over the axes of these sums. */
gm_status gm_parcel_send_sums(const gm_route *route, gm_parcel *p, int n, gm_value *const *v);

/* Posts the receives of the values that p->form describes. */
gm_status gm_parcel_receive(const gm_route *route, gm_parcel *p);
/* Posts the receive of a header. */
gm_status gm_parcel_receive_header(const gm_route *route, gm_parcel *p);
/* *came: has the header arrived? wait: waits for it. Once it has, p->form is set. told: the form to use on the meta
 * transport, where nothing is received. */
gm_status gm_parcel_header_came(const gm_route *route, gm_parcel *p, bool wait, gm_form *told, bool *came);

/* Are all its messages done? */
gm_status gm_parcel_test(const gm_route *route, gm_parcel *p, bool *done);
gm_status gm_parcel_wait(const gm_route *route, gm_parcel *p);
/* Called after gm_parcel_wait of a receive: v receives p->form->n references to leaves, which require a gradient where
 * the form says so. */
gm_status gm_parcel_open(const gm_route *route, gm_parcel *p, gm_value **v);
/* Releases the parcel's tensors and drops its operations; the parcel can be used again. */
void gm_parcel_clear(const gm_route *route, gm_parcel *p);

#endif
