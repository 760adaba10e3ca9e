/* items.h - what an optimizer is made of. Private to optimizer.c, which makes the updates, and missed.c, which counts
 * those that parameters have missed. */
#ifndef GM_ITEMS_H
#define GM_ITEMS_H

#include "optimizer.h"

#define MAX_STATES 4 /* moments, and the master */

/* A parameter. */
typedef struct item {
    gm_value         *parameter;
    gm_tensor        *state[MAX_STATES]; /* as the outputs of the op after p; the master is the last of them */
    gm_tensor        *missed;            /* updates made without it (missed.c); NULL: 0 */
    gm_tensor        *given;             /* in place of the gradient, borrowed: gm_optimizer_give */
    gm_optimizer_item set;
    bool              measured, done; /* in the current step */
    bool              called;         /* in the call that is prepared */
} item;

struct gm_optimizer {
    gm_rank    *rank;
    gm_op       op;
    int         n_attrs;
    gm_attrs   *attrs;          /* of which each item has one */
    int64_t     steps, skipped; /* steps: with those that the control tensor left out */
    gm_tensor  *trust;          /* f64 (n, 2), see kernels/trust.h; NULL: not made yet */
    bool        has_momentum;   /* set_momentum has been called, with this momentum: */
    double      momentum;
    bool        takes_updates; /* what is given counts, and no gradient */
    int         n;
    gm_tensor **in, **out; /* argument lists, room for all */
    int         n_views;   /* of parts, for the call that is prepared */
    gm_tensor **view;
    gm_offload *offload; /* where states rest; NULL: all are in memory */
    item        items[];
};

static inline const gm_attrs *gm_item_attrs(const gm_optimizer *o, const item *it) { return &o->attrs[it->set.attrs]; }

static inline gm_tensor *gm_item_gradient(const gm_optimizer *o, const item *it)
{
    gm_layout layout;
    return o->takes_updates ? it->given : gm_value_final_grad(it->parameter, &layout);
}

/* Among an item's states the place of the k-th that parameter i has; MAX_STATES: there are no more. */
int gm_optimizer_place(const gm_optimizer *o, int i, int k);
/* A tensor of the layout's block in which an item's states are. */
const gm_tensor *gm_item_like(const item *it);

bool    gm_item_has_state(const gm_optimizer *o, const item *it, int k);
int64_t gm_item_kept_in(const gm_optimizer *o, const item *it, int k); /* of gm_states_spec */

/* ---- resting.c ---- */

/* What the tier's ring needs for a parameter, its gradient and its states while they are updated. */
uint64_t gm_item_ring_needs(const gm_optimizer *o, const item *it);
/* They begin to come. */
gm_status gm_item_begin(const gm_optimizer *o, const item *it);

/* ---- chance.c ---- */

/* Are some of a parameter's numbers rounded by chance? It is then updated by a call of its own. */
bool gm_item_draws(const gm_optimizer *o, const item *it);
/* Adds to the attributes of that call the stream of its words, and the place of the part that is updated. */
void gm_item_place_words(const item *it, gm_attrs *a);

/* ---- optimizer.c ---- */

/* GM_EINVAL where a graph is being recorded: states are not made in one. */
gm_status gm_optimizer_outside_graph(const gm_rank *r);

/* ---- missed.c ---- */

/* Parameters without a gradient are done with for this step. counts: their numbers of missed updates go up. */
gm_status gm_optimizer_miss(gm_optimizer *o, gm_tensor *control, bool counts);

#endif
