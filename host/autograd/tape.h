/* tape.h - the record of what was computed, run backward once.
 *
 * A node names its rule (how to turn gradients of its outputs into gradients of its inputs), where its
 * inputs came from (edges), and what the rule needs (slots). It holds no value alive but through slots,
 * and lets go of everything as soon as its backward has run, or as soon as no value and no node leads to it
 * any more: scopes and backwards of other losses have no say in it. Nodes run in reverse order of recording, which is
 * the same on all ranks, because rules communicate.
 *
 * Gradients are blocks like values: cut as the value is, and on every other axis replicated or partial (a mask
 * kept beside each). Rules see local tensors only and need not know: they are linear in the gradients of the
 * outputs, so what they give is partial as gm_layout_gradient says, unless they say otherwise
 * (gm_backward_set_partial). Terms of different state are brought to one by zeroing the replicated one on all
 * ranks but those at coordinate 0, which sends nothing. The gradient of padding is zero when a rule reads it, whatever
 * rules gave (host/autograd/padding.h). */
#ifndef GM_TAPE_H
#define GM_TAPE_H

#include "callback.h"
#include "value.h"
#include "work.h"

#define GM_MAX_SAVED 8

typedef struct gm_tape     gm_tape; /* struct gm_node: value.h */
typedef struct gm_backward gm_backward;

/* Gives the gradients that gm_backward_wants; written with the steps of work.h, on gm_backward_work. See below. */
typedef void (*gm_rule)(gm_backward *b);

/* What gm_tape_record is told. Arrays are copied; values and tensors are borrowed. */
typedef struct gm_record {
    const char      *name; /* of the op, for messages and memory accounts; never freed */
    gm_rule          rule;
    gm_op            op;    /* for rules shared by several ops */
    const gm_attrs  *attrs; /* NULL: defaults */
    int              n_in, n_out, n_saved;
    gm_value *const *in;                     /* NULL entries allowed */
    gm_value *const *out;                    /* results; they become part of the tape */
    gm_value *const *saved;                  /* NULL entries allowed */
    int64_t          extra[2 * GM_MAX_DIMS]; /* for views */
    gm_callback      callback;               /* custom functions; owned by the node from here on, also on failure */
    bool             splits;  /* the rule computes what gm_backward_wants and nothing else: it may be called twice */
    bool             unbinds; /* of gm_unbind: outputs are the slices of the input's dimension extra[0] */
} gm_record;

/* True if recording is on and some input requires a gradient. */
bool gm_tape_wanted(const gm_rank *r, int n_in, gm_value *const *in);
/* Appends a node when gm_tape_wanted; marks the outputs. */
gm_status gm_tape_record(gm_rank *r, const gm_record *record);
/* The same for a value v that was computed from x alone and keeps numbers only; takes v, which *y is when recorded. */
gm_status gm_tape_record_one(gm_rank *r, const char *name, gm_rule rule, gm_value *x, gm_value *v, const int64_t *extra,
                             int n_extra, gm_value **y);
/* d loss / d leaf is added to (or, after zero_grad, set in) the gradient of every leaf that the loss
 * depends on. seed: gradient of the loss itself, NULL for 1, or the rank's loss scale (then the loss has one element);
 * replicated, or cut as the loss is. Of a partial loss it is the gradient of the sum. The pass is final
 * (gm_tape_await). The nodes that the loss depends on are released, also on failure, and no others; retain: they stay,
 * and another backward may run through them. GM_EINVAL, and nothing has changed: some of them were released before. */
gm_status gm_tape_backward(gm_value *loss, gm_value *seed, bool retain);
void      gm_tape_drop(gm_rank *r); /* forget what was recorded; no tape is fine */

/* Of gm_value.node. */
void        gm_node_release(gm_node *n);    /* NULL is allowed */
const char *gm_node_name(const gm_node *n); /* of the op, as users call it */
gm_status   gm_node_remember(gm_value *v);  /* v is to get the gradient that passes through it; */
void        gm_node_forget(gm_value *v);    /* it is not, any more */

/* ---- several tapes in flight: a schedule takes what a forward pass recorded off the rank and runs it later ---- */

/* What was recorded so far leaves the rank, which begins a new tape at the next op; NULL: nothing was. The caller owns
 * it, and it its nodes. */
gm_tape *gm_tape_take(gm_rank *r);
/* Until gm_tape_restore the rank records on a tape beside, which is dropped then. */
gm_tape *gm_tape_set_aside(gm_rank *r);
void     gm_tape_restore(gm_rank *r, gm_tape *before);
void     gm_tape_free(gm_tape *t); /* NULL is allowed */

/* A backward pass whole, or in two halves (Qi et al. 2023, arXiv:2401.10241: B and W). The half that peers wait for
 * follows what leads to `inputs`, or, of a tape that has none (the first part of a model), what leads to a node whose
 * rule splits. Such a node computes the gradients on that side, keeps what the others need (of a product: one operand
 * and the gradient of the result) and computes them in the second half. The rule of any other node on that side runs
 * once, for all its inputs, and the node lets go of everything; what is off that side (casts and redistributions of
 * parameters, tables) waits as it is. Both halves together compute what the whole pass does, each gradient once; a leaf
 * that several nodes read may add its terms in another order. */
typedef enum gm_tape_pass {
    GM_TAPE_WHOLE,  /* gradients of all that the outputs depend on */
    GM_TAPE_INPUT,  /* the half that leads to the inputs */
    GM_TAPE_WEIGHT, /* what has waited: once, after GM_TAPE_INPUT */
} gm_tape_pass;

typedef struct gm_tape_job {
    gm_tape_pass     pass;
    int              n;       /* roots and the gradients to begin with; not read by GM_TAPE_WEIGHT */
    gm_value *const *outputs; /* values that the tape computed, or leaves, which require a gradient. One that is there
                                 twice has the sum of both seeds */
    gm_value *const *seeds; /* laid out as the output or replicated, as gm_tape_backward has it; NULL: 1, for one of one
                               element, */
    bool             losses; /* or where the rank scales losses (gm_rank_scale_losses), that scale */
    int              n_inputs;
    gm_value *const *inputs; /* leaves that require a gradient; read by GM_TAPE_INPUT only */
    bool final; /* the last pass of this tape in a step whose gradients are then summed: see gm_tape_await */
} gm_tape_job;

/* Runs a pass: GM_TAPE_WHOLE, or GM_TAPE_INPUT and then GM_TAPE_WEIGHT; adds to the gradients of leaves. Nodes let go
 * of what no later pass needs as soon as they have run. The tape stays the caller's; after a failure it may only be
 * freed. Collective where its nodes are. GM_EINVAL: a root or input that is none, a pass out of order. */
gm_status gm_tape_run(gm_rank *r, gm_tape *t, const gm_tape_job *job);
/* The gradients of the leaves that t reads are not final before t's final pass. Called for every tape that will have
 * one, before the first of these passes runs (a final pass of a tape that awaits nothing begins with it); a leaf is
 * reported to the reducers (gm_reducer_ready) in the final pass of the last tape that awaits it, as soon as no node
 * there is left that reads it. Passes that are not final report nothing; those that add to the same leaves come before.
 * A tape freed before its final pass awaits nothing any more. NULL is allowed. */
gm_status gm_tape_await(gm_rank *r, gm_tape *t);
int       gm_tape_nodes(const gm_rank *r);                  /* recorded now, and not gone */
bool      gm_tape_has(const gm_rank *r, const gm_value *v); /* was v computed by one of these? */

/* Bytes of the tensors that a node holds for its backward: whole storages, each with the first node that holds it;
 * parameters do not count. */
typedef struct gm_tape_held {
    const char *path, *op; /* as long as the tape */
    size_t      bytes;
} gm_tape_held;

/* An entry a node that holds something, in order of recording; to be freed, *n of them. No tape: none. */
gm_status gm_tape_saved(const gm_rank *r, gm_tape_held **out, int *n);

/* For rules. Indices are those of the record. Tensors are borrowed; what is made is the work's (work.h), which the tape
 * begins before the rule and ends after it. */
gm_work           *gm_backward_work(gm_backward *b);
gm_rank           *gm_backward_rank(gm_backward *b);
gm_op              gm_backward_op(gm_backward *b);
const gm_attrs    *gm_backward_attrs(gm_backward *b);
const int64_t     *gm_backward_extra(gm_backward *b);
const gm_callback *gm_backward_callback(gm_backward *b);
int                gm_backward_inputs(gm_backward *b);
int                gm_backward_outputs(gm_backward *b);
/* Gradient of output i, NULL if nothing depended on it. */
gm_tensor *gm_backward_grad(gm_backward *b, int i);
/* The same, zeros made when there is none. */
gm_tensor *gm_backward_grad_or_zeros(gm_backward *b, int i);
gm_tensor *gm_backward_saved(gm_backward *b, int i); /* NULL for an empty slot */
/* Is input i what a node of the op `linear`, that has an activation, computed, and does nothing else read it? Then the
 * rule may take the gradient back through that activation itself: it returns what went into *function, that node has
 * done with it, and what is given for input i is to be the gradient of that. Else NULL. A rule that has asked must give
 * the gradient of input i. */
gm_tensor *gm_backward_activated(gm_backward *b, int i, gm_function *function);
/* Is the gradient of input i to be computed in this call? What is given and not wanted is let go. */
bool gm_backward_wants(gm_backward *b, int i);
/* In the first of two calls of a rule that splits: will it be in the second? */
bool gm_backward_later(gm_backward *b, int i);
bool gm_backward_splits(gm_backward *b); /* as recorded */
/* In that first call (else nothing happens): what the second finds in slot i, and as the gradient of output i, instead
 * of what is there now. Retained; NULL: nothing, so that memory which the second call does not need is free. The trap:
 * what was there goes; a rule that still needs it shares it before (gm_work_share). */
void gm_backward_keep(gm_backward *b, int i, gm_tensor *t);
void gm_backward_keep_grad(gm_backward *b, int i, gm_tensor *t);
/* Shape of input i as a spec: of its block. */
const gm_spec *gm_backward_input(gm_backward *b, int i);
/* A new tensor like input i's block. */
gm_tensor *gm_backward_like(gm_backward *b, int i);
/* How input or output i is laid out; *shape (may be NULL): its global shape. */
const gm_layout *gm_backward_input_layout(gm_backward *b, int i, const int64_t **shape);
const gm_layout *gm_backward_output_layout(gm_backward *b, int i, const int64_t **shape);
/* Axes over which the gradients of the outputs are partial, all of them alike when a rule runs: each over those of
 * them that neither cut it nor make it partial. A rule whose input is cut by one of them has to sum its gradient over
 * it and to say so (gm_backward_set_partial); one that does not is found. */
uint32_t gm_backward_partial(gm_backward *b);
/* What is given for input i from now on is partial over these axes, whatever gm_layout_gradient says: for rules
 * that communicate or change a layout. */
void gm_backward_set_partial(gm_backward *b, int i, uint32_t axes);
/* A tensor to write the gradient of input i into, contiguous: the buffer of a leaf, or a new one.
 * *accumulate: it holds a gradient already, add to it. Counts as given. */
gm_tensor *gm_backward_target(gm_backward *b, int i, bool *accumulate);
/* The same for a rule that writes f32 as well where the input is of 16 bits (gm_value.wide_grad): look at its dtype. */
gm_tensor *gm_backward_wide_target(gm_backward *b, int i, bool *accumulate);
/* A tensor to write the gradient of input i into, of any strides: where the input is a slice that gm_unbind made, its
 * place in the gradient of the whole, else a new one. Has to be given (gm_backward_give). */
gm_tensor *gm_backward_place(gm_backward *b, int i);
/* For the rule of gm_unbind: the tensor that such places are in, or NULL; and gm_backward_give of it, for input 0. The
 * gradients of the slices are let go before, so that the whole is seen to be nobody else's. */
gm_tensor *gm_backward_placed(gm_backward *b);
void       gm_backward_give_whole(gm_backward *b, gm_tensor *whole);
/* A finished gradient, of the work or borrowed. The work has it no more, nor any other view of bytes that it made. */
void gm_backward_give(gm_backward *b, int i, gm_tensor *gradient);
/* t, of the shape of output 0's block and nobody else's, becomes zero in the padding: what a rule makes of gradients
 * that are zero there may not be (0 * 0 / 0), and must be before it is summed over such a dimension. */
void gm_backward_clear(gm_backward *b, gm_tensor *t);

#endif
