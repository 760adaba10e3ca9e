/* gemm_args.h - describes a product for the kernels of gemm.cu and for cuBLASLt (blas.c). For each element of the batch
 *     y[i][j] (+)= f(alpha sum over l of a[i][l] b[l][j] + bias[j])       pre, if wanted: the argument of f
 * cuBLASLt alone also computes what the gradients of linear need beside the plain product:
 *     slope: y[i][j] = f'(pre[i][j]) sum over l of a[i][l] b[l][j]
 *     sums:  in addition, sums[i] = sum over l of a[i][l]
 * A matrix is given by the strides of its two dimensions, in elements; so a transposed matrix is not a case of its own.
 * The file is C for host and kernels. */
#ifndef GM_CUDA_GEMM_ARGS_H
#define GM_CUDA_GEMM_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#define GM_GEMM_BATCH 8 /* dimensions of a batch: GM_MAX_DIMS */

/* Tiles: a block has 16 by 16 threads, and each thread has GM_GEMM_SMALL or GM_GEMM_LARGE rows and columns. */
#define GM_GEMM_SIDE        16
#define GM_GEMM_DEPTH       16
#define GM_GEMM_SMALL       4
#define GM_GEMM_LARGE       8
#define GM_GEMM_PITCH(each) (GM_GEMM_SIDE * (each) + 4) /* numbers of a row in shared memory: rows start at 16 bytes */

/* Scales of codes: one for each factor; or of 128 numbers along the sum, (k / 128, rows), for both; or such for a, and
 * for b of 128 x 128 numbers, (n / 128, k / 128 rounded up to a multiple of 4). */
enum { GM_SCALES_ONE, GM_SCALES_ROWS, GM_SCALES_SQUARE };

typedef struct gm_gemm_dim {
    int64_t n, a, b, y, pre; /* elements of the batch, and the distance between two of them in each tensor */
} gm_gemm_dim;

typedef struct gm_gemm_args {
    const void *a, *b;
    const void *bias; /* NULL: none */
    void       *y, *pre;
    void       *sums; /* (m), of the type of a; NULL: not wanted */
    int64_t     m, n, k;
    int64_t     a_m, a_k, b_k, b_n, y_m, y_n, pre_m, pre_n, bias_n;
    int32_t     ndim;     /* of the batch: dim[0..ndim) */
    int32_t     function; /* gm_function */
    double      alpha;
    bool        accumulate;
    bool        wide;     /* y is f32, a and b of 16 bits */
    bool        slope;    /* pre is read */
    int32_t     format;   /* of codes of 8 bits: what a is, a GM_FLOAT8_*; b is E4M3 */
    int32_t     scaling;  /* of codes of 8 bits: what scales are of, a GM_SCALES_* */
    const void *scale[2]; /* f32, of a and of b; NULL: numbers are no such codes */
    gm_gemm_dim dim[GM_GEMM_BATCH];
} gm_gemm_args;

#endif
