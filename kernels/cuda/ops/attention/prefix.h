/* prefix.h - attention whose key mask has the attribute prefix_mask: in each row ones come before zeros. */
#ifndef GM_CUDA_ATTENTION_PREFIX_H
#define GM_CUDA_ATTENTION_PREFIX_H

#include "../../runtime/cuda.h"

/* Looks at the key mask of a call of attention or of its gradient, if it has the attribute. A mask of another form is
 * refused at the next wait for the device; the host never reads the mask. */
gm_status gm_key_prefix_check(gm_device *dev, const gm_call *call);

#endif
