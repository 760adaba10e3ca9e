/* terms.c - the terms of a reduction, summed where a transport has them (transport.h, fold). See state.h.
 *
 * The sum has the order of places, as gm_combine gives it where terms were received into scratch memory: equal bits. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include "combine.h"

static void take(void *context, const char *const *parts, size_t at, size_t n)
{
    gm_pending     *p = context;
    const gm_group *g = p->group;
    gm_dtype        dtype = p->out->dtype;
    for (int i = 0, other = 0; i < g->size; i++) p->terms.part[i] = i == g->rank ? p->terms.own + at : parts[other++];
    gm_combine(dtype, p->op, g->size, (const void *const *)p->terms.part, p->terms.out + at,
               (int64_t)(n / gm_dtype_size(dtype)), g->size);
}

/* The ranks of the other members, in order of places; ranks has room for all. */
static int others(const gm_group *g, int *ranks)
{
    int n = 0;
    for (int i = 0; i < g->size; i++)
        if (i != g->rank) ranks[n++] = g->member[i];
    return n;
}

bool gm_pending_fold(gm_pending *p, const char *own, char *out, size_t n)
{
    gm_transport *t = p->comm->transport;
    int          *ranks = t->folds && t->has_data && !p->linked ? malloc((size_t)p->group->size * sizeof *ranks) : NULL;
    bool          can = ranks && p->group->size > 1 && t->folds(t, ranks, others(p->group, ranks), n);
    free(ranks);
    if (can) p->terms.part = malloc((size_t)p->group->size * sizeof *p->terms.part);
    gm_message *m = can && p->terms.part ? gm_pending_message(p) : NULL;
    if (!m) return false;
    p->terms.folded = m->fold = true;
    p->terms.own = own;
    p->terms.out = out;
    m->n = n;
    m->place = p->group->rank;
    return true;
}

int gm_terms_start(gm_pending *p, gm_message *m)
{
    gm_transport *t = p->comm->transport;
    int          *ranks = malloc((size_t)p->group->size * sizeof *ranks);
    if (!ranks) {
        snprintf(t->error, sizeof t->error, "no memory for a message");
        return -1;
    }
    gm_fold_call call = {.ranks = ranks,
                         .n = others(p->group, ranks),
                         .tag = p->tag,
                         .bytes = m->n,
                         .take = take,
                         .context = p,
                         .result = p->terms.gave ? p->terms.out : NULL,
                         .filled = p->terms.gave};
    int          bad = t->fold(t, &call, &m->request);
    free(ranks);
    return bad;
}

/* ---- sums that all members want ---- */

bool gm_pending_shares(gm_pending *p)
{
    size_t size = (size_t)p->group->size;
    p->terms.gave = calloc(2 * size, sizeof *p->terms.gave);
    p->terms.came = p->terms.gave ? p->terms.gave + size : NULL;
    return p->terms.gave != NULL;
}

void gm_pending_lend(gm_pending *p, int place, char *bytes, size_t n)
{
    gm_transport *t = p->comm->transport;
    int           first = p->n_messages, rank = p->group->member[place];
    gm_pending_send(p, place, bytes, n, false);
    bool one = p->n_messages == first + 1; /* a longer message goes in pieces, which are not folded */
    if (one && t->lend && p->terms.came && t->folds(t, &rank, 1, n)) p->messages[first].filled = &p->terms.came[place];
}

void gm_pending_share(gm_pending *p, int to, const char *own, size_t n, int from, char *other, size_t m)
{
    int first = p->n_messages, rank = p->group->rank;
    gm_pending_send(p, to, own, n, false);
    for (int i = first; i < p->n_messages; i++) p->messages[i].given = p->terms.gave[to < rank ? to : to - 1];
    if (!p->terms.came[from]) gm_pending_receive(p, from, other, m, false);
}

void gm_terms_took(const gm_pending *p, const gm_message *m)
{
    const gm_group *g = p->group;
    for (int i = 0; i < g->size; i++)
        if (m->fold ? i != g->rank : i == m->place) p->comm->taken[g->member[i]]++;
}
