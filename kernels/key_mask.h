/* key_mask.h - checks key masks of attention in the host's memory. */
#ifndef GM_KEY_MASK_H
#define GM_KEY_MASK_H

#include "op.h"

/* Of a call of attention: with prefix_mask, each row of its key mask must have its ones before its zeros, else
 * GM_EINVAL. */
gm_status gm_key_mask_check(const gm_call *call);

#endif
