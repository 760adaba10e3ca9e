/* states.h - moments that are kept in fewer bits than 32 (kernels/states.h): their tensors, and their numbers for the
 * host.
 *
 * A moment in blocks has the elements of the part that this rank updates and no others, in the part's shape: its
 * borders of blocks are those of that shape. */
#ifndef GM_HOST_STATES_H
#define GM_HOST_STATES_H

#include "../../kernels/infer.h"
#include "../autograd/value.h"

/* Of the tensor in which a state of a parameter is kept. like: a tensor of its layout's block; kind: GM_STATES_*. */
gm_spec  gm_states_spec(const gm_value *parameter, const gm_tensor *like, int64_t kind);
uint64_t gm_states_bytes(const gm_spec *spec);
bool     gm_states_positive(gm_op op, int k); /* is moment k never below 0? */

/* A tensor of f32 like `like` on this device, all zeros. */
gm_status gm_states_wide(const gm_value *parameter, const gm_tensor *like, gm_device *dev, gm_tensor **out);
/* Between such a tensor and what is kept, on the same device. */
gm_status gm_states_decode(const gm_value *parameter, gm_tensor *kept, bool positive, gm_tensor *wide);
gm_status gm_states_encode(const gm_value *parameter, gm_tensor *wide, bool positive, gm_tensor *kept);

#endif
