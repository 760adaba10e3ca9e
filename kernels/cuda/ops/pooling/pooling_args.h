/* pooling_args.h - arguments of the kernels of pooling.cu and pooling_plane.cu. */
#ifndef GM_CUDA_POOLING_ARGS_H
#define GM_CUDA_POOLING_ARGS_H

#include "../../common/map.h"
#include "../../../pooling.h"

#define GM_POOL_STRIDE 2 /* of pooling_plane.cu */
#define GM_POOL_PAIR   2 /* windows that a thread of pooling_plane.cu has at a time */
#define GM_POOL_TURNS  4 /* of such a thread */

/* A tensor (n, c, ...) of any strides, as (n, c, d, h, w). */
typedef struct gm_pool_view {
    void   *data; /* NULL: the tensor is not given */
    int64_t stride[5];
} gm_pool_view;

/* 1 / the places of a window of one axis: of the first window, the last one, and any other. */
typedef struct gm_pool_share {
    double first, last, other;
    float  first_f, last_f, other_f;
} gm_pool_share;

/* Planes (h, w) without gaps, one distance apart, as `rows` rows of items: pairs of windows; in gradients packs of 16
 * bytes of dx. */
typedef struct gm_pool_plane {
    int64_t       n; /* items, below 2^31 */
    gm_divider    by_items, by_rows;
    int32_t       items, rows;                   /* items of a row, rows of a plane */
    int32_t       x_image, y_image, index_image; /* elements from plane to plane */
    gm_pool_share share[2];                      /* of averages: of h, with the divisor if there is one; of w */
} gm_pool_plane;

typedef struct gm_pool_args {
    gm_pool_axis  axis[3];
    gm_pool_view  x, y, index;        /* x: or dx; y: or g */
    int64_t       channels, elements; /* elements: of y; of dx in gradients */
    int64_t       divisor;
    int32_t       with_padding, accumulate, wide; /* wide: index is i64; else i32 */
    gm_pool_plane plane;
} gm_pool_args;

#endif
