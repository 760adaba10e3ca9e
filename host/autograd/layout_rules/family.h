/* family.h - the functions with which the layout rules of the families of ops are written. Private to this folder and
 * to host/parallel/sharded/.
 *
 * A rule first says which dimension of each input is which dimension of the outputs (gm_rule_join), then what must be
 * whole, then what may be partial. At the end gm_rule_slices asks for the slices that follow from this. The outputs
 * share one layout, c->out[0], except those that a rule sets itself. */
#ifndef GM_RULE_FAMILY_H
#define GM_RULE_FAMILY_H

#include "rules.h"

typedef struct gm_rule_call {
    gm_rank         *r;
    const char      *name; /* the name of the op, for messages */
    gm_op            op;
    int              n_in, n_out;
    gm_value *const *in;
    gm_attrs        *attrs;
    const gm_spec   *global; /* the specs of the outputs, for global shapes */
    gm_layout       *out;
    gm_fit          *fit;
    /* to[i][d]: the dimension of the output that dimension d of input i is; -1: none. */
    int8_t to[8][GM_MAX_DIMS];
} gm_rule_call;

/* Gives a call in which no dimensions are joined yet: the outputs are replicated, and the inputs stay as they are. */
gm_rule_call gm_rule_begin(gm_rank *r, const char *name, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs,
                           int n_out, const gm_spec *global, gm_layout *out, gm_fit *fit);
/* Returns GM_ESHAPE with a message that gives the reason and describes the inputs. */
gm_status gm_rule_refuse(const gm_rule_call *c, const char *why);
/* Says that dimension d of input i is dimension `to` of the output: its cuts become those of the output. Ignores an
 * input that is NULL. GM_ESHAPE: the dimension is cut in another way there already. */
gm_status gm_rule_join(gm_rule_call *c, int i, int d, int to);
/* GM_ESHAPE if dimension d of input i is cut. */
gm_status gm_rule_whole(const gm_rule_call *c, int i, int d, const char *why);
/* Says that the op sums over dimension d of input i together with dimension e of input j. Both must be cut in the same
 * way, or one is not cut and will be sliced. The result is partial over the axes of the cuts. */
gm_status gm_rule_sum_over(gm_rule_call *c, int i, int d, int j, int e);
/* GM_ESHAPE if an input is partial. */
gm_status gm_rule_no_partial(const gm_rule_call *c);
/* Says that all given inputs from `first` on are terms of one sum. If some are partial, those that are not partial over
 * the same axes are masked. */
void gm_rule_terms(gm_rule_call *c, int first);
/* The last step: asks for slices of inputs that are not cut along a joined dimension that the output has cut.
 * GM_ESHAPE: the layout of the output is not legal. */
gm_status gm_rule_slices(gm_rule_call *c);
/* For products of inputs 0 and 1: what is partial in one of them stays so; GM_ESHAPE: both are, over the same axis,
 * which is a product of sums. And of input 2, their bias: it is a term of the sum, counted once; GM_ESHAPE: it is
 * partial where the product is not, or the product is, and there is an activation, which is not linear. */
gm_status gm_rule_factors(gm_rule_call *c);
gm_status gm_rule_bias(gm_rule_call *c);
/* dequantize: cuts dimension `to` of the result as the rows of codes are, and makes attrs->columns those of this rank's
 * block. GM_ESHAPE: a block of numbers would be cut. */
gm_status gm_rule_few_columns(gm_rule_call *c, int to);
/* The rules of convolutions and of pooling where dimensions of space from `first` on are whole; 2: all. What cuts those
 * before `first`, the caller has put into c->out[0]. */
gm_status gm_rule_convolution(gm_rule_call *c, int first);
gm_status gm_rule_pooling(gm_rule_call *c, int first);
/* Sets attrs->box to this rank's block of a tensor of this global shape and layout. */
gm_status gm_rule_box(gm_rank *r, gm_attrs *attrs, const gm_layout *layout, int ndim, const int64_t *shape);

/* For attention: joins the batch and head dimensions of q, k, v, key_mask and limits. GM_ESHAPE: another dimension is
 * cut. */
gm_status gm_rule_attention_dims(gm_rule_call *c);

/* For bags: joins the dimensions of w, index, bounds and weight. GM_ESHAPE: tables, places or bounds are cut. */
gm_status gm_rule_bags(gm_rule_call *c);

gm_status gm_layout_rule_elementwise(gm_rule_call *c);
gm_status gm_layout_rule_random(gm_rule_call *c);
gm_status gm_layout_rule_contraction(gm_rule_call *c);
gm_status gm_layout_rule_convolution(gm_rule_call *c);
gm_status gm_layout_rule_few_bits(gm_rule_call *c);
gm_status gm_layout_rule_float8(gm_rule_call *c);
gm_status gm_layout_rule_rowwise(gm_rule_call *c);
gm_status gm_layout_rule_norm(gm_rule_call *c);
gm_status gm_layout_rule_attention(gm_rule_call *c);
gm_status gm_layout_rule_pooling(gm_rule_call *c);
gm_status gm_layout_rule_pages(gm_rule_call *c);
gm_status gm_layout_rule_experts(gm_rule_call *c);
gm_status gm_layout_rule_embedding(gm_rule_call *c);
gm_status gm_layout_rule_loss(gm_rule_call *c);
gm_status gm_layout_rule_reduction(gm_rule_call *c);
gm_status gm_layout_rule_optimizer(gm_rule_call *c);

#endif
