/* float8_args.h - arguments of the kernels of float8.cu. */
#ifndef GM_CUDA_FLOAT8_ARGS_H
#define GM_CUDA_FLOAT8_ARGS_H

#include "../../common/rows.h"

#define GM_FLOAT8_TILE    128 /* rows and columns that a block turns together */
#define GM_FLOAT8_THREADS 256
#define GM_FLOAT8_HELD    4 /* pieces of 16 bytes that a thread has under way when it looks for the largest magnitude */
#define GM_FLOAT8_BLOCKS  8 /* blocks of such threads that run on a multiprocessor at once */

typedef struct gm_float8_args {
    gm_row_view x; /* rows of k; decode: without */
    int64_t     rows, k;
    const void *scale;          /* one number in the type of arithmetic */
    uint8_t    *codes, *turned; /* (rows, k) and (k, rows), dense; NULL: not wanted. decode reads codes */
    void       *needed;         /* raised to the scale that x needs, a number of the same type; NULL: not wanted */
    void       *y;              /* decode: numbers, dense */
    int32_t     team, format;
} gm_float8_args;

#endif
