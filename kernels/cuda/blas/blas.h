/* blas.h - products through cuBLASLt, which has the tensor cores.
 *
 * The library is loaded when a device is opened (driver.h says which; "none" as GANYMEDE_CUDA_BLAS: no library, the
 * kernels of gemm.cu make all products). For each kind of product (shape, strides, dtype, epilogue, alignments) it
 * is asked once how to do it, and the answer is kept; nothing is timed, so that a program does the same each time it
 * runs, unless the device was told so (gm_device_time_products): then the ways that are offered are timed when a kind
 * is first met outside of a capture, and the fastest is kept as long as the device is open. Sums are in f32 and have
 * one order: split sums through atomics are not allowed, nor is TF32 for f32 unless the device was told so
 * (gm_device_set_tf32). */
#ifndef GM_CUDA_BLAS_H
#define GM_CUDA_BLAS_H

#include "../../memory.h"
#include "../runtime/cuda.h"
#include "../common/gemm_args.h"

typedef struct gm_blas gm_blas; /* a device's handle and plans */

/* Queues the product of tensors of this dtype (f32, bf16 or f16), its result in dtype `to` (the same, or f32), if
 * cuBLASLt can do it with all that it asks for (bias, function, pre, accumulate, slope, sums): *served. Sums are set,
 * also where y accumulates. */
gm_status gm_blas_product(gm_device *dev, const gm_gemm_args *p, gm_dtype dtype, gm_dtype to, bool *served);

/* When a device is opened, so that a machine without the library is told so before anything starts. GM_EINVAL: it
 * cannot be loaded. */
gm_status gm_blas_open(gm_cuda *cu);
/* NULL is allowed. */
void gm_blas_free(gm_blas *blas);

#endif
