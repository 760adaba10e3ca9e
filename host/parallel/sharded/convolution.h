/* convolution.h - convolutions whose channels lie in blocks on q x q ranks, as the operands of a Linear do in 2D tensor
 * parallelism. Private to this folder. convolution.c records the nodes and fetches rows of other ranks.
 *
 * x (samples cut by row, channels by col, space...), groups 1, and w one of
 *
 *     outputs cut by col, inputs by row     blocks of x and w travel
 *     outputs cut by row, inputs by col     blocks of w travel, and y is summed
 *
 * give y cut as x is. Outputs are the first dimension of w; of a transposed convolution, the second. The q steps are
 * those of SUMMA (summa.h), where the product of two blocks is the convolution of one block of channels: no rank holds
 * a whole weight, or all channels of an image. Samples may be cut by further axes (data, depth), and the first
 * dimension of space by others (halo.h): rows are fetched before the product.
 *
 * Elements sent by all q x q ranks, blocks with their padding: forward (q-1) (|x| + |w|), or (q-1) (|w| + |y|).
 * Backward sends as much for the gradient of x and again for that of w: the same blocks of two operands travel or are
 * summed, whichever product it is. Memory in addition to the operands: what summa.h says, and a block of what is added
 * up in place, one term of it, because the kernels of convolutions set their results. */
#ifndef GM_SHARDED_CONVOLUTION_H
#define GM_SHARDED_CONVOLUTION_H

#include "linear.h"

/* GM_LINEAR_AB, GM_LINEAR_ABT, or GM_LINEAR_LOCAL: the layouts are not those above. row and col are those of w. */
gm_linear_plan gm_plan_channels(gm_op op, const gm_attrs *attrs, const gm_side *x, const gm_side *w);
/* The layout of y, with the cuts of space that the caller has put there, and the fit of the bias. GM_ESHAPE: space or
 * kernels are cut otherwise, sums over ranks, blocks of channels that do not fit. */
gm_status gm_rule_channels(gm_rule_call *c, const gm_linear_plan *p, int first);

/* One call: op and attributes of the rows at hand. w: the side of the weight. */
typedef struct gm_channels {
    gm_work        *work;
    gm_op           op;
    const gm_attrs *attrs;
    gm_linear_plan  plan;
    gm_side         w;
} gm_channels;

/* y = x w on blocks; no bias, no activation. Collective over the axes of the plan, as the gradients are. */
void gm_channels_forward(const gm_channels *c, gm_tensor *x, gm_tensor *w, gm_tensor *y);
void gm_channels_gradient_of_x(const gm_channels *c, gm_tensor *dy, gm_tensor *w, gm_tensor *dx);
void gm_channels_gradient_of_w(const gm_channels *c, gm_tensor *dy, gm_tensor *x, gm_tensor *dw, bool accumulate);
/* y = f(sum + b) where sum is what gm_channels_forward made; b NULL: none. f is that of c->attrs; without one sum is y
 * itself. */
void gm_channels_finish(const gm_channels *c, gm_tensor *b, gm_tensor *sum, gm_tensor *y);

#endif
