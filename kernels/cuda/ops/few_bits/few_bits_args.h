/* few_bits_args.h - arguments of the kernels of few_bits.cu. */
#ifndef GM_CUDA_FEW_BITS_ARGS_H
#define GM_CUDA_FEW_BITS_ARGS_H

#include "../../common/rows.h"
#include "../../runtime/refusal.h"

#define GM_FEW_BITS_ROWS 8 /* the most rows of x that the product reads weights for directly */

typedef struct gm_few_bits_args {
    gm_row_view x, y, pre, bias; /* quantize: x is the weight; dequantize: y is */
    gm_row_view index;           /* dequantize: without data, row i is row i */
    void       *codes;
    int64_t     step, rows, columns; /* of the codes: bytes from row to row, rows, numbers of a row */
    int64_t     count;               /* rows of x or y */
    int64_t     bits, group;
    gm_refusal *refusal;
    int32_t     team, narrow, part, function, op;
} gm_few_bits_args;

#endif
