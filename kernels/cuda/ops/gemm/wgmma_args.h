/* wgmma_args.h - describes a product for the kernels of wgmma.cu (Hopper; 16-bit factors, sums in f32):
 *     y[i][j] = f(sum over l of a[i][l] b[l][j] + bias[j])        pre, if wanted: the argument of f   (gm_wgmma_linear)
 *     y[i][j] = f'(pre[i][j]) sum over l of a[i][l] b[l][j]       f none: the plain product            (gm_wgmma_input)
 *     parts[p][i][j] = the sum over piece p of l, in f32                                              (gm_wgmma_weight)
 *     part_sums[p][i] = the sum of a[i][l] over piece p of l, if wanted
 * and gm_wgmma_join adds the parts to y and sums. How a and b lie in memory is the kernel's: linear has rows of a and
 * of b' along l, input has rows of a along l and rows of b along j, weight has rows of a' along i and of b along j.
 * The file is C for host and kernels. */
#ifndef GM_CUDA_WGMMA_ARGS_H
#define GM_CUDA_WGMMA_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "../../runtime/tensor_map.h"

#define GM_WGMMA_ROWS    128 /* of a tile of y */
#define GM_WGMMA_COLUMNS 192
#define GM_WGMMA_DEPTH   64 /* numbers along the sum that a stage holds: 128 bytes */
#define GM_WGMMA_PANEL   32 /* columns of y that leave together: 64 bytes */
#define GM_WGMMA_STAGES  4
#define GM_WGMMA_THREADS 384 /* a warpgroup that loads, and two that multiply, each a tile of its own */
#define GM_WGMMA_STAGE   ((GM_WGMMA_ROWS + GM_WGMMA_COLUMNS) * 128) /* bytes */
#define GM_WGMMA_STAGING (GM_WGMMA_ROWS * GM_WGMMA_PANEL * 2)       /* bytes of a panel */
#define GM_WGMMA_PANELS  4                                          /* a warpgroup has memory for so many */
#define GM_WGMMA_SHARED  (1024 + GM_WGMMA_STAGES * GM_WGMMA_STAGE + 2 * GM_WGMMA_PANELS * GM_WGMMA_STAGING + 1024 + 256)

typedef struct gm_wgmma_args {
    gm_tensor_map a, b, y, pre;
    const void   *bias; /* NULL: none */
    float        *parts, *part_sums;
    int64_t       m, n;
    int32_t       tiles_m, tiles_n;
    int32_t       group;  /* rows of tiles that are computed together, for the cache's sake */
    int32_t       depths; /* stages along the whole sum */
    int32_t       pieces; /* of the sum; 1 but for weight */
    int32_t       units;  /* tiles times pieces */
} gm_wgmma_args;

typedef struct gm_wgmma_join_args {
    const float *parts, *part_sums;
    void        *y, *sums; /* sums: NULL, not wanted */
    int64_t      m, n, y_m;
    int32_t      pieces;
    bool         accumulate;
} gm_wgmma_join_args;

#endif
