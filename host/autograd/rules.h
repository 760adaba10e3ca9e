/* rules.h - what backward rules are written with: run an op, make it fit, reduce it. New tensors are
 * given to the caller through the last pointer; inputs are borrowed. */
#ifndef GM_RULES_H
#define GM_RULES_H

#include "tape.h"

/* Runs op; its first output is new, further ones are not wanted. */
gm_status gm_rule_run(gm_backward *b, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, gm_tensor **out);
/* Runs op into tensors that exist. */
gm_status gm_rule_into(gm_backward *b, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                       gm_tensor *const *out);
gm_status gm_rule_affine(gm_backward *b, gm_tensor *x, double alpha, double beta, gm_tensor **out);
gm_status gm_rule_scale(gm_backward *b, gm_tensor *x, double alpha, gm_tensor **out);
gm_status gm_rule_full(gm_backward *b, const gm_spec *spec, double value, gm_tensor **out);
/* x itself (retained) when contiguous, else a copy. */
gm_status gm_rule_contiguous(gm_backward *b, gm_tensor *x, gm_tensor **out);
/* x as (rows, last dimension): a view where possible, else of a copy. */
gm_status gm_rule_rows(gm_backward *b, gm_tensor *x, gm_tensor **out);
/* x summed to a shape that broadcasts to its own; x itself (retained) when it has that shape. */
gm_status gm_rule_sum_to(gm_backward *b, gm_tensor *x, const gm_spec *spec, gm_tensor **out);
/* linear.c: the rule of `linear`, and its parts. */
gm_status gm_rule_linear(gm_backward *b);
/* Of a node that keeps what `linear` keeps: dpre = g f'(pre), and db (+)= column sums of dpre where input 2 wants them;
 * dpre is g itself (retained) when there is no activation, or when it has been gone through: in the first half of a
 * pass, or by the node that this one's result went to (gm_backward_activated). g is contiguous. */
gm_status gm_rule_linear_bias(gm_backward *b, gm_tensor *g, gm_tensor **dpre);
/* The same for a rule that calls gm_rule_linear_weight where input 1 wants a gradient: db comes with dw then, unless
 * there is a pass over g anyway. */
gm_status gm_rule_linear_pre(gm_backward *b, gm_tensor *g, gm_tensor **dpre);
/* dw (+)= dpre' x of matrices (rows, out) and (rows, in), and db as gm_rule_linear_pre has left it. They are what
 * blocks hold without padding; the gradients' padding becomes zero where they are set. */
gm_status gm_rule_linear_weight(gm_backward *b, gm_tensor *dpre, gm_tensor *x);
/* At the end of the first half of such a node: dpre in place of g and the pre-activation, and of x and w what the
 * gradient of the other needs. */
void gm_rule_linear_keep(gm_backward *b, gm_tensor *dpre);

#endif
