/* family.h - what the rules of the families of ops are written with. Private to this folder and to sharded/.
 *
 * A rule says which dimension of which input is which dimension of the outputs (gm_rule_join), then what must be
 * whole, then what may be partial; gm_rule_slices at the end asks for the slices that follow. Outputs share one
 * layout, c->out[0], but for those that a rule sets itself. */
#ifndef GM_RULE_FAMILY_H
#define GM_RULE_FAMILY_H

#include "rules.h"

typedef struct gm_rule_call {
    gm_rank         *r;
    const char      *name; /* of the op */
    gm_op            op;
    int              n_in, n_out;
    gm_value *const *in;
    gm_attrs        *attrs;
    const gm_spec   *global; /* of the outputs */
    gm_layout       *out;
    gm_fit          *fit;
    /* Which dimension of the output each dimension of an input is; -1: none. */
    int8_t to[8][GM_MAX_DIMS];
} gm_rule_call;

/* A call in which nothing is joined yet: outputs replicated, inputs as they are. */
gm_rule_call gm_rule_begin(gm_rank *r, const char *name, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs,
                           int n_out, const gm_spec *global, gm_layout *out, gm_fit *fit);
/* GM_ESHAPE: why, and what the inputs are. */
gm_status gm_rule_refuse(const gm_rule_call *c, const char *why);
/* Dimension d of input i is dimension `to` of the output: its cuts become the output's. NULL inputs are allowed. */
gm_status gm_rule_join(gm_rule_call *c, int i, int d, int to);
/* Dimension d of input i is not cut. */
gm_status gm_rule_whole(const gm_rule_call *c, int i, int d, const char *why);
/* Dimension d of input i and e of input j are summed over: cut alike, or one is sliced; the result is partial. */
gm_status gm_rule_sum_over(gm_rule_call *c, int i, int d, int j, int e);
/* No input is partial. */
gm_status gm_rule_no_partial(const gm_rule_call *c);
/* All inputs from `first` on that are there are terms of one sum: those that are not partial alike are masked. */
void gm_rule_terms(gm_rule_call *c, int first);
/* The last step: joined dimensions that are not cut are sliced; the result is a legal layout. */
gm_status gm_rule_slices(gm_rule_call *c);
/* attrs->box for a block of a tensor of this global shape and layout. */
gm_status gm_rule_box(gm_rank *r, gm_attrs *attrs, const gm_layout *layout, int ndim, const int64_t *shape);

/* Of attention: batch and heads of q, k, v and key_mask are joined; what may not be cut is not. */
gm_status gm_rule_attention_dims(gm_rule_call *c);

gm_status gm_layout_rule_elementwise(gm_rule_call *c);
gm_status gm_layout_rule_random(gm_rule_call *c);
gm_status gm_layout_rule_contraction(gm_rule_call *c);
gm_status gm_layout_rule_rowwise(gm_rule_call *c);
gm_status gm_layout_rule_norm(gm_rule_call *c);
gm_status gm_layout_rule_attention(gm_rule_call *c);
gm_status gm_layout_rule_experts(gm_rule_call *c);
gm_status gm_layout_rule_embedding(gm_rule_call *c);
gm_status gm_layout_rule_loss(gm_rule_call *c);
gm_status gm_layout_rule_reduction(gm_rule_call *c);
gm_status gm_layout_rule_optimizer(gm_rule_call *c);

#endif
