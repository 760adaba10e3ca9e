/* float8_args.h - arguments of the kernels of float8.cu and float8_blocks.cu. */
#ifndef GM_CUDA_FLOAT8_ARGS_H
#define GM_CUDA_FLOAT8_ARGS_H

#include "../../common/rows.h"

#define GM_FLOAT8_TILE    128 /* rows and columns that a block turns together */
#define GM_FLOAT8_THREADS 256
#define GM_FLOAT8_HELD    4 /* pieces of 16 bytes that a thread has under way when it looks for the largest magnitude */
#define GM_FLOAT8_BLOCKS  8 /* blocks of such threads that run on a multiprocessor at once */

#define GM_FLOAT8_WARPS (GM_FLOAT8_THREADS / 32)
/* Bytes of shared memory of a tile: its codes, and for blocks the largest of each warp's part of a column, and a
 * factor for each column. */
#define GM_FLOAT8_SHARED        (GM_FLOAT8_TILE * GM_FLOAT8_TILE)
#define GM_FLOAT8_BLOCKS_SHARED (GM_FLOAT8_SHARED + (GM_FLOAT8_WARPS + 1) * GM_FLOAT8_TILE * 4)

typedef struct gm_float8_args {
    gm_row_view x; /* rows of k; decode: without */
    int64_t     rows, k;
    const void
            *scale; /* one number in the type of arithmetic. decode: with block > 0 many of them, of row i and columns
                          128 l .. at i / group * row + l * block */
    int64_t  group, row, block;
    void    *scales, *turned_scales; /* of blocks (ops.def); NULL: not wanted */
    uint8_t *codes, *turned;         /* (rows, k) and (k, rows), dense; NULL: not wanted. decode reads codes */
    void    *needed;                 /* raised to the scale that x needs, a number of the same type; NULL: not wanted */
    void    *y;                      /* decode: numbers, dense */
    int32_t  team, format, square;
} gm_float8_args;

#endif
