/* transfers.c - see replay.h. A transfer is known by its group, the first rank of that group, its number there, and for
 * a message both ends. What it uses is planned once for each group, op and root (AUTO: and size). */
#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"
#include "replay.h"

typedef struct key {
    int         group, base, number, from, to; /* from, to: places of a message, -1 of a collective */
    int         root;                          /* of what is planned only */
    const char *op;                            /* the same; "" of a transfer */
    double      bytes;
} key;

typedef enum stage { GATHERS, WAITS, MOVES, OVER } stage;

typedef struct transfer {
    key                key;
    stage              stage;
    int                begun, members, first_rank;
    const gm_event    *event; /* of the rank that began it first */
    const char        *op;
    double             bytes, ready;
    const gm_transfer *plan;
    double             left, pace, since; /* parts of 1, parts a second, when `left` was true */
    uint64_t           stamp;
    int                waiter; /* the first rank that waits, -1: none; next_waiter has the others */
} transfer;

typedef struct planned {
    key         key;
    gm_transfer plan;
} planned;

typedef struct users {
    int *list, n, room;
} users;

struct gm_transfers {
    const gm_machine *machine;
    const gm_mesh    *mesh;
    const gm_groups  *groups;
    gm_moments       *moments;
    gm_network       *network;
    int               world;
    transfer         *list;
    planned         **plans;
    int               n, room, n_plans, plans_room;
    int              *slots, *plan_slots; /* hash tables: twice the room, place + 1 */
    users            *users;              /* of each link */
    int              *members, *next_waiter;
    uint64_t          stamps;
};

/* ---- tables ---- */

static uint64_t hash_of(const key *k)
{
    int64_t  words[] = {k->group, k->base, k->number, k->from, k->to, k->root, (int64_t)k->bytes};
    uint64_t h = GM_HASH_START;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) h = gm_mix64(h ^ (uint64_t)words[i]);
    return gm_mix64(h ^ gm_hash_text(GM_HASH_START, k->op));
}

static bool same(const key *a, const key *b)
{
    return a->group == b->group && a->base == b->base && a->number == b->number && a->from == b->from &&
           a->to == b->to && a->root == b->root && a->bytes == b->bytes && !strcmp(a->op, b->op);
}

static int *slot_of(const gm_transfers *t, bool plan, const key *k)
{
    int      room = plan ? t->plans_room : t->room, *slots = plan ? t->plan_slots : t->slots;
    uint64_t mask = 2 * (uint64_t)room - 1, i = hash_of(k) & mask;
    while (slots[i] && !same(plan ? &t->plans[slots[i] - 1]->key : &t->list[slots[i] - 1].key, k)) i = (i + 1) & mask;
    return &slots[i];
}

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for the transfers of a simulation"); }

static gm_status make_room(gm_transfers *t, bool plan)
{
    int n = plan ? t->n_plans : t->n, room = plan ? t->plans_room : t->room, more = room ? 2 * room : 256;
    if (n < room) return GM_OK;
    int  *slots = calloc(2 * (size_t)more, sizeof *slots);
    void *list = slots && plan ? realloc(t->plans, (size_t)more * sizeof *t->plans)
                 : slots       ? realloc(t->list, (size_t)more * sizeof *t->list)
                               : NULL;
    if (!list) {
        free(slots);
        return no_memory();
    }
    free(plan ? t->plan_slots : t->slots);
    if (plan) {
        t->plans = list;
        t->plan_slots = slots;
        t->plans_room = more;
    } else {
        t->list = list;
        t->slots = slots;
        t->room = more;
    }
    for (int i = 0; i < n; i++) *slot_of(t, plan, plan ? &t->plans[i]->key : &t->list[i].key) = i + 1;
    return GM_OK;
}

/* ---- life ---- */

gm_status gm_transfers_new(const gm_machine *m, const gm_mesh *mesh, const gm_groups *groups, gm_moments *moments,
                           gm_transfers **out)
{
    gm_transfers *t = calloc(1, sizeof *t);
    if (!t) return no_memory();
    *t = (gm_transfers){.machine = m, .mesh = mesh, .groups = groups, .moments = moments, .world = gm_mesh_size(mesh)};
    gm_status st = gm_network_new(m, t->world, &t->network);
    if (st == GM_OK) {
        t->users = calloc((size_t)gm_network_links(t->network) + 1, sizeof *t->users);
        t->members = malloc((size_t)t->world * sizeof *t->members);
        t->next_waiter = malloc((size_t)t->world * sizeof *t->next_waiter);
        if (!t->users || !t->members || !t->next_waiter) st = no_memory();
    }
    if (st != GM_OK) gm_transfers_free(t);
    else *out = t;
    return st;
}

void gm_transfers_free(gm_transfers *t)
{
    if (!t) return;
    for (int i = 0; i < t->n_plans; i++) {
        gm_transfer_free(&t->plans[i]->plan);
        free(t->plans[i]);
    }
    for (int i = 0; t->users && i < gm_network_links(t->network); i++) free(t->users[i].list);
    gm_network_free(t->network);
    free(t->plans);
    free(t->list);
    free(t->slots);
    free(t->plan_slots);
    free(t->users);
    free(t->members);
    free(t->next_waiter);
    free(t);
}

int    gm_transfers_count(const gm_transfers *t) { return t->n; }
bool   gm_transfer_is_over(const gm_transfers *t, int at) { return t->list[at].stage == OVER; }
double gm_transfer_ready(const gm_transfers *t, int at) { return t->list[at].ready; }
double gm_transfer_alone(const gm_transfers *t, int at)
{
    const transfer *x = &t->list[at];
    return x->plan->latency + x->bytes * x->plan->slowest;
}

void gm_transfer_wait(gm_transfers *t, int at, int rank)
{
    t->next_waiter[rank] = t->list[at].waiter;
    t->list[at].waiter = rank;
}

int gm_transfer_next_waiter(gm_transfers *t, int at)
{
    int rank = t->list[at].waiter;
    if (rank >= 0) t->list[at].waiter = t->next_waiter[rank];
    return rank;
}

/* ---- links in use ---- */

static gm_status take_link(users *u, int transfer)
{
    if (u->n == u->room) {
        int  room = u->room ? 2 * u->room : 4;
        int *more = realloc(u->list, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        u->list = more;
        u->room = room;
    }
    u->list[u->n++] = transfer;
    return GM_OK;
}

static void leave_link(users *u, int transfer)
{
    int i = 0;
    while (u->list[i] != transfer) i++;
    for (u->n--; i < u->n; i++) u->list[i] = u->list[i + 1];
}

/* The pace that its links leave it from now on, and the end that follows. */
static void reckon(gm_transfers *t, int at, double now)
{
    transfer *x = &t->list[at];
    double    seconds = 0; /* of the whole, at this pace */
    for (int i = 0; i < x->plan->n; i++) {
        const gm_use *use = &x->plan->uses[i];
        double        s = x->bytes * use->share * t->users[use->link].n / gm_network_bandwidth(t->network, use->link);
        if (s > seconds) seconds = s;
    }
    double pace = 1 / seconds;
    if (pace == x->pace) return; /* as reckoned */
    x->left -= (now - x->since) * x->pace;
    if (x->left < 0) x->left = 0;
    x->since = now;
    x->pace = pace;
    x->stamp = ++t->stamps;
    gm_moments_add(t->moments, (gm_moment){now + x->left * seconds, GM_HAPPENS_ENDED, at, x->stamp});
}

static void reckon_neighbours(gm_transfers *t, const transfer *x, double now)
{
    for (int i = 0; i < x->plan->n; i++) {
        const users *u = &t->users[x->plan->uses[i].link];
        for (int k = 0; k < u->n; k++) reckon(t, u->list[k], now);
    }
}

static gm_status start_moving(gm_transfers *t, int at, double now, bool *over)
{
    transfer *x = &t->list[at];
    if (x->stage == OVER || x->bytes <= 0 || !x->plan->n) { /* over: its members move the bytes */
        x->stage = OVER;
        *over = true;
        return GM_OK;
    }
    x->stage = MOVES;
    x->left = 1;
    x->since = now;
    for (int i = 0; i < x->plan->n; i++) GM_TRY(take_link(&t->users[x->plan->uses[i].link], at));
    reckon_neighbours(t, x, now);
    return GM_OK;
}

gm_status gm_transfers_happen(gm_transfers *t, const gm_moment *m, bool *over)
{
    transfer *x = &t->list[m->at];
    *over = false;
    if (m->kind == GM_HAPPENS_STARTED) return start_moving(t, m->at, m->time, over);
    if (x->stage != MOVES || m->stamp != x->stamp) return GM_OK; /* reckoned anew since */
    x->stage = OVER;
    *over = true;
    for (int i = 0; i < x->plan->n; i++) leave_link(&t->users[x->plan->uses[i].link], m->at);
    reckon_neighbours(t, x, m->time);
    return GM_OK;
}

/* ---- beginning ---- */

static gm_status find_plan(gm_transfers *t, transfer *x, int rank)
{
    bool message = x->key.from >= 0;
    key  k = {x->key.group,
              x->key.base,
              0,
              x->key.from,
              x->key.to,
              x->event->peer,
             message ? "message" : x->op,
             t->machine->algorithm == GM_ALGORITHM_AUTO ? x->bytes : 0};
    GM_TRY(make_room(t, true));
    int *slot = slot_of(t, true, &k);
    if (!*slot) {
        int ends[2] = {0, 0}, base;
        int p = gm_groups_members(t->groups, t->mesh, x->key.group, rank, t->members, &base);
        if (message) {
            ends[0] = t->members[x->key.from];
            ends[1] = t->members[x->key.to];
        }
        planned *made = calloc(1, sizeof *made);
        if (!made) return no_memory();
        made->key = k;
        gm_status st = gm_network_plan(t->network, k.op, message ? 2 : p, message ? ends : t->members, x->event->peer,
                                       x->bytes, &made->plan);
        if (st != GM_OK) {
            free(made);
            return st;
        }
        t->plans[t->n_plans++] = made;
        *slot = t->n_plans;
    }
    x->plan = &t->plans[*slot - 1]->plan;
    return GM_OK;
}

/* A rank's place among the members of a group; *base: the first of them. */
static int place_of(gm_transfers *t, int group, int rank, int *base, int *size)
{
    int place = 0;
    *size = gm_groups_members(t->groups, t->mesh, group, rank, t->members, base);
    while (place < *size && t->members[place] != rank) place++;
    return place;
}

static gm_status check_same(const transfer *x, int rank, const gm_event *e, const char *op, const char *group)
{
    bool message = x->key.from >= 0, uneven = !strcmp(op, "all_to_all_rows") || !strcmp(op, "exchange");
    if ((message || !strcmp(x->op, op)) && (uneven || x->bytes == e->bytes)) return GM_OK;
    return GM_FAIL(GM_EINVAL, "ranks %d and %d do not make the same call %d of group %s: %s of %.0f bytes, %s of %.0f",
                   x->first_rank, rank, x->key.number + 1, group, x->op, x->bytes, op, e->bytes);
}

static gm_status become_ready(gm_transfers *t, int at, int rank, double now)
{
    transfer *x = &t->list[at];
    GM_TRY(find_plan(t, x, rank));
    x->ready = now;
    x->stage = t->machine->host_moves ? OVER : WAITS;
    double start = t->machine->host_moves ? now : now + x->plan->latency;
    gm_moments_add(t->moments, (gm_moment){start, GM_HAPPENS_STARTED, at, 0});
    return GM_OK;
}

gm_status gm_transfers_begin(gm_transfers *t, int rank, const gm_program *p, const gm_step_line *line, double now,
                             int *out)
{
    const gm_event *e = line->event;
    const char     *op = gm_journal_text_of(p->step->journal, e->name);
    bool            sends = !strcmp(op, "send"), receives = !strcmp(op, "receive");
    int             base, size, place = place_of(t, line->group, rank, &base, &size);
    key             k = {line->group, base, line->number, -1, -1, 0, "", 0};
    if (place == size)
        return GM_FAIL(GM_EINVAL, "rank %d is no member of the group %s of its own step", rank,
                       t->groups->name[line->group]);
    if ((sends || receives) && (e->peer < 0 || e->peer >= size))
        return GM_FAIL(GM_EINVAL, "rank %d: there is no place %d in group %s", rank, e->peer,
                       t->groups->name[line->group]);
    if (sends || receives) k.from = sends ? place : e->peer;
    if (sends || receives) k.to = sends ? e->peer : place;
    GM_TRY(make_room(t, false));
    int *slot = slot_of(t, false, &k);
    if (!*slot) {
        t->list[t->n++] = (transfer){.key = k,
                                     .members = sends || receives ? 2 : size,
                                     .first_rank = rank,
                                     .event = e,
                                     .op = op,
                                     .bytes = e->bytes,
                                     .waiter = -1};
        *slot = t->n;
    }
    *out = *slot - 1;
    transfer *x = &t->list[*out];
    GM_TRY(check_same(x, rank, e, op, t->groups->name[line->group]));
    if (e->bytes > x->bytes) x->bytes = e->bytes;
    return ++x->begun == x->members ? become_ready(t, *out, rank, now) : GM_OK;
}
