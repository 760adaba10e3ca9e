/* dnn.h - attention by cuDNN's fused kernels, where they can do it; the backend's own kernel does the rest.
 *
 * *served says whether cuDNN does it. That is a function of the call and of the device (gm_dnn_takes and what follows):
 * bf16 or f16; heads of a multiple of 8 up to 128, up to 256 on sm_90; causal or not; as many key heads as query heads
 * or fewer; q, k, v of any strides that are multiples of 16 bytes, such as views of a fused QKV. Not: a key mask,
 * dropout, accumulate, no elements at all, causal with more queries than keys or with unequal numbers that are no
 * multiples of 64; nor a gradient on a device that is to be deterministic. Where no cuDNN can be loaded nothing is
 * served: `none` as GANYMEDE_CUDA_DNN turns it off; one that is named there and cannot be loaded is an error. What is
 * not served in 16 bits is noted (gm_device_note). When cuDNN should do it and fails, that is an error, not a reason to
 * do it otherwise.
 *
 * A plan is built the first time that shapes come (a second or so) and kept until the device is closed: a captured
 * graph may hold its kernels. So build before capturing: run the step once. */
#ifndef GM_CUDA_DNN_H
#define GM_CUDA_DNN_H

#include "../runtime/cuda.h"

gm_status gm_dnn_attention(gm_device *dev, const gm_call *call, bool *served);
gm_status gm_dnn_attention_grad(gm_device *dev, const gm_call *call, bool *served);

/* When a device is opened: a library that GANYMEDE_CUDA_DNN names must be there, or it is GM_EINVAL; another way would
 * not be what was asked for. */
gm_status gm_dnn_open(gm_cuda *cu);
/* For the end of a device: after its stream is idle, before its context goes. */
void gm_dnn_stop(gm_cuda *cu);

#endif
