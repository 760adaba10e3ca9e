/* flow.h - the state of an executor while a step runs; private to host/pipeline. See executor.h.
 *
 * A passage is one micro-batch in one chunk, from its forward pass to its last backward action. A parcel is a transfer
 * under way (parcel.h). Both are released at the end of a step, so between steps an executor holds no tensor and no
 * message. Its arrays are reused. */
#ifndef GM_FLOW_H
#define GM_FLOW_H

#include "parcel.h"

/* An output that the backward pass begins at: its description for the tape, without data, which is freed as soon as it
 * is sent. */
typedef struct gm_root {
    gm_value  like;
    gm_tensor header; /* like.local; no storage */
} gm_root;

typedef struct gm_passage {
    bool      ran, went_back; /* its forward; its backward or backward_input */
    bool      held;           /* counts in the executor's held */
    bool      has_loss;       /* the last root is one */
    int       n_in, n_out, n_roots, n_seeds, n_gradients;
    gm_value *in[GM_BORDER_MAX]; /* leaves */
    gm_value *out[GM_BORDER_MAX];
    char     *text_in, *text_out;
    gm_tape  *tape;
    gm_root  *root;                    /* outputs that require a gradient, then the loss if it does */
    gm_value *seed[GM_BORDER_MAX + 1]; /* handed over by the next part on this rank */
    gm_form  *back;                    /* of the gradients that come back from another rank */
    gm_value *gradient[GM_BORDER_MAX]; /* of the inputs that require one */
    int       receive[2];              /* action that receives its activation, its gradient; -1: none */
} gm_passage;

/* Actions of a list, beside the event of each. */
typedef struct gm_plan {
    int        next_receive; /* the next one from the same peer, -1: none */
    gm_parcel *parcel;       /* of a receive that was begun and not read */
} gm_plan;

struct gm_executor {
    gm_rank            *rank;
    gm_executor_options options;
    gm_agreed          *agreed;
    uint64_t            epoch; /* of the comm, when agreed was last used */

    const gm_executor_step *step;  /* being run */
    gm_route                route; /* group NULL: no axis pipeline */
    char                   *path;  /* module path outside */
    int                     held, peak;
    bool                    awaited; /* final: the tapes of the last passes are announced */

    gm_passage        *passages;
    gm_plan           *plan;
    gm_executor_event *events;
    int                passage_room, action_room, n_events;
    int               *next_of_peer; /* first receive from each peer that is not posted, -1: none */
    int                peer_room;
    int               *last; /* of each chunk: its last backward or backward_weight, -1: none */
    int                chunk_room;
    int                ahead;         /* receives in front of it are to be posted */
    int                oldest;        /* no receive in front of it is under way */
    gm_parcel         *sends, *spare; /* under way; free */
};

gm_passage *gm_flow_passage(gm_executor *e, int micro_batch, int chunk);
/* The chunk of this rank that holds a part; -1: none. */
int        gm_flow_chunk_of(const gm_executor *e, int part);
gm_parcel *gm_flow_parcel(gm_executor *e, int peer, int action); /* NULL: no memory */
void       gm_flow_spare(gm_executor *e, gm_parcel *p);          /* cleared, for the next one */
/* hold: counts the passage as held, from its forward on. let_go: ends that and releases its inputs and tape. */
void gm_flow_hold(gm_executor *e, gm_passage *passage);
void gm_flow_let_go(gm_executor *e, gm_passage *passage);
/* Releases the references of a callback's result. */
void gm_result_release(gm_stage_result *result);
/* Charges messages and their memory to the pipeline. */
gm_status gm_flow_enter(gm_executor *e);
gm_status gm_flow_leave(gm_executor *e);

/* transfer.c */
gm_status gm_flow_send(gm_executor *e, int at);
/* Posts receives as far ahead as their shapes are known. now: the action about to run. */
gm_status gm_flow_post(gm_executor *e, int now);
/* Waits for a receive: *n references into v (room for GM_BORDER_MAX) and, unless text is NULL, the text, which the
 * caller frees, also on failure. */
gm_status gm_flow_take(gm_executor *e, int at, int *n, gm_value **v, char **text);
/* Releases the parcels that are sent; all: waits for all of them. */
gm_status gm_flow_settle(gm_executor *e, bool all);

/* compute.c */
gm_status gm_flow_forward(gm_executor *e, int at);
gm_status gm_flow_backward(gm_executor *e, int at);

#endif
