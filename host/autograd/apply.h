/* apply.h - differentiable ops on values: the one way to run an op.
 *
 * gm_apply runs any op of ops.def that has no in-out outputs, and chooses how by the layouts of its inputs:
 *
 *     all of them replicated   the kernel, on whole tensors; no rule is asked
 *     some cut or partial      the op's form that communicates (GM_SHARDED in ops.def), where it has one; that form
 *                              leaves to gm_apply_blocks what is right on local blocks
 *     else                     the kernel on local blocks, as the rules of host/autograd/layout_rules allow; what they
 *                              refuse is GM_ESHAPE
 *
 * It infers and allocates the outputs, runs the kernel and records a node by the op's entry in gradients.c. The
 * functions below it are what is less than a kernel or more than one: views, concatenation, custom functions.
 * Shapes and sizes here are global. All give one reference through their last pointers. Dimensions count from 0,
 * negative from the end. */
#ifndef GM_APPLY_H
#define GM_APPLY_H

#include "tape.h"

/* A call of an op on values. */
typedef struct gm_value_call {
    gm_op            op;
    int              n_in, n_out;
    gm_value *const *in; /* NULL entries: optional inputs not given */
    const gm_attrs  *attrs;
    const bool      *want; /* [n_out]; NULL: all */
} gm_value_call;

/* An op's form for inputs that are cut or partial. Collective over axes that cut them, where its header says so. It
 * gives the outputs that are wanted and that its header names; NULL for the others. */
typedef gm_status (*gm_sharded_op)(gm_rank *r, const gm_value_call *c, gm_value **out);

/* One for each op; NULL: local blocks are all that it works on. gm_rank.sharded points to it. */
typedef struct gm_sharded_ops {
    gm_sharded_op form[GM_OP_COUNT];
} gm_sharded_ops;

/* out[n_out] receives values, NULL where want (n_out flags; NULL: all are) has false. What only a gradient reads is
 * made and kept by the node. GM_EINVAL: a wanted output that the op does not give where its inputs are cut so. */
gm_status gm_apply(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                   const bool *want, gm_value **out);
/* The same for the first output of an op alone. */
gm_status gm_apply_first(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, gm_value **out);

/* softmax or log_softmax; of a number (no dimensions) as of a row of one. */
gm_status gm_softmax(gm_rank *r, gm_op op, gm_value *x, const gm_attrs *attrs, gm_value **y);
/* Views share the bytes; reshape copies only when it must. */
gm_status gm_reshape(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y); /* one size may be -1 */
gm_status gm_permute(gm_rank *r, gm_value *x, const int *order, gm_value **y);
gm_status gm_narrow(gm_rank *r, gm_value *x, int dim, int64_t start, int64_t length, gm_value **y);
gm_status gm_select(gm_rank *r, gm_value *x, int dim, int64_t index, gm_value **y);
/* The slices of a dimension that is not cut, all of them: y[x->shape[dim]], at most GM_MAX_OUT. Gradients of an op that
 * reads them are written into the gradient of x, side by side, where nothing else reads them. */
gm_status gm_unbind(gm_rank *r, gm_value *x, int dim, gm_value **y);
gm_status gm_expand(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y);

gm_status gm_cat(gm_rank *r, int n, gm_value *const *x, int dim, gm_value **y);
/* (b, c, H, W) -> (b, (H/p) (W/p), c p p), patches row by row, inside a patch channel, row, column. */
gm_status gm_patchify(gm_rank *r, gm_value *x, int64_t patch, gm_value **y);

/* Makes out[n_out] (computed outside the tape) depend on in[n_in] through a callback that turns
 * gradients of the outputs (NULL: none) into those of the inputs (NULL: none). splits: the callback is told which ones
 * are wanted, and may be called twice (gm_record.splits). Takes the callback. */
gm_status gm_record_custom(gm_rank *r, int n_in, gm_value *const *in, int n_out, gm_value *const *out,
                           gm_callback backward, bool splits);

/* dim counted from the end made one from the start; GM_ESHAPE naming op. */
gm_status gm_check_dim(const char *op, int ndim, int64_t *dim);

#endif
