/* optimizer.h - SGD, Adam and AdamW over a list of parameters, fused: one call of the kernel for each
 * group of parameters that share their settings.
 *
 * SGD: Sutskever et al. 2013 as PyTorch writes it; Adam: Kingma and Ba 2015; AdamW (decoupled weight
 * decay): Loshchilov and Hutter 2019. Parameters without a gradient (never reached by backward) are left
 * as they are, and the update does not count for them: their bias corrections know their own updates only. Moments are
 * made at the first step, in the dtype of their parameter.
 *
 * Of parameters of 16 bits the moments are f32, and so is a master of each, made from it with the moments: steps
 * update that, and the parameter is its rounding. The trap: who writes such a parameter after the first step writes its
 * master too, or it is lost. With attrs.stochastic there are no masters: the parameter itself is rounded by chance. */
#ifndef GM_OPTIMIZER_H
#define GM_OPTIMIZER_H

#include "../autograd/value.h"

typedef struct gm_optimizer gm_optimizer;

/* What differs from parameter to parameter. */
typedef struct gm_optimizer_item {
    double lr_scale; /* times the learning rate of the step */
    double weight_decay;
} gm_optimizer_item;

/* op: one of optimizers.def. attrs: its attributes. items: n, or NULL for lr_scale 1 and attrs->weight_decay.
 * Retains the parameters (leaves that require gradients). */
gm_status gm_optimizer_new(gm_rank *r, gm_op op, int n, gm_value *const *parameters, const gm_attrs *attrs,
                           const gm_optimizer_item *items, gm_optimizer **out);
void      gm_optimizer_free(gm_optimizer *o); /* NULL is allowed */

/* One update. Gradients are multiplied by clip / loss_scale first. Advances the step count. GM_EINVAL: a gradient
 * is still partial over some axes. control: NULL, or the control tensor (kernels/step_control.h), which then says on
 * the device whether there is an update, and what gradients are multiplied by; clip and loss_scale are not read. */
gm_status gm_optimizer_step(gm_optimizer *o, double lr, double clip, double loss_scale, gm_tensor *control);

/* Writes what kernels of the next update read from the step block (learning rate, step number, momentum), as step
 * does: who does it before a step has the same block all through it. */
void gm_optimizer_prepare(gm_optimizer *o, double lr);

/* Updates made so far; setting it is part of resuming. Steps that the control tensor left out have been counted: who
 * hears of them says how many there were in all (skipped), and they count no longer. */
int64_t gm_optimizer_steps(const gm_optimizer *o);
void    gm_optimizer_set_steps(gm_optimizer *o, int64_t steps);
void    gm_optimizer_set_skipped(gm_optimizer *o, int64_t skipped);

/* How many of these updates were made without parameter i, because it had no gradient; of a device, waits for it. */
gm_status gm_optimizer_missed(gm_optimizer *o, int i, double *out);
gm_status gm_optimizer_set_missed(gm_optimizer *o, const double *missed); /* of each parameter */

/* Momentum (SGD) or beta1 (Adam) from the next step on, through the step block. GM_EINVAL outside [0, 1), and for SGD
 * made without. */
gm_status gm_optimizer_set_momentum(gm_optimizer *o, double momentum);

/* State tensors, made if they are not there yet: for parameter i, k = 0, 1, ... until *out is NULL.
 * name: "exp_avg", "exp_avg_sq", "momentum_buffer", "master". Borrowed. */
gm_status       gm_optimizer_state(gm_optimizer *o, int i, int k, const char **name, gm_tensor **out);
int             gm_optimizer_parameters(const gm_optimizer *o);
const gm_value *gm_optimizer_parameter(const gm_optimizer *o, int i); /* borrowed; its layout is that of its states */
size_t          gm_optimizer_bytes(const gm_optimizer *o);            /* of the states that exist */

#endif
