/* sharded.h - the sharded forms of ops, which communicate inside: the algorithms of tensor parallelism.
 *
 * gm_apply calls a form if an input is cut or partial and ops.def marks the op with GM_SHARDED. A form passes calls
 * that local blocks suffice for to gm_apply_blocks and its layout rules, and calls that need whole operands to
 * gm_redistribute and then gm_apply. The forms themselves compute products whose operands travel block by block, and
 * ops on rows that are cut along the reduced dimension. The layouts of the operands choose the algorithm; layouts
 * that fit none are GM_ESHAPE, and the message prints them all. If no relevant dimension is cut, a form gives the bits
 * of the plain op. Forms do not give outputs that only the plain op's gradient reads (pre-activations, statistics).
 * Notation: q x q ranks, X (B, ..., I), W (O, I) as nn.Linear stores it. */
#ifndef GM_SHARDED_H
#define GM_SHARDED_H

#include "../../autograd/apply.h"

extern const gm_sharded_ops gm_sharded; /* the forms below: for gm_rank.sharded */

#define GM_OP(name, rule, in, out, attrs)
#define GM_SHARDED(name) gm_status gm_sharded_##name(gm_rank *r, const gm_value_call *c, gm_value **out);
#include "../../../kernels/ops.def"
#undef GM_OP

/* gm_sharded_linear: y = f(x w' + b); x (..., I), w (O, I), b (O) or NULL; f an activation or none. f32 and f64.
 * Collective over the axes named here, in forward and in backward; leading dimensions may be cut by further axes (data,
 * sequence, depth), over which dw and db are then partial. The layouts of x and w choose the kind; w says how y's last
 * dimension lies:
 *
 * COLUMN (Shoeybi et al., arXiv:1909.08053): w's rows cut by axes that do not cut x -> y's last dimension cut by them.
 * Forward sends nothing. Backward sums dx over these axes while the product of dw runs, 2 (p-1)/p of x a rank, so that
 * the gradient of x is complete.
 *
 * ROW: w's columns and x's last dimension cut alike -> y is partial over those axes; the caller reduces or scatters it.
 * The bias counts once; an activation is refused. Sends nothing. If only one of the two is cut, the other is sliced.
 *
 * GATHER (Megatron's sequence mode, Korthikanti et al., arXiv:2205.05198): w's rows cut by an axis that cuts some rows
 * of x innermost -> these rows are gathered, and y's last dimension is cut instead. Forward sends (p-1) blocks of x a
 * rank. Backward scatters dx, (p-1) blocks, and gathers x again for dw.
 *
 * 2D and 2.5D: x rows cut by (depth, row), or row, and its last dimension by col; w (O cut by col, I cut by row)
 * -> y cut as x. SUMMA (van de Geijn, Watts 1997; Xu et al. arXiv:2104.05343; Tesseract arXiv:2105.14500): in step l
 * column l's block of x goes over the ranks of a row, row l's block of w over those of a column; the broadcasts of step
 * l + 1 run under the product of step l. Backward: dx = dy w (blocks of w broadcast, partial dx sent to their owners),
 * dw = dy' x likewise. With w (O cut by row, I cut by col), as a table that is tied to a classifier has it, w travels
 * and y is summed. Elements sent by all q x q ranks: (q-1) times those of x and w (or w and y), twice that in
 * backward.
 *
 * 3D: x rows cut by (weight, input), last dimension by output; w (O cut by input, I by output, one of them by weight
 * inside) -> y rows cut by (weight, output), last dimension by input: gather x over input and w over weight, multiply,
 * scatter the sum over output (Agarwal et al. 1995; arXiv:2105.14450). The roles of input and output exchange in the
 * next layer: the rule is about any two axes a, b and a third c. Elements sent by a rank: (q-1) times its blocks of x,
 * w and y; in backward x and w count twice.
 *
 * Backward in two halves (gm_tape_run) sends as much as the whole pass. dx belongs to the first half, where no product
 * of dw hides its sum; dw belongs to the second. 3D gathers the gradient of y in both halves, (q-1) blocks more,
 * unless rank->keep_gathered is set.
 *
 * Nodes keep blocks for backward and gather them again. With rank->keep_gathered, GATHER and 3D keep the gathered
 * tensors (then x and w count once in backward). SUMMA holds at most two blocks of each travelling operand.
 *
 * b is laid out as y's last dimension. A bias that is cut further is gathered, and a whole one is sliced; its gradient
 * goes the opposite way. As in the serial op, the pre-activation is kept only if a gradient needs it.
 *
 * GM_ESHAPE: layouts of no kind, all printed; a and b of different size; I cut into blocks of different size; both
 * operands partial over an axis, or one over an axis that cuts the other; an activation of a partial product. Padding
 * of I and O is never read. */

/* The ops below take x with any leading dimensions, which other axes may cut. They communicate over the axes that cut
 * the reduced dimension: an all_reduce of a few numbers a row, given with each op, in x's dtype. An operand that is
 * replicated where another one is cut is sliced; a partial operand is refused (GM_ESHAPE). */

/* gm_sharded_layer_norm and gm_sharded_rms_norm, of rows whose last dimension may be cut (w and b NULL, or of any
 * layout: what is cut deeper than the rows, or where they are not, is redistributed first, which the numbers below do
 * not count): mean and variance over all of the row, of its logical extent, of p blocks: Chan, Golub, LeVeque 1979.
 * Bytes of one all_reduce of 2 numbers a row, forward (rows padded to a multiple of p) and backward (RMS norm: 1
 * number). Given: y, and the sum where there is a residual. f32 keeps its digits at a large mean: 1e-3 of a deviation
 * at a mean of 1e4 deviations, which is the rounding of such numbers. */

/* gm_sharded_cross_entropy: loss of each row of logits whose classes may be cut (padding excluded): the largest logit,
 * the sum of exponentials and the target's logit are reduced over the axes of the classes, the logits never gathered:
 * 1 + 2 numbers a row (3 with label smoothing), backward none. GM_EINVAL: a target that is no class. */

/* *losses receives the loss of each row (op cross_entropy). scale, (), of the dtype of losses: what backward will bring
 * to each row of them; NULL: not known. Where the gradient of the logits is wanted and the classes are whole, it is
 * then computed at once (op cross_entropy_both), kept in place of the logits, and given by backward as it is. Where
 * backward brings another number, that costs one more pass and, in 16 bits, one more rounding. Where the classes are
 * cut, scale changes nothing. */
gm_status gm_cross_entropy(gm_rank *r, gm_value *logits, gm_value *target, gm_value *scale, const gm_attrs *attrs,
                           gm_value **losses);

/* gm_sharded_embedding: rows of a table whose vocabulary may be cut. A rank looks up the rows that it holds and gives
 * zeros for the others, so the result is partial over those axes; the caller reduces it. Sends nothing. padding_index
 * (-1: none) is global. GM_EINVAL: an index or padding_index is no row of the table. */

/* gm_sharded_max, gm_sharded_argmax: the largest entry along a dimension that may be cut (negative: from the end), and
 * its place; the lowest of equals, the first NaN. 1 + 1 numbers a row, the second f64. argmax is not differentiable.
 * GM_ESHAPE: the gradient of max along a cut dimension is wanted. largest.c */

/* gm_sharded_attention: q (b, s, h, d), k and v (b, t, hk, d), key_mask u8 (b, t), limits (b, s, 2), and a bias, which
 * goes with whole sequences only. Where the
 * sequences are cut, alike by one axis or more, keys and values travel round (ring.h, which counts what is sent); batch
 * and heads may be cut by others as the op's layout rule allows, key_mask may be cut along t, limits along
 * s. o is cut as q. Dropped are the same probabilities as on one rank. Collective over the axes of the sequence, in
 * forward and in backward. GM_ESHAPE: what the op refuses; sequences cut in different ways; a causal attention of s !=
 * t. GM_EINVAL: memory that ran out after something was sent. */

/* gm_sharded_float8_scale: the scale of all of x, cut along any dimensions: one all_reduce of one number over the axes
 * that cut it. A partial x is refused (GM_ESHAPE). */

/* *y = x w' + b as gm_apply of `linear` gives it, with x, w and, in backward, the gradient of y as floats of 8 bits
 * (kernels/float8.h): x and w in E4M3, gradients in E5M2, each with one scale for the whole tensor
 * (Micikevicius et al. 2022, arXiv:2209.05433): the one that is given, or that of the tensor at that moment. Sums, y, b
 * and gradients have their usual dtypes. x (..., I), w (O, I), b (O) or NULL. Scales do not depend on how tensors are
 * cut, so all layouts compute with the same codes. The node keeps the codes of x, a byte for each element; those of w
 * are made again in backward. Layouts: rows may be cut by any axes; w's rows by one (column), or its columns as x's
 * last dimension (row); rows of x that are cut by the axis of w's rows are gathered first, in x's dtype. Sends what
 * linear sends with these layouts, and one number for each scale that is not given of a tensor that is cut. A scale
 * that is given must not change before backward, which refuses one that was written. With `blocks`, scales are those of
 * blocks of 128 numbers (DeepSeek-V3's report, arXiv:2412.19437; float8_blocks.h), gradients are in E4M3, too, and
 * nothing is sent for scales; tensors are cut between blocks only. GM_ESHAPE: both dimensions of w are cut (2D, 2.5D,
 * 3D); x or w is partial; a scale has dimensions, or another dtype than scales of x have; blocks would be cut.
 * GM_EINVAL: scales are given with `blocks`. */
typedef struct gm_float8_scales { /* of x, w and the gradient of y; borrowed, retained by the node */
    gm_value *scale[3];           /* (), the same on all ranks; NULL: found when the tensor is read */
    gm_value *needed[3];          /* (), raised to the scale that this rank's block needs, forward for x and w, backward
                                     for the gradient; NULL: nobody wants to know */
    bool      blocks;
} gm_float8_scales;
gm_status gm_linear_float8(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, const gm_float8_scales *given,
                           gm_value **y);

/* *sum receives the sum of the losses of all rows of x w' + b, a scalar that is partial over the axes that cut the
 * rows: x (..., I), w (O, I), b (O) or NULL, target (...). The op works on pieces of `rows` rows of each rank's block
 * (gathered or scattered as the kind of the product does). Each piece goes forward and backward at once, so that the
 * logits and their gradient exist for one piece only. The node keeps dx (in x's dtype), dw and db (in f32 at least)
 * until its backward, which multiplies them by the gradient of the sum. Gradients of 16 bits are rounded once for dw
 * and db, twice for dx. There are as many products as without pieces, and none in backward. A block of at most `rows`
 * rows is one piece and uses the plain ops; scale (NULL: not known) is for them, as gm_cross_entropy has it. *places
 * (NULL: not wanted) receives the index of the largest logit of each row, i64, shaped as the target. Each piece sends
 * what linear and cross_entropy send. GM_ESHAPE, GM_EINVAL: what linear and cross_entropy refuse. */
gm_status gm_linear_cross_entropy(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, gm_value *target, gm_value *scale,
                                  const gm_attrs *attrs, int64_t rows, gm_value **sum, gm_value **places);

#endif
