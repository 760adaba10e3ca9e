/* cores.c - ranks that share the cores of their node, and wake late. See replay.h.
 *
 * A node has a clock of its own: the seconds of work that each rank that computes has been given. It goes at the pace
 * min(1, cores / cores wanted). An op ends when this clock has gone on by the op's seconds (processor sharing,
 * Kleinrock 1967), so a change of pace changes no op, and only the next end of each node is in the queue.
 *
 * A rank that is woken runs a while later, which depends on how many others the scheduler has to run (gm_wakes). If all
 * cores were busy, it runs sooner where one becomes free meanwhile. Until then it takes no share of the cores. */
#include <stdlib.h>

#include "replay.h"

typedef struct node {
    double   given, since, pace; /* its clock, when it was reckoned, seconds of it a second */
    int      n, woken;           /* ranks that compute, and those that are about to */
    uint64_t stamp;
} node;

typedef struct waking {
    uint64_t stamp;  /* the number of its waking; 0: it is not woken */
    bool     queued; /* all cores were busy then */
} waking;

struct gm_cores {
    const gm_machine *machine;
    gm_moments       *moments;
    node             *nodes;
    double           *until;  /* of each rank: the node's clock at the end of its op; below 0: it does not compute */
    waking           *waking; /* of each rank */
    int               world;
    uint64_t          stamps;
};

gm_status gm_cores_new(const gm_machine *m, int world, gm_moments *moments, gm_cores **out)
{
    int       n = (world + m->ranks_per_node - 1) / m->ranks_per_node;
    gm_cores *c = calloc(1, sizeof *c);
    if (c) *c = (gm_cores){.machine = m, .moments = moments, .world = world};
    if (c) c->nodes = calloc((size_t)n, sizeof *c->nodes);
    if (c) c->until = malloc((size_t)world * sizeof *c->until);
    if (c) c->waking = calloc((size_t)world, sizeof *c->waking);
    if (!c || !c->nodes || !c->until || !c->waking) {
        gm_cores_free(c);
        return GM_FAIL(GM_ENOMEM, "no memory for the cores of a simulation");
    }
    for (int r = 0; r < world; r++) c->until[r] = -1;
    *out = c;
    return GM_OK;
}

void gm_cores_free(gm_cores *c)
{
    if (!c) return;
    free(c->nodes);
    free(c->until);
    free(c->waking);
    free(c);
}

/* The rank of a node whose op ends first. */
static int next_of(const gm_cores *c, int at)
{
    int first = at * c->machine->ranks_per_node, end = first + c->machine->ranks_per_node, best = -1;
    for (int r = first; r < end && r < c->world; r++)
        if (c->until[r] >= 0 && (best < 0 || c->until[r] < c->until[best])) best = r;
    return best;
}

/* A rank has begun or ended an op at this time. */
static void reckon(gm_cores *c, int at, double now)
{
    node  *x = &c->nodes[at];
    double wanted = x->n * c->machine->cores_per_rank;
    int    next = next_of(c, at);
    x->since = now;
    x->pace = wanted > c->machine->cores ? c->machine->cores / wanted : 1;
    x->stamp = ++c->stamps;
    if (next < 0) return;
    double left = c->until[next] - x->given;
    gm_moments_add(c->moments, (gm_moment){now + (left > 0 ? left / x->pace : 0), GM_HAPPENS_COMPUTED, at, x->stamp});
}

void gm_cores_begin(gm_cores *c, int rank, double seconds, double now)
{
    int   at = rank / c->machine->ranks_per_node;
    node *x = &c->nodes[at];
    x->given += (now - x->since) * x->pace;
    c->until[rank] = x->given + seconds;
    x->n++;
    reckon(c, at, now);
}

static node *node_of(gm_cores *c, int rank) { return &c->nodes[rank / c->machine->ranks_per_node]; }

/* Is there no core for one more rank beside so many? */
static bool is_busy(const gm_cores *c, int ranks)
{
    return (ranks + 1) * c->machine->cores_per_rank > c->machine->cores;
}

static int run_woken(gm_cores *c, int rank)
{
    c->waking[rank] = (waking){0};
    node_of(c, rank)->woken--;
    return rank;
}

void gm_cores_wake(gm_cores *c, int rank, double now)
{
    const gm_wakes *w = &c->machine->wake;
    node           *x = node_of(c, rank);
    int             others = x->n + x->woken;
    c->waking[rank] = (waking){++c->stamps, is_busy(c, others)};
    x->woken++;
    double late = w->late[others < w->n ? others : w->n - 1];
    gm_moments_add(c->moments, (gm_moment){now + late, GM_HAPPENS_WOKEN, rank, c->waking[rank].stamp});
}

int gm_cores_take_woken(gm_cores *c, int rank)
{
    node *x = node_of(c, rank);
    int   first = rank / c->machine->ranks_per_node * c->machine->ranks_per_node, best = -1, going = x->n;
    for (int r = first; r < first + c->machine->ranks_per_node && r < c->world; r++) {
        const waking *w = &c->waking[r];
        going += w->stamp && !w->queued; /* they were promised a core */
        if (w->stamp && w->queued && (best < 0 || w->stamp < c->waking[best].stamp)) best = r;
    }
    return best < 0 || is_busy(c, going) ? -1 : run_woken(c, best);
}

int gm_cores_happen(gm_cores *c, const gm_moment *m)
{
    if (m->kind == GM_HAPPENS_WOKEN) return c->waking[m->at].stamp == m->stamp ? run_woken(c, m->at) : -1;
    node *x = &c->nodes[m->at];
    if (m->stamp != x->stamp) return -1; /* reckoned anew since */
    int rank = next_of(c, m->at);
    x->given = c->until[rank];
    c->until[rank] = -1;
    x->n--;
    reckon(c, m->at, m->time);
    return rank;
}
