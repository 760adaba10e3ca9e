/* lane.c - operations on tensors of devices that exchange data directly (links.h: NCCL).
 *
 * A lane is the link of a group, or of one direction between two of its members. The first operation makes it: the
 * first member makes an id and sends it over the transport, then all members open the link. Only the operations of the
 * lane wait for this, each in its turn. An operation on a lane runs the same rounds as over the transport without
 * moving data, so that records, accounts and questions about stalls are the same. Then it goes through the stages
 *
 *     WAITS    for the lane to be made and for the operations before it
 *     ISSUED   the library is at work on the call
 *     QUEUED   the device has it; gm_comm_wait returns here, when the device's later work has been put behind it
 *
 * and is done when the device has passed it, which advance finds. A wait of the host for the device asks `attend` in
 * between: another rank's failure, a different call or a time-out stop all links, and the wait fails with that.
 *
 * The trap: memory of an operation may be written until it has passed. A wait gives it back at once, since whoever
 * takes it next is behind the operation; what is given up keeps it until the device is through. */
#include "lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"
#include "recorded.h"

_Static_assert((int)GM_LINK_SUM == GM_SUM && (int)GM_LINK_MEAN == GM_MEAN && (int)GM_LINK_MAX == GM_MAX &&
                   (int)GM_LINK_MIN == GM_MIN,
               "reductions of links are those of groups");

/* Seconds that what the device has begun gets after another rank has failed: that may have done its part in it. */
#define GRACE 0.2

static const gm_queues *queues_of(const gm_device *dev) { return dev->backend->queues; }

/* ---- making a lane ---- */

static gm_status step_connect(gm_pending *p, int round)
{
    gm_lane *l = p->lane;
    bool     two = p->call != GM_CALL_broadcast;
    if (round) return GM_OK;
    if (l->place) gm_pending_receive(p, two ? p->root : 0, l->id.bytes, sizeof l->id.bytes, true);
    for (int i = 0; !l->place && i < p->group->size; i++)
        if (i != p->group->rank && (!two || i == p->root)) gm_pending_send(p, i, l->id.bytes, sizeof l->id.bytes, true);
    return GM_OK;
}

/* The id on its way, as an operation of the group that nobody waits for. */
static gm_status connect(gm_comm *c, const gm_pending *first, gm_lane *l)
{
    gm_pending *p;
    bool        two = first->call == GM_CALL_send || first->call == GM_CALL_receive;
    if (!l->place) GM_TRY(gm_links_new_id(&l->id));
    GM_TRY(
        gm_pending_new(c, first->group, two ? first->call : GM_CALL_broadcast, NULL, NULL, 0, first->group->size, &p));
    p->silent = true;
    p->lane = l;
    p->step = step_connect;
    p->rounds = 1;
    p->root = two ? first->root : 0;
    p->record.root = two ? -1 : 0;
    p->record.dtype = GM_U8;
    p->record.ndim = 1;
    p->record.shape[0] = sizeof l->id.bytes;
    return gm_pending_start(p, &l->connecting);
}

bool gm_lane_is_message(const gm_pending *p) { return p->call == GM_CALL_send || p->call == GM_CALL_receive; }

gm_lane **gm_lane_place(const gm_pending *p)
{
    gm_group *g = p->group;
    if (!gm_lane_is_message(p)) return &g->lane;
    return p->call == GM_CALL_send ? &g->to[p->root].lane : &g->from[p->root].lane;
}

static gm_status lane_of(gm_pending *p, gm_lane **out)
{
    gm_comm  *c = p->comm;
    gm_group *g = p->group;
    bool      sends = p->call == GM_CALL_send, two = gm_lane_is_message(p);
    gm_lane **at = gm_lane_place(p);
    if (!*at) {
        gm_lane *l = calloc(1, sizeof *l);
        if (!l) return GM_FAIL(GM_ENOMEM, "no memory for a link of group %s", g->name);
        l->size = two ? 2 : g->size;
        l->place = two ? !sends : g->rank;
        l->next = c->lanes;
        c->lanes = *at = l;
        gm_status st = connect(c, p, l);
        if (st != GM_OK) {
            c->lanes = l->next;
            *at = NULL;
            free(l);
            return gm_comm_once(st);
        }
    }
    *out = *at;
    return GM_OK;
}

static gm_status make(gm_comm *c, gm_lane *l, bool *ready)
{
    *ready = false;
    if (l->connecting) {
        gm_pending *p = l->connecting;
        if (p->status != GM_OK) return gm_fail_again(p->status, p->error);
        if (!p->done) return GM_OK;
        l->connecting = NULL;
        gm_comm_drop(c, p);
    }
    if (!l->link) GM_TRY(gm_links_open(c->linked, &l->id, l->size, l->place, &l->link));
    return gm_links_ready(l->link, ready);
}

/* ---- an operation's way ---- */

bool gm_lane_serves(const gm_pending *p)
{
    const gm_tensor *t = p->in ? p->in : p->out;
    return p->comm->linked && p->group->size > 1 && t->storage->device == p->comm->linked;
}

gm_status gm_lane_take(gm_pending *p)
{
    p->in_graph = p->linked->capture != NULL;
    if (p->call != GM_CALL_replay) GM_TRY(gm_lane_take_blocks(p));
    GM_TRY(queues_of(p->linked)->fork(p->linked, &p->ticket));
    if (p->call == GM_CALL_replay) return GM_OK;
    if (p->in_graph) GM_TRY(gm_recorded_take(p));
    GM_TRY(lane_of(p, &p->lane));
    p->turn = p->lane->turns++;
    p->stage = GM_LANE_WAITS;
    return GM_OK;
}

static gm_status try_issue(gm_pending *p)
{
    gm_lane *l = p->lane;
    bool     ready = false;
    if (l->left != p->turn) return GM_OK;
    GM_TRY(make(p->comm, l, &ready));
    if (!ready) return GM_OK;
    GM_TRY(gm_lane_pack(p));
    if (p->in_graph) GM_TRY(gm_recorded_follow(p));
    GM_TRY(gm_lane_move(p));
    p->stage = GM_LANE_ISSUED;
    return GM_OK;
}

static gm_status try_leave(gm_pending *p)
{
    gm_lane *l = p->lane;
    bool     ready = false;
    GM_TRY(gm_links_ready(l->link, &ready));
    if (!ready) return GM_OK;
    if (p->in_graph) GM_TRY(gm_recorded_left(p));
    GM_TRY(gm_lane_unpack(p));
    GM_TRY(queues_of(p->linked)->leave(gm_links_queue(l->link), p->ticket));
    p->stage = GM_LANE_QUEUED;
    l->left++;
    return GM_OK;
}

/* Has the library failed in what it has been given? A replay has operations of any link. */
static gm_status look_at_links(gm_pending *p)
{
    bool ready;
    if (p->lane) return gm_links_ready(p->lane->link, &ready);
    for (gm_lane *l = p->comm->lanes; l; l = l->next)
        if (l->link) GM_TRY(gm_links_ready(l->link, &ready));
    return GM_OK;
}

/* Is everything that its lane, if it has one, was given before it done? */
static bool is_first(const gm_pending *p)
{
    return p->call == GM_CALL_replay ? p->stage == GM_LANE_QUEUED : p->lane && p->lane->done == p->turn;
}

/* Has it passed the device? While that has not come to it, nobody else is waited for. Of what is part of a graph nobody
 * can tell: its replays pass. */
static gm_status look(gm_pending *p)
{
    bool begun = false, done = false;
    if (p->in_graph) return GM_OK;
    if (is_first(p)) GM_TRY(queues_of(p->linked)->passed(p->linked, p->ticket, &begun, &done));
    if (!begun) p->progressed = gm_now();
    if (!done) return begun ? look_at_links(p) : GM_OK;
    if (p->lane) p->lane->done++;
    gm_pending_finish(p);
    return GM_OK;
}

void gm_lanes_failed(gm_comm *c, gm_status st, const char *error)
{
    if (c->lane_status != GM_OK) return;
    c->lane_status = st;
    snprintf(c->lane_error, sizeof c->lane_error, "%s", error);
}

void gm_lane_give_up(gm_pending *p)
{
    gm_comm *c = p->comm;
    char     call[480], text[700];
    if (p->linked != c->linked || p->in_graph) return;
    gm_record_describe(&p->record, p->group->name, call, sizeof call);
    snprintf(text, sizeof text, "%s was given up on this rank; what follows it cannot go on", call);
    if (p->status == GM_OK) gm_lanes_failed(c, GM_ECOMM, text);
    else gm_lanes_failed(c, p->status, p->error);
    gm_lanes_stop(c);
}

/* Nobody may wait for the operation any more, so that the comm remembers. What finds its link stopped has the reason of
 * that: the failure that came first. */
static void lane_failed(gm_pending *p, gm_status st)
{
    char           call[480], text[600];
    const gm_comm *c = p->comm;
    if (c->lane_status != GM_OK) {
        gm_pending_fail(p, gm_fail_again(c->lane_status, c->lane_error));
        return;
    }
    snprintf(text, sizeof text, "%s", gm_last_error());
    gm_record_describe(&p->record, p->group->name, call, sizeof call);
    gm_pending_fail(p, GM_FAIL(st, "%s: %s", call, text));
}

bool gm_lane_advance(gm_pending *p)
{
    gm_lane_stage before = p->stage;
    gm_status     st = GM_OK;
    if (p->stage == GM_LANE_WAITS) st = p->call == GM_CALL_replay ? gm_recorded_launch(p) : try_issue(p);
    if (st == GM_OK && p->stage == GM_LANE_ISSUED) st = try_leave(p);
    if (st == GM_OK && p->stage == GM_LANE_QUEUED) st = look(p);
    if (st != GM_OK) lane_failed(p, gm_comm_once(st));
    return p->done || p->stage != before;
}

/* To the kernels that are launched from here on; bytes that rest elsewhere between uses (gm_home) may go there. */
static void release_memory(gm_pending *p)
{
    if (p->in) gm_storage_close(p->in->storage, false);
    if (p->out) gm_storage_close(p->out->storage, true);
    gm_tensor **held[] = {&p->in, &p->out, &p->packed, &p->unpacked};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        gm_tensor_release(*held[i]);
        *held[i] = NULL;
    }
}

gm_status gm_lane_hand_over(gm_pending *p)
{
    if (!p->done && p->call != GM_CALL_replay) GM_TRY(queues_of(p->linked)->order(p->linked, p->ticket));
    release_memory(p);
    p->handed_over = true;
    if (!p->in_graph) return GM_OK;
    if (p->lane) p->lane->done++; /* that is all there is to wait for */
    gm_pending_finish(p);
    return GM_OK;
}

void gm_lane_free(gm_pending *p)
{
    if (p->ticket) queues_of(p->linked)->give(p->linked, p->ticket);
    p->ticket = NULL;
    gm_tensor_release(p->packed);
    gm_tensor_release(p->unpacked);
}

bool gm_lane_holds(const gm_pending *p)
{
    bool begun, done;
    if (!p->ticket || p->done || p->stage == GM_LANE_WAITS || p->handed_over || p->in_graph) return false;
    if (p->stage == GM_LANE_ISSUED) return p->lane && p->lane->link; /* until its link is closed */
    return queues_of(p->linked)->passed(p->linked, p->ticket, &begun, &done) == GM_OK && !done;
}

/* ---- all lanes ---- */

void gm_lanes_stop(gm_comm *c)
{
    int       n = 0;
    gm_link **links;
    if (c->recording) return; /* nothing runs, and the graph has not ended: who drops it closes the lanes */
    gm_recorded_end_all(c);
    for (gm_lane *l = c->lanes; l; l = l->next) n += l->link != NULL;
    if (!n) return;
    links = malloc((size_t)n * sizeof *links);
    n = 0;
    for (gm_lane *l = c->lanes; l; l = l->next) {
        if (l->link && links) links[n++] = l->link;
        else if (l->link) gm_links_stop(&l->link, 1); /* no memory: one after the other must do */
    }
    if (links) gm_links_stop(links, n);
    free(links);
}

void gm_lanes_close(gm_comm *c, bool orderly)
{
    for (gm_pending *p = c->under_way; p; p = p->next) p->lane = NULL;
    for (gm_group *g = c->groups; g; g = g->next) {
        g->lane = NULL;
        for (int i = 0; i < g->size; i++) g->to[i].lane = g->from[i].lane = NULL;
    }
    if (c->recording) gm_comm_record_drop(c, c->linked);
    gm_recorded_end_all(c);
    if (!orderly) gm_lanes_stop(c); /* all, before one is waited for */
    while (c->lanes) {
        gm_lane *l = c->lanes;
        c->lanes = l->next;
        if (l->connecting) gm_comm_drop(c, l->connecting);
        gm_links_close(l->link, orderly);
        free(l);
    }
    c->lane_status = GM_OK;
}

/* The oldest operation that others have to do with: its lane is not made, or the device waits in it. */
static gm_pending *stalled(gm_comm *c, bool *any)
{
    *any = false;
    for (gm_pending *p = c->under_way; p; p = p->next) {
        if (!p->ticket || p->done || p->given_up || p->in_graph) continue;
        *any = true;
        if (is_first(p)) return p;
    }
    return NULL;
}

static gm_status attend_once(gm_comm *c, bool *idle)
{
    bool any = false;
    if (c->advancing) return GM_OK; /* a wait inside of an operation's own work: it is attended to by that */
    gm_operations_advance(c);
    gm_notice_read(c);
    gm_pending *p = stalled(c, &any);
    gm_status   st = gm_comm_check_failed(c);
    bool        may_end = !any || (p && gm_now() - p->progressed < GRACE);
    *idle = !any;
    if (st != GM_OK && !(st == GM_EPEER && may_end)) return gm_fail_again(st, gm_last_error());
    if (!p) return GM_OK;
    GM_TRY(gm_comm_check_interrupt(c));
    if (p->status != GM_OK) return gm_fail_again(p->status, p->error);
    return gm_pending_watch(p, p->progressed, &c->lane_asked);
}

static gm_status attend(void *context, bool *idle)
{
    gm_comm  *c = context;
    gm_status st = attend_once(c, idle);
    if (st != GM_OK) gm_lanes_stop(c);
    return st;
}

gm_status gm_lanes_drain(gm_comm *c)
{
    double   since = gm_now();
    unsigned turns = 0;
    bool     idle = !c->lanes;
    while (!idle) {
        GM_TRY(attend(c, &idle));
        if (!idle) gm_comm_pause(since, &turns);
    }
    return GM_OK;
}

void gm_lanes_use(gm_comm *c, gm_device *dev)
{
    c->linked = dev;
    dev->attend = attend;
    dev->attend_context = c;
}

void gm_comm_use_host(gm_comm *c)
{
    if (!c->linked) return;
    gm_lanes_close(c, false);
    c->linked->attend = NULL;
    c->linked->attend_context = NULL;
    c->linked = NULL;
}
