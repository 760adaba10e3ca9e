/* over_machines.c - collectives of a group on several machines, as rounds of messages (state.h).
 *
 * Members of a machine talk through its memory, and machines through a network that all of them share. What a member
 * gives to all members of another machine crosses the network once: it goes to one of them, the relay, which hands it
 * on. What the members of a machine add up for a member of another one crosses once, too: a relay among them adds it
 * up. So a machine with r members sends, and receives, 1 / r of what it would if each went straight to each; all ranks
 * together send as many bytes. Which member is the relay depends on the other end, so the members of a machine share
 * this work.
 *
 * A sum is the sum over machines, in their order, of sums over the members of a machine, in theirs. Types of 16 bits
 * are summed straight, since a sum of a machine would be rounded on its way. Messages between two members have one tag:
 * both ends go through places in the same order. */
#include "over_machines.h"

#include <stdlib.h>

/* ---- blocks: what each member gives to all ---- */

static bool is_here(const gm_machines *m, int place) { return m->of[place] == m->own; }

/* Does this member hand on what comes from `place`, which is elsewhere? */
static bool relays(const gm_pending *p, const gm_machines *m, int place)
{
    return gm_machine_relay(m, m->own, place) == p->group->rank;
}

/* Where the block of `place` belongs on this member. */
static gm_slice block_of(gm_pending *p, int place)
{
    if (p->call == GM_CALL_all_reduce) return gm_slice_of(p, place);
    size_t block = gm_bytes_of(p->in);
    char  *base = gm_in_one(p->join) ? p->to : p->scratch;
    return (gm_slice){gm_at(base, (size_t)place * block), block};
}

/* This member's block goes to all members here, and to one relay on each other machine. */
static void give_block(gm_pending *p, const gm_machines *m, const char *own)
{
    const gm_group *g = p->group;
    size_t          n = block_of(p, g->rank).n;
    for (int i = 0; i < g->size; i++) {
        gm_slice other = block_of(p, i);
        if (i == g->rank) continue;
        if (is_here(m, i) || relays(p, m, i)) gm_pending_receive(p, i, other.bytes, other.n, false);
    }
    for (int k = 1; k < g->size; k++) {
        int i = (g->rank + k) % g->size;
        if (is_here(m, i) || gm_machine_relay(m, m->of[i], g->rank) == i) gm_pending_send(p, i, own, n, false);
    }
}

/* What has come from other machines goes to all members here. */
static void hand_on_blocks(gm_pending *p, const gm_machines *m)
{
    const gm_group *g = p->group;
    for (int i = 0; i < g->size; i++) {
        gm_slice other = block_of(p, i);
        if (is_here(m, i)) continue;
        if (!relays(p, m, i)) {
            gm_pending_receive(p, gm_machine_relay(m, m->own, i), other.bytes, other.n, false);
            continue;
        }
        for (int k = m->first[m->own]; k < m->first[m->own + 1]; k++)
            if (m->place[k] != g->rank) gm_pending_send(p, m->place[k], other.bytes, other.n, false);
    }
}

gm_status gm_step_all_gather_over_machines(gm_pending *p, int round)
{
    const gm_machines *m = p->group->machines;
    if (round == 0) {
        give_block(p, m, p->from);
        gm_block_unpack(p, p->join, p->from, p->group->rank);
    }
    if (round == 1) hand_on_blocks(p, m);
    for (int i = 0; round == 2 && !gm_in_one(p->join) && i < p->group->size; i++)
        if (i != p->group->rank) gm_block_unpack(p, p->join, block_of(p, i).bytes, i);
    return GM_OK;
}

/* ---- sums ---- */

/* Scratch memory of a sum, in pieces of the largest slice: what members here have added for this one, by index; the
 * same for each member elsewhere that this one relays for, in the order of places; what other machines have added. */
size_t gm_sum_scratch_over_machines(const gm_group *g, size_t largest)
{
    const gm_machines *m = g->machines;
    return (size_t)(gm_machine_size(m, m->own) * (1 + m->relayed) + m->n) * largest;
}

static size_t largest_of(const gm_pending *p)
{
    if (p->call == GM_CALL_reduce_scatter) return gm_bytes_of(p->out);
    return gm_largest_slice(p->out, p->group->size);
}

static char *scratch_of(const gm_pending *p) { return p->call == GM_CALL_reduce_scatter ? p->scratch2 : p->scratch; }

static char *from_member(const gm_pending *p, const gm_machines *m, int relayed, int index)
{
    return gm_at(scratch_of(p), (size_t)((1 + relayed) * gm_machine_size(m, m->own) + index) * largest_of(p));
}

static char *from_machine(const gm_pending *p, const gm_machines *m, int machine)
{
    return from_member(p, m, m->relayed, machine);
}

/* This member's terms of the slice of `place`. */
static gm_slice term_of(gm_pending *p, int place)
{
    if (p->call != GM_CALL_reduce_scatter) return gm_slice_of(p, place);
    size_t block = gm_bytes_of(p->out);
    return (gm_slice){gm_block_piece(p, place, block), block};
}

/* Terms of members here go to them, and those of members elsewhere to the relay among the members here. */
static void give_terms(gm_pending *p, const gm_machines *m)
{
    const gm_group *g = p->group;
    int             relayed = 0;
    for (int pass = 0; pass < 2; pass++) /* first those for members here: the same order at both ends */
        for (int i = 0; i < g->size; i++) {
            gm_slice term = term_of(p, i);
            bool     here = is_here(m, i), mine = here ? i == g->rank : relays(p, m, i);
            if (here != (pass == 0)) continue;
            if (!mine) gm_pending_send(p, here ? i : gm_machine_relay(m, m->own, i), term.bytes, term.n, false);
            for (int k = 0; mine && k < gm_machine_size(m, m->own); k++) {
                int from = m->place[m->first[m->own] + k];
                if (from == g->rank) continue;
                char *room = from_member(p, m, here ? -1 : relayed, k);
                gm_pending_receive(p, from, room, term.n, false);
            }
            relayed += mine && !here;
        }
}

/* The sum over the members here of their terms of a slice into out; a mean is divided in the end. own: this member's
 * terms; relayed: -1 for its own slice. */
static gm_status add_here(gm_pending *p, const gm_machines *m, int relayed, gm_slice own, char *out)
{
    int          n = gm_machine_size(m, m->own);
    const void **parts = malloc((size_t)n * sizeof *parts);
    if (!parts) return GM_FAIL(GM_ECOMM, "no memory for a reduction that has begun");
    for (int k = 0; k < n; k++)
        parts[k] = m->place[m->first[m->own] + k] == p->group->rank ? own.bytes : from_member(p, m, relayed, k);
    gm_combine(p->out->dtype, p->op, n, parts, out, (int64_t)(own.n / gm_dtype_size(p->out->dtype)), 1);
    free(parts);
    return GM_OK;
}

/* Relays send what the members here have added; the owner receives it from each other machine. */
static gm_status give_sums(gm_pending *p, const gm_machines *m)
{
    const gm_group *g = p->group;
    int             relayed = 0;
    for (int i = 0; i < g->size; i++) {
        if (is_here(m, i) || !relays(p, m, i)) continue;
        gm_slice term = term_of(p, i);
        char    *sum = from_member(p, m, relayed, m->index[g->rank]); /* nobody else's terms are there */
        GM_TRY(add_here(p, m, relayed++, term, sum));
        gm_pending_send(p, i, sum, term.n, false);
    }
    for (int k = 0; k < m->n; k++)
        if (k != m->own)
            gm_pending_receive(p, gm_machine_relay(m, k, g->rank), from_machine(p, m, k), term_of(p, g->rank).n, false);
    return GM_OK;
}

static gm_status add_machines(gm_pending *p, const gm_machines *m, char *out)
{
    gm_slice     own = term_of(p, p->group->rank);
    const void **parts = malloc((size_t)m->n * sizeof *parts);
    gm_status    st = parts ? GM_OK : GM_FAIL(GM_ECOMM, "no memory for a reduction that has begun");
    if (st == GM_OK) st = add_here(p, m, -1, own, from_machine(p, m, m->own));
    for (int k = 0; st == GM_OK && k < m->n; k++) parts[k] = from_machine(p, m, k);
    if (st == GM_OK)
        gm_combine(p->out->dtype, p->op, m->n, parts, out, (int64_t)(own.n / gm_dtype_size(p->out->dtype)),
                   p->group->size);
    free(parts);
    return st;
}

bool gm_sums_over_machines(const gm_tensor *t, gm_reduction op)
{
    return !gm_dtype_is_narrow(t->dtype) || op == GM_MAX || op == GM_MIN;
}

gm_status gm_step_all_reduce_over_machines(gm_pending *p, int round)
{
    const gm_machines *m = p->group->machines;
    char              *own = gm_slice_of(p, p->group->rank).bytes;
    if (round == 0) give_terms(p, m);
    if (round == 1) return give_sums(p, m);
    if (round == 2) {
        GM_TRY(add_machines(p, m, own));
        give_block(p, m, own);
    }
    if (round == 3) hand_on_blocks(p, m);
    return GM_OK;
}

gm_status gm_step_reduce_scatter_over_machines(gm_pending *p, int round)
{
    const gm_machines *m = p->group->machines;
    if (round == 0) give_terms(p, m);
    if (round == 1) return give_sums(p, m);
    return round == 2 ? add_machines(p, m, p->to) : GM_OK;
}

/* ---- broadcast ---- */

/* The member of `machine` that receives from another machine: the root on its own. */
static int head_of(const gm_pending *p, const gm_machines *m, int machine)
{
    return machine == m->of[p->root] ? p->root : gm_machine_relay(m, machine, p->root);
}

/* A binomial tree over machines counted from that of the root: the parent of v is v without its lowest bit. The head of
 * each hands on to the other members. */
gm_status gm_step_broadcast_over_machines(gm_pending *p, int round)
{
    const gm_machines *m = p->group->machines;
    int                rank = p->group->rank, start = m->of[p->root], v = (m->own - start + m->n) % m->n, low = 1;
    size_t             n = gm_bytes_of(p->out);
    int                head = head_of(p, m, m->own);
    while (low < m->n && !(v & low)) low <<= 1;
    if (round == 0 && rank != head) gm_pending_receive(p, head, p->to, n, false);
    if (round == 0 && rank == head && v)
        gm_pending_receive(p, head_of(p, m, (v - low + start) % m->n), p->to, n, false);
    if (round != 1 || rank != head) return GM_OK;
    for (int bit = low >> 1; bit; bit >>= 1)
        if (v + bit < m->n) gm_pending_send(p, head_of(p, m, (v + bit + start) % m->n), p->to, n, false);
    for (int k = m->first[m->own]; k < m->first[m->own + 1]; k++)
        if (m->place[k] != rank) gm_pending_send(p, m->place[k], p->to, n, false);
    return GM_OK;
}
