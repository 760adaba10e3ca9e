/* build.h - makes cuDNN's operation graphs: tensors of four dimensions and the operations between them.
 *
 * A builder owns every descriptor that it makes. The first failure stays in `st`, and later calls do nothing. So code
 * that writes down a graph needs no check in each line. */
#ifndef GM_CUDA_DNN_BUILD_H
#define GM_CUDA_DNN_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "library.h"

#define GM_DNN_DESCRIPTORS 224 /* of one graph, its plan and what the choice of the plan looked at */
#define GM_DNN_OPS         32

typedef struct gm_dnn_shape {
    int64_t size[4], stride[4]; /* in elements */
} gm_dnn_shape;

typedef struct gm_dnn_tensor {
    cudnnBackendDescriptor_t d;
    gm_dnn_shape             shape;
} gm_dnn_tensor;

typedef struct gm_dnn_builder {
    const gm_dnn_library    *lib;
    gm_status                st;
    int64_t                  next; /* the next UID of a tensor that the caller does not give; above all given ones */
    cudnnBackendDescriptor_t all[GM_DNN_DESCRIPTORS], ops[GM_DNN_OPS];
    int                      n_all, n_ops;
} gm_dnn_builder;

void gm_dnn_begin(gm_dnn_builder *b, const gm_dnn_library *lib, int64_t first_uid);
void gm_dnn_end(gm_dnn_builder *b); /* destroys all descriptors */

/* Descriptors; the functions return NULL after a failure. */
cudnnBackendDescriptor_t gm_dnn_make(gm_dnn_builder *b, cudnnBackendDescriptorType_t type);
void                     gm_dnn_set(gm_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, int64_t n, const void *values);
void gm_dnn_set_part(gm_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part);
void gm_dnn_finalize(gm_dnn_builder *b, cudnnBackendDescriptor_t d, const char *what);

/* Tensors: one that the caller gives under a UID; a number that the host gives; and a result between two operations,
 * which is never stored. */
gm_dnn_tensor gm_dnn_given(gm_dnn_builder *b, int64_t uid, cudnnDataType_t type, gm_dnn_shape shape);
gm_dnn_tensor gm_dnn_number(gm_dnn_builder *b, int64_t uid, cudnnDataType_t type);
gm_dnn_tensor gm_dnn_virtual(gm_dnn_builder *b, cudnnDataType_t type, gm_dnn_shape shape);
/* Shapes: gm_dnn_packed has contiguous strides; gm_dnn_turned exchanges the last two dimensions. */
gm_dnn_shape gm_dnn_packed(int64_t b, int64_t h, int64_t rows, int64_t columns);
gm_dnn_shape gm_dnn_turned(gm_dnn_shape shape);

/* Operations; each writes y. The axis of gm_dnn_index counts from 0. All compute in f32, except those on indices and
 * truth values. */
void gm_dnn_matmul(gm_dnn_builder *b, gm_dnn_tensor x, gm_dnn_tensor w, gm_dnn_tensor y);
void gm_dnn_unary(gm_dnn_builder *b, cudnnPointwiseMode_t mode, gm_dnn_tensor x, gm_dnn_tensor y);
void gm_dnn_binary(gm_dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t in, gm_dnn_tensor x, gm_dnn_tensor w,
                   gm_dnn_tensor y);
void gm_dnn_index(gm_dnn_builder *b, int64_t axis, gm_dnn_tensor like, gm_dnn_tensor y);
void gm_dnn_select(gm_dnn_builder *b, gm_dnn_tensor where, gm_dnn_tensor x, gm_dnn_tensor other, gm_dnn_tensor y);
void gm_dnn_reduce(gm_dnn_builder *b, cudnnReduceTensorOp_t op, gm_dnn_tensor x, gm_dnn_tensor y);
void gm_dnn_reshape(gm_dnn_builder *b, gm_dnn_tensor x, gm_dnn_tensor y);
/* A convolution over two dimensions of space: of x, w and y, t[made] is computed from the other two (1: the gradient of
 * the weights, 0: that of the input). Padding in front and behind; accumulate: added to what t[made] holds. */
void gm_dnn_convolve(gm_dnn_builder *b, int made, const int64_t *low, const int64_t *high, const int64_t *stride,
                     const int64_t *dilation, bool accumulate, const gm_dnn_tensor t[3]);

#endif
