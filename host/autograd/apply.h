/* apply.h - differentiable ops on values: the one way to run an op.
 *
 * gm_apply runs any op of ops.def that has no in-out outputs, and chooses how by the layouts of its inputs:
 *
 *     all of them replicated   the kernel, on whole tensors; no rule is asked
 *     some cut or partial      the op's sharded form (GM_SHARDED in ops.def), if it has one; the form passes calls that
 *                              local blocks suffice for to gm_apply_blocks
 *     else                     the kernel on local blocks, as the rules of host/autograd/layout_rules allow; GM_ESHAPE
 *                              if they refuse
 *
 * It infers and allocates the outputs, runs the kernel and records a node by the op's entry in gradients.c. The
 * functions below it are not single kernels: views, concatenation, custom functions. Shapes and sizes are global.
 * Each function gives the caller one reference to each result. Dimensions count from 0, negative ones from the end. */
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

/* An op's form for inputs that are cut or partial. Collective over the axes that cut them, where its header says so. It
 * gives the wanted outputs that its header names, and NULL for the others. */
typedef gm_status (*gm_sharded_op)(gm_rank *r, const gm_value_call *c, gm_value **out);

/* The form of each op; NULL: the op works on local blocks only. gm_rank.sharded points to this table. */
typedef struct gm_sharded_ops {
    gm_sharded_op form[GM_OP_COUNT];
} gm_sharded_ops;

/* Runs op on in[n_in]. out[n_out] receives values, or NULL where want[n_out] is false (want NULL: all are wanted). The
 * node makes and keeps outputs that only the gradient reads. attrs NULL: defaults. GM_EINVAL: the op does not give a
 * wanted output for inputs of these layouts. */
gm_status gm_apply(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                   const bool *want, gm_value **out);
/* The same for the first output only. */
gm_status gm_apply_first(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, gm_value **out);

/* softmax or log_softmax. A value without dimensions counts as a row of one element. */
gm_status gm_softmax(gm_rank *r, gm_op op, gm_value *x, const gm_attrs *attrs, gm_value **y);
/* Views share the bytes; reshape copies only when it must. */
gm_status gm_reshape(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y); /* one size may be -1 */
gm_status gm_permute(gm_rank *r, gm_value *x, const int *order, gm_value **y);
gm_status gm_narrow(gm_rank *r, gm_value *x, int dim, int64_t start, int64_t length, gm_value **y);
gm_status gm_select(gm_rank *r, gm_value *x, int dim, int64_t index, gm_value **y);
/* Gives all slices of a dimension that is not cut: y[x->shape[dim]], at most GM_MAX_OUT. If a single op reads a slice,
 * backward writes its gradient directly into the gradient of x. */
gm_status gm_unbind(gm_rank *r, gm_value *x, int dim, gm_value **y);
gm_status gm_expand(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y);

gm_status gm_cat(gm_rank *r, int n, gm_value *const *x, int dim, gm_value **y);
/* x with so many places before and behind it in each dimension; those that are cut get none. They hold `value`, or x
 * mirrored at its first and last place, which are not repeated, or the nearest place of x. GM_EINVAL: x has too few
 * places to be mirrored, or none to be repeated. pads.c */
typedef enum gm_pad_mode { GM_PAD_VALUE, GM_PAD_REFLECT, GM_PAD_REPLICATE } gm_pad_mode;
gm_status gm_pad(gm_rank *r, gm_value *x, const int64_t *before, const int64_t *after, gm_pad_mode mode, double value,
                 gm_value **y);
/* (b, c, H, W) -> (b, (H/p) (W/p), c p p), patches row by row, inside a patch channel, row, column. */
gm_status gm_patchify(gm_rank *r, gm_value *x, int64_t patch, gm_value **y);

/* Makes out[n_out], computed outside the tape, depend on in[n_in]. The callback turns gradients of the outputs into
 * gradients of the inputs (NULL: none). splits: the callback is told which gradients are wanted and may be called twice
 * (gm_record.splits). Takes ownership of the callback. */
gm_status gm_record_custom(gm_rank *r, int n_in, gm_value *const *in, int n_out, gm_value *const *out,
                           gm_callback backward, bool splits);

/* Makes a negative *dim, which counts from the end, count from the start. GM_ESHAPE, naming op: no such dimension. */
gm_status gm_check_dim(const char *op, int ndim, int64_t *dim);

#endif
