/* classes.c - which ranks, channels and links are alike, so that a replay of one of each is exact for all.
 *
 * Colours are refined until nothing changes (an equitable partition, as in Weisfeiler and Leman 1968). Two ranks keep
 * one colour if they have equal programs and their ways lead to channels of equal colours. Two channels: if their
 * members have equal colours, and each of their plans puts equal shares on links of equal colours. Two links: if equal
 * numbers of channels of each colour put equal shares on them. What an object does next is a function of its state and
 * of what its neighbours did. So objects of one colour, which begin in one state, do the same at all times.
 *
 * Trees, and operations with a root, use some links of a group more than others, and would part ranks that differ in
 * nothing else. But a transfer that has its links to itself takes the time that it takes alone. Such an operation
 * counts as alone, and its shares are left out of the colours. transfers.c watches this. When one meets another
 * transfer on a link, its kind is crowded: colours are refined again with its shares, and the replay begins again. If a
 * replay ends without such a meeting, it satisfies the equations of all ranks, which have one solution.
 *
 * Colours are hashes of 64 bits. Of n objects, two that differ are taken for equal with a probability of n^2 / 2^65. */
#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"
#include "replay.h"

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for the classes of a simulation"); }

static uint64_t bits(double v)
{
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static uint64_t both(uint64_t a, uint64_t b) { return gm_mix64(gm_mix64(a) + b); }

typedef struct colours {
    gm_channels *c;
    int          n_links;
    uint64_t    *rank, *channel, *link, *next_link;
    int         *slots, n_slots; /* of a table that numbers colours */
} colours;

/* ---- numbers for colours ---- */

/* Numbers equal colours in order of first appearance. of and first may be NULL. Returns how many differ. */
static int number(colours *x, const uint64_t *colour, int n, int *of, int *first)
{
    int found = 0;
    memset(x->slots, 0, (size_t)x->n_slots * sizeof *x->slots);
    for (int i = 0; i < n; i++) {
        uint64_t mask = (uint64_t)x->n_slots / 2 - 1, at = colour[i] & mask; /* two words a slot */
        while (x->slots[2 * at] && colour[x->slots[2 * at] - 1] != colour[i]) at = (at + 1) & mask;
        if (!x->slots[2 * at]) {
            if (first) first[found] = i;
            x->slots[2 * at] = i + 1;
            x->slots[2 * at + 1] = found++;
        }
        if (of) of[i] = x->slots[2 * at + 1];
    }
    return found;
}

/* ---- refinement ---- */

static void colour_ranks(colours *x)
{
    const gm_channels *c = x->c;
    for (int r = 0; r < c->world; r++) {
        int      end = r + 1 < c->world ? c->start[r + 1] : c->n_ways;
        uint64_t h = x->rank[r];
        for (int i = c->start[r]; i < end; i++) h = both(h, x->channel[c->of[i]]);
        x->rank[r] = h;
    }
}

static uint64_t colour_of_members(const colours *x, const gm_channel *k)
{
    const gm_channels *c = x->c;
    uint64_t           sum = 0;
    if (k->from >= 0)
        return both(x->rank[gm_groups_rank(c->groups, c->mesh, k->group, k->base, k->from)],
                    x->rank[gm_groups_rank(c->groups, c->mesh, k->group, k->base, k->to)]);
    for (int i = gm_groups_size(c->groups, c->mesh, k->group) - 1; i >= 0; i--)
        sum += gm_mix64(x->rank[gm_groups_rank(c->groups, c->mesh, k->group, k->base, i)]);
    return sum;
}

static uint64_t colour_of_plan(const colours *x, const gm_planned *p)
{
    uint64_t sum = 0;
    if (!p->used) return 0;
    for (int i = 0; i < p->plan.n && !p->alone; i++)
        sum += both(x->link[p->plan.uses[i].link], bits(p->plan.uses[i].share));
    return both(sum + (uint64_t)p->kind, both(bits(p->plan.latency), bits(p->plan.slowest)));
}

static void colour_channels(colours *x)
{
    for (int i = 0; i < x->c->n; i++) {
        const gm_channel *k = &x->c->list[i];
        uint64_t          h = both(x->channel[i], colour_of_members(x, k));
        for (int p = k->first; p < k->first + k->n; p++) h = both(h, colour_of_plan(x, &x->c->plans[p]));
        x->channel[i] = h;
    }
}

static void colour_links(colours *x)
{
    memset(x->next_link, 0, (size_t)x->n_links * sizeof *x->next_link);
    for (int i = 0; i < x->c->n; i++) {
        const gm_channel *k = &x->c->list[i];
        for (int p = k->first; p < k->first + k->n; p++) {
            const gm_planned *plan = &x->c->plans[p];
            for (int u = 0; u < plan->plan.n && plan->used && !plan->alone; u++)
                x->next_link[plan->plan.uses[u].link] += both(
                    x->channel[i], both((uint64_t)(p - k->first), bits(plan->plan.uses[u].share)));
        }
    }
    for (int i = 0; i < x->n_links; i++) x->link[i] = both(x->link[i], x->next_link[i]);
}

static int count_all(colours *x)
{
    return number(x, x->rank, x->c->world, NULL, NULL) + number(x, x->channel, x->c->n, NULL, NULL) +
           number(x, x->link, x->n_links, NULL, NULL);
}

static void refine(colours *x)
{
    for (int n = count_all(x), before = -1; n > before;) {
        before = n;
        colour_ranks(x);
        colour_channels(x);
        colour_links(x);
        n = count_all(x);
    }
}

/* ---- what begins as alone ---- */

/* Do its links carry different shares? */
static bool is_uneven(const gm_network *w, const gm_transfer *t)
{
    for (int i = 1; i < t->n; i++)
        for (int k = 0; k < i && k < 8; k++) /* those of a few kinds of links are enough */
            if (t->uses[i].share != t->uses[k].share &&
                gm_network_bandwidth(w, t->uses[i].link) == gm_network_bandwidth(w, t->uses[k].link))
                return true;
    return false;
}

/* Crowds the kinds whose operations of different channels use one link. */
static gm_status find_crowded(gm_channels *c, int n_links)
{
    int *owner = malloc((size_t)n_links * sizeof *owner);
    if (!owner) return no_memory();
    for (int kind = 0; kind < c->n_kinds; kind++) {
        bool any = false;
        for (int i = 0; i < c->n_plans && !any; i++)
            any = c->plans[i].kind == kind && c->plans[i].used && c->plans[i].alone;
        if (!any) continue;
        for (int i = 0; i < n_links; i++) owner[i] = -1;
        for (int i = 0; i < c->n_plans && !c->kinds[kind].crowded; i++)
            for (int u = 0; c->plans[i].kind == kind && c->plans[i].used && u < c->plans[i].plan.n; u++) {
                int *o = &owner[c->plans[i].plan.uses[u].link];
                c->kinds[kind].crowded |= *o >= 0 && *o != i;
                *o = i;
            }
    }
    free(owner);
    return GM_OK;
}

/* Returns whether anything counts as alone that may meet something. */
static bool choose_alone(gm_channels *c, bool fold)
{
    bool host = c->machine->host_moves, any = false; /* host: links do not matter */
    for (int i = 0; i < c->n_plans; i++) {
        gm_planned *p = &c->plans[i];
        p->alone = fold && ((host && !p->below) || (!c->kinds[p->kind].crowded && is_uneven(c->network, &p->plan)));
        any |= p->alone && p->used && !host;
    }
    return any;
}

/* ---- the loads of links ---- */

static int by_link(const void *a, const void *b) { return ((const gm_load *)a)->link - ((const gm_load *)b)->link; }

/* The loads of one plan of a first channel: a row for each class of links that it uses. */
static gm_status add_loads(gm_classes *k, const gm_planned *p, int at)
{
    k->first_load[at] = k->n_all_loads;
    if (!p->used || p->alone || p->plan.n == 0) return GM_OK;
    if (k->n_all_loads + p->plan.n > k->loads_room) {
        int      room = 2 * (k->n_all_loads + p->plan.n) + 64;
        gm_load *more = realloc(k->loads, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        k->loads = more;
        k->loads_room = room;
    }
    gm_load *list = &k->loads[k->n_all_loads];
    for (int i = 0; i < p->plan.n; i++) list[i] = (gm_load){k->link[p->plan.uses[i].link], 0, p->plan.uses[i].share};
    qsort(list, (size_t)p->plan.n, sizeof *list, by_link);
    int n = 0;
    for (int i = 0; i < p->plan.n; i++)
        if (!n || list[n - 1].link != list[i].link) list[n++] = list[i];
        else if (list[i].share > list[n - 1].share) list[n - 1].share = list[i].share;
    k->n_loads[at] = n;
    k->n_all_loads += n;
    return GM_OK;
}

static void count_copies(gm_classes *k, const gm_channels *c, int channel)
{
    const gm_channel *x = &c->list[channel], *first = &c->list[k->first_channel[k->channel[channel]]];
    for (int p = 0; p < x->n; p++) {
        const gm_planned *plan = &c->plans[x->first + p];
        const gm_load    *loads = &k->loads[k->first_load[first->first + p]];
        for (int u = 0; u < plan->plan.n && plan->used && !plan->alone; u++) {
            int class = k->link[plan->plan.uses[u].link];
            if (k->first_link[class] != plan->plan.uses[u].link) continue;
            gm_load *l = bsearch(&(gm_load){.link = class}, loads, (size_t)k->n_loads[first->first + p], sizeof *l,
                                 by_link);
            if (l) l->count++;
        }
    }
}

static gm_status find_loads(gm_classes *k, const gm_channels *c)
{
    for (int d = 0; d < k->n_channels; d++) {
        const gm_channel *x = &c->list[k->first_channel[d]];
        for (int p = x->first; p < x->first + x->n; p++) GM_TRY(add_loads(k, &c->plans[p], p));
    }
    for (int i = 0; i < c->n; i++) count_copies(k, c, i);
    return GM_OK;
}

/* How many classes of ranks begin an operation of a channel; a message has two ends, also within a class. */
static void count_members(gm_classes *k, const gm_channels *c, int *seen)
{
    for (int r = 0; r < k->n_ranks; r++) seen[r] = -1;
    for (int d = 0; d < k->n_channels; d++) {
        const gm_channel *x = &c->list[k->first_channel[d]];
        int               n = x->from >= 0 ? 0 : gm_groups_size(c->groups, c->mesh, x->group);
        k->members[d] = x->from >= 0 ? 2 : 0;
        for (int i = 0; i < n; i++) {
            int *s = &seen[k->rank[gm_groups_rank(c->groups, c->mesh, x->group, x->base, i)]];
            k->members[d] += *s != d;
            *s = d;
        }
    }
}

/* ---- meetings of what counts as alone ---- */

/* The next link that copies of a plan of a first channel use, from *i and *u on; -1: there is none. */
static int next_use(const gm_channels *c, const gm_classes *k, int class, int offset, int *i, int *u)
{
    for (; *i < c->n; ++*i, *u = 0) {
        if (k->channel[*i] != class) continue;
        const gm_transfer *t = &c->plans[c->list[*i].first + offset].plan;
        if (*u < t->n) return t->uses[(*u)++].link;
    }
    return -1;
}

static bool search(const gm_channels *c, const gm_classes *k, const int *class, const int *offset, bool *used)
{
    int i = 0, u = 0;
    for (int link; (link = next_use(c, k, class[0], offset[0], &i, &u)) >= 0;) used[link] = true;
    i = u = 0;
    for (int link; (link = next_use(c, k, class[1], offset[1], &i, &u)) >= 0;)
        if (used[link]) return true;
    return false;
}

gm_status gm_classes_meet(const gm_channels *c, gm_classes *k, const int *class, const int *offset, bool *meet)
{
    for (int i = 0; i < k->n_meetings; i++) {
        const gm_meeting *m = &k->meetings[i];
        if (m->class[0] == class[0] && m->class[1] == class[1] && m->offset[0] == offset[0] &&
            m->offset[1] == offset[1]) {
            *meet = m->meet;
            return GM_OK;
        }
    }
    gm_meeting *more = realloc(k->meetings, (size_t)(k->n_meetings + 1) * sizeof *more);
    bool       *used = calloc((size_t)gm_network_links(c->network) + 1, sizeof *used);
    if (more) k->meetings = more;
    if (!more || !used) {
        free(used);
        return no_memory();
    }
    *meet = search(c, k, class, offset, used);
    more[k->n_meetings++] = (gm_meeting){{class[0], class[1]}, {offset[0], offset[1]}, *meet};
    free(used);
    return GM_OK;
}

/* ---- life ---- */

static gm_status allocate(gm_classes *k, colours *x)
{
    size_t ranks = (size_t)x->c->world, channels = (size_t)x->c->n + 1, links = (size_t)x->n_links + 1;
    size_t most = ranks > channels ? ranks : channels;
    if (links > most) most = links;
    for (x->n_slots = 64; (size_t)x->n_slots < 4 * most;) x->n_slots *= 2;
    x->slots = malloc((size_t)x->n_slots * sizeof *x->slots);
    x->rank = malloc(ranks * sizeof *x->rank);
    x->channel = malloc(channels * sizeof *x->channel);
    x->link = malloc(links * sizeof *x->link);
    x->next_link = malloc(links * sizeof *x->next_link);
    k->rank = malloc(ranks * sizeof(int));
    k->first_rank = malloc(ranks * sizeof(int));
    k->count = calloc(ranks, sizeof(int));
    k->channel = malloc(channels * sizeof(int));
    k->first_channel = malloc(channels * sizeof(int));
    k->members = malloc(channels * sizeof(int));
    k->link = malloc(links * sizeof(int));
    k->first_link = malloc(links * sizeof(int));
    k->first_load = calloc((size_t)x->c->n_plans + 1, sizeof(int));
    k->n_loads = calloc((size_t)x->c->n_plans + 1, sizeof(int));
    bool good = x->slots && x->rank && x->channel && x->link && x->next_link && k->rank && k->first_rank && k->count &&
                k->channel && k->first_channel && k->members && k->link && k->first_link && k->first_load && k->n_loads;
    return good ? GM_OK : no_memory();
}

/* The colours that objects begin with. Channels: their group, and how far a message goes along it. */
static void begin_colours(colours *x, const int *program_of, const uint64_t *apart, bool fold)
{
    const gm_channels *c = x->c;
    for (int r = 0; r < c->world; r++)
        x->rank[r] = fold ? both((uint64_t)program_of[r], apart ? apart[r] : 0) : gm_mix64((uint64_t)r);
    for (int i = 0; i < c->n; i++) {
        const gm_channel *k = &c->list[i];
        int               size = gm_groups_size(c->groups, c->mesh, k->group);
        int               shift = k->from >= 0 ? (k->to - k->from + size) % size : -1;
        x->channel[i] = fold ? both((uint64_t)k->group, (uint64_t)(shift + 1)) : gm_mix64((uint64_t)i);
    }
    for (int i = 0; i < x->n_links; i++)
        x->link[i] = fold ? both(bits(gm_network_bandwidth(c->network, i)), 1) : gm_mix64((uint64_t)i);
}

static gm_status classify(gm_classes *k, colours *x, bool fold)
{
    if (fold) refine(x);
    k->n_ranks = number(x, x->rank, x->c->world, k->rank, k->first_rank);
    k->n_channels = number(x, x->channel, x->c->n, k->channel, k->first_channel);
    k->n_links = number(x, x->link, x->n_links, k->link, k->first_link);
    for (int r = 0; r < x->c->world; r++) k->count[k->rank[r]]++;
    count_members(k, x->c, x->slots);
    return find_loads(k, x->c);
}

gm_status gm_classes_new(gm_channels *c, const int *program_of, const uint64_t *apart, bool fold, gm_classes *k)
{
    colours   x = {.c = c, .n_links = gm_network_links(c->network)};
    gm_status st = allocate(k, &x);
    if (st == GM_OK && choose_alone(c, fold)) st = find_crowded(c, x.n_links + 1);
    k->any_alone = choose_alone(c, fold);
    if (st == GM_OK) {
        begin_colours(&x, program_of, apart, fold);
        st = classify(k, &x, fold);
    }
    free(x.slots);
    free(x.rank);
    free(x.channel);
    free(x.link);
    free(x.next_link);
    return st;
}

void gm_classes_free(gm_classes *k)
{
    free(k->rank);
    free(k->channel);
    free(k->link);
    free(k->first_rank);
    free(k->first_channel);
    free(k->first_link);
    free(k->count);
    free(k->members);
    free(k->first_load);
    free(k->n_loads);
    free(k->loads);
    free(k->meetings);
    *k = (gm_classes){0};
}
