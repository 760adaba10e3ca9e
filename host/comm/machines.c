/* machines.c - see machines.h, and gm_comm_know_machines in comm.h. */
#include "machines.h"

#include <stdlib.h>
#include <string.h>

void gm_machines_free(gm_machines *m)
{
    if (!m) return;
    free(m->of);
    free(m->index);
    free(m->first);
    free(m->place);
    free(m);
}

gm_status gm_comm_know_machines(gm_comm *c, const int *machine)
{
    int *kept = machine ? malloc((size_t)c->world * sizeof *kept) : NULL;
    if (machine && !kept) return GM_FAIL(GM_ENOMEM, "no memory for the machines of %d ranks", c->world);
    if (kept) memcpy(kept, machine, (size_t)c->world * sizeof *kept);
    free(c->machine);
    c->machine = kept;
    for (gm_group *g = c->groups; g; g = g->next) {
        gm_machines_free(g->machines);
        g->machines = NULL;
        g->looked = false;
    }
    return GM_OK;
}

gm_status gm_comm_know_readers(gm_comm *c, const int *rank, int n)
{
    bool *reads = n ? calloc((size_t)c->world, sizeof *reads) : NULL;
    if (n && !reads) return GM_FAIL(GM_ENOMEM, "no memory for the machines of %d ranks", c->world);
    for (int i = 0; i < n; i++) reads[rank[i]] = true;
    free(c->reads);
    c->reads = reads;
    return GM_OK;
}

bool gm_members_read(const gm_group *g)
{
    const bool *reads = g->comm->reads;
    for (int i = 0; reads && i < g->size; i++)
        if (!reads[g->member[i]]) return false;
    return reads != NULL;
}

static gm_machines *new_machines(int size)
{
    gm_machines *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->of = calloc((size_t)size, sizeof *m->of);
    m->index = calloc((size_t)size, sizeof *m->index);
    m->first = calloc((size_t)size + 1, sizeof *m->first);
    m->place = calloc((size_t)size, sizeof *m->place);
    if (m->of && m->index && m->first && m->place) return m;
    gm_machines_free(m);
    return NULL;
}

/* The machine of the first member that shares the machine of `place`; m->n: as many were found so far. */
static int number_of(gm_machines *m, const gm_group *g, int place)
{
    const int *machine = g->comm->machine;
    for (int i = 0; i < place; i++)
        if (machine[g->member[i]] == machine[g->member[place]]) return m->of[i];
    return m->n++;
}

static void fill(gm_machines *m, const gm_group *g)
{
    for (int i = 0; i < g->size; i++) m->of[i] = number_of(m, g, i);
    m->own = m->of[g->rank];
    for (int k = 0, n = 0; k < m->n; k++) {
        m->first[k] = n;
        for (int i = 0; i < g->size; i++)
            if (m->of[i] == k) {
                m->index[i] = n - m->first[k];
                m->place[n++] = i;
            }
        m->first[k + 1] = n;
    }
    for (int i = 0; i < g->size; i++) m->relayed += m->of[i] != m->own && gm_machine_relay(m, m->own, i) == g->rank;
}

gm_status gm_machines_of(gm_group *g, const gm_machines **out)
{
    *out = g->machines;
    if (g->looked || !g->comm->machine || g->size < 3) return GM_OK;
    gm_machines *m = new_machines(g->size);
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for the machines of group %s", g->name);
    fill(m, g);
    g->looked = true;
    if (m->n == 1 || m->n == g->size) gm_machines_free(m);
    else g->machines = m;
    *out = g->machines;
    return GM_OK;
}
