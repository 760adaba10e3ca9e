/* profile.h - the backend's side of kernels/profile.h; gm_backend in device.h describes the two functions. */
#ifndef GM_CUDA_PROFILE_H
#define GM_CUDA_PROFILE_H

#include "cuda.h"

gm_status gm_cuda_stamp(gm_device *dev, void **stamp);
gm_status gm_cuda_elapsed(gm_device *dev, void *from, void *to, double *seconds);

#endif
