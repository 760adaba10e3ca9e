/* attention_args.h - arguments of the kernels of attention.cu and attention_mma.cu. C for host and kernels. */
#ifndef GM_CUDA_ATTENTION_ARGS_H
#define GM_CUDA_ATTENTION_ARGS_H

#include <stdint.h>

#include "../../../op.h"
#include "../../../drop.h"

/* Tiles of attention.cu: a block has 16 by 16 threads. Each thread has GM_ATTENTION_EACH_... queries and keys of a
 * tile, and every 16th number of a head. Narrow heads have up to 64 numbers, wide ones up to 256. With these sizes all
 * tiles of a block fit into the 163 KiB of shared memory of an A100. */
#define GM_ATTENTION_THREADS         16
#define GM_ATTENTION_NARROW          64
#define GM_ATTENTION_WIDE            256
#define GM_ATTENTION_EACH_narrow_f32 4
#define GM_ATTENTION_EACH_wide_f32   2
#define GM_ATTENTION_EACH_narrow_f64 2
#define GM_ATTENTION_EACH_wide_f64   1

/* attention_mma.cu and attention_mma_grad.cu: the queries of a block of attention, for heads of up to 64 and up to 128
 * numbers; the rows (queries or keys) of a block of its gradient; the keys of a tile; the queries of a tile. A block
 * has two threads a row. Rows of tiles have 8 more numbers. All tiles of a block fit into the 99 KiB of shared memory
 * of the smallest GPUs. */
#define GM_ATTENTION_MMA_QUERIES_64   128
#define GM_ATTENTION_MMA_QUERIES_128  64
#define GM_ATTENTION_MMA_ROWS         64
#define GM_ATTENTION_MMA_NARROW       64
#define GM_ATTENTION_MMA_WIDE         128
#define GM_ATTENTION_MMA_KEYS_64      64
#define GM_ATTENTION_MMA_KEYS_128     32
#define GM_ATTENTION_MMA_GRAD_QUERIES 32

typedef struct gm_attention_view {
    void   *data;
    int64_t stride[4]; /* of batch, row, head, and number in the head, in elements */
} gm_attention_view;

/* Dropout of a head. Without dropout it is not looked at. */
typedef struct gm_attention_drops {
    uint64_t step, first; /* first: the block of query 0 and key 0 */
} gm_attention_drops;

typedef struct gm_attention_args {
    gm_attention_view q, k, v, o, g, dq, dk, dv;
    void             *lse;
    const uint8_t    *mask;   /* NULL: none */
    const int64_t    *limits; /* of query i: its first key and its end, both less first_key; NULL: none */
    const void       *bias;   /* (biases, heads, queries, keys), added to scores; NULL: none */
    void             *dbias;
    void    *delta;  /* (batch, heads, queries): sums of g o; the kernel of dq writes them for that of dk, dv. On tensor
                    cores lse log2 e is before each */
    int64_t *ranges; /* (batch, tiles of queries of the kernel of dq, 2): what limits leave; that kernel writes them */
    int64_t  lse_stride[3], mask_stride[2], limits_stride[3], first_key;
    int64_t  bias_stride[4], dbias_stride[4], biases, row; /* sample b takes bias (row + b) % biases */
    int64_t  batch, queries, heads, keys, key_heads;
    int64_t  shift, window; /* causal: query i sees keys up to i + shift; window: the last ones; 0: all */
    int32_t  size, causal, accumulate;
    int32_t  vectors;              /* 1: in all tensors 8 numbers of 16 bits can be read at once */
    double   scale, keep, softcap; /* keep: of dropout; softcap: 0: none */
    float    keep_f32, unit;       /* unit: scale log2 e. Kernels lack registers for numbers that they convert */
    gm_drop  drop;
    uint64_t drop_first, drop_blocks[3]; /* the index of query 0 and key 0; blocks from batch to batch, from head
                                                  to head, from query to query */
    int64_t  step;                       /* of the random stream; negative: *rng_step */
    const uint64_t *rng_step;            /* on the device */
} gm_attention_args;

#endif
