/* tape.h - records ops as nodes and runs them backward (reverse-mode automatic differentiation).
 *
 * A node has a rule, which turns gradients of its outputs into gradients of its inputs; edges, which say where its
 * inputs came from; and slots with the data that the rule needs. Only slots keep values alive. A node releases
 * everything when its backward has run, or when no value and no node leads to it any more; scopes and backward passes
 * of other losses do not change that. Nodes run in reverse order of recording. This order is the same on all ranks,
 * because rules communicate.
 *
 * A gradient is a block cut as its value is, and on every other axis replicated or partial; a mask beside each gradient
 * tells which. Rules see local tensors only. They are linear in the gradients of the outputs, so their results are
 * partial as gm_layout_gradient says, unless the rule calls gm_backward_set_partial. To add a replicated term to a
 * partial one, the tape zeroes the replicated term on all ranks but those at coordinate 0, which sends nothing. Padding
 * is zero in every gradient that a rule reads (host/autograd/padding.h). */
#ifndef GM_TAPE_H
#define GM_TAPE_H

#include "callback.h"
#include "value.h"
#include "work.h"

#define GM_MAX_SAVED 10 /* slots that an op fills; a region has more */

typedef struct gm_tape     gm_tape; /* struct gm_node: value.h */
typedef struct gm_backward gm_backward;

/* A rule gives the gradients for which gm_backward_wants is true. It uses the steps of work.h on gm_backward_work. See
 * below. */
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
/* The same for a value v that was computed from x alone and whose node keeps only numbers. Takes v; *y is v. */
gm_status gm_tape_record_one(gm_rank *r, const char *name, gm_rule rule, gm_value *x, gm_value *v, const int64_t *extra,
                             int n_extra, gm_value **y);
/* Adds d loss / d leaf to the gradient of every leaf that the loss depends on (or sets it, after zero_grad). seed: the
 * gradient of the loss, replicated or cut as the loss is; for a partial loss, the gradient of the sum. NULL: 1, or the
 * rank's loss scale, for a loss of one element. The pass is final (gm_tape_await). Exactly the nodes that the loss
 * depends on are released, also on failure. retain: they stay, so that another backward can run through them.
 * GM_EINVAL: some of them were released before; nothing has changed then. */
gm_status gm_tape_backward(gm_value *loss, gm_value *seed, bool retain);
/* A new value () of this dtype: what gm_tape_backward begins with where it gets no seed. */
gm_status gm_loss_seed(gm_rank *r, gm_dtype dtype, gm_value **out);
void      gm_tape_drop(gm_rank *r); /* forgets what was recorded; does nothing without a tape */

/* ---- gm_value.node ---- */

void        gm_node_release(gm_node *n);    /* NULL is allowed */
const char *gm_node_name(const gm_node *n); /* of the op, as users call it */
gm_status   gm_node_remember(gm_value *v);  /* v is to get the gradient that passes through it; */
void        gm_node_forget(gm_value *v);    /* it is not, any more */

/* ---- several tapes in flight: a schedule takes what a forward pass recorded off the rank and runs it later ---- */

/* Takes the recorded tape off the rank, which begins a new one at the next op; NULL: nothing was recorded. The caller
 * owns the tape, and the tape owns its nodes. */
gm_tape *gm_tape_take(gm_rank *r);
/* The same, but an empty tape where nothing was recorded: gradients of leaves can go through that, too. */
gm_status gm_tape_take_any(gm_rank *r, gm_tape **out);
/* Sets the rank's tape aside. The rank records on another tape until gm_tape_restore, which drops that one. */
gm_tape *gm_tape_set_aside(gm_rank *r);
void     gm_tape_restore(gm_rank *r, gm_tape *before);
/* After gm_tape_set_aside: what is recorded until gm_tape_restore holds no tensors for backward, and cannot run. It
 * tells only which leaves the results depend on (gm_region_begin). */
gm_status gm_tape_sketch(gm_rank *r);
void      gm_tape_free(gm_tape *t); /* NULL is allowed */

/* A backward pass runs whole, or in two halves, B and W (Qi et al. 2023, arXiv:2401.10241). The first half, which peers
 * wait for, follows the edges that lead to `inputs`; on a tape without inputs (the first part of a model), the edges
 * that lead to a node whose rule splits. A node whose rule splits computes the gradients for these edges, keeps the
 * data for its other gradients (for a product: one operand and the gradient of the result) and computes those in the
 * second half. The rule of any other node on these paths runs once, for all its inputs, and the node releases
 * everything. Nodes off these paths (casts and redistributions of parameters, tables) wait for the second half. Both
 * halves together compute each gradient of the whole pass once; a leaf that several nodes read may add its terms in
 * another order. */
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

/* Runs a pass: GM_TAPE_WHOLE, or GM_TAPE_INPUT and then GM_TAPE_WEIGHT. Adds to the gradients of leaves. A node that
 * has run releases what no later pass needs. The caller keeps the tape; after a failure the tape may only be freed.
 * Collective if its nodes are. GM_EINVAL: a root or an input does not belong to the tape; a pass is out of order. */
gm_status gm_tape_run(gm_rank *r, gm_tape *t, const gm_tape_job *job);
/* Gives the gradient of one output before gm_tape_run, whose job then need not name it. So the caller can let go of
 * both before the pass, which frees them as it goes on. */
gm_status gm_tape_seed(gm_rank *r, gm_tape *t, gm_value *output, gm_value *seed);
/* Declares that the gradients of the leaves that t reads are not final before t's final pass. The caller calls it for
 * every tape that will have a final pass, before the first of these passes (a final pass of a tape without this call
 * begins with it). In the final pass of the last tape that awaits a leaf, the tape reports the leaf to the reducers
 * (gm_reducer_ready) when all nodes that read it have run. Passes that are not final report nothing; passes that add to
 * the same leaves must come before. A tape freed before its final pass awaits nothing any more. NULL is allowed. */
gm_status gm_tape_await(gm_rank *r, gm_tape *t);
int       gm_tape_nodes(const gm_rank *r);                  /* recorded now, and not gone */
bool      gm_tape_has(const gm_rank *r, const gm_value *v); /* was v computed by one of these? */

/* Bytes of the tensors that a node holds for its backward: whole storages, each with the first node that holds it;
 * parameters do not count, nor does what the caller keeps from step to step. */
typedef struct gm_tape_held {
    const char *path, *op; /* as long as the tape */
    size_t      bytes;
} gm_tape_held;

/* An entry for each node that holds other tensors than kept, in order of recording. The caller frees *out, an array of
 * *n. */
gm_status gm_tape_saved(const gm_rank *r, int n_kept, gm_value *const *kept, gm_tape_held **out, int *n);

/* ---- for rules ----
 *
 * Indices are those of the record. Tensors are borrowed. The work (work.h) owns what a rule makes; the tape begins the
 * work before the rule and ends it after the rule. */
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
/* The same, but a tensor of zeros if nothing depended on the output. */
gm_tensor *gm_backward_grad_or_zeros(gm_backward *b, int i);
gm_tensor *gm_backward_saved(gm_backward *b, int i); /* NULL for an empty slot */
/* What slot i holds, to be written into and given: the tensor itself, which the node lets go, or a copy where the graph
 * is retained or others have the tensor, too. It belongs to the work. */
gm_tensor *gm_backward_take(gm_backward *b, int i);
/* If a node of the op `linear` with an activation computed input i, nothing else reads that input, and the graph is not
 * retained: returns the pre-activation and sets *function to the activation. The rule must then apply f' itself and
 * give the gradient of the pre-activation for input i; the other node will not apply it. Otherwise returns NULL. */
gm_tensor *gm_backward_activated(gm_backward *b, int i, gm_function *function);
/* Must this call compute the gradient of input i? A gradient that is given but not wanted is released. */
bool gm_backward_wants(gm_backward *b, int i);
/* In the first of two calls of a rule that splits: will the second call compute the gradient of input i? */
bool gm_backward_later(gm_backward *b, int i);
bool gm_backward_splits(gm_backward *b); /* as recorded */
/* In that first call (otherwise they do nothing): replace the tensor that the second call finds in slot i, or as the
 * gradient of output i. t is retained; NULL frees memory that the second call does not need. The trap: the old tensor
 * is released; a rule that still needs it shares it before (gm_work_share). */
void gm_backward_keep(gm_backward *b, int i, gm_tensor *t);
void gm_backward_keep_grad(gm_backward *b, int i, gm_tensor *t);
/* Dtype and shape of input i's block. */
const gm_spec *gm_backward_input(gm_backward *b, int i);
/* A new tensor like input i's block. */
gm_tensor *gm_backward_like(gm_backward *b, int i);
/* How input or output i is laid out; *shape (may be NULL): its global shape. */
const gm_layout *gm_backward_input_layout(gm_backward *b, int i, const int64_t **shape);
const gm_layout *gm_backward_output_layout(gm_backward *b, int i, const int64_t **shape);
/* The axes over which the gradients of the outputs are partial. All outputs share this mask when a rule runs; each
 * gradient is partial over those axes of it that neither cut the output nor make it partial. If one of these axes cuts
 * an input, the rule must sum the input's gradient over it and call gm_backward_set_partial; the tape detects a rule
 * that does not. */
uint32_t gm_backward_partial(gm_backward *b);
/* Declares that gradients given for input i from now on are partial over these axes, in place of gm_layout_gradient.
 * For rules that communicate or change a layout. */
void gm_backward_set_partial(gm_backward *b, int i, uint32_t axes);
/* Is input i a table whose gradient is wanted as the rows that were touched (sparse.h)? And such rows, which op
 * embedding_rows describes: row is a tensor of the work, of any shape. */
bool gm_backward_is_sparse(gm_backward *b, int i);
void gm_backward_give_rows(gm_backward *b, int i, gm_tensor *row, gm_tensor *g, gm_tensor *weight, int64_t padding);
/* A tensor to write the gradient of input i into, contiguous: the buffer of a leaf, or a new one.
 * *accumulate: it already holds a gradient, and the rule must add to it. The gradient counts as given. */
gm_tensor *gm_backward_target(gm_backward *b, int i, bool *accumulate);
/* The same for a rule that can also write f32 for an input of 16 bits (gm_parameter.wide_grad): the rule looks at the
 * dtype of the result. */
gm_tensor *gm_backward_wide_target(gm_backward *b, int i, bool *accumulate);
/* A tensor to write the gradient of input i into, of any strides: its place in the gradient of the whole if gm_unbind
 * made the input, else a new tensor. The rule must give it (gm_backward_give). */
gm_tensor *gm_backward_place(gm_backward *b, int i);
/* For the rule of gm_unbind: the tensor that holds such places, or NULL; and gm_backward_give of it for input 0, after
 * the gradients of the slices are released, so that the whole has no other reference. */
gm_tensor *gm_backward_placed(gm_backward *b);
void       gm_backward_give_whole(gm_backward *b, gm_tensor *whole);
/* Gives a finished gradient for input i. `gradient` belongs to the work or is borrowed. Afterwards the work no longer
 * holds it, nor other views of its bytes if the work made them. */
void gm_backward_give(gm_backward *b, int i, gm_tensor *gradient);
/* Zeroes the padding of t, which has the shape of output 0's block and no other reference. A tensor that a rule makes
 * of gradients with zero padding need not be zero there itself (0 * 0 / 0); it must be before a sum over a padded
 * dimension. */
void gm_backward_clear(gm_backward *b, gm_tensor *t);

#endif
