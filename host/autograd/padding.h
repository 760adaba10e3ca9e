/* padding.h - the padding of blocks, which is zero in values and in gradients.
 *
 * All blocks of a cut dimension have one size, so the last ones reach beyond its end (gm_layout_block). Undefined bytes
 * there would enter sums and products: log(0), then 0 * -inf. So:
 *
 *   - Code that computes a value's block calls gm_padding_finish when the block is complete. Ops marked GM_KEEPS_ZERO
 *     in ops.def and functions.def give zeros for zeros and need no call (gm_apply). Views and redistributions move
 *     zeros.
 *   - The tape clears the gradient of a node's outputs before the node's rule reads it, and the gradient of a leaf
 *     after a rule has written it. A rule that sums a tensor of its own over a padded dimension clears it first
 *     (gm_backward_clear).
 *   - Users may write bytes directly (local_tensor, collectives in place). That raises the storage's version, and the
 *     padding is cleared when the value is next handed to C (gm_padding_renew).
 *
 * For a block without padding all of this costs one test of gm_value.padded. */
#ifndef GM_PADDING_H
#define GM_PADDING_H

#include "value.h"

/* Sets t beyond the tensor's end to `value`. t is a block of a tensor of this global shape, or its leading part. */
gm_status gm_padding_fill(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, gm_tensor *t,
                          double value);
/* Clears the padding of v; called when v's block has been computed. */
gm_status gm_padding_finish(gm_value *v);
/* Clears the padding of v and of its gradient if their bytes were written since it was last known to be zero; called
 * for values that come from the user. */
gm_status gm_padding_renew(gm_value *v);
/* Notes that a user is about to get v's gradient, which must exist. */
void gm_padding_show_gradient(gm_value *v);
/* With rank->poison_padding (specs): fills all of t before it is computed (gm_padding_poison_new), or its padding where
 * zeros are not promised (gm_padding_poison), with NaN, or with an invalid index if t has integers. So specs find code
 * that reads padding which was not cleared. */
gm_status gm_padding_poison_new(const gm_rank *r, gm_tensor *t); /* releases t on failure */
gm_status gm_padding_poison(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, gm_tensor *t);

#endif
