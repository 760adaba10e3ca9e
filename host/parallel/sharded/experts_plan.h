/* experts_plan.h - which rows go where: the bookkeeping of experts.h. Private to this folder.
 *
 * Choices of this rank are put in order: those for its own experts first, expert by expert, then those for the experts
 * of the other places; inside of an expert as the tokens come. What comes from the others lies expert by expert, and
 * inside of one by place. On meta, where there are no indices, experts share the choices equally. */
#ifndef GM_EXPERTS_PLAN_H
#define GM_EXPERTS_PLAN_H

#include "../../comm/comm.h"
#include "linear.h"

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
    int64_t           tokens, k;     /* of this rank's block, padding included; choices of each */
    int64_t           n_here, n_sent, n_away; /* rows: for own experts, to others, from others */
    int64_t          *out, *out_at;           /* [experts]: rows for it; the first, among n_here or n_sent */
    int64_t          *in, *in_at; /* [room * p]: rows for own expert e from place i, at e p + i; the first, of n_away */
} gm_experts_plan;

/* index: of the block, contiguous (tokens, k). counts: i64 (p, room), rows from each place, is received (collective),
 * or with `known` was before. GM_EINVAL: an index outside -1 .. E - 1. */
gm_status gm_experts_plan_new(gm_rank *r, const gm_experts_sides *s, gm_tensor *index, gm_tensor *counts, bool known,
                              gm_experts_plan *plan);
void      gm_experts_plan_free(gm_experts_plan *plan);
/* How many places share the experts, and how many experts a block has: the shape of counts. */
void gm_experts_plan_shape(gm_rank *r, const gm_side *up, int64_t *shape);

/* Rows of own expert e, of those that are here (away false) or came from elsewhere. */
void gm_experts_rows(const gm_experts_plan *p, bool away, int64_t e, int64_t *first, int64_t *n);

/* Fills i64 tensors: choice (n_here + n_sent), which choice each row is, counted through (tokens, k); token alike;
 * row (k, tokens), where each choice's row is, n_here + n_sent for a dropped one. Nothing on meta. */
void gm_experts_order(const gm_experts_plan *p, const gm_experts_sides *s, gm_rank *r, gm_tensor *index,
                      gm_tensor *choice, gm_tensor *token, gm_tensor *row);

/* Does row t of the block lie inside of the tensor? local, logical: of the block; n leading dimensions. */
bool gm_experts_inside(int n, const int64_t *local, const int64_t *logical, int64_t t);

#endif
