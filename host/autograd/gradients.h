/* gradients.h - the backward rule of each op, and the tensors that its node keeps.
 * Slot i keeps input i, slot GM_SLOT_OUTPUT + j output j. */
#ifndef GM_GRADIENTS_H
#define GM_GRADIENTS_H

#include "tape.h"

#define GM_SLOT_OUTPUT 6

typedef struct gm_gradient {
    gm_rule rule;     /* NULL: see below */
    uint8_t save_in;  /* bit i: input i is kept, see gm_gradient_inputs */
    uint8_t save_out; /* bit j: output j is kept */
    bool    splits;   /* as gm_record */
    bool    stops;    /* results depend on no input as far as gradients go (comparisons, argmax) */
} gm_gradient;

/* rule NULL and not stops: the op cannot be differentiated. */
const gm_gradient *gm_gradient_of(gm_op op);
/* The inputs that a node of this call keeps, a bit each: save_in without inputs that its rule does not read. A sum or
 * difference keeps none; a norm that gives the sum with its residual keeps that sum and not x. */
uint8_t gm_gradient_inputs(gm_op op, const gm_attrs *attrs, int n_out, gm_value *const *out);
/* The optional outputs, a bit each, that a node of this call keeps even if the caller does not want them. */
uint8_t gm_gradient_outputs(gm_op op, const gm_attrs *attrs);

/* views.c: the gradient of a part of x, which is zeros around it. extra: dimension, start in x (-1: another rank has
 * it), length, 1 if the dimension was dropped. */
void gm_part_rule(gm_backward *b);
/* linear.c: the rule of `linear`, and its parts. */
void gm_linear_rule(gm_backward *b);
void gm_linear_quantized_rule(gm_backward *b);
/* tables.c: the rules of lookups, and the parts of that of bags: the gradient of the table into dw, which may be the
 * first rows of a block; that of weights, from the rows at hand; and that of a table whose gradient is sparse. row: of
 * the places, -1 where there is none. */
void gm_embedding_rule(gm_backward *b);
void gm_embedding_bag_rule(gm_backward *b);
void gm_bag_rule_table(gm_backward *b, gm_tensor *row, gm_tensor *weight, gm_tensor *dw, bool accumulate);
void gm_bag_rule_weight(gm_backward *b, gm_tensor *table, gm_tensor *row);
void gm_bag_rule_sparse(gm_backward *b, gm_tensor *row, gm_tensor *weight);
/* convolution.c: the rule of both convolutions, and its parts, which blocks of images have in common with it
 * (host/parallel/sharded/convolution.c). attrs: of the call on the rows at hand. */
void gm_convolution_rule(gm_backward *b);
/* dpre = g f'(pre), with pre in this slot: g itself where the slot is empty. */
gm_tensor *gm_convolution_rule_pre(gm_backward *b, gm_tensor *g, int slot);
/* The gradient of x, into dx; reads slot 1, the weight. */
void gm_convolution_rule_input(gm_backward *b, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *dx);
/* Gives the gradients of the weight and of the bias, where they are wanted. dpre NULL: of no rows. */
void gm_convolution_rule_weight(gm_backward *b, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *x);
/* Gives that of the bias alone: the sums of dpre over all but its channels. */
void gm_convolution_rule_bias(gm_backward *b, gm_tensor *dpre);
/* The kernels of both gradients for tensors at hand, of a call of either op. dw (+)= that of the weight. */
void gm_convolution_input_gradient(gm_work *w, gm_op op, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *weight,
                                   gm_tensor *dx);
void gm_convolution_weight_gradient(gm_work *w, gm_op op, const gm_attrs *attrs, gm_tensor *dpre, gm_tensor *x,
                                    bool accumulate, gm_tensor *dw);
/* For a node that keeps the same slots as `linear`: returns dpre = g f'(pre), and adds the column sums of dpre to db if
 * input 2 wants a gradient. dpre is g itself if there is no activation, or if its derivative has been applied already:
 * in the first half of a pass, or by the node that read this one's result (gm_backward_activated). g is contiguous. */
gm_tensor *gm_linear_rule_bias(gm_backward *b, gm_tensor *g);
/* The same for a rule that calls gm_linear_rule_weight if input 1 wants a gradient: that call then computes db, unless
 * a pass over g is needed anyway. */
gm_tensor *gm_linear_rule_pre(gm_backward *b, gm_tensor *g);
/* dw (+)= dpre' x for matrices (rows, out) and (rows, in), and db if gm_linear_rule_pre left it. The matrices are the
 * blocks without padding; where gradients are set (not added to), their padding becomes zero. */
void gm_linear_rule_weight(gm_backward *b, gm_tensor *dpre, gm_tensor *x);
/* At the end of the first half of such a node: keeps dpre instead of g and the pre-activation, and x or w only where
 * the second half needs it. */
void gm_linear_rule_keep(gm_backward *b, gm_tensor *dpre);

#endif
