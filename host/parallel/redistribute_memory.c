/* redistribute_memory.c - the cache of plans. A model needs the same few plans in every step, and a search over three
 * axes takes longer than many of the redistributions themselves.
 *
 * The cache is a small set-associative table that the rank owns; a new plan replaces the least recently used one of its
 * set. A plan depends only on its key and the mesh, so a rank that has forgotten a plan finds the same one again. */
#include <stdlib.h>
#include <string.h>
#include "redistribute.h"

#define SETS 256
#define WAYS 4

typedef struct plan_key {
    gm_layout from, to; /* with zeros where they say nothing, so that keys can be compared as bytes */
    int64_t   shape[GM_MAX_DIMS];
    int64_t   ndim, size;
} plan_key;

typedef struct plan {
    plan_key              key;
    uint64_t              used;  /* 0: empty */
    gm_redistribute_step *steps; /* owned */
    int                   n;
} plan;

struct gm_plans {
    uint64_t uses;
    plan     plan[SETS][WAYS];
};

static void free_plans(struct gm_plans *p)
{
    for (int s = 0; s < SETS; s++)
        for (int w = 0; w < WAYS; w++) free(p->plan[s][w].steps);
    free(p);
}

static void copy_layout(gm_layout *to, const gm_layout *from)
{
    to->partial = from->partial;
    for (int d = 0; d < GM_MAX_DIMS; d++) {
        gm_layout_copy_dim(to, d, from, d);
        for (int k = to->n_cuts[d]; k < GM_MAX_AXES; k++) to->cut[d][k] = 0;
    }
}

static void make_key(plan_key *k, const gm_layout *from, const gm_layout *to, int ndim, const int64_t *shape,
                     size_t size)
{
    memset(k, 0, sizeof *k); /* what pads the struct, too */
    copy_layout(&k->from, from);
    copy_layout(&k->to, to);
    if (ndim) memcpy(k->shape, shape, (size_t)ndim * sizeof *shape); /* a scalar may come without a shape */
    k->ndim = ndim;
    k->size = (int64_t)size;
}

static uint64_t hash(const plan_key *k)
{
    const unsigned char *bytes = (const unsigned char *)k;
    uint64_t             h = 1469598103934665603u, word;
    for (size_t i = 0; i + sizeof word <= sizeof *k; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * 1099511628211u;
        h ^= h >> 32;
    }
    return h;
}

/* Where the plan is, or the place that it shall take. */
static plan *look_up(plan *set, const plan_key *k)
{
    plan *oldest = set;
    for (int w = 0; w < WAYS; w++) {
        if (set[w].used && !memcmp(&set[w].key, k, sizeof *k)) return &set[w];
        if (set[w].used < oldest->used) oldest = &set[w];
    }
    return oldest;
}

static gm_status find_plan(const gm_mesh *mesh, const plan_key *k, const gm_layout *from, const gm_layout *to, plan *p)
{
    gm_redistribute_step steps[GM_MAX_REDISTRIBUTE_STEPS], *kept;
    int                  n;
    GM_TRY(gm_redistribute_plan(mesh, from, to, (int)k->ndim, k->shape, (size_t)k->size, steps, &n));
    if (!(kept = malloc(((size_t)n + 1) * sizeof *kept)))
        return GM_FAIL(GM_ENOMEM, "no memory for a plan of %d steps", n);
    memcpy(kept, steps, (size_t)n * sizeof *steps);
    free(p->steps);
    *p = (plan){.key = *k, .steps = kept, .n = n};
    return GM_OK;
}

gm_status gm_redistribute_plan_of(gm_rank *r, const gm_layout *from, const gm_layout *to, int ndim,
                                  const int64_t *shape, size_t size, const gm_redistribute_step **steps, int *n)
{
    plan_key key;
    if (!r->plans && !(r->plans = calloc(1, sizeof *r->plans)))
        return GM_FAIL(GM_ENOMEM, "no memory to remember plans of redistributions");
    r->free_plans = free_plans;
    make_key(&key, from, to, ndim, shape, size);
    plan *p = look_up(r->plans->plan[hash(&key) % SETS], &key);
    if (!p->used || memcmp(&p->key, &key, sizeof key)) GM_TRY(find_plan(&r->mesh, &key, from, to, p));
    p->used = ++r->plans->uses;
    *steps = p->steps;
    *n = p->n;
    return GM_OK;
}
