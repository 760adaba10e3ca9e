/* convolution_graph.h - a convolution, or one of its gradients, as a graph of one operation of cuDNN.
 *
 * cuDNN computes the product alone, rounded to 16 bits: version 9.19 has no engine that gives f32 of 16 bits here. Bias
 * and activation are a kernel of our own (convolution.cu).
 * spec/cuda/convolution_spec.lua lets cuDNN check the graphs, and build plans for GPUs that it describes. */
#ifndef GM_CUDA_DNN_CONVOLUTION_GRAPH_H
#define GM_CUDA_DNN_CONVOLUTION_GRAPH_H

#include "../../dtype.h"
#include "build.h"
#include "plan.h"

typedef enum gm_dnn_side { GM_DNN_OF_RESULT, GM_DNN_OF_INPUT, GM_DNN_OF_WEIGHT } gm_dnn_side; /* what is computed */

/* A convolution y = w over x, all contiguous: x (n, c, h, w), w (out, c / groups, kernel), y (n, out, h', w'); of one
 * dimension of space the first is 1. channels_last: which of x, w and y have their second dimension last in memory. The
 * key of the cache of plans, compared as bytes: begin with zeros. */
typedef struct gm_dnn_convolution {
    int64_t x[4], w[4], y[4];
    int64_t stride[2], dilation[2], low[2], high[2];
    int32_t dtype, arch;
    int32_t side;       /* gm_dnn_side */
    int32_t accumulate; /* it is added to what is there */
    int32_t channels_last[3];
    int32_t long_sum; /* as of gm_dnn_writing */
} gm_dnn_convolution;

enum { GM_DNN_CONVOLUTION_X = 1, GM_DNN_CONVOLUTION_W, GM_DNN_CONVOLUTION_Y, GM_DNN_CONVOLUTION_UIDS };

/* Tells whether cuDNN takes the problem; if not, *why (unless NULL) becomes the reason. */
bool           gm_dnn_takes_convolution(const gm_dnn_convolution *p, const char **why);
gm_dnn_writing gm_dnn_of_convolution(const gm_dnn_convolution *p);

#endif
