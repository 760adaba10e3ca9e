/* pooling_args.h - arguments of the kernels of pooling.cu. */
#ifndef GM_CUDA_POOLING_ARGS_H
#define GM_CUDA_POOLING_ARGS_H

#include "../../../pooling.h"

/* A tensor (n, c, ...) of any strides, as (n, c, d, h, w). */
typedef struct gm_pool_view {
    void   *data; /* NULL: the tensor is not given */
    int64_t stride[5];
} gm_pool_view;

typedef struct gm_pool_args {
    gm_pool_axis axis[3];
    gm_pool_view x, y, index;        /* x: or dx; y: or g */
    int64_t      channels, elements; /* elements: of y; of dx in gradients */
    int64_t      divisor;
    int32_t      with_padding, accumulate, wide; /* wide: index is i64; else i32 */
} gm_pool_args;

#endif
