/* step_control.h - decides on the device about each update of a training run, and copies the decision to the host.
 *
 * During a step the loss adds up on the device. gm_control_decide computes the norm of the gradients, the factor that
 * clips them, and whether there is an update (kernels/step_control.h has the rule); the optimizer reads all this on the
 * device. The numbers are sent to the host after the update. On a device with memory of its own nobody waits for them
 * until gm_control_take, which the caller calls when the next step has been queued.
 *
 *     gm_control_add_loss(c, loss)         for each batch
 *     gm_control_decide(c, ...)            after the last backward
 *     gm_optimizer_step(o, ..., gm_control_tensor(c))
 *     gm_control_send(c)
 *     gm_control_take(c, true, numbers, &there)
 *
 * The trap: after a halt all further decisions are "no update", with the numbers of the step that halted, until
 * gm_control_resume. */
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
/* Forgets the terms of a step that an error ended. */
void gm_control_forget(gm_control *c);
/* What this rank was asked for, as a number that the caller chooses; 0 at first. numbers: with which its optimizer
 * makes the update, such as the learning rate; they must be the same on every rank. Both are copied to the device only
 * where they change, and stay there: a graph that was recorded before reads them when it is replayed. */
gm_status gm_control_ask(gm_control *c, double asked, const double *numbers, int n);
/* *out: f64 (3), borrowed: the loss so far, what this rank was asked for, and this rank's term of a sum that is 0 where
 * the numbers of all ranks are the same. Where they are not, it is 0 in one case of 2^30 (two ranks: never). The caller
 * sums it over the ranks before the decision, which halts where that sum is not 0. */
gm_status gm_control_loss(gm_control *c, gm_tensor **out);
/* Stores the sum of counts (f64) as the number of contributing targets of the step. Decisions do not depend on it. */
gm_status gm_control_set_targets(gm_control *c, gm_tensor *counts);

/* Decides whether there is an update. items: the gradients of this rank, whose 2-norm is computed (collective over all
 * axes that cut them); or NULL, and norm is used instead. rule: the attributes of op step_control. */
gm_status gm_control_decide(gm_control *c, const gm_norm_item *items, int n, double norm, const gm_attrs *rule);
/* f64 (GM_CONTROL_SIZE), for the optimizer; always the same memory. Borrowed. */
gm_tensor *gm_control_tensor(gm_control *c);

/* Queues a copy of the numbers to the host, after all queued work. GM_EINVAL: GM_CONTROL_RING copies have not been
 * taken yet. */
gm_status gm_control_send(gm_control *c);
/* Takes the oldest numbers that were sent. *there is false if there are none, or if they are still under way and wait
 * is false. On meta they are zeros. */
gm_status gm_control_take(gm_control *c, bool wait, double numbers[GM_CONTROL_SIZE], bool *there);
int       gm_control_sent(const gm_control *c); /* not taken yet */

/* Writes an element (GM_CONTROL_*) behind what is queued. */
gm_status gm_control_set(gm_control *c, int element, double value);
/* on: backward passes of losses on this rank begin with the control's loss scale; off: with 1. The last call counts;
 * freeing the control ends it. Gradients then carry the scale, and decisions and updates divide by it. */
gm_status gm_control_scale_losses(gm_control *c, bool on);
/* Ends a halt: drops the numbers that were sent, and lets the next step decide again. Waits for the device, so that
 * this call reports an error that a kernel has found. */
gm_status gm_control_resume(gm_control *c);

#endif
