/* convolution_args.h - arguments of the kernels of convolution.cu. C for host and kernels.
 *
 * Space has three dimensions; those that a tensor lacks have the size 1. Both sides of a convolution: `wide`, which its
 * kernel goes over, and `made`, its results; in a transposed convolution the results are the wide side. */
#ifndef GM_CUDA_CONVOLUTION_ARGS_H
#define GM_CUDA_CONVOLUTION_ARGS_H

#include <stdint.h>

#define GM_CONVOLUTION_THREADS 128 /* of a block, which sums up one element of the gradient of a weight */

typedef struct gm_convolution_view {
    void   *data;
    int64_t size[5], stride[5]; /* batch, channels, space; of w: its first two dimensions, the kernel */
} gm_convolution_view;

typedef struct gm_convolution_args {
    gm_convolution_view x, w, y, pre; /* of the gradient of weights: x: wide side, y: g, w: dw */
    void               *b;            /* the bias; of the gradient of weights db */
    int64_t             b_stride, n;  /* n: results */
    int64_t             of_group;     /* how many first entries of w a group has */
    int32_t             stride[3], dilation[3], low[3];
    int32_t             function, accumulate;
} gm_convolution_args;

#endif
