/* dnn.h - attention by the fused kernels of cuDNN, if they can compute it; the backend's own kernels do the rest.
 *
 * *served says whether cuDNN computes the call. This depends on the call and the device only (gm_dnn_takes):
 *   - It takes bf16 or f16; heads of a multiple of 8 numbers, up to 128, and up to 256 on sm_90; causal or not; as many
 *     key heads as query heads, or fewer; q, k, v of any strides that are multiples of 16 bytes, such as views of a
 *     fused QKV.
 *   - It does not take a key mask, a window, a softcap, dropout, accumulate, a call without elements, causal with more
 *     queries than keys, or causal with different numbers of queries and keys that are not multiples of 64; and no
 *     gradient on a device that must be deterministic.
 * If no cuDNN can be loaded, nothing is served. GANYMEDE_CUDA_DNN=none turns it off. If this variable names a library
 * that cannot be loaded, that is an error. A call in 16 bits that is not served leaves a note (gm_device_note). If
 * cuDNN takes a call and fails, that is an error; our kernels do not compute it instead.
 *
 * A plan is built when shapes first come, which takes about a second. It is kept until the device is closed, because a
 * captured graph may hold its kernels. So run a step once before you capture it. */
#ifndef GM_CUDA_DNN_H
#define GM_CUDA_DNN_H

#include "../runtime/cuda.h"
#include "convolution_graph.h"

gm_status gm_dnn_attention(gm_device *dev, const gm_call *call, bool *served);
gm_status gm_dnn_attention_grad(gm_device *dev, const gm_call *call, bool *served);

/* Convolutions, transposed ones and gradients of weights, by single operations of cuDNN. It takes bf16 or f16, one or
 * two dimensions of space, padding that is the same on both sides, contiguous tensors at multiples of 16 bytes, groups
 * whose channels and outputs are multiples of 8, no depthwise ones, and engines that give the same bits each time. Only
 * the first output is computed, without bias and activation; the caller does the rest. */
gm_status gm_dnn_convolve_call(gm_device *dev, const gm_call *call, bool *served);
/* The same for a problem (convolution_graph.h): whether it takes one, whose arch it sets; and one that it takes. data:
 * those of x, w and y in device memory, multiples of 16. */
gm_status gm_dnn_takes_problem(gm_device *dev, gm_dnn_convolution *p, bool *takes);
gm_status gm_dnn_convolve_problem(gm_device *dev, const gm_dnn_convolution *p, void *const *data, bool *served);
/* The problem of a call, and its tensors x, w and y. *takes: whether it takes the call, of whose tensors this looks at
 * sizes, strides and addresses alone; if not, *p and t are undefined. */
gm_status gm_dnn_problem_of(gm_device *dev, const gm_call *call, gm_dnn_convolution *p, gm_tensor **t, bool *takes);

/* Where a call of a convolution, a transposed one or the gradient of its weights holds x, w and y
 * (convolution_graph.h): places among its inputs, and GM_DNN_OUT for its first output, which is the one that is
 * computed. */
#define GM_DNN_OUT (-1)
typedef struct gm_dnn_roles {
    int         place[3];
    gm_dnn_side side;
} gm_dnn_roles;
gm_dnn_roles gm_dnn_roles_of(gm_op op);

/* Called when a device is opened. GM_EINVAL: GANYMEDE_CUDA_DNN names a library that cannot be loaded. */
gm_status gm_dnn_open(gm_cuda *cu);
/* Called at the end of a device, after its stream is idle and before its context is released. */
void gm_dnn_stop(gm_cuda *cu);

#endif
