/* recorded.c - see recorded.h.
 *
 * The library is called as ever, on streams that have joined the recording (kernels/queues.h, fork), so its kernels
 * become part of the graph. Two rules of NCCL shape this file:
 *   - Kernels of several communicators that wait for each other must start in one order on all devices, or they may
 *     take the room that others need. In a graph nothing orders branches, so every collective is put behind the one
 *     that was recorded before it. Messages of two are not: two members that send to each other would wait for ever.
 *   - A communicator cannot be freed, nor aborted, while a graph holds kernels of it. So graphs end before links do.
 * (NVIDIA, NCCL user guide, "Using NCCL with CUDA Graphs" and "Using multiple NCCL communicators concurrently".) */
#include "recorded.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/philox.h"
#include "lane.h"

/* The counters of a group as they were when the recording began. */
typedef struct before {
    gm_group   *group;
    gm_channel *to, *from; /* copies, by place */
    uint64_t    number, history;
    gm_account  account[GM_CALL_COUNT][GM_PHASE_COUNT];
} before;

/* While a graph is recorded. */
struct gm_recording {
    before    *groups;
    int        n;
    gm_ticket *last; /* behind the last collective */
    bool       any;  /* one was recorded */
};

typedef struct replayed { /* what a replay adds to an account */
    gm_account *to;
    uint64_t    calls, bytes, copied;
} replayed;

/* What a recorded graph keeps; belongs to it. */
struct gm_recorded {
    gm_recorded *next;
    gm_comm     *comm; /* NULL: gone */
    gm_graph    *graph;
    char        *text;
    replayed    *accounts;
    int          n;
};

static const gm_queues *queues_of(const gm_comm *c) { return c->linked->backend->queues; }

/* ---- recording ---- */

static void free_recording(gm_comm *c)
{
    gm_recording *r = c->recording;
    c->recording = NULL;
    if (!r) return;
    if (r->last && c->linked) queues_of(c)->give(c->linked, r->last);
    for (int i = 0; i < r->n; i++) {
        free(r->groups[i].to);
        free(r->groups[i].from);
    }
    free(r->groups);
    free(r);
}

static gm_channel *copy_of(const gm_channel *channels, int n)
{
    gm_channel *copy = malloc((size_t)n * sizeof *copy);
    if (copy) memcpy(copy, channels, (size_t)n * sizeof *copy);
    return copy;
}

static gm_status remember(gm_recording *r, gm_comm *c)
{
    int n = 0;
    for (gm_group *g = c->groups; g; g = g->next) n++;
    r->groups = calloc((size_t)n + 1, sizeof *r->groups);
    if (!r->groups) return GM_FAIL(GM_ENOMEM, "no memory to record a graph");
    for (gm_group *g = c->groups; g; g = g->next) {
        before *b = &r->groups[r->n++];
        *b = (before){.group = g, .to = copy_of(g->to, g->size), .from = copy_of(g->from, g->size)};
        b->number = g->number;
        b->history = g->history;
        memcpy(b->account, g->account, sizeof b->account);
        if (!b->to || !b->from) return GM_FAIL(GM_ENOMEM, "no memory to record a graph");
    }
    return GM_OK;
}

/* Nobody waits for them any more, and the device has passed them. */
static gm_status check_idle(gm_comm *c, const char *what)
{
    char call[480];
    for (gm_pending *p = c->under_way; p; p = p->next) {
        if (!p->linked || p->dropped || p->given_up || p->done) continue;
        gm_record_describe(&p->record, p->group->name, call, sizeof call);
        return GM_FAIL(GM_EINVAL, "%s is under way while %s; wait for it before", call, what);
    }
    return GM_OK;
}

static gm_status begin(gm_comm *c, gm_device *dev)
{
    GM_TRY(check_idle(c, "a graph is to be recorded"));
    GM_TRY(gm_lanes_drain(c));
    c->recording = calloc(1, sizeof *c->recording);
    if (!c->recording) return GM_FAIL(GM_ENOMEM, "no memory to record a graph");
    GM_TRY(remember(c->recording, c));
    GM_TRY(gm_device_capture_begin(dev));
    return queues_of(c)->fork(dev, &c->recording->last);
}

static bool records(const gm_comm *c, const gm_device *dev) { return c && c->linked == dev; }

gm_status gm_comm_record_begin(gm_comm *c, gm_device *dev)
{
    if (!records(c, dev)) return gm_device_capture_begin(dev);
    if (c->recording) return GM_FAIL(GM_EINVAL, "a graph is being recorded on this device already");
    gm_status st = begin(c, dev);
    if (st == GM_OK) return GM_OK;
    char error[1100];
    snprintf(error, sizeof error, "%s", gm_last_error());
    gm_comm_record_drop(c, dev);
    return gm_fail_again(st, error);
}

gm_status gm_recorded_take(gm_pending *p)
{
    gm_graph *graph = p->linked->capture;
    gm_lane  *l = *gm_lane_place(p);
    if (!p->comm->recording)
        return GM_FAIL(GM_EINVAL, "%s of group %s: this recording was not begun for operations between devices",
                       gm_call_name((int)p->call), p->group->name);
    if (!l || !l->link)
        return GM_FAIL(GM_EINVAL,
                       "%s of group %s cannot be part of a graph yet: the first operation between these devices makes "
                       "their link, so run it once before it is recorded",
                       gm_call_name((int)p->call), p->group->name);
    gm_graph_link(graph);
    return gm_graph_keep(graph, &(gm_call){.n_in = 1, .n_out = 1, .in = &p->in, .out = &p->out});
}

gm_status gm_recorded_follow(gm_pending *p)
{
    gm_recording *r = p->comm->recording;
    if (!r->any || gm_lane_is_message(p)) return GM_OK;
    return queues_of(p->comm)->after(gm_links_queue(p->lane->link), r->last);
}

gm_status gm_recorded_left(gm_pending *p)
{
    gm_recording *r = p->comm->recording;
    if (gm_lane_is_message(p)) return GM_OK;
    r->any = true;
    return queues_of(p->comm)->leave(gm_links_queue(p->lane->link), r->last);
}

/* ---- the end of a recording ---- */

static before *before_of(const gm_recording *r, const gm_group *g)
{
    for (int i = 0; i < r->n; i++)
        if (r->groups[i].group == g) return &r->groups[i];
    return NULL;
}

/* "GROUP:HASH " for a group or a direction that has recorded something. */
static char *add_text(char *at, const char *end, uint64_t id, uint64_t history)
{
    return at + snprintf(at, (size_t)(end - at), "%016" PRIx64 ":%016" PRIx64 " ", id, history);
}

static char *describe(gm_comm *c)
{
    size_t room = 1;
    for (const gm_group *g = c->groups; g; g = g->next) room += 34 * (1 + 2 * (size_t)g->size);
    char *text = malloc(room), *at = text, *end = text + room;
    if (!text) return NULL;
    *text = 0;
    for (const gm_group *g = c->groups; g; g = g->next) {
        const before *b = before_of(c->recording, g);
        if (!b) continue;
        if (g->number != b->number) at = add_text(at, end, g->id, g->history);
        for (int i = 0; i < g->size; i++) {
            if (g->to[i].number != b->to[i].number)
                at = add_text(at, end, gm_channel_id(g, g->rank, i), g->to[i].history);
            if (g->from[i].number != b->from[i].number)
                at = add_text(at, end, gm_channel_id(g, i, g->rank), g->from[i].history);
        }
    }
    if (at > text) at[-1] = 0;
    return text;
}

/* Calls fn for every account that a recorded operation has changed; returns how many there are. */
static int each_change(gm_comm *c, replayed *out)
{
    int n = 0;
    for (gm_group *g = c->groups; g; g = g->next) {
        const before *b = before_of(c->recording, g);
        for (int k = 0; b && k < GM_CALL_COUNT * GM_PHASE_COUNT; k++) {
            gm_account       *now = &g->account[0][0] + k;
            const gm_account *was = &b->account[0][0] + k;
            if (now->calls == was->calls) continue;
            if (out)
                out[n] = (replayed){now, now->calls - was->calls, now->bytes - was->bytes, now->copied - was->copied};
            n++;
        }
    }
    return n;
}

/* As if nothing had been called. */
static void put_back(gm_comm *c)
{
    for (gm_group *g = c->groups; g; g = g->next) {
        const before *b = before_of(c->recording, g);
        if (!b) continue;
        g->number = b->number;
        g->history = b->history;
        for (int i = 0; i < g->size; i++) {
            g->to[i].number = b->to[i].number;
            g->to[i].history = b->to[i].history;
            g->from[i].number = b->from[i].number;
            g->from[i].history = b->from[i].history;
        }
        memcpy(g->account, b->account, sizeof b->account);
    }
}

static void release(void *attached)
{
    gm_recorded *r = attached;
    for (gm_recorded **at = r->comm ? &r->comm->recorded : NULL; at && *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    free(r->accounts);
    free(r->text);
    free(r);
}

/* What the graph keeps, which the comm knows as long as both are there. */
static gm_status attach(gm_comm *c, gm_graph *graph)
{
    int          n = each_change(c, NULL);
    gm_recorded *r = calloc(1, sizeof *r);
    if (!r) return GM_FAIL(GM_ENOMEM, "no memory for a graph");
    r->text = describe(c);
    r->accounts = calloc((size_t)n + 1, sizeof *r->accounts);
    if (!r->text || !r->accounts) {
        release(r);
        return GM_FAIL(GM_ENOMEM, "no memory for a graph");
    }
    r->n = each_change(c, r->accounts);
    r->comm = c;
    r->graph = graph;
    r->next = c->recorded;
    c->recorded = r;
    gm_graph_attach(graph, r, release);
    return GM_OK;
}

/* What was begun in the recording, waited for or not, will never run. */
static void forget_operations(gm_comm *c)
{
    for (gm_pending *p = c->under_way; p; p = p->next) {
        if (!p->in_graph) continue;
        p->given_up = true;
        p->stage = GM_LANE_WAITS;
        p->lane = NULL;
    }
    for (gm_lane *l = c->lanes; l; l = l->next) l->left = l->done = l->turns;
    gm_operations_advance(c); /* frees those that nobody will wait for */
}

void gm_comm_record_drop(gm_comm *c, gm_device *dev)
{
    gm_device_capture_drop(dev);
    if (!c || !c->recording) return;
    put_back(c);
    forget_operations(c);
    free_recording(c);
}

static gm_status check_waited(gm_comm *c)
{
    char call[480];
    for (gm_pending *p = c->under_way; p; p = p->next) {
        if (!p->in_graph) continue;
        gm_record_describe(&p->record, p->group->name, call, sizeof call);
        return GM_FAIL(GM_EINVAL, "%s was begun in a graph, which must wait for it, too", call);
    }
    return GM_OK;
}

gm_status gm_comm_record_end(gm_comm *c, gm_device *dev, gm_graph **out)
{
    gm_graph *graph = NULL;
    if (!c || !c->recording) return gm_device_capture_end(dev, out);
    gm_status st = check_waited(c);
    if (st == GM_OK) st = gm_device_capture_end(dev, &graph);
    if (st == GM_OK && gm_graph_is_linked(graph)) st = attach(c, graph);
    char error[1100];
    snprintf(error, sizeof error, "%s", gm_last_error());
    gm_comm_record_drop(c, dev);
    if (st == GM_OK) {
        *out = graph;
        return GM_OK;
    }
    gm_graph_free(graph);
    return gm_fail_again(st, error);
}

const char *gm_comm_recorded(const gm_graph *g)
{
    const gm_recorded *r = gm_graph_attached(g);
    return r ? r->text : "";
}

/* ---- replays ---- */

#define ENDED "this graph has ended, since the links between devices that it uses were closed; record it again"

static gm_status step_replay(gm_pending *p, int round) { return (void)p, (void)round, GM_OK; }

gm_status gm_comm_replay(gm_comm *c, gm_device *dev, gm_graph *g)
{
    gm_group   *world;
    gm_pending *p;
    if (!gm_graph_is_linked(g) || dev->capture) return gm_device_replay(dev, g); /* which refuses the second */
    if (!c) return GM_FAIL(GM_EINVAL, ENDED);
    GM_TRY(gm_comm_everybody(c, &world));
    GM_TRY(
        gm_call_check_group(c, world, "replay")); /* a failure that has closed the links is the reason, and is named */
    if (!records(c, dev) || gm_graph_has_ended(g)) return GM_FAIL(GM_EINVAL, ENDED);
    GM_TRY(check_idle(c, "a graph is to run"));
    GM_TRY(gm_pending_new(c, world, GM_CALL_replay, NULL, NULL, 0, 0, &p));
    p->linked = dev;
    p->graph = g;
    p->step = step_replay;
    GM_TRY(gm_pending_start(p, NULL));
    const gm_recorded *r = gm_graph_attached(g);
    for (int i = 0; i < r->n; i++) {
        r->accounts[i].to->calls += r->accounts[i].calls;
        r->accounts[i].to->bytes += r->accounts[i].bytes;
        r->accounts[i].to->copied += r->accounts[i].copied;
    }
    return GM_OK;
}

gm_status gm_recorded_launch(gm_pending *p)
{
    for (const gm_lane *l = p->comm->lanes; l; l = l->next)
        if (l->left != l->turns) return GM_OK;
    GM_TRY(gm_device_replay(p->linked, p->graph));
    GM_TRY(queues_of(p->comm)->leave_here(p->linked, p->ticket));
    p->graph = NULL;
    p->stage = GM_LANE_QUEUED;
    return GM_OK;
}

/* ---- ends ---- */

void gm_recorded_end_all(gm_comm *c)
{
    for (gm_recorded *r = c->recorded; r; r = r->next) gm_graph_end(r->graph);
}

void gm_recorded_forget_comm(gm_comm *c)
{
    for (gm_recorded *r = c->recorded; r; r = r->next) r->comm = NULL;
    c->recorded = NULL;
    free_recording(c);
}

void gm_comm_renew_links(gm_comm *c)
{
    if (c && c->linked) gm_lanes_close(c, false);
}
