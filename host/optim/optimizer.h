/* optimizer.h - the optimizers of optimizers.def over a list of parameters, fused: one kernel call for each group of
 * parameters with the same settings.
 *
 * kernels/ref/optimizer.c has the formulas and their papers. A parameter without a gradient (backward did not reach it)
 * is not changed, and the update does not count for it: its bias correction counts its own updates only. The first step
 * makes the moments, in the dtype of their parameter.
 *
 * With a trust ratio (kernels/trust.h) a step first measures all parameters, sums the squares over the ranks of the
 * stage in one collective (trust.h), and then updates. It waits for no device.
 *
 * Moments of parameters of 32 bits or fewer can be kept in bf16 or in blocks of 8 bits (kernels/states.h).
 * gm_optimizer_state then gives what is kept, and states.h the numbers.
 *
 * A parameter of 16 bits has moments of f32 and a master copy of f32, which the first step makes from it. Steps update
 * the master and round it into the parameter. The trap: code that writes such a parameter after the first step must
 * also write its master, or the next step overwrites the change. With attrs.stochastic there are no masters: the
 * parameter itself is updated with stochastic rounding. Its gradient may be f32 (gm_parameter.wide_grad). */
#ifndef GM_OPTIMIZER_H
#define GM_OPTIMIZER_H

#include "../autograd/value.h"
#include "offload.h"

typedef struct gm_optimizer gm_optimizer;

/* The settings of one parameter. */
typedef struct gm_optimizer_item {
    double   lr_scale; /* times the learning rate of the step */
    double   weight_decay;
    int64_t  trust;  /* 0: the trust ratio of attrs is not for this one */
    int64_t  attrs;  /* which of the attributes count for this one, from 0 */
    int64_t  states; /* GM_STATES_*: in what its moments are kept */
    uint64_t site;   /* of its random words (gm_hash_text of its name): the same on all ranks and in every mode */
} gm_optimizer_item;

/* op: one of optimizers.def. attrs: n_attrs lists of its attributes, for groups of parameters, which agree in `trust`;
 * value: what moments begin with. items: n, or NULL for lr_scale 1 and the first attributes. Retains the parameters
 * (leaves that require gradients). */
gm_status gm_optimizer_new(gm_rank *r, gm_op op, int n, gm_value *const *parameters, int n_attrs, const gm_attrs *attrs,
                           const gm_optimizer_item *items, gm_optimizer **out);
void      gm_optimizer_free(gm_optimizer *o); /* NULL is allowed */

/* From here on states rest in this tier (offload.h), which is the rank's (gm_rank_rest), and for which space is taken
 * now. Before the first step, when it is settled which part of a parameter this rank owns. If the tier is of the device
 * beside a GPU (gm_rank_beside), the host makes these updates (on_host.h), `unit` bytes of gradients and parameters at
 * a time; elsewhere unit has no meaning. */
gm_status gm_optimizer_offload(gm_optimizer *o, gm_tier *tier, double fraction, uint64_t unit);
/* What gm_optimizer_offload takes of a tier: for all states, and for those of the parameter that has the most. */
void gm_optimizer_room(const gm_optimizer *o, gm_tier_kind kind, uint64_t *all, uint64_t *largest);

/* Makes one update with gradients multiplied by clip / loss_scale, and advances the step count. control: NULL, or the
 * control tensor (kernels/step_control.h), which decides on the device whether there is an update and by what gradients
 * are multiplied; clip and loss_scale are then not read. GM_EINVAL: a gradient is still partial over some axes. */
gm_status gm_optimizer_step(gm_optimizer *o, double lr, double clip, double loss_scale, gm_tensor *control);

/* For optimizers that compute themselves what gm_optimizer_step takes as gradients: from now on what is given counts,
 * and no gradient. update: laid out as the states, in f32 or f64, borrowed until the next call; NULL: none. */
void gm_optimizer_take_updates(gm_optimizer *o);
void gm_optimizer_give(gm_optimizer *o, int i, gm_tensor *update);

/* Writes the values that the kernels of the next update read from the step block (learning rate, step number,
 * momentum), as gm_optimizer_step does. Called before a step, it keeps the block constant during the step. */
void gm_optimizer_prepare(gm_optimizer *o, double lr);

/* The number of updates so far; setting it is part of resuming. The count includes steps that the control tensor
 * skipped until gm_optimizer_set_skipped gives their total number, which is then subtracted. */
int64_t gm_optimizer_steps(const gm_optimizer *o);
void    gm_optimizer_set_steps(gm_optimizer *o, int64_t steps);
void    gm_optimizer_set_skipped(gm_optimizer *o, int64_t skipped);

/* The number of these updates in which parameter i had no gradient. Waits for a device with memory of its own. */
gm_status gm_optimizer_missed(gm_optimizer *o, int i, double *out);
gm_status gm_optimizer_set_missed(gm_optimizer *o, const double *missed); /* of each parameter */
/* Grows whenever a parameter gets another count of the updates that it has missed: a recording of a step from before
 * does not know it. */
int64_t gm_optimizer_regrouped(const gm_optimizer *o);

/* Sets momentum or beta1 (optimizers.def says which) from the next step on, through the step block. GM_EINVAL: it is
 * outside [0, 1), or the optimizer was made without momentum. */
gm_status gm_optimizer_set_momentum(gm_optimizer *o, double momentum);

/* The state tensors of parameter i, made if they do not exist yet: k = 0, 1, ... until *out is NULL.
 * name: as in optimizers.def, or "master". Borrowed. */
gm_status        gm_optimizer_state(gm_optimizer *o, int i, int k, const char **name, gm_tensor **out);
int              gm_optimizer_parameters(const gm_optimizer *o);
const gm_value  *gm_optimizer_parameter(const gm_optimizer *o, int i); /* borrowed */
const gm_layout *gm_optimizer_layout(const gm_optimizer *o, int i);    /* of the states of parameter i; borrowed */

/* State k of parameter i where it is kept in fewer bits than 32: is it? Its numbers as a new tensor of f32, laid out as
 * other states; and the way back. Numbers that were read are kept in the same bits again. */
bool      gm_optimizer_is_compact(const gm_optimizer *o, int i, int k);
gm_status gm_optimizer_numbers(gm_optimizer *o, int i, int k, gm_tensor **out);
gm_status gm_optimizer_set_numbers(gm_optimizer *o, int i, int k, gm_tensor *from);

size_t
gm_optimizer_bytes(const gm_optimizer *o); /* in the memory of the device, of the states that exist, trust included */

#endif
