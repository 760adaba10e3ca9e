/* widened.h - convolutions that cuDNN takes only on other tensors than those given: those without groups whose channels
 * are no multiples of 8, such as the three colours of an image; those with more padding on one side than on the other;
 * those over tensors that are not contiguous. Such tensors are copied into memory of this call, with zeros around:
 * zeros add nothing to sums. The copy reads and writes each element once, where a product of our own reads it for each
 * place of the kernel. */
#ifndef GM_CUDA_CONVOLUTION_WIDENED_H
#define GM_CUDA_CONVOLUTION_WIDENED_H

#include "../../runtime/cuda.h"

/* The product of a call over one or two dimensions, as gm_dnn_convolve_call (dnn.h) computes it. *served: false where
 * cuDNN would not take it on wider tensors either; then nothing was done. */
gm_status gm_convolve_widened(gm_device *dev, const gm_call *call, bool *served);

#endif
