/* build.c - see build.h. */
#include "build.h"

#include <string.h>

#define ALIGNMENT 16 /* bytes; what the caller gives must keep to it */

void gm_dnn_begin(gm_dnn_builder *b, const gm_dnn_library *lib, int64_t first_uid)
{
    memset(b, 0, sizeof *b);
    b->lib = lib;
    b->next = first_uid;
}

void gm_dnn_end(gm_dnn_builder *b)
{
    while (b->n_all > 0) b->lib->cudnnBackendDestroyDescriptor(b->all[--b->n_all]);
}

#define TRY(b, call, what)                                                                               \
    do {                                                                                                 \
        if ((b)->st != GM_OK) break;                                                                     \
        cudnnStatus_t s_ = (b)->lib->call;                                                               \
        if (s_ != CUDNN_STATUS_SUCCESS) (b)->st = gm_dnn_failed((b)->lib, s_, __FILE__, __LINE__, what); \
    } while (0)

cudnnBackendDescriptor_t gm_dnn_make(gm_dnn_builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (b->st == GM_OK && b->n_all == GM_DNN_DESCRIPTORS)
        b->st = GM_FAIL(GM_EINVAL, "a cuDNN graph of more than %d descriptors", GM_DNN_DESCRIPTORS);
    TRY(b, cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (b->st != GM_OK) return NULL;
    return b->all[b->n_all++] = d;
}

void gm_dnn_set(gm_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    TRY(b, cudnnBackendSetAttribute(d, name, type, n, values), "cudnnBackendSetAttribute");
}

void gm_dnn_set_part(gm_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    gm_dnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

void gm_dnn_finalize(gm_dnn_builder *b, cudnnBackendDescriptor_t d, const char *what)
{
    TRY(b, cudnnBackendFinalize(d), what);
}

gm_dnn_shape gm_dnn_packed(int64_t b, int64_t h, int64_t rows, int64_t columns)
{
    return (gm_dnn_shape){{b, h, rows, columns}, {h * rows * columns, rows * columns, columns, 1}};
}

gm_dnn_shape gm_dnn_turned(gm_dnn_shape s)
{
    return (gm_dnn_shape){{s.size[0], s.size[1], s.size[3], s.size[2]},
                          {s.stride[0], s.stride[1], s.stride[3], s.stride[2]}};
}

/* Sets a flag of a tensor that is so. */
static void flag(gm_dnn_builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, bool on)
{
    if (on) gm_dnn_set(b, d, name, CUDNN_TYPE_BOOLEAN, 1, &on);
}

static gm_dnn_tensor tensor(gm_dnn_builder *b, int64_t uid, cudnnDataType_t type, gm_dnn_shape shape, bool is_virtual,
                            bool by_value)
{
    int64_t                  alignment = ALIGNMENT;
    cudnnBackendDescriptor_t d = gm_dnn_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    gm_dnn_set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    gm_dnn_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.size);
    gm_dnn_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape.stride);
    gm_dnn_set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    gm_dnn_set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    flag(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
    flag(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
    gm_dnn_finalize(b, d, "a tensor");
    return (gm_dnn_tensor){d, shape};
}

gm_dnn_tensor gm_dnn_given(gm_dnn_builder *b, int64_t uid, cudnnDataType_t type, gm_dnn_shape shape)
{
    return tensor(b, uid, type, shape, false, false);
}

gm_dnn_tensor gm_dnn_number(gm_dnn_builder *b, int64_t uid, cudnnDataType_t type)
{
    return tensor(b, uid, type, gm_dnn_packed(1, 1, 1, 1), false, true);
}

gm_dnn_tensor gm_dnn_virtual(gm_dnn_builder *b, cudnnDataType_t type, gm_dnn_shape shape)
{
    return tensor(b, b->next++, type, shape, true, false);
}

static void add(gm_dnn_builder *b, cudnnBackendDescriptor_t op, const char *what)
{
    gm_dnn_finalize(b, op, what);
    if (b->st == GM_OK && b->n_ops == GM_DNN_OPS)
        b->st = GM_FAIL(GM_EINVAL, "a cuDNN graph of more than %d operations", GM_DNN_OPS);
    if (b->st == GM_OK) b->ops[b->n_ops++] = op;
}

void gm_dnn_matmul(gm_dnn_builder *b, gm_dnn_tensor x, gm_dnn_tensor w, gm_dnn_tensor y)
{
    cudnnDataType_t          type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = gm_dnn_make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    gm_dnn_set(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    gm_dnn_finalize(b, how, "what a product is");
    cudnnBackendDescriptor_t op = gm_dnn_make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x.d);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, w.d);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y.d);
    add(b, op, "a product");
}

/* w, where: NULL descriptors where the mode has none; axis < 0: none. */
static void pointwise(gm_dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t type, int64_t axis, gm_dnn_tensor x,
                      gm_dnn_tensor w, gm_dnn_tensor where, gm_dnn_tensor y)
{
    cudnnBackendDescriptor_t how = gm_dnn_make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    gm_dnn_set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    gm_dnn_set(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0) gm_dnn_set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    gm_dnn_finalize(b, how, "what a pointwise operation is");
    cudnnBackendDescriptor_t op = gm_dnn_make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.d);
    if (w.d) gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, w.d);
    if (where.d) gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where.d);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.d);
    add(b, op, "a pointwise operation");
}

static const gm_dnn_tensor none;

void gm_dnn_unary(gm_dnn_builder *b, cudnnPointwiseMode_t mode, gm_dnn_tensor x, gm_dnn_tensor y)
{
    pointwise(b, mode, CUDNN_DATA_FLOAT, -1, x, none, none, y);
}

void gm_dnn_binary(gm_dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t in, gm_dnn_tensor x, gm_dnn_tensor w,
                   gm_dnn_tensor y)
{
    pointwise(b, mode, in, -1, x, w, none, y);
}

void gm_dnn_index(gm_dnn_builder *b, int64_t axis, gm_dnn_tensor like, gm_dnn_tensor y)
{
    pointwise(b, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, like, none, none, y);
}

void gm_dnn_select(gm_dnn_builder *b, gm_dnn_tensor where, gm_dnn_tensor x, gm_dnn_tensor other, gm_dnn_tensor y)
{
    pointwise(b, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, other, where, y);
}

void gm_dnn_reduce(gm_dnn_builder *b, cudnnReduceTensorOp_t op, gm_dnn_tensor x, gm_dnn_tensor y)
{
    cudnnDataType_t          type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = gm_dnn_make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    gm_dnn_set(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    gm_dnn_set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    gm_dnn_finalize(b, how, "what a reduction is");
    cudnnBackendDescriptor_t node = gm_dnn_make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    gm_dnn_set_part(b, node, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    gm_dnn_set_part(b, node, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.d);
    gm_dnn_set_part(b, node, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.d);
    add(b, node, "a reduction");
}

void gm_dnn_reshape(gm_dnn_builder *b, gm_dnn_tensor x, gm_dnn_tensor y)
{
    cudnnBackendDescriptor_t op = gm_dnn_make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.d);
    gm_dnn_set_part(b, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.d);
    add(b, op, "a reshape");
}

#define CONVOLUTION(way, name) CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##name

/* The operation, and the names of its attributes, by which of x, w and y it makes. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t  alpha, beta, how, tensor[3];
} convolutions[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CONVOLUTION(BWD_DATA, ALPHA),
     CONVOLUTION(BWD_DATA, BETA),
     CONVOLUTION(BWD_DATA, CONV_DESC),
     {CONVOLUTION(BWD_DATA, DX), CONVOLUTION(BWD_DATA, W), CONVOLUTION(BWD_DATA, DY)}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CONVOLUTION(BWD_FILTER, ALPHA),
     CONVOLUTION(BWD_FILTER, BETA),
     CONVOLUTION(BWD_FILTER, CONV_DESC),
     {CONVOLUTION(BWD_FILTER, X), CONVOLUTION(BWD_FILTER, DW), CONVOLUTION(BWD_FILTER, DY)}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CONVOLUTION(FORWARD, ALPHA),
     CONVOLUTION(FORWARD, BETA),
     CONVOLUTION(FORWARD, CONV_DESC),
     {CONVOLUTION(FORWARD, X), CONVOLUTION(FORWARD, W), CONVOLUTION(FORWARD, Y)}},
};

void gm_dnn_convolve(gm_dnn_builder *b, int made, const int64_t *low, const int64_t *high, const int64_t *stride,
                     const int64_t *dilation, bool accumulate, const gm_dnn_tensor t[3])
{
    cudnnDataType_t          type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t   mode = CUDNN_CROSS_CORRELATION;
    int64_t                  space = 2;
    float                    alpha = 1, beta = accumulate;
    cudnnBackendDescriptor_t how = gm_dnn_make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &space);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, low);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, high);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    gm_dnn_set(b, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    gm_dnn_finalize(b, how, "what a convolution is");
    cudnnBackendDescriptor_t op = gm_dnn_make(b, convolutions[made].type);
    gm_dnn_set(b, op, convolutions[made].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    gm_dnn_set(b, op, convolutions[made].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    gm_dnn_set_part(b, op, convolutions[made].how, how);
    for (int i = 0; i < 3; i++) gm_dnn_set_part(b, op, convolutions[made].tensor[i], t[i].d);
    add(b, op, "a convolution");
}
