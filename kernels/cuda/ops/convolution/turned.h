/* turned.h - convolutions over two dimensions whose tensors are turned for cuDNN: channels become the last dimension.
 * Tensor cores multiply rows of channels. cuDNN itself turns tensors of any layout, at half of the memory's bandwidth,
 * which takes longer than most convolutions. */
#ifndef GM_CUDA_CONVOLUTION_TURNED_H
#define GM_CUDA_CONVOLUTION_TURNED_H

#include "../../runtime/cuda.h"

/* Turns n planes of rows by columns, contiguous, of 16 bits; both tensors lie at multiples of 16 bytes. */
gm_status gm_turn_planes(gm_device *dev, const void *from, void *to, int64_t n, int64_t rows, int64_t columns);

/* The product of a call, as gm_dnn_convolve_call (dnn.h) computes it. *served: false where it is none that gains by
 * this: kernels of one place, groups, sums that are added to an image; then nothing was done. */
gm_status gm_convolve_turned(gm_device *dev, const gm_call *call, bool *served);

#endif
