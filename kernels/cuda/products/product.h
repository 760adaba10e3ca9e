/* product.h - one product of matrices with all that is done to its result, and the ways to make it.
 *
 * A way is an algorithm, or a list of them (variants). Each kind of product has one or more ways. Which of them makes
 * it is a fixed rule (product.c), unless ways were timed or a choice was given (choose.h). A new way is one gm_way, and
 * one entry in the list of product.c. */
#ifndef GM_CUDA_PRODUCT_H
#define GM_CUDA_PRODUCT_H

#include "../../choices.h"
#include "../common/gemm_args.h"
#include "../runtime/cuda.h"

/* What is wanted. args.sums is NULL: `db` stands for it. args.slope: y *= f'(pre), where f is args.function. */
typedef struct gm_product {
    gm_gemm_args args;
    gm_dtype     dtype, to; /* of a and b (GM_U8: codes of args.format); of y: dtype, or f32, or any float for codes */
    gm_tensor   *db; /* (m): (+)= the sums of the rows of a, as args.accumulate says; NULL: not wanted. No batch then */
} gm_product;

/* Tells the variants of a way apart. Zeros where a way has one variant. The same in each run with the same library and
 * GPU. */
typedef struct gm_variant {
    uint64_t word[GM_CHOICE_WORDS];
} gm_variant;

typedef struct gm_way {
    const char *name; /* at most 15 letters. It stands in files: give no way the name of another */
    /* Writes at most `most` variants that can make products like p, the most promising first, and how many there are.
     * Queues nothing. *n = 0: the way cannot make it. */
    gm_status (*offers)(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n);
    /* Queues the product. v: one of the variants; NULL: the first. *served = false: the way, or this variant, cannot
     * make it; nothing was queued. */
    gm_status (*run)(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served);
    /* Writes what its variants depend on beside the GPU, such as ", cuBLASLt 130200"; returns buf. NULL: nothing. */
    char *(*about)(const gm_device *dev, char *buf, size_t size);
} gm_way;

extern const gm_way gm_way_wgmma;       /* ops/gemm/wgmma.c: our own kernels for Hopper, 16 bits */
extern const gm_way gm_way_cublaslt;    /* blas/blas.c: cuBLASLt with an epilogue for all of it, and its algorithms */
extern const gm_way gm_way_sums_after;  /* ops/gemm/after.c: the plain product, then a pass over a for db */
extern const gm_way gm_way_slope_after; /* ops/gemm/after.c: the plain product, then a pass for the slope */
extern const gm_way gm_way_function_after; /* ops/gemm/after.c: the product in f32, then a pass for bias and function */
extern const gm_way gm_way_tiles;          /* ops/gemm/gemm.c: our own kernel, without db and slopes; never timed */

/* The ways that are timed, in the order in which they are offered; ends with NULL. */
extern const gm_way *const gm_ways[];

/* Queues the product. Each product that is not of codes can be made. */
gm_status gm_product_run(gm_device *dev, const gm_product *p);
/* The same without gm_way_tiles. *served = false: no library can make it, and nothing was queued. */
gm_status gm_product_try(gm_device *dev, const gm_product *p, bool *served);

#endif
