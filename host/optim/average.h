/* average.h - running averages of parameters (EMA of weights: Polyak and Juditsky 1992, as PyTorch's AveragedModel).
 *
 * An average has the layout of the parameter's optimizer states: with ZeRO a rank holds the averages of what it owns.
 * It is f32 for a parameter of 16 bits. An update is one kernel call for all parameters of a dtype.
 *
 * The trap: gm_average_swap is collective over the ranks that share states out, and the parameters must not be trained
 * before it has been called again. */
#ifndef GM_AVERAGE_H
#define GM_AVERAGE_H

#include "../autograd/value.h"

typedef struct gm_average gm_average;

/* Averages that begin as copies of the parameters (n leaves, retained). */
gm_status gm_average_new(gm_rank *r, int n, gm_value *const *parameters, gm_average **out);
void      gm_average_free(gm_average *a); /* NULL is allowed */

/* average += weight (parameter - average); weight 1 copies the bits. GM_EINVAL: the parameters hold the averages. */
gm_status gm_average_update(gm_average *a, double weight);

/* The parameters take the numbers of the averages, rounded to their dtype; the next call gives them their own back, bit
 * for bit. */
gm_status gm_average_swap(gm_average *a);
bool      gm_average_is_swapped(const gm_average *a);

int              gm_average_parameters(const gm_average *a);
const gm_value  *gm_average_parameter(const gm_average *a, int i); /* borrowed, */
gm_tensor       *gm_average_tensor(const gm_average *a, int i);    /* as are these */
const gm_layout *gm_average_layout(const gm_average *a, int i);
size_t           gm_average_bytes(const gm_average *a); /* with the numbers that wait for the next swap */

#endif
