/* cores.c - ranks that share the cores of their node. See replay.h.
 *
 * A node has a clock of its own: the seconds of work that each rank that computes has been given. It goes at the pace
 * min(1, cores / cores wanted). An op ends when this clock has gone on by the op's seconds (processor sharing,
 * Kleinrock 1967), so a change of pace changes no op, and only the next end of each node is in the queue. */
#include <stdlib.h>

#include "replay.h"

typedef struct node {
    double   given, since, pace; /* its clock, when it was reckoned, seconds of it a second */
    int      n;                  /* ranks that compute */
    uint64_t stamp;
} node;

struct gm_cores {
    const gm_machine *machine;
    gm_moments       *moments;
    node             *nodes;
    double           *until; /* of each rank: the node's clock at the end of its op; below 0: it does not compute */
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
    if (!c || !c->nodes || !c->until) {
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

int gm_cores_happen(gm_cores *c, const gm_moment *m)
{
    node *x = &c->nodes[m->at];
    if (m->stamp != x->stamp) return -1; /* reckoned anew since */
    int rank = next_of(c, m->at);
    x->given = c->until[rank];
    c->until[rank] = -1;
    x->n--;
    reckon(c, m->at, m->time);
    return rank;
}
