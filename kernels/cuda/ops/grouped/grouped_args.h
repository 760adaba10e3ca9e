/* grouped_args.h - products of groups of rows, each with a matrix of its own, for the kernels of grouped.cu and
 * grouped_mma.cu. The file is C for host and kernels.
 *
 * Rows kernels:    c[r][j] (+)= sum over l of a[r][l] b[e][l][j] + bias[e][j], for the rows r of each group e
 * Weight kernels:  c[e][i][j] (+)= sum over the rows r of group e of a[i][r] b[r][j] */
#ifndef GM_CUDA_GROUPED_ARGS_H
#define GM_CUDA_GROUPED_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "../../runtime/refusal.h"

#define GM_GROUPED_THREADS 256
#define GM_GROUPED_COLUMNS 32 /* of a block that adds up rows */

/* Tiles of the tensor cores: rows and columns, the depth of a stage, and stages in shared memory. Rows of a tile in
 * shared memory have a gap of 16 bytes, so that 8 of them are read without conflicts. */
#define GM_GROUPED_SIDE   128
#define GM_GROUPED_DEPTH  32
#define GM_GROUPED_STAGES 3
#define GM_GROUPED_PITCH  (GM_GROUPED_DEPTH + 8)               /* numbers; of a tile whose rows go along the depth */
#define GM_GROUPED_TURNED (GM_GROUPED_SIDE + 8)                /* of one whose rows go along the side */
#define GM_GROUPED_TILE   (GM_GROUPED_SIDE * GM_GROUPED_PITCH) /* numbers of a tile, of either kind */
#define GM_GROUPED_SHARED (GM_GROUPED_STAGES * 2 * GM_GROUPED_TILE * 2)

typedef struct gm_grouped_args {
    const void    *a, *b, *bias; /* bias: NULL for none */
    void          *c;
    const int64_t *bounds; /* where groups begin, and the end of the last: (groups + 1) */
    gm_refusal    *refusal;
    int64_t        rows, groups; /* all rows, of groups or not */
    int64_t        m, n, k;      /* of a group's product; m of rows kernels and k of weight kernels: not read */
    int64_t        a_m, a_k, b_group, b_k, b_n, c_group, c_m, c_n, bias_group, bias_n, bounds_step; /* elements */
    int32_t        tiles_m, tiles_n; /* tiles_m: of weight kernels */
    int32_t        op;
    bool           accumulate;
} gm_grouped_args;

#endif
