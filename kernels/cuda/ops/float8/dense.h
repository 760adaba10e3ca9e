/* dense.h - tensors without gaps, at multiples of 16 bytes, for kernels that want them. Private to this folder. */
#ifndef GM_CUDA_FLOAT8_DENSE_H
#define GM_CUDA_FLOAT8_DENSE_H

#include "../../runtime/cuda.h"

/* *out: t itself, or such a copy; NULL: t is NULL. The caller releases it. */
gm_status gm_dense(gm_device *dev, gm_tensor *t, gm_tensor **out);
/* *out: where such a result goes that ends up in t: t itself, or a tensor of its own; NULL: t is NULL. */
gm_status gm_dense_like(gm_device *dev, gm_tensor *t, gm_tensor **out);
/* Copies such a result into t, where it is another tensor and st is GM_OK, and releases it. Returns the status. */
gm_status gm_dense_home(gm_device *dev, gm_tensor *dense, gm_tensor *t, gm_status st);

#endif
