/* experts_steps.h - the steps of experts.c: it gathers rows, sends them, and multiplies them by the weights of their
 * experts. Private to this folder.
 *
 * A gm_experts_work is one pass of one call. Rows "here" are of this rank's tokens; rows "away" came from other ranks.
 * Both lie expert by expert in one tensor, those here first. One product serves all experts, of the rows here or of
 * those away: a batch of matrices if all experts have the same number of rows (gm_experts_plan.capacity), otherwise a
 * product of groups (GM_OP_grouped_matmul), whose bounds are on the device. A step that fails leaves its status in
 * w->work->st (work.h), and the steps after it do nothing. */
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
    int64_t        *numbers;      /* gm_experts_numbers of them; NULL if there is one place */
    gm_tensor      *bounds;       /* of the rows here and away of each own expert: i64 (1 or 2, own experts + 1) */
    gm_tensor      *in, *pre;     /* rows (n_here + n_away, h), and their pre-activations (n_here + n_away, hidden) */
    gm_tensor      *gate_pre;     /* those of the gate, or NULL */

    gm_tensor *held[GM_EXPERTS_HELD]; /* blocks that gm_experts_hold has opened */

    gm_pending *flight; /* rows under way; NULL: none */
} gm_experts_work;

/* Makes plan, order, numbers and bounds of a pass with this index (tokens, k). capacity: see gm_experts_plan. Where
 * several ranks share the experts it waits for the device once, to read the numbers. GM_EINVAL: an index names no
 * expert; of a device with memory of its own, the next wait says so. */
void gm_experts_begin(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *index, int64_t capacity);
/* The same from choice, row, bounds and numbers that an earlier pass has made. */
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

/* Calls step(w, context, s) with the rows here or away of all own experts, if there are any. */
typedef struct gm_experts_span {
    bool    away;
    int64_t first, n; /* in tensors that hold all rows */
} gm_experts_span;
typedef void (*gm_experts_step)(gm_experts_work *w, void *context, const gm_experts_span *s);
void gm_experts_all(gm_experts_work *w, bool away, gm_experts_step step, void *context);

/* The span's rows of t, as a view: (n, width). from: the row of the pass that is row 0 of t. */
gm_tensor *gm_experts_span_of(gm_experts_work *w, gm_tensor *t, const gm_experts_span *s, int64_t from);
/* The own experts of a block of weights (experts, a, b) or (experts, a): a view without padding. hidden_dim: the
 * dimension of the block that is the hidden one; -1: there is none. NULL stays NULL. */
gm_tensor *gm_experts_of(gm_experts_work *w, gm_tensor *block, int hidden_dim);

/* Opens the blocks [GM_EXPERTS_HELD] that the next steps use, some of them NULL, in place of those that are open; NULL:
 * none. Blocks may rest elsewhere (gm_home), and fetching them may be collective. So all ranks open them at the same
 * places, however many rows they have, also none. gm_experts_end closes what is open. */
void gm_experts_hold(gm_experts_work *w, gm_tensor *const *blocks);

/* ---- steps on the rows of a span, each with the matrix of its expert ---- */

/* y = x weight' + bias; weight (experts, y's width, x's width), bias (experts, y's width) may be NULL. */
void gm_experts_linear(gm_experts_work *w, const gm_experts_span *s, gm_tensor *x, gm_tensor *weight, gm_tensor *bias,
                       gm_tensor *y);
/* dx = g weight, or dx += g weight. */
void gm_experts_input_gradient(gm_experts_work *w, const gm_experts_span *s, gm_tensor *g, gm_tensor *weight,
                               bool accumulate, gm_tensor *dx);
/* Of each expert dw = g' x and db = the sums of the columns of g, or += if they are to be added to. dw and db may be
 * NULL. */
void gm_experts_weight_gradient(gm_experts_work *w, const gm_experts_span *s, gm_tensor *g, gm_tensor *x, gm_tensor *dw,
                                bool add_dw, gm_tensor *db, bool add_db);
/* f(pre), or f(gate, pre) of a gate, as a new tensor; pre itself if there is no activation. */
gm_tensor *gm_experts_activate(gm_experts_work *w, gm_tensor *gate, gm_tensor *pre);
/* The gradients of both sides of f(gate, pre), of which g is the gradient; dgate and gate NULL: of f(pre). */
void gm_experts_slope(gm_experts_work *w, gm_tensor *g, gm_tensor *gate, gm_tensor *pre, gm_tensor *dgate,
                      gm_tensor *dpre);

#endif
