/* experts_plan.h - which rows go where: the bookkeeping of experts.h. Private to this folder.
 *
 * Choices of this rank are put in order (GM_OP_experts_order): those for its own experts first, expert by expert, then
 * those for the experts of the other places; inside of an expert as the tokens come. What comes from the others lies
 * expert by expert, and inside of one by place. How many rows each expert gets are numbers that the host reads, unless
 * it gives every expert `capacity` rows, used or not. On meta, where there are no indices, experts share the choices
 * equally. */
#ifndef GM_EXPERTS_PLAN_H
#define GM_EXPERTS_PLAN_H

#include "../../comm/comm.h"
#include "linear.h"
#include "rows.h"

/* Blocks of a value, without it. */
typedef struct gm_experts_sides {
    gm_side x, up; /* (..., h), (E, f, h) */
} gm_experts_sides;

/* The experts of a place. */
typedef struct gm_experts_place {
    int64_t first, count;
} gm_experts_place;

typedef struct gm_experts_plan {
    gm_comm          *comm;
    gm_group         *group;         /* the places: ranks that share the experts; NULL: this one has them all */
    int               p, here;       /* how many there are, and which this is */
    gm_experts_place *place;         /* [p] */
    int64_t           experts, room; /* in all; of a block, some of which may be padding */
    int64_t           capacity;      /* rows of each expert, used or not; 0: as many as chose it */
    int64_t           n_here, n_sent, n_away; /* rows: for own experts, to others, from others */
    int64_t          *out, *out_at;           /* [experts]: rows for it; the first, among n_here or n_sent */
    int64_t          *in, *in_at; /* [room * p]: rows for own expert e from place i, at e p + i; the first, of n_away */
} gm_experts_plan;

/* Do several ranks share the leading dimensions of such a value? An axis of one rank cuts nothing. */
bool gm_experts_shared(const gm_rank *r, const gm_value *v);

/* The index (..., k) of a block as (tokens, k), contiguous, with -1 for tokens that only pad the block. */
gm_tensor *gm_experts_index(gm_work *w, gm_rank *r, const gm_side *side, gm_tensor *index);

/* Places and lists; rows are to be laid out. */
gm_status gm_experts_plan_new(gm_rank *r, const gm_experts_sides *s, int64_t capacity, gm_experts_plan *plan);
void      gm_experts_plan_free(gm_experts_plan *plan);

/* The numbers that rows follow from: the choices of each expert, and, where there are other places, (p, room) rows for
 * own experts from each place. */
int64_t gm_experts_numbers(const gm_experts_plan *p);
/* Fills in the second part of `all`, i64 (gm_experts_numbers), from the first of each place. Collective. */
void gm_experts_tell(gm_work *w, const gm_experts_plan *p, gm_tensor *all);
/* What they are taken to be on meta, for this many choices of this rank. */
void gm_experts_balance(const gm_experts_plan *p, int64_t choices, int64_t *numbers);
/* Where rows begin. numbers: not read where there is a capacity. */
void gm_experts_lay_rows(gm_experts_plan *p, const int64_t *numbers);
/* Choices of this rank that are not in padding. */
int64_t gm_experts_choices(gm_rank *r, const gm_side *x, int64_t k);

/* Rows of own expert e, of those that are here (away false) or came from elsewhere. */
void gm_experts_rows(const gm_experts_plan *p, bool away, int64_t e, int64_t *first, int64_t *n);

#endif
