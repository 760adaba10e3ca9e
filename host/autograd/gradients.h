/* gradients.h - which op has which backward rule, and what a node of it keeps.
 * Slot i keeps input i, slot GM_SLOT_OUTPUT + j output j. */
#ifndef GM_GRADIENTS_H
#define GM_GRADIENTS_H

#include "tape.h"

#define GM_SLOT_OUTPUT 4

typedef struct gm_gradient {
    gm_rule rule;     /* NULL: see below */
    uint8_t save_in;  /* bit i: input i is kept */
    uint8_t save_out; /* bit j: output j is kept */
    bool    stops;    /* results depend on no input as far as gradients go (comparisons, argmax) */
} gm_gradient;

/* rule NULL and not stops: the op cannot be differentiated. */
const gm_gradient *gm_gradient_of(gm_op op);

#endif
