/* rotary_args.h - arguments of the kernels of rotary.cu. */
#ifndef GM_CUDA_ROTARY_ARGS_H
#define GM_CUDA_ROTARY_ARGS_H

#include "../../common/rows.h"

#define GM_ROTARY_PACKS 1 /* of 16 bytes of a row that a thread has under way */

typedef struct gm_rotary_args {
    gm_row_view x, y, frequency, index; /* index without data: positions count from first */
    int64_t     rows, width, pairs;
    int64_t     lines, sequence, first; /* lines: rows at a position */
    int64_t     entries, rotated;       /* of `entries` rows that follow one another the first are turned */
    double      alpha;
    int32_t     team, narrow, per_row, interleaved, inverse;
} gm_rotary_args;

#endif
