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
 *     optimizer     all tensors of one parameter are laid out alike
 *
 * Partial inputs are allowed where the op is linear in them (all summands partial alike), refused elsewhere.
 *
 * Gradients: the local backward of a local forward is right up to sums. The gradient of an input is partial over
 * the axes that cut an output (or over which an output's gradient is partial) and do not cut that input, less
 * those over which the output is partial (its gradient is replicated there). gm_layout_gradient says so. */
#ifndef GM_LAYOUT_RULES_H
#define GM_LAYOUT_RULES_H

#include "../../autograd/value.h"

/* Layouts and global shapes of the outputs of an op on these inputs. attrs: with dimensions counted from 0; a rule may
 * complete it for the local call (box of random ops). spec: what gm_infer gives for the global shapes. */
gm_status gm_layout_rule(gm_rank *r, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs, int n_out,
                         const gm_spec *global, gm_layout *out);

/* Axes over which the gradient of an input of layout `in` is partial, from an output of layout `out` whose
 * gradient is partial over `g`. */
uint32_t gm_layout_gradient(const gm_layout *in, const gm_layout *out, uint32_t g);

#endif
