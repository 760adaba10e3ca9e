/* gradients.h - which op has which backward rule, and what a node of it keeps.
 * Slot i keeps input i, slot GM_SLOT_OUTPUT + j output j. */
#ifndef GM_GRADIENTS_H
#define GM_GRADIENTS_H

#include "tape.h"

#define GM_SLOT_OUTPUT 4

typedef struct gm_gradient {
    gm_rule rule;     /* NULL: see below */
    uint8_t save_in;  /* bit i: input i is kept, see gm_gradient_inputs */
    uint8_t save_out; /* bit j: output j is kept */
    bool    splits;   /* as gm_record */
    bool    stops;    /* results depend on no input as far as gradients go (comparisons, argmax) */
} gm_gradient;

/* rule NULL and not stops: the op cannot be differentiated. */
const gm_gradient *gm_gradient_of(gm_op op);
/* Inputs that a node of this call keeps, a bit each: those of save_in, less what its rule does not read: a sum or
 * difference keeps none, a norm that gives the sum with its residual keeps that and not x. */
uint8_t gm_gradient_inputs(gm_op op, const gm_attrs *attrs, int n_out, gm_value *const *out);
/* Optional outputs, a bit each, that a node of this call keeps although its caller may not want them. */
uint8_t gm_gradient_outputs(gm_op op, const gm_attrs *attrs);

/* views.c: the gradient of a part of x, which is zeros around it. extra: dimension, start in x (-1: another rank has
 * it), length, 1 if the dimension was dropped. */
void gm_part_rule(gm_backward *b);
/* linear.c: the rule of `linear`, and its parts. */
void gm_linear_rule(gm_backward *b);
/* Of a node that keeps what `linear` keeps: dpre = g f'(pre), and db (+)= column sums of dpre where input 2 wants them;
 * dpre is g itself when there is no activation, or when it has been gone through: in the first half of a pass, or by
 * the node that this one's result went to (gm_backward_activated). g is contiguous. */
gm_tensor *gm_linear_rule_bias(gm_backward *b, gm_tensor *g);
/* The same for a rule that calls gm_linear_rule_weight where input 1 wants a gradient: db comes with dw then, unless
 * there is a pass over g anyway. */
gm_tensor *gm_linear_rule_pre(gm_backward *b, gm_tensor *g);
/* dw (+)= dpre' x of matrices (rows, out) and (rows, in), and db as gm_linear_rule_pre has left it. They are what
 * blocks hold without padding; the gradients' padding becomes zero where they are set. */
void gm_linear_rule_weight(gm_backward *b, gm_tensor *dpre, gm_tensor *x);
/* At the end of the first half of such a node: dpre in place of g and the pre-activation, and of x and w what the
 * gradient of the other needs. */
void gm_linear_rule_keep(gm_backward *b, gm_tensor *dpre);

#endif
