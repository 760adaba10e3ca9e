/* norm_args.h - arguments of the kernels of norm.cu and norm_held.cu. Rows without data stand for optional operands
 * that are not given. */
#ifndef GM_CUDA_NORM_ARGS_H
#define GM_CUDA_NORM_ARGS_H

#include "../../common/rows.h"

/* Packs of 16 bytes of a row that a thread holds (HELD), by size of an element. */
#define GM_NORM_PACKS(size) ((size) == 4 ? 4 : 2)

/* Of norm_held.cu: packs of a row that a thread holds, and the most warps of a block (and so of a row). */
#define GM_NORM_HELD       4
#define GM_NORM_WARPS      16 /* 128 registers a thread */
#define GM_NORM_GRAD_HELD  3  /* of three operands, and sums for each element */
#define GM_NORM_GRAD_WARPS 12 /* 168 registers a thread */
#define GM_NORM_ROOM       32 /* bytes of shared memory a thread: the sums of a pack of 8 numbers, in f32 */

typedef struct gm_norm_args {
    gm_row_view x, residual, w, b;
    gm_row_view given_mean, given_rstd; /* given_rstd: statistics come from elsewhere */
    gm_row_view y, sum, mean, rstd, m2; /* out; m2: squares around the mean */
    int64_t     rows, width;
    double      eps;
    int32_t     team, centered; /* centered: the mean is subtracted */
} gm_norm_args;

typedef struct gm_norm_grad_args {
    gm_row_view g, gsum, x, w, mean, rstd;
    gm_row_view given_h, given_h_hat; /* given_h_hat: the means of h = g w and h hat come from elsewhere */
    gm_row_view dx, h, h_hat;         /* out */
    void       *dw, *db;              /* sums over the rows of each team: (teams, width); NULL: not wanted here */
    int64_t     rows, width;
    int32_t     team, centered;
} gm_norm_grad_args;

#endif
