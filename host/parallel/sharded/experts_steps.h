/* experts_steps.h - the steps of experts.c: it gathers rows, sends them, and multiplies them by the weights of their
 * experts. Private to this folder.
 *
 * A gm_experts_work is one pass of one call. Rows "here" are of this rank's tokens; rows "away" came from other ranks.
 * Both lie expert by expert in one tensor, those here first. If all experts have the same number of rows
 * (gm_experts_plan.capacity), one product serves all experts; otherwise each expert has a product of its own. A step
 * that fails leaves its status in w->work->st (work.h), and the steps after it do nothing. */
#ifndef GM_EXPERTS_STEPS_H
#define GM_EXPERTS_STEPS_H

#include "experts.h"
#include "experts_plan.h"
#include "rows.h"

#define GM_EXPERTS_HELD 4 /* blocks that are open at a time */

typedef struct gm_experts_work {
    gm_work        *work;
    gm_experts_plan plan;
    gm_function     f;
    gm_tensor      *up, *up_bias, *down, *down_bias; /* blocks; biases NULL where there is none, or not counted here */
    gm_tensor      *gate, *gate_bias;                /* NULL: the activation is no gate */
    int64_t         width, hidden;                   /* h, and this rank's part of f without padding */
    int64_t         tokens, k;    /* the tokens of this rank's block, padding included; the choices of each token */
    gm_tensor      *choice, *row; /* from GM_OP_experts_order: the choice of each row, the row of each choice */
    int64_t        *numbers;      /* gm_experts_numbers of them; NULL if there is a capacity */
    gm_tensor      *in, *pre;     /* rows (n_here + n_away, h), and their pre-activations (n_here + n_away, hidden) */
    gm_tensor      *gate_pre;     /* those of the gate, or NULL */

    gm_tensor *held[GM_EXPERTS_HELD]; /* blocks that gm_experts_hold has opened */

    gm_pending *flight; /* rows under way; NULL: none */
} gm_experts_work;

/* Makes plan, order and numbers of a pass with this index (tokens, k). capacity: see gm_experts_plan. Without a
 * capacity it waits for the device once, to read the numbers. GM_EINVAL: an index names no expert. */
void gm_experts_begin(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *index, int64_t capacity);
/* The same from choice, row and numbers that an earlier pass has made. */
void gm_experts_resume(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, const int64_t *numbers,
                       int64_t capacity);
/* Frees all that does not belong to w->work. After a failure the comm finishes what is under way (gm_comm_drop). */
void gm_experts_end(gm_experts_work *w);

/* Rows first .. first + n - 1 of a tensor, as a view; NULL if n is 0. */
gm_tensor *gm_experts_part(gm_experts_work *w, gm_tensor *t, int64_t first, int64_t n);
gm_tensor *gm_experts_new(gm_experts_work *w, int64_t rows, int64_t width);
/* to = the rows of x for these choices, each times its weight; weight NULL: without a factor. If choice is NULL, it
 * does nothing. */
void gm_experts_gather(gm_experts_work *w, gm_tensor *x, gm_tensor *choice, gm_tensor *weight, gm_tensor *to);
/* x (+)= the sum of the rows of each token's choices, each times its weight; weight NULL: without a factor. */
void gm_experts_combine(gm_experts_work *w, gm_tensor *y, gm_tensor *weight, bool accumulate, gm_tensor *x);

/* Starts to send the rows `ours` (n_sent, h) to the ranks of their experts, where they become `theirs` (n_away, h).
 * NULL: there are none. back: sends `theirs` back into `ours`. It is one operation of the group, which all places make,
 * however many rows they have. gm_experts_arrive waits for it. */
void gm_experts_travel(gm_experts_work *w, gm_tensor *ours, gm_tensor *theirs, bool back);
void gm_experts_arrive(gm_experts_work *w);

/* Calls step(w, context, s) for each own expert in turn, or once for all of them, with its rows here or away. */
typedef struct gm_experts_span {
    int64_t e, first, n; /* own expert and its rows in tensors that hold all rows; e -1: all experts, each of `each` */
    int64_t each;
} gm_experts_span;
typedef void (*gm_experts_step)(gm_experts_work *w, void *context, const gm_experts_span *s);
void gm_experts_each(gm_experts_work *w, bool away, gm_experts_step step, void *context);

/* The span's rows of t, as a view: (n, width), or (experts, each, width) for all experts. from: the row of the pass
 * that is row 0 of t. */
gm_tensor *gm_experts_span_of(gm_experts_work *w, gm_tensor *t, const gm_experts_span *s, int64_t from);
/* The span's expert, or all experts, of a block of weights (experts, a, b) or (experts, a): a view without the padding
 * of the hidden dimension. hidden_dim: this dimension in one expert; -1: there is none. NULL stays NULL. */
gm_tensor *gm_experts_of(gm_experts_work *w, gm_tensor *block, const gm_experts_span *s, int hidden_dim);

/* Opens the blocks [GM_EXPERTS_HELD] that the next steps use, some of them NULL, in place of those that are open; NULL:
 * none. Blocks may rest elsewhere
 * (gm_home), and fetching them may be collective. So all ranks open them at the same places, however many rows they
 * have, also none. gm_experts_end closes what is open. */
void gm_experts_hold(gm_experts_work *w, gm_tensor *const *blocks);

/* ---- steps on the rows of one expert, or of all experts at once ---- */

/* y = x weight' + bias; bias may be NULL. */
void gm_experts_linear(gm_experts_work *w, gm_tensor *x, gm_tensor *weight, gm_tensor *bias, gm_tensor *y);
/* y = a b, or y += a b; ta, tb: transposed. */
void gm_experts_multiply(gm_experts_work *w, gm_tensor *a, bool ta, gm_tensor *b, bool tb, bool accumulate,
                         gm_tensor *y);
/* f(pre), or f(gate, pre) of a gate, as a new tensor; pre itself if there is no activation. */
gm_tensor *gm_experts_activate(gm_experts_work *w, gm_tensor *gate, gm_tensor *pre);
/* The gradients of both sides of f(gate, pre), of which g is the gradient. */
void gm_experts_gate_gradient(gm_experts_work *w, gm_tensor *g, gm_tensor *gate, gm_tensor *pre, gm_tensor *dgate,
                              gm_tensor *dpre);
/* dpre = g f'(pre). If f is none, this is g, and dpre is not written. db = the sums of the columns of this gradient; db
 * += with add; db NULL: the sums are not wanted. */
void gm_experts_bias_gradient(gm_experts_work *w, gm_function f, gm_tensor *g, gm_tensor *pre, gm_tensor *dpre,
                              gm_tensor *db, bool add);

#endif
