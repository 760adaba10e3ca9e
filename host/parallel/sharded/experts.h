/* experts.h - mixture of experts: every token goes to the few experts that were chosen for it, wherever they are.
 *
 * Tokens are rows of x (..., h), their leading dimensions T of them in all; index (..., k), i64, names the expert of
 * each choice, from 0, or -1 for a choice that was dropped; weight (..., k) says how much it counts. An expert is an
 * MLP:
 *
 *     y[t] = sum over j of weight[t, j] (f(x[t] up[e]' + up_bias[e]) down[e]' + down_bias[e]),  e = index[t, j]
 *
 * up (E, f, h), up_bias (E, f), down (E, h, f), down_bias (E, h). If f is a gate (functions.def), there are gate
 * (E, f, h) and gate_bias (E, f), and f(a) is f(gate[e], a) = f(x[t] gate[e]' + gate_bias[e]) (x[t] up[e]' +
 * up_bias[e]) (Shazeer 2020, arXiv:2002.05202). Experts may be cut by axes that cut tokens, too (the
 * axis `expert`, an inner part of data): rows then travel to the ranks that hold their experts, and back (Lepikhin et
 * al., GShard, arXiv:2006.16668; Fedus et al., Switch, arXiv:2101.03961). No row is padded and none is left out but for
 * index -1: as many rows come as were sent (Gale et al., MegaBlocks, arXiv:2211.15841). The hidden width may be cut by
 * further axes, over which y is then a sum that the caller makes (as the second of a pair of Linears gives it).
 *
 * The trap: the number of rows that a rank receives depends on the data. Only capacities (gm_experts_capacity) bound
 * it. On meta, which has no data, all experts are taken to get equally many. */
#ifndef GM_EXPERTS_H
#define GM_EXPERTS_H

#include "../../autograd/apply.h"

typedef struct gm_experts_layer {
    gm_value   *up, *up_bias, *down, *down_bias; /* biases: NULL for none */
    gm_value   *gate, *gate_bias;                /* NULL unless f is a gate */
    gm_function f;                               /* an activation, a gate, or none */
    int64_t     room; /* choices that an expert has at most (gm_experts_capacity); 0: as many as there are */
} gm_experts_layer;

/* Collective over the axes that cut the experts. f32, f64, bf16 and f16, parameters in x's dtype; weight too, but f32
 * beside those of 16 bits (gm_dtype_wide).
 *
 * The number of rows of each expert is in the device's memory. Where several ranks share the experts, forward reads all
 * the numbers at once and so waits for the queued work; backward does not. Elsewhere nothing is read: this rank has a
 * row for each choice, and those that no choice fills are zeros. A call with a room, on a device with memory of its own
 * that has all tokens, gives each expert `room` rows, of which unused ones are zeros, and one batch of products serves
 * all experts. If more choices than that name an expert, the next wait for the device reports an error.
 *
 * Sent by a rank: in forward and in backward each, the rows that go to experts elsewhere, and those that came from
 * elsewhere, h numbers each (so over all ranks 2 + 2 times the rows that change ranks, times h), and in forward 8 bytes
 * for each expert of the others. Rows of the rank's own experts are not sent; they are multiplied while those of the
 * others travel. Kept for backward: rows as they came, their pre-activations, which choice each row is and which row
 * each choice, where the rows of each expert begin, and, where weight wants a gradient, what the experts gave for this
 * rank's tokens. A backward pass in halves (GM_TAPE_INPUT) gives the gradients of x and weight first and keeps, instead
 * of these last, the gradients of the rows and of their pre-activations: the second half, which gives those of the
 * experts, sends nothing. Gradients of experts are sums over this rank's and the others' rows, so that only axes that
 * do not cut the experts are left for the reducer.
 *
 * GM_ESHAPE: shapes and layouts that do not fit, all printed. GM_EINVAL: an index that is no expert. */
gm_status gm_experts(gm_rank *r, gm_value *x, gm_value *index, gm_value *weight, const gm_experts_layer *layer,
                     gm_value **y);

/* *kept receives index (..., k) with -1 for choices beyond an expert's capacity. An expert takes its first `capacity`
 * choices in this order: first choices of all tokens, then second choices, and so on; tokens in the order of the whole
 * tensor, wherever they lie. So the dropped choices do not depend on the number of ranks. Collective over the axes that
 * cut index: all_gather of k E numbers of 8 bytes a rank (times the leading lines where a later dimension is cut).
 * Choices that are -1 already take no place. */
gm_status gm_experts_capacity(gm_rank *r, gm_value *index, int64_t experts, int64_t capacity, gm_value **kept);

/* Random numbers of x's shape and layout, by GM_OP_normal or GM_OP_uniform (attrs: mean and std, or low and high):
 * those of the elements of the whole tensor, of a new stream of the current module. Sends nothing; no gradient. */
gm_status gm_experts_noise(gm_rank *r, gm_value *x, gm_op op, const gm_attrs *attrs, gm_value **y);

/* How many choices each expert has, (experts) of this dtype: partial over the axes that cut index, sends nothing. On
 * meta undefined, as all numbers there. */
gm_status gm_experts_counts(gm_rank *r, gm_value *index, int64_t experts, gm_dtype dtype, gm_value **counts);

#endif
