/* blas.h - products through cuBLASLt, which has the tensor cores.
 *
 * The library is loaded when a device is opened; driver.h says which one. If GANYMEDE_CUDA_BLAS is "none", there is no
 * library, and the kernels of gemm.cu compute all products.
 *
 * A kind of product is its shape, strides, dtype, epilogue and alignments. For each kind, cuBLASLt is asked once which
 * algorithm to use, and the answer is kept. Algorithms are not timed, so that a program does the same in each run. With
 * gm_device_time_products, the algorithms that cuBLASLt offers are timed when a kind is first met outside of a capture;
 * the fastest is kept as long as the device is open. Sums are in f32 and have one order: algorithms that add through
 * atomics are not allowed. TF32 for f32 is allowed only after gm_device_set_tf32. */
#ifndef GM_CUDA_BLAS_H
#define GM_CUDA_BLAS_H

#include "../../memory.h"
#include "../runtime/cuda.h"
#include "../common/gemm_args.h"

typedef struct gm_blas gm_blas; /* a device's handle and plans */

/* Queues a product of tensors of this dtype (f32, bf16 or f16) with a result of dtype `to` (the same, or f32), or of
 * codes of 8 bits (GM_U8; p->format and p->scale say what they are) with a result of bf16, f16 or f32, if cuBLASLt can
 * compute it with all that p asks for (bias, function, pre, accumulate, slope, sums). *served: whether it can. p->sums
 * is set, also if y accumulates. */
gm_status gm_blas_product(gm_device *dev, const gm_gemm_args *p, gm_dtype dtype, gm_dtype to, bool *served);

/* Loads the library when a device is opened, so that a user without it is told before anything starts. GM_EINVAL: it
 * cannot be loaded. */
gm_status gm_blas_open(gm_cuda *cu);
/* NULL is allowed. */
void gm_blas_free(gm_blas *blas);

#endif
