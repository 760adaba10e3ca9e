/* left.h - the gradients that a step has left in its leaves, kept for whoever makes the step again without backward
 * (a graph, kernels/graph.h, writes into the same tensors, and no leaf hears of it).
 *
 *     GM_TRY(gm_left_new(n, parameters, &left));      behind the step
 *     gm_left_put_back(left);                         behind each step like it
 *
 * Between the two a leaf may have forgotten its gradient, or hold another in other bytes. */
#ifndef GM_LEFT_H
#define GM_LEFT_H

#include "value.h"

typedef struct gm_left gm_left;

gm_status gm_left_new(int n, gm_value *const *leaves, gm_left **out); /* keeps the leaves and their gradients alive */
/* Leaves hold the gradients again that they held then. One that requires no gradient now is left out. */
void gm_left_put_back(const gm_left *left);
void gm_left_free(gm_left *left); /* NULL is allowed */

#endif
