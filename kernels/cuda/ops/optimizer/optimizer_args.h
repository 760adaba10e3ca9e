/* optimizer_args.h - arguments of the kernels of optimizer.cu: one launch for all tensors of a call, found through a
 * table in device memory (optimizer_table.c). A block has a chunk of one tensor. */
#ifndef GM_CUDA_OPTIMIZER_ARGS_H
#define GM_CUDA_OPTIMIZER_ARGS_H

#include "../../../device.h"
#include "../../../step_control.h"
#include "../../runtime/refusal.h"

#define GM_UPDATE_CHUNK   4096 /* elements of a block */
#define GM_UPDATE_THREADS 256
#define GM_JOIN_THREADS   1024

/* What a tensor is in an update. g and p are of the entry's dtype, the others in f32 where that has 16 bits. */
enum { GM_ROLE_G, GM_ROLE_P, GM_ROLE_M, GM_ROLE_V, GM_ROLE_MASTER, GM_ROLES };

typedef struct gm_entry {
    void   *data[GM_ROLES]; /* NULL: there is none */
    int64_t n, chunk;       /* elements; the first of its chunks */
    int32_t dtype, dense;   /* gm_dtype; dense: no gaps in any of them */
    int32_t vectors, ndim;  /* vectors: and all begin at multiples of 16 bytes */
    int64_t shape[GM_MAX_DIMS], stride[GM_ROLES][GM_MAX_DIMS];
} gm_entry;

typedef struct gm_update_args {
    const gm_entry      *entries;
    const gm_step_block *step;
    const double        *control; /* step_control.h, control_stride apart; NULL: there is none */
    int64_t              control_stride;
    const double        *missed; /* updates made without these tensors; NULL: 0 */
    double              *part;   /* sum_squares: a sum for each chunk */
    int64_t              count, chunks;
    double               lr_scale, weight_decay, momentum, dampening, beta1, beta2, eps;
    uint64_t             key;
    int32_t              nesterov, decoupled, stochastic;
    int32_t              corrects, op; /* corrects: root and rate are asked for; op: a gm_op */
} gm_update_args;

/* The step's constants, worked out by one thread of each block. */
typedef struct gm_update_step {
    double   scale, lr, weight_decay, decay; /* decay: factor of p in AdamW */
    double   momentum, fresh, ahead;         /* buffer = momentum buffer + fresh g; ahead: of Nesterov's look */
    double   root, rate;                     /* p -= rate m / (root sqrt(v) + eps) */
    double   beta1;
    uint64_t step;
    int      go; /* 0: change nothing */
} gm_update_step;

/* A tensor of f64 numbers, stride apart. */
typedef struct gm_control_numbers {
    const double *data;
    int64_t       n, stride;
} gm_control_numbers;

typedef struct gm_control_args {
    gm_control_numbers squares[GM_CONTROL_TERMS];
    int64_t            count;       /* of squares */
    const double      *loss, *norm; /* norm: NULL, or in place of the root of the squares */
    const gm_refusal  *refusal;     /* NULL, or what kernels have refused since the host last heard */
    double            *control;
    int64_t            loss_stride, stride; /* stride: of control */
    gm_control_rule    rule;
} gm_control_args;

typedef struct gm_join_args {
    const double *part;
    double       *y;
    int64_t       n;
} gm_join_args;

#endif
