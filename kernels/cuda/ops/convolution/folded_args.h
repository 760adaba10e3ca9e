/* folded_args.h - arguments of the kernels of folded.cu. C for host and kernels. */
#ifndef GM_CUDA_FOLDED_ARGS_H
#define GM_CUDA_FOLDED_ARGS_H

#include <stdint.h>

#define GM_FOLDED_PACK 8 /* channels of 16 bits, which are loaded and stored at once */

/* wide (n, c, h, w) and folded (n, rows, columns, packs * GM_FOLDED_PACK): channel (k fold[0] + i) fold[1] + j of
 * folded at (r, s) is channel k of wide at (r fold[0] + i - low[0], s fold[1] + j - low[1]), and 0 outside of it. */
typedef struct gm_folded_args {
    void   *wide, *folded;
    int64_t size[4], stride[4]; /* of wide */
    int64_t rows, columns, n;   /* n: places of folded, or elements of wide */
    int32_t packs, fold[2], low[2];
    int32_t accumulate;
} gm_folded_args;

#endif
