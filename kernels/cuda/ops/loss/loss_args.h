/* loss_args.h - arguments of the kernels of loss.cu. */
#ifndef GM_CUDA_LOSS_ARGS_H
#define GM_CUDA_LOSS_ARGS_H

#include "../../runtime/refusal.h"
#include "../../common/rows.h"

#define GM_LOSS_PACKS 4 /* of 16 bytes of a row that a thread has under way */

#define GM_LOSS_HELD_MOST  576 /* threads of a block that keeps a row in shared memory, */
#define GM_LOSS_HELD_LEAST 256
#define GM_LOSS_HELD_ROOM  1024 /* bytes of it for the sums */

typedef struct gm_loss_args {
    gm_row_view x, target, g;       /* in; g: gradients only; of loss and gradient at once it has one number */
    gm_row_view loss, largest, sum; /* out; largest and sum: in of the gradient */
    gm_row_view dx;                 /* out of the gradient; of rescale_rows in and out */
    gm_row_view scale;              /* of rescale_rows alone */
    gm_refusal *refusal;
    int64_t     rows, width, ignore;
    double      smoothing;
    int32_t     team, narrow, op; /* narrow: targets are i32 */
} gm_loss_args;

#endif
