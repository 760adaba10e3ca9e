/* infer.h - what the inference rules share. Private to infer*.c and op.c.
 *
 * Each op of ops.def has one rule, gm_infer_<op>: an op without a rule does not link. Before a rule runs,
 * infer.c has checked the number of tensors, that the required ones are there, and the dtypes; a rule
 * checks shapes and attributes and writes what each output must be. spec always has room for the outputs,
 * except in the multi-tensor ops, where it may be NULL. */
#ifndef GM_INFER_H
#define GM_INFER_H

#include "op.h"

#define GM_OP(name, rule, in, out, attrs) gm_status gm_infer_##name(const gm_call *call, gm_spec *spec);
#include "ops.def"
#undef GM_OP

/* "(4, 8)", for messages; lives as long as the enclosing block. */
#define GM_SHOW_SHAPE(ndim, shape) gm_shape_describe((ndim), (shape), (char[160]){0}, 160)
#define GM_SHOW(t)                 GM_SHOW_SHAPE((t)->ndim, (t)->shape)

gm_spec gm_spec_of(gm_dtype dtype, int ndim, const int64_t *shape);
gm_spec gm_spec_like(const gm_tensor *t);
/* t's dtype and all but its last dimension. */
gm_spec gm_spec_leading(const gm_tensor *t);
/* t with dimension dim of size 1 (keep) or gone. */
gm_spec gm_spec_without(const gm_tensor *t, int dim, bool keep);

/* GM_ESHAPE unless t, which the messages call name, has this shape. NULL is allowed: nothing to check. */
gm_status gm_expect_shape(const gm_call *call, const char *name, const gm_tensor *t, int ndim, const int64_t *shape);
gm_status gm_expect_like(const gm_call *call, const char *name, const gm_tensor *t, const gm_tensor *like);
gm_status gm_expect_spec(const gm_call *call, const char *name, const gm_tensor *t,
                         const gm_spec *spec); /* dtype too */
gm_status gm_expect_ndim(const gm_call *call, const char *name, const gm_tensor *t, int least);
/* GM_EINVAL unless low <= value < high. NaN is outside. */
gm_status gm_expect_range(const gm_call *call, const char *attr, double value, double low, double high);
/* attrs.dim as a dimension of t counted from 0. */
gm_status gm_expect_dim(const gm_call *call, const gm_tensor *t, int *dim);
/* attrs.box against a local block of this shape. padded: the block may reach past the end of the tensor, by padding,
 * whose numbers nobody reads. */
gm_status gm_expect_box(const gm_call *call, int ndim, const int64_t *shape, bool padded);
/* *shape becomes the common shape of itself and t, aligned at the last dimension. */
gm_status gm_broadcast(const gm_call *call, const gm_tensor *t, int *ndim, int64_t *shape);

bool gm_function_is_activation(gm_function f); /* may be fused into linear */

/* Outputs of a call that is about to run: the required ones are there, each is as its spec says and none
 * repeats elements, so that no kernel writes past an end or twice to one place. */
gm_status gm_check_outputs(const gm_call *call, const gm_spec *spec);

#endif
