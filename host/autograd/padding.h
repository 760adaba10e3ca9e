/* padding.h - what a block has beyond the end of its tensor: zeros, in values and in gradients, always.
 *
 * Blocks of a cut dimension have one size, so the last ones reach over its end (gm_layout_block). Were that memory
 * anything, a sum or a product over it would meet numbers that nobody wrote: log(0), then 0 * -inf. So:
 *
 *   - who computes a value's block calls gm_padding_finish when it is complete. Ops marked GM_KEEPS_ZERO in ops.def and
 *     functions.def give zeros for zeros and are left out (gm_apply). Views and redistributions move zeros.
 *   - the tape clears the gradient of a node's outputs before the node's rule reads it, and that of a leaf after a rule
 *     has written it. A rule that sums something of its own making over a padded dimension clears that first
 *     (gm_backward_clear).
 *   - bytes that users write past the layout (local_tensor, collectives in place) move the storage's version on; the
 *     value is cleared when it is next handed to C (gm_padding_renew).
 *
 * Where a block has no padding all of it is one comparison, of gm_value.padded. */
#ifndef GM_PADDING_H
#define GM_PADDING_H

#include "value.h"

/* t, a block of a tensor of this global shape or the leading part of one, becomes `value` beyond the tensor's end. */
gm_status gm_padding_fill(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, gm_tensor *t,
                          double value);
/* v's block has been computed. */
gm_status gm_padding_finish(gm_value *v);
/* v comes from the user, who may have written its block or its gradient's since their padding was known to be zero. */
gm_status gm_padding_renew(gm_value *v);
/* v's gradient, which there is, is about to be in the hands of a user. */
void gm_padding_show_gradient(gm_value *v);
/* With rank->poison_padding (specs): NaN, of integers a number that is no index, for all of t before it is computed, or
 * for its padding where zeros are not promised, so that whatever relies on what nobody cleared is seen. */
gm_status gm_padding_poison_new(const gm_rank *r, gm_tensor *t); /* releases t on failure */
gm_status gm_padding_poison(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, gm_tensor *t);

#endif
