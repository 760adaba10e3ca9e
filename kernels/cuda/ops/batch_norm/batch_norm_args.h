/* batch_norm_args.h - arguments of the kernels of batch_norm.cu. */
#ifndef GM_CUDA_BATCH_NORM_ARGS_H
#define GM_CUDA_BATCH_NORM_ARGS_H

#include "../../common/map.h"

#define GM_BATCH_NORM_THREADS 256 /* of a block that sums */
#define GM_BATCH_NORM_ITEMS   4   /* that such a thread loads before it waits */

/* A number for each channel. */
typedef struct gm_channel_view {
    void   *data; /* NULL: the tensor is not given */
    int64_t step;
} gm_channel_view;

typedef struct gm_batch_norm_args {
    gm_map          map; /* operands: y, x, g (or x again), and the number of the channel, which is not memory */
    void           *y;
    const void     *x, *g;
    gm_channel_view w, b, mean, rstd, mean_h, mean_h_hat;
    int32_t         vectors; /* 1: items have 16 bytes, of one channel */
    int32_t         packs;   /* not 0: all tensors are contiguous, so many items of 16 bytes, of one or two channels: */
    int32_t         inner, channels; /* the elements of a plane, at least those of an item; planes of an image */
} gm_batch_norm_args;

typedef struct gm_batch_norm_sums_args {
    gm_map          rest; /* the places of a channel, in items; operands: x, g (or x again) */
    const void     *x, *g;
    int64_t         x_step, g_step; /* between channels */
    gm_channel_view mean, rstd;     /* of gradients */
    gm_channel_view first, second;  /* mean and m2; of gradients h and h_hat */
    void           *partial; /* NULL, or two numbers of each chunk, in the type of arithmetic: [channel][chunk][2] */
    int64_t         channels, chunk; /* items of a chunk */
    int32_t         lanes;           /* elements of an item: those of 16 bytes, of 8 bytes, or 1; 0: of any places */
    gm_divider      by;              /* item i is item i % items of image i / items: */
    int32_t         items, image_step[2], item_step[2]; /* steps in elements of x and of g */
    int32_t         chunks;
    int32_t         gradient;
} gm_batch_norm_sums_args;

#endif
