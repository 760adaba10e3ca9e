/* convolution.h - what the files of this folder share on the host. */
#ifndef GM_CUDA_CONVOLUTION_H
#define GM_CUDA_CONVOLUTION_H

#include "../../runtime/cuda.h"
#include "convolution_args.h"

/* A tensor of three to five dimensions as kernels see it; NULL gives a view without data. */
gm_convolution_view gm_convolution_view_of(const gm_tensor *t);

#endif
