/* optimizer_args.h - arguments of the kernels of optimizer.cu: one launch for all tensors of a call, found through a
 * table in device memory (optimizer_table.c). A block has a chunk of one tensor. */
#ifndef GM_CUDA_OPTIMIZER_ARGS_H
#define GM_CUDA_OPTIMIZER_ARGS_H

#include "../../../device.h"
#include "../../../states.h"
#include "../../../step_control.h"
#include "../../../trust.h"
#include "../../runtime/refusal.h"

#define GM_UPDATE_CHUNK   4096 /* elements of a block */
#define GM_UPDATE_THREADS 256
#define GM_JOIN_THREADS   1024
#define GM_SUM_WORDS      32 /* f64 of shared memory for a sum over a block; a step's constants lie behind them */

/* What a tensor is in an update. g and p are of the entry's dtype, the others in f32 where that has 16 bits. */
#define GM_UPDATE_MOMENTS 3
enum { GM_ROLE_G, GM_ROLE_P, GM_ROLE_MASTER, GM_ROLE_MOMENT, GM_ROLES = GM_ROLE_MOMENT + GM_UPDATE_MOMENTS };

typedef struct gm_entry {
    void         *data[GM_ROLES]; /* NULL: there is none */
    int64_t       n, chunk;       /* elements; the first of its chunks */
    int32_t       dtype, dense;   /* gm_dtype; dense: no gaps in any of them */
    int32_t       vectors, ndim;  /* vectors: and all begin at multiples of 16 bytes */
    int64_t       shape[GM_MAX_DIMS], stride[GM_ROLES][GM_MAX_DIMS];
    gm_state_rows rows;  /* of moments in blocks */
    double       *trust; /* (2), trust_stride apart; NULL: it has no ratio */
    int64_t       trust_stride;
} gm_entry;

typedef struct gm_update_args {
    const gm_entry      *entries;
    const gm_step_block *step;
    const double        *control; /* step_control.h, control_stride apart; NULL: there is none */
    int64_t              control_stride;
    const double        *missed; /* updates made without these tensors; NULL: 0 */
    double              *part;   /* sum_squares: a sum for each chunk; measure: two */
    int64_t              count, chunks;
    double               lr_scale, lr_decay, weight_decay, momentum, dampening, beta2, eps; /* momentum: or beta1 */
    gm_trust_rule        trust;
    uint64_t             key, first; /* of the random words; first: index of the block in the global tensor, whose */
    int64_t              whole[GM_MAX_DIMS]; /* strides these are; */
    int32_t              boxed;              /* 0: a tensor is whole */
    int32_t              nesterov, decoupled, maximize, amsgrad, stochastic;
    int32_t              corrects, early_eps; /* Adam: moments are divided by 1 - beta^t; eps joins the root before */
    uint32_t             there;               /* moments, bit k for moment k */
    uint32_t             squares;             /* those that are never below 0 */
    int64_t              states;              /* GM_STATES_* */
} gm_update_args;

/* The step's constants, worked out by one thread of each block: g = (scale g + l2 w) before,
 * u = direction(g) + outside w, w = decay w - after u. */
typedef struct gm_update_step {
    double   scale, l2, before, outside, after, decay; /* after: times the learning rate */
    double   momentum, keep, fresh;                    /* SGD: buffer = keep buffer + fresh g */
    double   root, first, eps;                         /* Adam: first m / (root sqrt(v) + eps) */
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
