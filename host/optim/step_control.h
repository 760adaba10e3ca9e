/* step_control.h - what decides about the updates of a training run, on the device, and its way to the host.
 *
 * In a step the loss adds up on the device; gm_control_decide works out the norm of the gradients, the factor that
 * clips them and whether there is an update (kernels/step_control.h has the rule), which the optimizer reads there; the
 * numbers are sent to the host behind the update. Where memory is the host's they are there at once; elsewhere nobody
 * waits until they are taken, which the caller does when the next step has been queued.
 *
 *     gm_control_add_loss(c, loss)         for each batch
 *     gm_control_decide(c, ...)            after the last backward
 *     gm_optimizer_step(o, ..., gm_control_tensor(c))
 *     gm_control_send(c)
 *     gm_control_take(c, true, numbers, &there)
 *
 * The trap: after a halt all further decisions are "no update", and say so with the numbers of the step that halted,
 * until gm_control_resume. */
#ifndef GM_OPTIM_STEP_CONTROL_H
#define GM_OPTIM_STEP_CONTROL_H

#include "../../kernels/step_control.h"
#include "../gradients/norm.h"

#define GM_CONTROL_RING 4 /* numbers that may be on their way to the host */

typedef struct gm_control gm_control;

gm_status gm_control_new(gm_rank *r, gm_control **out); /* loss scale 1 */
void      gm_control_free(gm_control *c);               /* NULL is allowed */

/* This rank's term of a loss: a tensor of one element, or a number; terms of a step add up in f64. After a decision the
 * next step begins with 0. */
gm_status gm_control_add_loss(gm_control *c, gm_tensor *part);
gm_status gm_control_add_number(gm_control *c, double part);
/* The terms so far are forgotten: of a step that an error broke off. */
void gm_control_forget(gm_control *c);
/* f64 (2): the loss so far, and the ranks that were asked to stop (was this one?). What ranks must add up before the
 * decision. Borrowed. */
gm_status gm_control_loss(gm_control *c, bool asked, gm_tensor **out);
/* Contributing targets of the step: the sum of the counts, f64. For who wants to know it later; decides nothing. */
gm_status gm_control_set_targets(gm_control *c, gm_tensor *counts);

/* Is there an update? items: the gradients of this rank (2-norm; collective over all axes that cut them), or NULL, and
 * norm: what it is. rule: the attributes of op step_control. */
gm_status gm_control_decide(gm_control *c, const gm_norm_item *items, int n, double norm, const gm_attrs *rule);
/* f64 (GM_CONTROL_SIZE), for the optimizer; always the same memory. Borrowed. */
gm_tensor *gm_control_tensor(gm_control *c);

/* The numbers as they are behind all that is queued go to the host. GM_EINVAL: GM_CONTROL_RING of them have not been
 * taken. */
gm_status gm_control_send(gm_control *c);
/* The oldest numbers that were sent; *there is false where there are none, or where they are still under way and wait
 * is false. On meta they are zeros. */
gm_status gm_control_take(gm_control *c, bool wait, double numbers[GM_CONTROL_SIZE], bool *there);
int       gm_control_sent(const gm_control *c); /* not taken yet */

/* Writes an element (GM_CONTROL_*) behind what is queued. */
gm_status gm_control_set(gm_control *c, int element, double value);
/* Backward passes of losses on this rank begin with its loss scale from here on, or with 1: the last to say so counts,
 * and closing a control ends it. Gradients then carry the scale, which decisions and updates divide by. */
gm_status gm_control_scale_losses(gm_control *c, bool on);
/* Ends a halt: what was sent is forgotten, the next decision is one. Waits for the device, so that what a kernel has
 * refused is this call's error. */
gm_status gm_control_resume(gm_control *c);

#endif
