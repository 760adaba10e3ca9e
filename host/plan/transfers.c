/* transfers.c - see replay.h. A transfer is the operation of one number on all channels of a class. */
#include <stdlib.h>
#include <string.h>

#include "replay.h"

/* QUEUES: all members have begun it, and an earlier one of its channel is not over. WAITS: for its latency. */
typedef enum stage { GATHERS, QUEUES, WAITS, MOVES, OVER } stage;

typedef struct transfer {
    int               channel, number; /* a class of channels */
    stage             stage;
    int               begun, first_ranks; /* classes that have begun it; the first of them */
    const gm_event   *event;              /* of that one */
    const char       *op;
    double            bytes, ready;
    const gm_planned *plan;
    const gm_load    *loads;
    int               n_loads;
    double            left, pace, since, end; /* parts of 1, parts a second, when `left` was true, as reckoned */
    uint64_t          stamp;
    int               waiter; /* the first class that waits, -1: none; next_waiter has the others */
} transfer;

typedef struct user {
    int transfer, count;
} user;

typedef struct users {
    user *list;
    int   n, room, copies; /* the sum of the counts */
} users;

typedef struct numbers {
    int *list, n; /* by number: the transfer + 1 */
} numbers;

struct gm_transfers {
    gm_channels *channels;
    gm_classes  *classes;
    gm_moments  *moments;
    transfer    *list;
    numbers     *numbers; /* of each class of channels */
    users       *users;   /* of each class of links */
    int         *copies;  /* channels of each class */
    int         *next_waiter, *moving;
    int          n, room, n_moving, moving_room, n_alone; /* n_alone: those that move and count as alone */
    uint64_t     stamps;
    bool         met;
};

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for the transfers of a simulation"); }

/* ---- life ---- */

gm_status gm_transfers_new(gm_channels *channels, gm_classes *classes, gm_moments *moments, gm_transfers **out)
{
    gm_transfers *t = calloc(1, sizeof *t);
    if (!t) return no_memory();
    *t = (gm_transfers){.channels = channels, .classes = classes, .moments = moments};
    t->numbers = calloc((size_t)classes->n_channels + 1, sizeof *t->numbers);
    t->copies = calloc((size_t)classes->n_channels + 1, sizeof *t->copies);
    t->users = calloc((size_t)classes->n_links + 1, sizeof *t->users);
    t->next_waiter = malloc((size_t)classes->n_ranks * sizeof *t->next_waiter);
    if (!t->numbers || !t->copies || !t->users || !t->next_waiter) {
        gm_transfers_free(t);
        return no_memory();
    }
    for (int i = 0; i < channels->n; i++) t->copies[classes->channel[i]]++;
    *out = t;
    return GM_OK;
}

void gm_transfers_free(gm_transfers *t)
{
    if (!t) return;
    for (int i = 0; t->users && i < t->classes->n_links; i++) free(t->users[i].list);
    for (int i = 0; t->numbers && i < t->classes->n_channels; i++) free(t->numbers[i].list);
    free(t->users);
    free(t->numbers);
    free(t->copies);
    free(t->list);
    free(t->moving);
    free(t->next_waiter);
    free(t);
}

int64_t gm_transfers_count(const gm_transfers *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++) n += t->copies[t->list[i].channel];
    return n;
}

bool   gm_transfers_met(const gm_transfers *t) { return t->met; }
bool   gm_transfer_is_over(const gm_transfers *t, int at) { return t->list[at].stage == OVER; }
double gm_transfer_ready(const gm_transfers *t, int at) { return t->list[at].ready; }

static bool moved_by_host(const gm_transfers *t, const gm_planned *p)
{
    return t->channels->machine->host_moves && !p->below;
}

double gm_transfer_cost(const gm_transfers *t, int at)
{
    const transfer *x = &t->list[at];
    if (!moved_by_host(t, x->plan)) return 0;
    return x->plan->plan.latency + x->bytes * x->plan->plan.slowest;
}

void gm_transfer_wait(gm_transfers *t, int at, int ranks)
{
    t->next_waiter[ranks] = t->list[at].waiter;
    t->list[at].waiter = ranks;
}

int gm_transfer_next_waiter(gm_transfers *t, int at)
{
    int ranks = t->list[at].waiter;
    if (ranks >= 0) t->list[at].waiter = t->next_waiter[ranks];
    return ranks;
}

/* ---- links in use ---- */

static gm_status take_link(users *u, int transfer, int count)
{
    if (u->n == u->room) {
        int   room = u->room ? 2 * u->room : 4;
        user *more = realloc(u->list, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        u->list = more;
        u->room = room;
    }
    u->list[u->n++] = (user){transfer, count};
    u->copies += count;
    return GM_OK;
}

static void leave_link(users *u, int transfer)
{
    int i = 0;
    while (u->list[i].transfer != transfer) i++;
    u->copies -= u->list[i].count;
    for (u->n--; i < u->n; i++) u->list[i] = u->list[i + 1];
}

static double longer(double a, double b) { return a > b ? a : b; }

/* The seconds of the whole, at the pace that its links leave it now. */
static double seconds_of(const gm_transfers *t, const transfer *x)
{
    const gm_network  *w = t->channels->network;
    const gm_transfer *p = &x->plan->plan;
    double             seconds = 0;
    for (int i = 0; i < p->n && x->plan->alone; i++)
        seconds = longer(seconds, x->bytes * p->uses[i].share / gm_network_bandwidth(w, p->uses[i].link));
    for (int i = 0; i < x->n_loads; i++) {
        const gm_load *l = &x->loads[i];
        double         b = gm_network_bandwidth(w, t->classes->first_link[l->link]);
        seconds = longer(seconds, x->bytes * l->share * t->users[l->link].copies / b);
    }
    return seconds;
}

/* Its pace from now on, and the end that follows. */
static void reckon(gm_transfers *t, int at, double now)
{
    transfer *x = &t->list[at];
    double    seconds = seconds_of(t, x), pace = 1 / seconds;
    if (pace == x->pace) return; /* as reckoned */
    x->left -= (now - x->since) * x->pace;
    if (x->left < 0) x->left = 0;
    x->since = now;
    x->pace = pace;
    x->stamp = ++t->stamps;
    x->end = now + x->left * seconds;
    gm_moments_add(t->moments, (gm_moment){x->end, GM_HAPPENS_ENDED, at, x->stamp});
}

static void reckon_neighbours(gm_transfers *t, const transfer *x, double now)
{
    for (int i = 0; i < x->n_loads; i++) {
        const users *u = &t->users[x->loads[i].link];
        for (int k = 0; k < u->n; k++) reckon(t, u->list[k].transfer, now);
    }
}

/* ---- what counts as alone ---- */

static gm_status check_meeting(gm_transfers *t, const transfer *x, const transfer *y)
{
    const gm_channels *c = t->channels;
    const transfer    *pair[2] = {x, y};
    int class[2], offset[2];
    bool meet;
    for (int i = 0; i < 2; i++) {
        class[i] = pair[i]->channel;
        offset[i] = (int)(pair[i]->plan - c->plans) - c->list[t->classes->first_channel[class[i]]].first;
    }
    GM_TRY(gm_classes_meet(c, t->classes, class, offset, &meet));
    for (int i = 0; i < 2 && meet; i++)
        if (pair[i]->plan->alone) t->channels->kinds[pair[i]->plan->kind].crowded = t->met = true;
    return GM_OK;
}

/* Looks for meetings of one that starts to move. One that ends at this moment is not met: rounding decides what comes
 * first. */
static gm_status look_around(gm_transfers *t, int at, double now)
{
    transfer *x = &t->list[at];
    for (int i = 0; i < t->n_moving; i++) {
        transfer *y = &t->list[t->moving[i]];
        if ((x->plan->alone || y->plan->alone) && y->end > now * (1 + 1e-12)) GM_TRY(check_meeting(t, x, y));
    }
    if (t->n_moving == t->moving_room) {
        int  room = t->moving_room ? 2 * t->moving_room : 64;
        int *more = realloc(t->moving, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        t->moving = more;
        t->moving_room = room;
    }
    t->moving[t->n_moving++] = at;
    return GM_OK;
}

static void stop_moving(gm_transfers *t, int at)
{
    int i = 0;
    while (t->moving[i] != at) i++;
    t->moving[i] = t->moving[--t->n_moving];
}

/* ---- one after the other ---- */

/* The transfer of a number on a channel; NULL: no member has begun it. */
static transfer *numbered(const gm_transfers *t, int channel, int number)
{
    const numbers *of = &t->numbers[channel];
    return number >= 0 && number < of->n && of->list[number] ? &t->list[of->list[number] - 1] : NULL;
}

/* Does it wait until the one before it on its channel is over? That one was begun by all members, too. */
static bool is_queued(const gm_transfers *t, const transfer *x)
{
    const transfer *before = numbered(t, x->channel, x->number - 1);
    return t->channels->machine->in_order && !x->plan->below && before && before->stage != OVER;
}

static void start(gm_transfers *t, int at, double now)
{
    transfer *x = &t->list[at];
    x->stage = WAITS;
    x->ready = now;
    gm_moments_add(t->moments, (gm_moment){now + x->plan->plan.latency, GM_HAPPENS_STARTED, at, 0});
}

static void end(gm_transfers *t, int at, double now)
{
    transfer *x = &t->list[at], *next = numbered(t, x->channel, x->number + 1);
    x->stage = OVER;
    if (next && next->stage == QUEUES) start(t, (int)(next - t->list), now);
}

/* ---- moving ---- */

static gm_status start_moving(gm_transfers *t, int at, double now, bool *over)
{
    transfer *x = &t->list[at];
    if (x->stage == OVER || x->bytes <= 0 || !x->plan->plan.n) { /* over: its members move the bytes */
        end(t, at, now);
        *over = true;
        return GM_OK;
    }
    x->stage = MOVES;
    x->left = 1;
    x->since = now;
    for (int i = 0; i < x->n_loads; i++) GM_TRY(take_link(&t->users[x->loads[i].link], at, x->loads[i].count));
    if (x->plan->alone) reckon(t, at, now);
    else reckon_neighbours(t, x, now);
    return t->classes->any_alone ? look_around(t, at, now) : GM_OK;
}

gm_status gm_transfers_happen(gm_transfers *t, const gm_moment *m, bool *over)
{
    transfer *x = &t->list[m->at];
    *over = false;
    if (m->kind == GM_HAPPENS_STARTED) return start_moving(t, m->at, m->time, over);
    if (x->stage != MOVES || m->stamp != x->stamp) return GM_OK; /* reckoned anew since */
    end(t, m->at, m->time);
    *over = true;
    if (t->classes->any_alone) stop_moving(t, m->at);
    for (int i = 0; i < x->n_loads; i++) leave_link(&t->users[x->loads[i].link], m->at);
    reckon_neighbours(t, x, m->time);
    return GM_OK;
}

/* ---- beginning ---- */

static int rank_of(const gm_transfers *t, int ranks) { return t->classes->first_rank[ranks]; }

static const char *group_of(const gm_transfers *t, const transfer *x)
{
    const gm_channels *c = t->channels;
    return c->groups->name[c->list[t->classes->first_channel[x->channel]].group];
}

static gm_status differ(const gm_transfers *t, const transfer *x, int ranks, const gm_event *e, const char *op)
{
    return GM_FAIL(GM_EINVAL, "ranks %d and %d do not make the same call %d of group %s: %s of %.0f bytes, %s of %.0f",
                   rank_of(t, x->first_ranks), rank_of(t, ranks), x->number + 1, group_of(t, x), x->op, x->bytes, op,
                   e->bytes);
}

static gm_status check_same(const gm_transfers *t, const transfer *x, int ranks, const gm_event *e, const char *op,
                            bool message)
{
    bool uneven = !strcmp(op, "all_to_all_rows") || !strcmp(op, "exchange");
    bool same = message || (!strcmp(x->op, op) && x->event->peer == e->peer);
    return same && (uneven || x->bytes == e->bytes) ? GM_OK : differ(t, x, ranks, e, op);
}

static gm_status become_ready(gm_transfers *t, int at, double now)
{
    transfer *x = &t->list[at];
    int       first = t->classes->first_channel[x->channel];
    x->plan = gm_channels_plan(t->channels, first, x->op, x->event->peer, x->bytes);
    if (!x->plan)
        return GM_FAIL(GM_EINVAL, "the members of group %s do not make the same calls: %s of %.0f bytes",
                       group_of(t, x), x->op, x->bytes);
    int number = (int)(x->plan - t->channels->plans);
    x->loads = &t->classes->loads[t->classes->first_load[number]];
    x->n_loads = t->classes->n_loads[number];
    if (moved_by_host(t, x->plan)) {
        x->stage = OVER;
        x->ready = now;
        gm_moments_add(t->moments, (gm_moment){now, GM_HAPPENS_STARTED, at, 0});
    } else if (is_queued(t, x)) x->stage = QUEUES;
    else start(t, at, now);
    return GM_OK;
}

/* The place of a transfer in the list: 0 before its first member begins it. */
static gm_status find(gm_transfers *t, int channel, int number, int **slot)
{
    numbers *of = &t->numbers[channel];
    if (number >= of->n) {
        int  n = 2 * number + 16;
        int *more = realloc(of->list, (size_t)n * sizeof *more);
        if (!more) return no_memory();
        memset(more + of->n, 0, (size_t)(n - of->n) * sizeof *more);
        *of = (numbers){more, n};
    }
    *slot = &of->list[number];
    return GM_OK;
}

static gm_status add(gm_transfers *t, const transfer *x)
{
    if (t->n == t->room) {
        int       room = t->room ? 2 * t->room : 1024;
        transfer *more = realloc(t->list, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        t->list = more;
        t->room = room;
    }
    t->list[t->n++] = *x;
    return GM_OK;
}

gm_status gm_transfers_begin(gm_transfers *t, int ranks, const gm_program *p, const gm_step_line *line, double now,
                             int *out)
{
    const gm_event *e = line->event;
    const char     *op = gm_journal_text_of(p->step->journal, e->name);
    int channel = t->classes->channel[t->channels->of[t->channels->start[rank_of(t, ranks)] + line->way]], *slot = NULL;
    GM_TRY(find(t, channel, line->number, &slot));
    if (!*slot) {
        GM_TRY(add(t, &(transfer){.channel = channel,
                                  .number = line->number,
                                  .first_ranks = ranks,
                                  .event = e,
                                  .op = op,
                                  .bytes = e->bytes,
                                  .waiter = -1}));
        *slot = t->n;
    }
    *out = *slot - 1;
    transfer *x = &t->list[*out];
    GM_TRY(check_same(t, x, ranks, e, op, p->ways[line->way].message));
    if (e->bytes > x->bytes) x->bytes = e->bytes;
    return ++x->begun == t->classes->members[channel] ? become_ready(t, *out, now) : GM_OK;
}
