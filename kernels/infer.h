/* infer.h - what the inference rules share. Private to infer*.c and op.c.
 *
 * Each op of ops.def has one rule, gm_infer_<op>; an op without a rule does not link. Before a rule runs, infer.c
 * checks the number of tensors, that the required ones are there, and the dtypes. The rule checks shapes and attributes
 * and writes the spec of each output. Its `spec` has room for all outputs, but may be NULL in the multi-tensor ops. */
#ifndef GM_INFER_H
#define GM_INFER_H

#include "op.h"

#define GM_OP(name, rule, in, out, attrs) gm_status gm_infer_##name(const gm_call *call, gm_spec *spec);
#include "ops.def"
#undef GM_OP

/* A text such as "(4, 8)", for messages; it lives as long as the enclosing block. */
#define GM_SHOW_SHAPE(ndim, shape) gm_shape_describe((ndim), (shape), (char[160]){0}, 160)
#define GM_SHOW(t)                 GM_SHOW_SHAPE((t)->ndim, (t)->shape)

gm_spec gm_spec_of(gm_dtype dtype, int ndim, const int64_t *shape);
gm_spec gm_spec_like(const gm_tensor *t);
/* The dtype of t, and all its dimensions but the last. */
gm_spec gm_spec_leading(const gm_tensor *t);
/* Like t, but dimension dim has size 1 (keep) or is left out. */
gm_spec gm_spec_without(const gm_tensor *t, int dim, bool keep);

/* GM_ESHAPE unless t has this shape. name: what messages call t. If t is NULL, nothing is checked. */
gm_status gm_expect_shape(const gm_call *call, const char *name, const gm_tensor *t, int ndim, const int64_t *shape);
gm_status gm_expect_like(const gm_call *call, const char *name, const gm_tensor *t, const gm_tensor *like);
gm_status gm_expect_spec(const gm_call *call, const char *name, const gm_tensor *t,
                         const gm_spec *spec); /* dtype too */
gm_status gm_expect_ndim(const gm_call *call, const char *name, const gm_tensor *t, int least);
/* GM_EINVAL unless low <= value < high; so NaN fails. */
gm_status gm_expect_range(const gm_call *call, const char *attr, double value, double low, double high);
/* Gives attrs.dim as a dimension of t, counted from 0. GM_EINVAL: t has no such dimension. */
gm_status gm_expect_dim(const gm_call *call, const gm_tensor *t, int *dim);
/* GM_EINVAL unless a local block of this shape lies inside attrs.box. padded: the block may reach past the end of the
 * global tensor, because its last rows are padding, whose numbers nobody reads. */
gm_status gm_expect_box(const gm_call *call, int ndim, const int64_t *shape, bool padded);
/* Replaces *shape by the common shape of itself and t, aligned at the last dimension. GM_ESHAPE: they do not broadcast.
 */
gm_status gm_broadcast(const gm_call *call, const gm_tensor *t, int *ndim, int64_t *shape);

bool gm_function_is_activation(gm_function f); /* linear can apply it in its kernel */
/* GM_EINVAL unless attrs.function is an activation or none. */
gm_status gm_expect_activation(const gm_call *call);

/* Checks the outputs of a call that is about to run: the required ones are there, each is as its spec says, and none
 * repeats elements. So no kernel writes past an end, or twice to one place. */
gm_status gm_check_outputs(const gm_call *call, const gm_spec *spec);

#endif
