/* apply_blocks.h - ops on values of which some are cut or partial. Private to host/autograd and host/parallel. */
#ifndef GM_APPLY_BLOCKS_H
#define GM_APPLY_BLOCKS_H

#include "layout_rules/rules.h"
#include "apply.h"

#define GM_APPLY_INPUTS 8 /* of one op */

/* gm_apply on local blocks, also for ops with a sharded form: runs the kernel and records. The caller fills out with
 * NULL before. */
gm_status gm_apply_blocks(gm_rank *r, const gm_value_call *c, gm_value **out);
/* Does the call make output i: is it wanted, needed by the gradient, or always written by the kernel? */
bool gm_apply_makes(gm_rank *r, const gm_value_call *c, int i);

/* Checks the call on the global shapes and infers the global outputs. An error shows the layouts of the inputs. */
gm_status gm_judge_call(const gm_value_call *c, gm_spec *global);
/* gm_apply_blocks without recording. fitted[n_in] and out[n_out] receive references; *attrs become those of the local
 * call. */
gm_status gm_run_blocks(gm_rank *r, const gm_value_call *c, gm_attrs *attrs, gm_value **fitted, gm_value **out);
/* Calls gm_fit_value for each input; NULL entries stay NULL. */
gm_status gm_fit_all(gm_rank *r, int n, gm_value *const *in, const gm_fit *fit, gm_value **fitted);
void      gm_release_all(int n, gm_value **v);
/* The gradient of output i as a value, cut as the output is and partial as gradients are now; NULL: there is none. */
gm_status gm_gradient_value(gm_backward *b, int i, gm_value **out);
/* Makes an output with undefined contents and a block of shape `local`. */
gm_status gm_new_output(gm_rank *r, const char *op, const gm_spec *local, const gm_layout *layout,
                        const gm_spec *global, gm_value **out);

#endif
