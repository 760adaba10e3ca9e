/* profile.h - the backend's side of ../profile.h: device.h says what the two do. */
#ifndef GM_CUDA_PROFILE_H
#define GM_CUDA_PROFILE_H

#include "cuda.h"

gm_status gm_cuda_stamp(gm_device *dev, void **stamp);
gm_status gm_cuda_elapsed(gm_device *dev, void *from, void *to, double *seconds);

#endif
