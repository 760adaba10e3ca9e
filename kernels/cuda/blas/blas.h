/* blas.h - products through cuBLASLt, which has the tensor cores: gm_way_cublaslt of products/product.h.
 *
 * The library is loaded when a device is opened; driver.h says which one. If GANYMEDE_CUDA_BLAS is "none", there is no
 * library, and the kernels of gemm.cu compute all products.
 *
 * For each shape, strides, dtype, epilogue and alignments, cuBLASLt is asked once which algorithm to use, and the
 * answer is kept; so a program does the same in each run. A variant of the way is an algorithm of cuBLASLt, by its own
 * bytes, which NVIDIA allows to be stored and used again with the same version of the library. Sums are in f32 and have
 * one order: algorithms that add through atomics are not allowed. TF32 for f32 is allowed only after
 * gm_device_set_tf32. */
#ifndef GM_CUDA_BLAS_H
#define GM_CUDA_BLAS_H

#include "../products/product.h"

typedef struct gm_blas gm_blas; /* a device's handle and plans */

/* Loads the library when a device is opened, so that a user without it is told before anything starts. GM_EINVAL: it
 * cannot be loaded. */
gm_status gm_blas_open(gm_cuda *cu);
/* NULL is allowed. */
void gm_blas_free(gm_blas *blas);

#endif
