/* folded.h - convolutions over few channels, such as the three colours of an image, as ones over more channels without
 * a stride. Tensor cores multiply packs of 8 channels, and cuDNN's engines for fewer are slow. So the places that a
 * stride passes over become channels: with the stride s, x (n, c, h, w) becomes (n, c s s, h / s, w / s), and a kernel
 * of k x k one of k / s x k / s, rounded up and filled up with zeros. The sums stay the same. All tensors have their
 * channels last for cuDNN (turned.h), and padding becomes zeros of x. The copy of x is TensorFlow's
 * space_to_depth. */
#ifndef GM_CUDA_CONVOLUTION_FOLDED_H
#define GM_CUDA_CONVOLUTION_FOLDED_H

#include "../../runtime/cuda.h"

/* The product of a convolution over two dimensions, or the gradient of its weights, as gm_dnn_convolve_call (dnn.h)
 * computes it. *served: false where the call is none with few channels that cuDNN takes; then nothing was done. */
gm_status gm_convolve_folded(gm_device *dev, const gm_call *call, bool *served);

#endif
