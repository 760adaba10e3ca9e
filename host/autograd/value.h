/* value.h - what Lua holds: a local tensor, its layout, and its link to the tape.
 *
 * Shapes are global; the local tensor is this rank's block, padded with zeros to the size that all blocks have
 * (gm_layout_block, host/autograd/padding.h). On one rank the local tensor is the value. Counted; a value that
 * requires a gradient and was not computed is a leaf: a parameter, or an input that the user asks about. */
#ifndef GM_VALUE_H
#define GM_VALUE_H

#include "../mesh/layout.h"
#include "../rank/rank.h"

typedef struct gm_node gm_node; /* an op that was recorded: tape.h */

/* The gradient of a value that accumulates one: a parameter, another leaf that requires a gradient, or a computed value
 * that keeps its gradient (gm_value_retain_grad). Made on first use; lives as long as the value. */
typedef struct gm_parameter {
    gm_tensor *grad;         /* NULL: no buffer yet */
    uint32_t   grad_partial; /* axes over which grad is still a sum of the ranks' terms */
    bool       grad_set;     /* grad holds a gradient; false: it is only a buffer to reuse */
    bool       wide_grad;    /* of 16 bits, a gradient of f32: gm_value_set_wide_grad */
    bool       in_sum;       /* the reducer is summing the gradient: nothing may be added to it */
    bool       grad_shown;   /* users have had hold of a padded gradient's bytes, which were */
    unsigned   grad_zeroed;  /* last cleared at this version of their storage */

    gm_tensor *own;     /* ZeRO: this rank's part of the gradient's sum, which then ends here (host/gradients), */
    bool       own_set; /* own holds a gradient; */
    gm_tensor *stored;  /* its part of the numbers, where these rest in parts, and the value's block is absent; */
    gm_layout  owned;   /* how these parts are laid out: as the value, cut further */

    bool       sparse; /* lookups alone read the numbers, and the gradient is the rows that they touched (sparse.h): */
    gm_tensor *row;    /* i64 (n): which, in order, then -1; NULL: there is no gradient. grad_partial is of these */
    gm_tensor *sum;    /* (n, width): their gradients, then zeros */

    uint64_t used_on; /* number of the last tape that listed it, */
    int      used_at; /* and its place in that list */
    int      awaited; /* tapes that have yet to add to the gradient before it is final: gm_tape_await */
} gm_parameter;

typedef struct gm_value {
    int        refs;
    gm_rank   *rank;
    gm_tensor *local;
    gm_layout  layout;
    int        ndim;
    int64_t    shape[GM_MAX_DIMS]; /* global */
    bool       padded;             /* the block reaches beyond the end of the tensor; */
    unsigned   zeroed;             /* version of the storage when what is there was known to be zero */

    bool          requires_grad; /* a leaf that wants a gradient, or a result computed from one */
    bool          keeps_grad;    /* computed, and its gradient is asked for: gm_value_retain_grad */
    bool          guarded;       /* shares the bytes of a computed value that requires a gradient: see gm_value_write */
    bool          shares_leaf;   /* computed, and a view of the bytes of one that no node computed */
    gm_parameter *param;         /* NULL: no gradient ends here */

    gm_node *node;   /* what computed it, counted; NULL: a leaf */
    int      output; /* which of its results */
} gm_value;

/* Makes a replicated value of a tensor. Takes the caller's reference to the tensor, also on failure. */
gm_status gm_value_take(gm_rank *r, gm_tensor *local, gm_value **out);
/* Makes a value of a block of a global tensor. Takes the reference likewise. GM_ESHAPE: local does not have the padded
 * shape of the layout's blocks. */
gm_status gm_value_take_block(gm_rank *r, gm_tensor *local, const gm_layout *layout, int ndim, const int64_t *shape,
                              gm_value **out);
/* Computes `padded` again after a change of layout or block. */
void gm_value_find_padding(gm_value *v);
/* A new block, undefined contents; shape is global. */
gm_status gm_value_new_block(gm_rank *r, const char *op, gm_dtype dtype, const gm_layout *layout, int ndim,
                             const int64_t *shape, gm_value **out);
/* logical[ndim] receives the part of the local tensor that lies inside the global one, without padding. */
void gm_value_logical(const gm_value *v, int64_t *logical);
/* "f32 (128, 64) cut (data, -)", for messages; returns buf. */
char *gm_value_describe(const gm_value *v, char *buf, size_t size);
/* A new contiguous value, undefined contents, born at (path, op). */
gm_status gm_value_new(gm_rank *r, const char *op, gm_dtype dtype, int ndim, const int64_t *shape, gm_value **out);
/* The same by gm_tensor_new_shared. */
gm_status gm_value_new_shared(gm_rank *r, const char *op, gm_dtype dtype, int ndim, const int64_t *shape,
                              gm_value **out);
void      gm_value_retain(gm_value *v);
void      gm_value_release(gm_value *v); /* NULL is allowed */

/* The same data and layout without history: a leaf that requires no gradient. */
gm_status gm_value_detach(gm_value *v, gm_value **out);
/* Leaves only: asks for a gradient or stops asking (its buffer is freed then). */
gm_status gm_value_require_grad(gm_value *v, bool on);
/* Makes a computed value keep the gradient that passes through it; called before backward. Has no effect on leaves.
 * GM_EINVAL: v requires no gradient. */
gm_status gm_value_retain_grad(gm_value *v);
/* Called before `what` (an op's name) writes v's bytes in place. GM_EINVAL: recording is on, and v requires a gradient
 * or shares bytes with a computed value that does; the gradient would miss the write. */
gm_status gm_value_write(const gm_value *v, const char *what);
/* Leaves that require a gradient: shall a gradient of 16 bits be held in f32, so that terms add up in f32? The rules of
 * matrix products then write f32; what other rules give is rounded to 16 bits before it is added. What the gradient
 * holds so far is converted. GM_EINVAL: the reducer is summing it. */
gm_status gm_value_set_wide_grad(gm_value *v, bool on);
/* The dtype of the gradient of a leaf. */
gm_dtype gm_value_grad_dtype(const gm_value *v);
/* A new tensor for gradients or their sums, which rests in the rank's tier if gradients of its size do; else, if all of
 * it is what ranks exchange (shared), it is one of gm_tensor_new_shared. */
gm_status gm_gradient_new(gm_rank *r, gm_dtype dtype, int ndim, const int64_t *shape, bool shared, gm_tensor **out);
/* *out: the gradient's buffer for writing, borrowed; made if there is none. grad_set tells whether it holds a gradient.
 * GM_EINVAL: the reducer is summing it over the ranks, or it is sparse. */
gm_status gm_value_grad_buffer(gm_value *v, gm_tensor **out);
/* What backward has added up so far, borrowed; NULL: nothing. */
gm_tensor *gm_value_grad(const gm_value *v);
/* The gradient where it ends (gm_parameter.own, else grad), borrowed; NULL: there is none. *layout: how it is laid out;
 * partial over the axes over which it is still to be summed. */
gm_tensor *gm_value_final_grad(const gm_value *v, gm_layout *layout);
/* Makes the gradient, where it ends, zeros that count as one. GM_EINVAL: the reducer is summing it. */
gm_status gm_value_clear_grad(gm_value *v);
/* *out: v's gm_parameter, made on first use. */
gm_status gm_value_parameter(gm_value *v, gm_parameter **out);
/* Where v's numbers rest: *t, borrowed, laid out as *layout. It is v's block, or this rank's part of a parameter that
 * rests in parts. No communication. */
gm_status gm_value_resting(gm_value *v, gm_layout *layout, gm_tensor **t);
/* To be called before the tensor that gm_value_resting gave is written. */
gm_status gm_value_resting_changes(gm_value *v);
void      gm_value_zero_grad(gm_value *v); /* forgets the gradient, keeps the buffer */
/* Declares that v's bytes, not its padding, were written in place. Saved tensors that share them become unusable. */
void gm_value_touched(gm_value *v);

#endif
