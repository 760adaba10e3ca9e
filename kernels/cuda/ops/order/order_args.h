/* order_args.h - arguments of the kernels of order.cu. */
#ifndef GM_CUDA_ORDER_ARGS_H
#define GM_CUDA_ORDER_ARGS_H

#include "../../common/map.h"

typedef struct gm_order_args {
    gm_map      lines; /* operands: x (or g), index, y (or dx) */
    const void *x;
    void       *y;
    void       *index;
    void    *value; /* of each line `width` elements in the type of arithmetic, and their places; those behind n are */
    int64_t *place; /* at INT64_MAX */
    int64_t  n, width, x_step, index_step, y_step;
    int64_t  span, apart; /* of a step of the network: blocks of `span` are sorted, elements `apart` are compared */
    int32_t  descending, wide; /* wide: index is i64 */
} gm_order_args;

#endif
