/* find.h - the CUDA backend as the program sees it: loaded from beside the executable when asked for (module.h). */
#ifndef GM_CUDA_FIND_H
#define GM_CUDA_FIND_H

#include "module.h"

/* The module's table. GM_EINVAL: this build has no module, or it does not fit. A driver and a device are looked for
 * when the device is opened. */
gm_status gm_cuda_find(const gm_backend **out);
gm_status gm_cuda_load(gm_cuda_api *out); /* all that it offers */

#endif
