/* float8_args.h - arguments of the kernels of float8.cu. */
#ifndef GM_CUDA_FLOAT8_ARGS_H
#define GM_CUDA_FLOAT8_ARGS_H

#include "../../common/rows.h"

#define GM_FLOAT8_TILE    64 /* rows and columns that a block turns together */
#define GM_FLOAT8_PITCH   (GM_FLOAT8_TILE + 4)
#define GM_FLOAT8_THREADS 256
#define GM_FLOAT8_PARTS   1024 /* blocks of a search for the largest magnitude, at most */

typedef struct gm_float8_args {
    gm_row_view x; /* rows of k; decode: without */
    int64_t     rows, k;
    const void *scale;          /* one number in the type of arithmetic */
    uint8_t    *codes, *turned; /* (rows, k) and (k, rows), dense; NULL: not wanted. decode reads codes */
    float      *part;           /* the largest magnitude of each block */
    void       *y;              /* the scale that is found; decode: numbers, dense */
    int32_t     team, format, parts;
} gm_float8_args;

#endif
