/* find.h - the CUDA backend as the program sees it. It is loaded from the folder of the executable when it is asked for
 * (module.h). */
#ifndef GM_CUDA_FIND_H
#define GM_CUDA_FIND_H

#include "module.h"

/* Gives the module's table of kernels. GM_EINVAL: this build has no module, or the module is of another build. It does
 * not look for a driver or a device; gm_device_new does that. */
gm_status gm_cuda_find(const gm_backend **out);
gm_status gm_cuda_load(gm_cuda_api *out); /* gives all that the module offers */

#endif
