/* executor.h - carries out one rank's list of actions of a pipeline schedule (lua/ganymede/schedules/pipeline.lua).
 *
 * The model is cut into n_parts parts; a rank holds some of them as its chunks. An action computes (the forward pass of
 * a micro-batch through a chunk, its backward pass, or that in two halves) or moves what crosses a border between
 * parts. The executor keeps, in C, what is in flight: the tape of each (micro-batch, chunk) from its forward to its
 * last backward action, inputs, outputs, border gradients, messages under way. It knows no Lua: the forward pass is a
 * callback.
 *
 * Borders. A part gives the next part a list of values (any number, any dtype, any layout of the mesh) and a text that
 * says how tables of tensors are made of the list. The peers of two stages hold the same blocks of a value, so a block
 * goes to the one rank of the next stage with the same coordinates. If a value is replicated over tensor axes and
 * `scatter` is on, each of these ranks sends only its slice, and the receivers gather the slices (Narayanan et al.
 * 2021, arXiv:2104.04473, section 4.1); a value that is cut over them crosses as it is. Gradients come back for float
 * values that require one. Partial gradients are summed before they are sent (over scatter axes by a reduce_scatter
 * into the slices); a value without a gradient gets zeros. A part may give its input, a parameter, a view, or one
 * tensor twice. Neighbouring parts on one rank exchange values without a message. Outputs are released as soon as they
 * are sent, because the backward pass of the part does not need them.
 *
 * Shapes. A receiver must know the shapes before it can post a receive. A header precedes the first message of a border
 * for each signature (gm_executor_step.signatures); both ends remember it, and later messages have no header. With
 * variable_shapes, or for a micro-batch without a signature, every message has a header. A border remembers 256
 * signatures; then both ends forget all of them, as they do after a failed section. An output that differs from the
 * agreed form of its border is an error that shows both and suggests `variable_shapes = true`.
 *
 * Messages are asynchronous. Receives are posted ahead of the actions that read them, in the order of the list; sends
 * keep their buffers until they are done. All messages use the group of the mesh axis `pipeline`, where a peer is a
 * coordinate.
 *
 * An error ends the step: tensors and messages in flight are released, and the executor can run again. GM_ECOMM,
 * GM_EPEER, GM_EHANG and others are those of comm.h; GM_EINVAL names rank, action, micro-batch and chunk. */
#ifndef GM_EXECUTOR_H
#define GM_EXECUTOR_H

#include "../autograd/tape.h"

typedef struct gm_executor gm_executor;

typedef enum gm_action_kind {
    GM_ACTION_FORWARD,
    GM_ACTION_BACKWARD,
    GM_ACTION_BACKWARD_INPUT,
    GM_ACTION_BACKWARD_WEIGHT,
    GM_ACTION_SEND,
    GM_ACTION_RECEIVE,
    GM_ACTION_KINDS
} gm_action_kind;

const char *gm_action_name(gm_action_kind kind); /* "backward_input", as schedules say it */

/* Micro-batches and chunks count from 0 here, from 1 in Lua. */
typedef struct gm_action {
    gm_action_kind kind;
    bool           gradient; /* of send and receive: a gradient, else an activation */
    int            micro_batch, chunk;
    int            peer; /* of send and receive: coordinate along the pipeline axis */
} gm_action;

#define GM_BORDER_MAX 32 /* values that cross one border */

/* A call of the forward callback: run `chunk` on `micro_batch`. */
typedef struct gm_stage_call {
    int              micro_batch, chunk;
    int              n;    /* 0 for the first part, whose input the callee has */
    gm_value *const *in;   /* borrowed; leaves, those of the part before that require a gradient do so here */
    const char      *text; /* what the part before said; "" for the first part */
} gm_stage_call;

/* The callback's result. The executor takes the references, also on failure. It ignores outputs of the last part. */
typedef struct gm_stage_result {
    int       n;
    gm_value *out[GM_BORDER_MAX];
    char     *text; /* malloc'd, NULL: "" */
    gm_value *loss; /* scalar whose gradient is 1: the loss, and what layers add to it; NULL: this part adds nothing */
} gm_stage_result;

typedef struct gm_stage {
    gm_status (*forward)(void *context, const gm_stage_call *call, gm_stage_result *result);
    /* For the meta transport, where nothing is received: gives the outputs of `part` (from 0) for a micro-batch, as
     * values without data. NULL: unknown; a run on meta then fails with GM_EINVAL. */
    gm_status (*describe)(void *context, int micro_batch, int part, gm_stage_result *result);
    void *context;
} gm_stage;

typedef struct gm_executor_options {
    uint32_t scatter;         /* axes that share the sending of what is replicated over them; 0: none */
    bool     variable_shapes; /* a header before every message */
} gm_executor_options;

/* One step's work (of one batch). Arrays are borrowed for the call. */
typedef struct gm_executor_step {
    const gm_action   *actions;
    int                n_actions;
    int                micro_batches, chunks;
    const int         *parts; /* the part of each chunk, from 0 */
    int                n_parts;
    const char *const *signatures; /* of each micro-batch: the same words, the same shapes at every border; the same on
                                        all stages. NULL entries, or NULL: not known */
    bool               forward_only; /* under no_grad: evaluation, prediction */
    bool               final;        /* the last batch of the optimizer step: gradients become final (gm_tape_await) */
    const gm_stage    *stage;
} gm_executor_step;

/* Makes an executor over the axis `pipeline` of the rank's mesh. On a mesh without that axis it runs lists without
 * messages. */
gm_status gm_executor_new(gm_rank *r, const gm_executor_options *o, gm_executor **out);
void      gm_executor_free(gm_executor *e); /* NULL is allowed; never waits */
gm_status gm_executor_run(gm_executor *e, const gm_executor_step *step);

/* ---- what happened in the last step ---- */

typedef struct gm_executor_event {
    gm_action action;
    double    begin, end; /* seconds, of gm_now; of a receive: posted, seen to have arrived; of a send: begun, seen
                            to be done: at the next action, or by who waits */
    double    waited;     /* of computing: how long it waited for what it reads, before `begin` */
} gm_executor_event;

/* The events in order of the list; returns their number. The executor owns them, and the next run overwrites them. */
int gm_executor_events(const gm_executor *e, const gm_executor_event **events);
/* The largest number of (micro-batch, chunk) passages whose activations were held at once, from the forward to the last
 * backward action. */
int gm_executor_peak(const gm_executor *e);

#endif
