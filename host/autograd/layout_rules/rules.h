/* rules.h - the layout rule of every op, which computes the layouts of its outputs from those of its inputs.
 *
 * An op runs on local blocks alone. Its rule either finds that this gives the right result, and in which layout, or it
 * refuses with GM_ESHAPE and prints all layouts; the caller may then redistribute an input. ops.def names the rule of
 * each op. The rules of views (reshape, permute, ...) are in views.c. In short:
 *
 *     elementwise   operands must agree in each dimension. They are aligned at the last one; dimensions of size 1 and
 *                   missing ones fit anything. A replicated operand fits a cut one if it is broadcast or can be sliced
 *     rowwise, norm, loss, attention, embedding   leading (batch, head) dimensions may be cut; the dimension along
 *                   which the op works must be whole
 *     contraction   cuts of rows and columns pass through; if both operands are cut in the same way along the inner
 *                   dimension, the result is partial
 *     convolution   samples may be cut, and channels as the rows and columns of a contraction; with groups only into
 *                   whole groups. Space and kernels must be whole (its first dimension may be cut in
 *                   host/parallel/sharded/convolution.c; so with pooling)
 *     few_bits      as contraction and embedding; blocks of weights of few bits are never cut
 *     float8        as elementwise and contraction; a scale is that of the whole tensor, and no operand may be partial
 *     reduction     if a reduced dimension is cut, a sum gives a partial result, without padding; other ops refuse
 *     pooling       batch and channels may be cut; dimensions along which windows move must be whole
 *     random        the box of the block goes into the call, so that the bits are those of the whole tensor
 *     pages         heads may be cut, in the pool as in the queries; all else is whole
 *     experts       works on blocks alone (host/parallel/sharded/experts.h)
 *     optimizer     all tensors of one parameter have the same layout; the optimizer runs it, not gm_apply
 *
 * An input may be partial if the op is linear in it; otherwise the rule refuses it. In a sum of a partial and a
 * replicated operand, the replicated one counts only on the ranks with coordinate 0 along the partial axes.
 *
 * A rule can ask for a change of an input before the local call (gm_fit). Such a change sends nothing: a replicated
 * operand is sliced where others are cut, or masked where others are partial, or the padding of a dimension that is
 * summed over is left out.
 *
 * Gradients: the local backward of a local forward is right up to sums over ranks. If an input is replicated over an
 * axis, its gradient is partial over this axis in two cases: an output is cut by the axis or partial over it, so that
 * each rank has its own block or term; or the gradient of an output is partial over it. If an input is cut, its
 * gradient is cut in the same way. If an input is partial, so is the output, and the gradients of both are
 * replicated. */
#ifndef GM_LAYOUT_RULES_H
#define GM_LAYOUT_RULES_H

#include "../value.h"

/* How the local call needs an input. */
typedef struct gm_fit {
    gm_layout layout; /* the input's own layout, with further cuts (slices) or further partial axes (masks) */
    uint32_t  trim;   /* bit d set: without the padding of dimension d */
} gm_fit;

/* Gives the layouts of the outputs of an op on these inputs (NULL: not given), and the fit of each input. attrs:
 * dimensions count from 0; the rule completes them for the local call (the box of random ops; beta, if it must count
 * once). global: the specs that gm_infer gives for the global shapes. GM_ESHAPE: the rule refuses. */
gm_status gm_layout_rule(gm_rank *r, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs, int n_out,
                         const gm_spec *global, gm_layout *out, gm_fit *fit);

/* Tells whether this rank has coordinate 0 along all these axes; only such a rank counts a replicated term of a sum
 * over them. */
bool gm_rule_counts(const gm_rank *r, uint32_t axes);
/* The axes over which the gradient of an input is partial. in, out: the layouts of the input and of an output; g: the
 * axes over which the gradient of this output is partial. */
uint32_t gm_layout_gradient(const gm_layout *in, const gm_layout *out, uint32_t g);

/* ---- views; shapes are global and complete ---- */

gm_status gm_layout_reshape(gm_value *x, int ndim, const int64_t *shape, gm_layout *out);
gm_layout gm_layout_permute(const gm_layout *x, int ndim, const int *order);
/* The layout of elements start .. start + length - 1 along dim, which must be all of them if dim is cut. drop: the op
 * is select, which also takes one place of a cut dimension; its result is then partial over the axes of the cut,
 * because the rank that holds the place has the slice, and the others have zeros. */
gm_status gm_layout_part(gm_value *x, const char *op, int dim, int64_t start, int64_t length, bool drop,
                         gm_layout *out);
gm_status gm_layout_expand(gm_value *x, int ndim, const int64_t *shape, gm_layout *out);
/* n values joined along dim. GM_ESHAPE: one of them is cut along dim. fit[n]: the fit of each. */
gm_status gm_layout_cat(int n, gm_value *const *x, int dim, gm_layout *out, gm_fit *fit);

/* ---- fitting: fit.c ---- */

/* Gives x changed as fit says: x itself (retained), or a new value computed from it without communication. The change
 * is differentiable. After a trim the result has the layout and global shape of x, but a smaller block; it may be used
 * only inside an op. The caller owns *y. */
gm_status gm_fit_value(gm_rank *r, gm_value *x, const gm_fit *fit, gm_value **y);
/* Gives a gradient of the loss that the user passed, cut as the loss is. GM_ESHAPE: its shape, dtype or cuts do not
 * fit. */
gm_status gm_fit_seed(gm_value *loss, gm_value *seed, gm_value **y);
/* Fills v's block by GM_OP_fill, uniform or normal, with the same bits that the whole tensor would get there. The
 * padding becomes zero. GM_ESHAPE: v is partial. */
gm_status gm_draw_block(gm_value *v, gm_op op, const gm_attrs *attrs);
/* The same, but with attrs->box as it is given. */
gm_status gm_draw_inside(gm_value *v, gm_op op, const gm_attrs *attrs);
/* Tells whether layouts need no work: the mesh has no axes, or all these values are replicated. NULL entries are
 * allowed. */
bool gm_all_replicated(const gm_rank *r, int n, gm_value *const *v);

/* For messages about values whose layouts do not fit together: what to try. */
#define GM_RULE_CURE                                                                                          \
    "redistribute one of them (in a layer, gm.nn.stream.to(x) lays an activation out as layers take it, and " \
    "gm.nn.stream.whole(x, d) makes dimension d whole on every rank)"

#endif
