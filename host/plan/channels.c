/* channels.c - see replay.h. A channel is known by its group and its first rank, or by both ends of its messages. */
#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"
#include "../mesh/at_once.h"
#include "replay.h"

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for the channels of a simulation"); }

/* Makes room for one more element. */
static gm_status grow(void **list, int n, int *room, size_t size)
{
    if (n < *room) return GM_OK;
    int   more = *room ? 2 * *room : 64;
    void *p = realloc(*list, (size_t)more * size);
    if (!p) return no_memory();
    *list = p;
    *room = more;
    return GM_OK;
}

/* ---- plans ---- */

static gm_status find_kind(gm_channels *c, int group, const char *op, int root, gm_algorithm how, int *out)
{
    for (int i = 0; i < c->n_kinds; i++) {
        const gm_kind_of_call *k = &c->kinds[i];
        if (k->group == group && k->root == root && k->how == how && !strcmp(k->op, op)) {
            *out = i;
            return GM_OK;
        }
    }
    GM_TRY(grow((void **)&c->kinds, c->n_kinds, &c->kinds_room, sizeof *c->kinds));
    *out = c->n_kinds;
    c->kinds[c->n_kinds++] = (gm_kind_of_call){group, root, op, how, false};
    return GM_OK;
}

static gm_planned *have(const gm_channels *c, const gm_channel *x, const char *op, int root, gm_algorithm how)
{
    for (int i = x->first; i < x->first + x->n; i++) {
        const gm_kind_of_call *k = &c->kinds[c->plans[i].kind];
        if (k->root == root && k->how == how && !strcmp(k->op, op)) return &c->plans[i];
    }
    return NULL;
}

static gm_status plan(gm_channels *c, gm_channel *x, const char *op, int root, gm_algorithm how, const int *members,
                      int p)
{
    if (have(c, x, op, root, how)) return GM_OK;
    GM_TRY(grow((void **)&c->plans, c->n_plans, &c->plans_room, sizeof *c->plans));
    gm_planned *made = &c->plans[c->n_plans];
    *made = (gm_planned){0};
    GM_TRY(find_kind(c, x->group, op, root, how, &made->kind));
    GM_TRY(gm_network_plan(c->network, op, p, members, root, how, &made->plan));
    made->below = gm_network_is_below(op);
    c->n_plans++;
    x->n++;
    return GM_OK;
}

static double alone(const gm_planned *p, double bytes) { return p->plan.latency + bytes * p->plan.slowest; }

/* Does the size decide between two ways of this op? */
static bool has_at_once(const gm_channels *c, const char *op)
{
    return c->machine->algorithm == GM_ALGORITHM_DIRECT && !strcmp(op, "all_reduce");
}

gm_planned *gm_channels_plan(const gm_channels *c, int channel, const char *op, int root, double bytes)
{
    const gm_channel *x = &c->list[channel];
    if (x->from >= 0) return &c->plans[x->first];
    if (has_at_once(c, op) && gm_sums_at_once(gm_groups_size(c->groups, c->mesh, x->group), (size_t)bytes))
        return have(c, x, op, root, GM_ALGORITHM_AT_ONCE);
    if (c->machine->algorithm != GM_ALGORITHM_AUTO) return have(c, x, op, root, c->machine->algorithm);
    gm_planned *ring = have(c, x, op, root, GM_ALGORITHM_RING), *tree = have(c, x, op, root, GM_ALGORITHM_TREE);
    return ring && tree && alone(tree, bytes) < alone(ring, bytes) ? tree : ring;
}

static gm_status plan_call(gm_channels *c, gm_channel *x, const char *op, const gm_event *e, const int *members, int p)
{
    gm_algorithm how = c->machine->algorithm;
    if (has_at_once(c, op)) GM_TRY(plan(c, x, op, e->peer, GM_ALGORITHM_AT_ONCE, members, p));
    if (how != GM_ALGORITHM_AUTO) return plan(c, x, op, e->peer, how, members, p);
    GM_TRY(plan(c, x, op, e->peer, GM_ALGORITHM_RING, members, p));
    return gm_network_has_tree(op) ? plan(c, x, op, e->peer, GM_ALGORITHM_TREE, members, p) : GM_OK;
}

/* The plans of what one of its ranks sends through a channel, which is the newest one. */
static gm_status plan_all(gm_channels *c, gm_channel *x, const gm_program *p, const gm_way *w)
{
    int size = gm_groups_size(c->groups, c->mesh, x->group);
    x->first = c->n_plans;
    if (w->message) {
        int ends[2] = {gm_groups_rank(c->groups, c->mesh, x->group, x->base, x->from),
                       gm_groups_rank(c->groups, c->mesh, x->group, x->base, x->to)};
        GM_TRY(plan(c, x, "message", -1, GM_ALGORITHM_DIRECT, ends, 2));
        c->plans[x->first].used = true;
        return GM_OK;
    }
    int *members = malloc((size_t)size * sizeof *members);
    if (!members) return no_memory();
    for (int i = 0; i < size; i++) members[i] = gm_groups_rank(c->groups, c->mesh, x->group, x->base, i);
    gm_status st = GM_OK;
    for (int i = 0; i < w->n_calls && st == GM_OK; i++)
        st = plan_call(c, x, gm_journal_text_of(p->step->journal, w->calls[i]->name), w->calls[i], members, size);
    free(members);
    return st;
}

static void mark_used(gm_channels *c, int channel, const gm_program *p, const gm_way *w)
{
    for (int i = 0; i < w->n_calls && !w->message; i++) {
        const gm_event *e = w->calls[i];
        gm_planned     *used = gm_channels_plan(c, channel, gm_journal_text_of(p->step->journal, e->name), e->peer,
                                                e->bytes);
        if (used) used->used = true;
    }
}

/* ---- the channel of a way ---- */

static uint64_t hash_of(int group, int base, int from, int to)
{
    uint64_t h = gm_mix64((uint64_t)group);
    h = gm_mix64(h ^ (uint64_t)base);
    return gm_mix64(h ^ ((uint64_t)(from + 1) << 32 | (uint64_t)(to + 1)));
}

static int *slot_of(const gm_channels *c, const gm_channel *k)
{
    uint64_t mask = (uint64_t)c->n_slots - 1, i = hash_of(k->group, k->base, k->from, k->to) & mask;
    for (; c->slots[i]; i = (i + 1) & mask) {
        const gm_channel *x = &c->list[c->slots[i] - 1];
        if (x->group == k->group && x->base == k->base && x->from == k->from && x->to == k->to) break;
    }
    return &c->slots[i];
}

static gm_status find_channel(gm_channels *c, int rank, const gm_program *p, const gm_way *w, int *out)
{
    gm_channel k = {.group = w->group, .from = -1, .to = -1};
    int        size = gm_groups_size(c->groups, c->mesh, w->group);
    int        place = gm_groups_place(c->groups, c->mesh, w->group, rank, &k.base);
    if (place < 0)
        return GM_FAIL(GM_EINVAL, "rank %d is no member of the group %s of its own step", rank,
                       c->groups->name[w->group]);
    if (w->message) {
        int other = (place + w->shift) % size;
        k.from = w->sends ? place : other;
        k.to = w->sends ? other : place;
    }
    int *slot = slot_of(c, &k);
    if (!*slot) {
        c->list[c->n] = k;
        GM_TRY(plan_all(c, &c->list[c->n], p, w));
        *slot = ++c->n;
        mark_used(c, c->n - 1, p, w);
    }
    *out = *slot - 1;
    return GM_OK;
}

/* ---- life ---- */

static gm_status make_lists(gm_channels *c, const gm_program *const *programs)
{
    int total = 0;
    c->start = malloc((size_t)c->world * sizeof *c->start);
    if (!c->start) return no_memory();
    for (int r = 0; r < c->world; r++) {
        c->start[r] = total;
        total += programs[r]->n_ways;
    }
    c->n_ways = total;
    for (c->n_slots = 64; c->n_slots < 2 * total;) c->n_slots *= 2;
    c->of = malloc(((size_t)total + 1) * sizeof *c->of);
    c->list = malloc(((size_t)total + 1) * sizeof *c->list);
    c->slots = calloc((size_t)c->n_slots, sizeof *c->slots);
    return c->of && c->list && c->slots ? GM_OK : no_memory();
}

gm_status gm_channels_new(const gm_machine *m, const gm_mesh *mesh, const gm_groups *groups,
                          const gm_program *const *programs, gm_channels *c)
{
    *c = (gm_channels){.machine = m, .mesh = mesh, .groups = groups, .world = gm_mesh_size(mesh)};
    GM_TRY(gm_network_new(m, c->world, &c->network));
    GM_TRY(make_lists(c, programs));
    for (int r = 0; r < c->world; r++)
        for (int w = 0; w < programs[r]->n_ways; w++)
            GM_TRY(find_channel(c, r, programs[r], &programs[r]->ways[w], &c->of[c->start[r] + w]));
    return GM_OK;
}

void gm_channels_free(gm_channels *c)
{
    for (int i = 0; i < c->n_plans; i++) gm_transfer_free(&c->plans[i].plan);
    gm_network_free(c->network);
    free(c->list);
    free(c->plans);
    free(c->kinds);
    free(c->start);
    free(c->of);
    free(c->slots);
    *c = (gm_channels){0};
}
