/* key.h - what cuBLASLt is asked for a product: our product y = a b, by rows, as its D = A B, by columns (blas.c). */
#ifndef GM_CUDA_BLAS_KEY_H
#define GM_CUDA_BLAS_KEY_H

#include "../../tensor.h"
#include "../common/gemm_args.h"

#define ALIGNMENT 256 /* more than this is not told apart */

enum { A, B, D, AUX, BIAS, MATRICES = AUX, OPERANDS = BIAS + 1 };

/* All that the answer to "how?" depends on. Filled over zeros, so that keys are compared as bytes. */
typedef struct plan_key {
    int64_t rows, columns, depth;       /* of D, and of the sum */
    int64_t ld[AUX + 1], step[AUX + 1]; /* step: between elements of the batch */
    int32_t align[OPERANDS];            /* of addresses, in bytes */
    int32_t count;                      /* elements of the batch */
    int32_t transposed[2];              /* A, B */
    int32_t dtype, to, epilogue, tf32, format, scaling;
} plan_key;

/* Writes the key of a product of this dtype (GM_U8: codes of p->format, with scales) with results of dtype `to`.
 * False: cuBLASLt cannot be asked for it. */
bool gm_blas_key(const gm_gemm_args *p, gm_dtype dtype, gm_dtype to, plan_key *key);
/* The bias, or where the bias gradient goes; NULL: neither. */
const void *gm_blas_vector(const gm_gemm_args *p);

#endif
