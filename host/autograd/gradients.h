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

#endif
