/* experts_steps.h - what experts.c does with rows: gather, send, multiply by the experts they are for. Private to this
 * folder.
 *
 * A gm_experts_work is one pass of one call. Rows "here" are of this rank's tokens, rows "away" came from others; both
 * lie expert by expert, here first, in one tensor. Where each expert has equally many rows (gm_experts_plan.capacity)
 * all experts' products are one, else each has its own. Steps that fail leave their status in w->work->st (work.h), and
 * what follows does nothing. */
#ifndef GM_EXPERTS_STEPS_H
#define GM_EXPERTS_STEPS_H

#include "experts.h"
#include "experts_plan.h"
#include "rows.h"

typedef struct gm_experts_work {
    gm_work        *work;
    gm_experts_plan plan;
    gm_function     f;
    gm_tensor      *up, *up_bias, *down, *down_bias; /* blocks; biases NULL where there is none, or not counted here */
    int64_t         width, hidden;                   /* h, and f of this rank without padding */
    int64_t         tokens, k;                       /* of this rank's block, padding included; choices of each */
    gm_tensor      *choice, *row;                    /* of GM_OP_experts_order: of each row, of each choice */
    int64_t        *numbers;                         /* gm_experts_numbers of them; NULL where there is a capacity */
    gm_tensor      *in, *pre;                        /* rows (n_here + n_away, h), pre-activations (.., hidden) */

    int          n_flights;
    gm_pending **flights; /* what is under way */
} gm_experts_work;

/* Plan, order and numbers of a pass with this index (tokens, k); capacity: of the plan. Waits for the device where it
 * has none: it reads the numbers, all at once. GM_EINVAL: an index that is no expert. */
void gm_experts_begin(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *index, int64_t capacity);
/* The same of choice, row and numbers that an earlier pass has made. */
void gm_experts_resume(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, const int64_t *numbers,
                       int64_t capacity);
/* Frees all but what is the work's; what is under way after a failure is left to itself. */
void gm_experts_end(gm_experts_work *w);

/* Rows `first` .. `first + n - 1` of a tensor: a view, or NULL where there are none. */
gm_tensor *gm_experts_part(gm_experts_work *w, gm_tensor *t, int64_t first, int64_t n);
gm_tensor *gm_experts_new(gm_experts_work *w, int64_t rows, int64_t width);
/* to = rows of x for these choices, each times its weight; weight NULL: as they are. choice NULL: nothing. */
void gm_experts_gather(gm_experts_work *w, gm_tensor *x, gm_tensor *choice, gm_tensor *weight, gm_tensor *to);
/* x (+)= the rows of each token's choices, each times its weight; NULL: as they are. */
void gm_experts_combine(gm_experts_work *w, gm_tensor *y, gm_tensor *weight, bool accumulate, gm_tensor *x);

/* Starts to send rows of `ours` (n_sent, h) to their experts, into `theirs` (n_away, h) there; or back. */
void gm_experts_travel(gm_experts_work *w, gm_tensor *ours, gm_tensor *theirs, bool back);
void gm_experts_arrive(gm_experts_work *w);

/* For each own expert in turn, or once for all of them, step(w, context, s): its rows, here or away. */
typedef struct gm_experts_span {
    int64_t e, first, n; /* own expert and its rows in tensors that hold all rows; e -1: all experts, each of `each` */
    int64_t each;
} gm_experts_span;
typedef void (*gm_experts_step)(gm_experts_work *w, void *context, const gm_experts_span *s);
void gm_experts_each(gm_experts_work *w, bool away, gm_experts_step step, void *context);

/* Of t, whose row 0 is row `from` of the pass: the span's rows (n, width), of all experts (experts, each, width). */
gm_tensor *gm_experts_span_of(gm_experts_work *w, gm_tensor *t, const gm_experts_span *s, int64_t from);
/* The span's expert of a block (experts, a, b) or (experts, a), or all of them: a view without the padding of hidden,
 * dimension hidden_dim of one expert; -1: it has none. NULL stays NULL. */
gm_tensor *gm_experts_of(gm_experts_work *w, gm_tensor *block, const gm_experts_span *s, int hidden_dim);

/* ---- steps on one expert's rows, or on all experts' alike ---- */

/* y = x weight' + bias; bias may be NULL. */
void gm_experts_linear(gm_experts_work *w, gm_tensor *x, gm_tensor *weight, gm_tensor *bias, gm_tensor *y);
/* y = a b, or y += a b; ta, tb: transposed. */
void gm_experts_multiply(gm_experts_work *w, gm_tensor *a, bool ta, gm_tensor *b, bool tb, bool accumulate,
                         gm_tensor *y);
/* f(pre) of some rows: new, or pre itself where there is no activation. */
gm_tensor *gm_experts_activate(gm_experts_work *w, gm_tensor *pre);
/* dpre = g f'(pre), which is g where f is none (dpre is then not looked at); db = the sums of its columns, or db +=
 * with add; NULL: they are not wanted. */
void gm_experts_bias_gradient(gm_experts_work *w, gm_function f, gm_tensor *g, gm_tensor *pre, gm_tensor *dpre,
                              gm_tensor *db, bool add);

#endif
