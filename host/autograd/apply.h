/* apply.h - differentiable ops on values: what bindings call.
 *
 * gm_apply runs any op of ops.def that has no in-out outputs: infers and allocates the outputs, runs
 * the kernel, and records a node by the op's entry in gradients.c. The functions below it are what
 * is more than one op or less than a kernel: views, concatenation, packed attention, custom functions.
 * Values may be cut or partial: shapes and sizes here are global, layouts follow the rules of
 * host/autograd/layout_rules, and what they refuse is GM_ESHAPE. Where everything is replicated no rule is asked.
 * All give one reference through their last pointers. Dimensions count from 0, negative from the end. */
#ifndef GM_APPLY_H
#define GM_APPLY_H

#include "tape.h"

/* out[n_out] receives values; want (n_out flags) NULL: all outputs. */
gm_status gm_apply(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                   const bool *want, gm_value **out);

/* y = function(x w' + b); the pre-activation is kept only when a gradient will need it. */
gm_status gm_linear(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, gm_function function, gm_value **y);
/* qkv (b, s, h, 3, d) -> (b, s, h, d). */
gm_status gm_attention_packed(gm_rank *r, gm_value *qkv, gm_value *key_mask, const gm_attrs *attrs, gm_value **o);

/* softmax or log_softmax; of a number (no dimensions) as of a row of one. */
gm_status gm_softmax(gm_rank *r, gm_op op, gm_value *x, const gm_attrs *attrs, gm_value **y);
/* Views share the bytes; reshape copies only when it must. */
gm_status gm_reshape(gm_rank *r, gm_value *x, int ndim, const int64_t *shape, gm_value **y); /* one size may be -1 */
gm_status gm_permute(gm_rank *r, gm_value *x, const int *order, gm_value **y);
gm_status gm_narrow(gm_rank *r, gm_value *x, int dim, int64_t start, int64_t length, gm_value **y);
gm_status gm_select(gm_rank *r, gm_value *x, int dim, int64_t index, gm_value **y);
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
