/* rules.h - the layout rule of every op: from the layouts of its inputs to those of its outputs.
 *
 * An op runs on local blocks alone: a rule either finds that this is right (and what layout the outputs then
 * have), or refuses with GM_ESHAPE and prints all layouts; the caller may redistribute. ops.def names each op's
 * rule; views (reshape, permute, ...) have theirs in views.c. In one line each:
 *
 *     elementwise   operands agree dimension by dimension (aligned at the last; size-1 and missing dimensions
 *                   are neutral); replicated fits a cut operand only where it is broadcast or can be sliced
 *     rowwise, norm, loss, attention, embedding   leading (batch, head) dimensions may be cut; the
 *                   dimension worked along is whole
 *     contraction   cuts of rows and columns pass through; both operands cut alike along the inner dimension
 *                   give a partial result
 *     reduction     reduced dimensions that are cut: sum gives a partial result (padding left out), others refuse
 *     random        the box of the block goes into the call: bits are those of the whole tensor
 *     experts       on blocks alone (host/parallel/sharded/experts.h)
 *     optimizer     all tensors of one parameter are laid out alike; run by the optimizer, not through gm_apply
 *
 * Partial inputs are allowed where the op is linear in them, refused elsewhere. In a sum of a partial and a
 * replicated operand the replicated one counts at coordinate 0 of the partial axes only.
 *
 * What a rule asks of an input before the local call (gm_fit) sends nothing: a replicated operand is sliced where
 * others are cut, or masked where others are partial; the padding of a dimension that is summed over is left out.
 *
 * Gradients: the local backward of a local forward is right up to sums over ranks. Where an input is replicated over
 * an axis, its gradient is partial over it if an output is cut by it or partial over it (each rank has its own
 * block, or its own term), or if an output's gradient is partial over it. Where an input is cut so is its
 * gradient; where it is partial, the output is too, and the gradients of both are replicated. */
#ifndef GM_LAYOUT_RULES_H
#define GM_LAYOUT_RULES_H

#include "../value.h"

/* An input as the local call wants it. */
typedef struct gm_fit {
    gm_layout layout; /* its own, with further cuts (slices of what is replicated) or partial axes (masks) */
    uint32_t  trim;   /* bit d: without the padding of dimension d */
} gm_fit;

/* Layouts of the outputs of an op on these inputs (NULL: not given) and what it asks of each input. attrs: with
 * dimensions counted from 0; completed for the local call (box of random ops; beta where it must count once). global:
 * what gm_infer gives for the global shapes. */
gm_status gm_layout_rule(gm_rank *r, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs, int n_out,
                         const gm_spec *global, gm_layout *out, gm_fit *fit);

/* Is this the rank, coordinate 0 of all these axes, that keeps a replicated term of a sum over them? */
bool gm_rule_counts(const gm_rank *r, uint32_t axes);
/* Axes over which the gradient of an input of layout `in` is partial, from an output of layout `out` whose
 * gradient is partial over `g`. */
uint32_t gm_layout_gradient(const gm_layout *in, const gm_layout *out, uint32_t g);

/* ---- views; shapes are global and complete ---- */

gm_status gm_layout_reshape(gm_value *x, int ndim, const int64_t *shape, gm_layout *out);
gm_layout gm_layout_permute(const gm_layout *x, int ndim, const int *order);
/* Elements start .. start + length - 1 of dim (all of it where it is cut). drop: of select, which gives one slice of
 * a dimension that is cut as a sum over its axes: the slice of the rank that holds it, and zeros. */
gm_status gm_layout_part(gm_value *x, const char *op, int dim, int64_t start, int64_t length, bool drop,
                         gm_layout *out);
gm_status gm_layout_expand(gm_value *x, int ndim, const int64_t *shape, gm_layout *out);
/* Joined along dim, which no x is cut along; fit[n]. */
gm_status gm_layout_cat(int n, gm_value *const *x, int dim, gm_layout *out, gm_fit *fit);

/* ---- fitting: fit.c ---- */

/* x as fit says: itself (retained) or computed from it without communication. Differentiable. The result of
 * a trim has the layout and global shape of x and a smaller block: for the inside of an op only. */
gm_status gm_fit_value(gm_rank *r, gm_value *x, const gm_fit *fit, gm_value **y);
/* A gradient of loss that the user gives, cut as the loss is. GM_ESHAPE: other shape, dtype or cuts. */
gm_status gm_fit_seed(gm_value *loss, gm_value *seed, gm_value **y);
/* Fills v's block, by GM_OP_fill, uniform or normal, with what the whole tensor would get there, bit for bit; its
 * padding becomes zero. GM_ESHAPE: v is partial. */
gm_status gm_draw_block(gm_value *v, gm_op op, const gm_attrs *attrs);
/* The same with attrs->box as it is given. */
gm_status gm_draw_inside(gm_value *v, gm_op op, const gm_attrs *attrs);
/* Does the mesh, or what these values are, leave nothing to do for layouts? NULL entries are allowed. */
bool gm_all_replicated(const gm_rank *r, int n, gm_value *const *v);

/* What to do about values that do not lie together, for messages. */
#define GM_RULE_CURE                                                                                          \
    "redistribute one of them (in a layer, gm.nn.stream.to(x) lays an activation out as layers take it, and " \
    "gm.nn.stream.whole(x, d) makes dimension d whole on every rank)"

#endif
