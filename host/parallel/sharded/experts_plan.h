/* experts_plan.h - plans which rows go to which rank: the bookkeeping of experts.h. Private to this folder.
 *
 * A place is a rank of the group that shares the experts. The choices of this rank are put in order
 * (GM_OP_experts_order): first those for its own experts, expert by expert, then those for the experts of the other
 * places. Within an expert they are in order of tokens. Rows that come from other places lie expert by expert, and
 * within an expert by place. If there are other places, the host reads how many rows each expert gets, because it sends
 * them; on meta, where there are no indices, the plan then shares the choices equally among the experts. A place alone
 * has a row for each choice, and those that no choice fills are the last; or, with a capacity, `capacity` rows for each
 * expert, used or not. There the host reads nothing. */
#ifndef GM_EXPERTS_PLAN_H
#define GM_EXPERTS_PLAN_H

#include "../../comm/comm.h"
#include "linear.h"
#include "rows.h"

/* How the tokens x (..., h) and the first weights `up` (E, f, h) of E experts lie on the ranks; the values themselves
 * are not needed. */
typedef struct gm_experts_sides {
    gm_side x, up;
} gm_experts_sides;

/* The experts of one place: first .. first + count - 1. */
typedef struct gm_experts_place {
    int64_t first, count;
} gm_experts_place;

typedef struct gm_experts_plan {
    gm_comm          *comm;
    gm_group         *group;         /* the places: ranks that share the experts; NULL: this one has them all */
    int               p, here;       /* the number of places, and the place of this rank */
    gm_experts_place *place;         /* [p] */
    int64_t           experts, room; /* experts of all places; experts of a block, some of which may be padding */
    int64_t           capacity;      /* rows of each expert, used or not (one place only); 0: as many as chose it */
    int64_t           n_here, n_sent, n_away; /* rows for own experts, sent to others, received from others */
    /* What follows is of several places; one has none of it. For each expert the number of its rows, and the place of
     * the first one among n_here or n_sent: [experts]. */
    int64_t *out, *out_at;
    /* The rows that place i sends to own expert e, at e p + i: their number, and the place of the first one among
     * n_away: [room * p]. */
    int64_t *in, *in_at;
    /* The rows that go to other places, among n_sent, and those that come from them, among n_away: a run for each
     * expert and place. Empty before gm_experts_lay_rows. */
    gm_row_runs sent, away;
    gm_row_run *runs; /* of both */
} gm_experts_plan;

/* Tells whether several ranks share the leading dimensions of such a value. (An axis of size 1 cuts nothing.) */
bool gm_experts_shared(const gm_rank *r, const gm_value *v);

/* Gives the index (..., k) of a block as (tokens, k), contiguous, with -1 for tokens that only pad the block. */
gm_tensor *gm_experts_index(gm_work *w, gm_rank *r, const gm_side *side, gm_tensor *index);

/* Makes a plan with its places and empty lists; gm_experts_lay_rows fills the lists. GM_ENOMEM. */
gm_status gm_experts_plan_new(gm_rank *r, const gm_experts_sides *s, int64_t capacity, gm_experts_plan *plan);
void      gm_experts_plan_free(gm_experts_plan *plan);

/* How many numbers the device has: first the choices of each expert; then, if there are other places, (p, room) numbers
 * of rows that own experts get from each place. */
int64_t gm_experts_numbers(const gm_experts_plan *p);
/* Fills the second part of `all`, i64 (gm_experts_numbers), from the first parts of all places. Collective. */
void gm_experts_tell(gm_work *w, const gm_experts_plan *p, gm_tensor *all);
/* Gives the numbers that a plan on meta assumes, for this many choices of this rank. */
void gm_experts_balance(const gm_experts_plan *p, int64_t choices, int64_t *numbers);
/* Computes where rows begin. choices: of this rank, padding included. numbers: not read if there is one place. */
void gm_experts_lay_rows(gm_experts_plan *p, int64_t choices, const int64_t *numbers);
/* The number of choices of this rank that are not in padding. */
int64_t gm_experts_choices(gm_rank *r, const gm_side *x, int64_t k);

/* Writes where the received rows of each own expert begin, and the end of the last: [own experts + 1]. */
void gm_experts_away_bounds(const gm_experts_plan *p, int64_t *bounds);

#endif
