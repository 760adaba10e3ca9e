/* experts_steps.h - what experts.c does with rows: gather, send, multiply by the experts they are for. Private to this
 * folder.
 *
 * A gm_experts_work is one pass of one call. Rows "here" are of this rank's tokens, rows "away" came from others; both
 * lie expert by expert, here first, in one tensor. Steps that fail leave their status in w->rows.st (rows.h), and what
 * follows does nothing. */
#ifndef GM_EXPERTS_STEPS_H
#define GM_EXPERTS_STEPS_H

#include "experts.h"
#include "experts_plan.h"
#include "rows.h"

typedef struct gm_experts_work {
    gm_rows         rows; /* the list of what is to be released, and the first failure */
    gm_experts_plan plan;
    gm_function     f;
    gm_tensor      *up, *up_bias, *down, *down_bias; /* blocks; biases NULL where there is none, or not counted here */
    int64_t         width, hidden;                   /* h, and f of this rank without padding */
    gm_tensor      *choice, *token, *row;            /* gm_experts_order */
    gm_tensor      *in, *pre;                        /* rows (n_here + n_away, h), pre-activations (.., hidden) */

    int          n_flights;
    gm_pending **flights; /* what is under way */
} gm_experts_work;

/* Plan and order; counts: see gm_experts_plan_new. */
gm_status gm_experts_begin(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *index,
                           gm_tensor *counts, bool known);
/* The first failure; what is under way after one is left to itself. */
gm_status gm_experts_end(gm_experts_work *w);

/* Rows `first` .. `first + n - 1` of a tensor: a view, or NULL where there are none. */
gm_tensor *gm_experts_part(gm_experts_work *w, gm_tensor *t, int64_t first, int64_t n);
gm_tensor *gm_experts_new(gm_experts_work *w, int64_t rows, int64_t width);
void       gm_experts_zero(gm_experts_work *w, gm_tensor *t);
/* to = rows of table at index; index NULL: nothing. */
void gm_experts_gather(gm_experts_work *w, gm_tensor *table, gm_tensor *index, gm_tensor *to);

/* Starts to send rows of `ours` (n_sent, h) to their experts, into `theirs` (n_away, h) there; or back. */
void gm_experts_travel(gm_experts_work *w, gm_tensor *ours, gm_tensor *theirs, bool back);
void gm_experts_arrive(gm_experts_work *w);

/* For each own expert in turn step(w, context, e, first, n): its rows, here or away, in tensors that hold all rows. */
typedef void (*gm_experts_step)(gm_experts_work *w, void *context, int64_t e, int64_t first, int64_t n);
void gm_experts_each(gm_experts_work *w, bool away, gm_experts_step step, void *context);

/* Expert e of a block (experts, a, b), or (experts, a), without the padding of hidden: a view. */
gm_tensor *gm_experts_of(gm_experts_work *w, gm_tensor *block, int64_t e, int hidden_dim);
/* y = a b, or y += a b; ta, tb: transposed. */
void gm_experts_multiply(gm_experts_work *w, gm_tensor *a, bool ta, gm_tensor *b, bool tb, bool accumulate,
                         gm_tensor *y);
/* f(pre) of some rows: new, or pre itself where there is no activation. */
gm_tensor *gm_experts_activate(gm_experts_work *w, gm_tensor *pre);

#endif
