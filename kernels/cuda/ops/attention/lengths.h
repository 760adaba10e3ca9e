/* lengths.h - attention whose key mask has the attribute prefix_mask: the numbers of keys that count, on the device.
 * The host never reads them. */
#ifndef GM_CUDA_ATTENTION_LENGTHS_H
#define GM_CUDA_ATTENTION_LENGTHS_H

#include "../../dnn/dnn.h"
#include "../../runtime/cuda.h"

typedef struct gm_key_lengths {
    bool           there; /* false: the call has no mask with prefix_mask, and there is nothing else */
    gm_dnn_lengths each;
    int32_t       *none;  /* i32 (samples): 1 for those without a key */
    gm_block      *block; /* scratch that holds all; whoever asked for it releases it to the device's pool */
} gm_key_lengths;

/* Counts the keys of a call of attention or of its gradient. A mask whose ones do not come before its zeros is refused
 * at the next wait for the device. */
gm_status gm_key_lengths_of(gm_device *dev, const gm_call *call, gm_key_lengths *out);
/* Gives samples without a key, in results of 16 bits, what they have by definition: zeros, and an lse of -inf. */
gm_status gm_key_lengths_blank(gm_device *dev, const gm_call *call, const gm_key_lengths *k);

#endif
