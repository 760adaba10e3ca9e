/* items.h - what an optimizer is made of. Private to optimizer.c, which makes the updates, and missed.c, which counts
 * those that parameters have missed. */
#ifndef GM_ITEMS_H
#define GM_ITEMS_H

#include "on_host.h"
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

/* Parameters of one kernel call, from item `begin` to `end`. */
typedef struct gm_unit {
    int         begin, end;
    int         n_in, n_out, n_views;
    gm_tensor **in, **out; /* argument lists, with room for all parameters */
    gm_tensor **view;      /* of parts, for this call */
    gm_attrs    attrs;
    gm_trip     trip; /* of a call on the host */
} gm_unit;

#define GM_UNITS 3 /* one comes, one is updated, one goes */

struct gm_optimizer {
    gm_rank    *rank;
    gm_op       op;
    int         n_attrs;
    gm_attrs   *attrs;          /* of which each item has one */
    int64_t     steps, skipped; /* steps: with those that the control tensor left out */
    int64_t     regrouped;      /* how often a parameter got another count of missed updates */
    gm_tensor  *trust;          /* f64 (n, 2), see kernels/trust.h; NULL: not made yet */
    bool        has_momentum;   /* set_momentum has been called, with this momentum: */
    double      momentum;
    bool        takes_updates; /* what is given counts, and no gradient */
    int         n;
    gm_unit     units[GM_UNITS]; /* on the device the first alone */
    gm_offload *offload;         /* where states rest; NULL: all are in memory */
    gm_on_host *host;            /* makes the updates of what is offloaded; NULL: the device does */
    item        items[];
};

/* Tensors of a parameter in a call: p, moments, master, trust; NULL where there is none. */
static inline int gm_optimizer_width(const gm_optimizer *o) { return gm_op_gives(o->op)->n; }
/* The place of the master among the states. */
static inline int gm_optimizer_master(const gm_optimizer *o) { return gm_optimizer_width(o) - 3; }

static inline const gm_attrs *gm_item_attrs(const gm_optimizer *o, const item *it) { return &o->attrs[it->set.attrs]; }

static inline gm_tensor *gm_item_gradient(const gm_optimizer *o, const item *it)
{
    gm_layout layout;
    return o->takes_updates ? it->given : gm_value_final_grad(it->parameter, &layout);
}

/* Is its gradient the rows that were touched (touched.c)? */
static inline bool gm_item_is_sparse(const item *it) { return it->parameter->param->row != NULL; }

/* Is there something to update it with? */
static inline bool gm_item_is_used(const gm_optimizer *o, const item *it)
{
    return gm_item_gradient(o, it) || (!o->takes_updates && gm_item_is_sparse(it));
}

/* Among an item's states the place of the k-th that parameter i has; MAX_STATES: there are no more. */
int gm_optimizer_place(const gm_optimizer *o, int i, int k);
/* A tensor of the layout's block in which an item's states are. */
const gm_tensor *gm_item_like(const item *it);

bool    gm_item_has_state(const gm_optimizer *o, const item *it, int k);
int64_t gm_item_kept_in(const gm_optimizer *o, const item *it, int k); /* of gm_states_spec */

/* Does the host make the updates of this one? */
bool gm_item_on_host(const gm_optimizer *o, const item *it);

/* ---- units.c ---- */

gm_status gm_units_new(gm_optimizer *o); /* room for the lists */
void      gm_units_free(gm_optimizer *o);
/* Every parameter that shares item `first`'s settings, missed updates and dtype, and is due. measure: for their
 * squares, else for their updates. */
gm_status gm_units_step(gm_optimizer *o, int first, bool measure, gm_tensor *control);

/* ---- touched.c ---- */

/* Updates the rows of item i that were touched. */
gm_status gm_touched_step(gm_optimizer *o, int i, gm_tensor *control);

/* ---- resting.c ---- */

/* What the tier's ring needs for a parameter, its gradient and its states while they are updated. */
uint64_t gm_item_ring_needs(const gm_optimizer *o, const item *it);
/* Bytes of its gradient and its numbers, which a call on the host takes along. */
uint64_t gm_item_trip_bytes(const gm_optimizer *o, const item *it);
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
