/* loss_args.h - arguments of the kernels of loss.cu. */
#ifndef GM_CUDA_LOSS_ARGS_H
#define GM_CUDA_LOSS_ARGS_H

#include "../../runtime/refusal.h"
#include "../../common/rows.h"

#define GM_LOSS_PACKS 4 /* of 16 bytes of a row that a thread has under way */

typedef struct gm_loss_args {
    gm_row_view x, target, g;       /* in; g: gradients only */
    gm_row_view loss, largest, sum; /* out; largest and sum: in of the gradient */
    gm_row_view dx;                 /* out of the gradient */
    gm_refusal *refusal;
    int64_t     rows, width, ignore;
    double      smoothing;
    int32_t     team, narrow, op; /* narrow: targets are i32 */
} gm_loss_args;

#endif
