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
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"
#include "links.h"

_Static_assert((int)GM_LINK_SUM == GM_SUM && (int)GM_LINK_MEAN == GM_MEAN && (int)GM_LINK_MAX == GM_MAX &&
                   (int)GM_LINK_MIN == GM_MIN,
               "reductions of links are those of groups");

struct gm_lane {
    gm_lane    *next;
    gm_link    *link; /* NULL: not opened */
    gm_link_id  id;
    gm_pending *connecting;        /* sends or receives the id; NULL: done */
    int         size, place;       /* of this rank */
    uint64_t    turns, left, done; /* operations that have begun, are queued on the device, have passed it */
};

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

static gm_status lane_of(gm_pending *p, gm_lane **out)
{
    gm_comm  *c = p->comm;
    gm_group *g = p->group;
    bool      sends = p->call == GM_CALL_send, two = sends || p->call == GM_CALL_receive;
    gm_lane **at = !two ? &g->lane : sends ? &g->to[p->root].lane : &g->from[p->root].lane;
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

/* ---- what an operation moves ---- */

static bool in_one(gm_strip s) { return s.outer <= 1; }

static size_t count_of(const gm_tensor *t) { return (size_t)gm_tensor_numel(t); }

static char *part(const gm_tensor *t, size_t elements)
{
    return (char *)gm_tensor_data(t) + elements * gm_dtype_size(t->dtype);
}

/* Where the blocks that are sent lie one after the other, and those that are received. */
static const gm_tensor *sent(const gm_pending *p) { return p->packed ? p->packed : p->in ? p->in : p->out; }
static const gm_tensor *received(const gm_pending *p) { return p->unpacked ? p->unpacked : p->out; }

typedef struct plan {
    gm_link_move *moves;
    int           n;
} plan;

static void add(plan *l, const gm_pending *p, gm_link_kind kind, int peer, const void *from, void *to, size_t count)
{
    const gm_tensor *t = p->in ? p->in : p->out;
    if (!count) return;
    l->moves[l->n++] = (gm_link_move){kind, t->dtype, (gm_link_sum)p->op, peer, from, to, count};
}

static void send_block(plan *l, const gm_pending *p, int peer, size_t start, size_t count)
{
    add(l, p, GM_LINK_SEND, peer, part(sent(p), start), NULL, count);
}

static void receive_block(plan *l, const gm_pending *p, int peer, size_t start, size_t count)
{
    add(l, p, GM_LINK_RECEIVE, peer, NULL, part(received(p), start), count);
}

static size_t row_elements(const gm_tensor *t)
{
    size_t n = 1;
    for (int d = 1; d < t->ndim; d++) n *= (size_t)t->shape[d];
    return n;
}

static void plan_rows(plan *l, const gm_pending *p)
{
    size_t            row = row_elements(p->in);
    const gm_row_run *s = p->sends.run, *r = p->receives.run;
    for (int i = 0; i < p->sends.n; i++) send_block(l, p, s[i].place, (size_t)s[i].first * row, (size_t)s[i].n * row);
    for (int i = 0; i < p->receives.n; i++)
        receive_block(l, p, r[i].place, (size_t)r[i].first * row, (size_t)r[i].n * row);
}

/* Pieces of this rank for itself go the same way: one call moves all. */
static void plan_blocks(plan *l, const gm_pending *p)
{
    bool   here = p->root == p->group->rank;
    int    size = p->group->size, root = p->root;
    size_t block = p->call == GM_CALL_scatter ? count_of(p->out) : count_of(p->in);
    if (p->call == GM_CALL_all_to_all) block /= (size_t)size;
    for (int i = 0; i < size; i++) {
        if (p->call == GM_CALL_all_to_all || (p->call == GM_CALL_scatter && here))
            send_block(l, p, i, (size_t)i * block, block);
        if (p->call == GM_CALL_all_to_all || (p->call == GM_CALL_gather && here))
            receive_block(l, p, i, (size_t)i * block, block);
    }
    if (p->call == GM_CALL_gather) send_block(l, p, root, 0, block);
    if (p->call == GM_CALL_scatter) receive_block(l, p, root, 0, block);
}

static void plan_moves(plan *l, const gm_pending *p)
{
    void *out = p->out ? gm_tensor_data(p->out) : NULL;
    switch (p->call) {
    case GM_CALL_all_reduce: add(l, p, GM_LINK_ALL_REDUCE, 0, out, out, count_of(p->out)); break;
    case GM_CALL_reduce:
        add(l, p, GM_LINK_REDUCE, p->root, out, p->root == p->group->rank ? out : NULL, count_of(p->out));
        break;
    case GM_CALL_broadcast: add(l, p, GM_LINK_BROADCAST, p->root, out, out, count_of(p->out)); break;
    case GM_CALL_all_gather:
        add(l, p, GM_LINK_ALL_GATHER, 0, gm_tensor_data(p->in), gm_tensor_data(received(p)), count_of(p->in));
        break;
    case GM_CALL_reduce_scatter:
        add(l, p, GM_LINK_REDUCE_SCATTER, 0, gm_tensor_data(sent(p)), out, count_of(p->out));
        break;
    case GM_CALL_all_to_all_rows: plan_rows(l, p); break;
    case GM_CALL_send: send_block(l, p, 1, 0, count_of(p->in)); break;
    case GM_CALL_receive: receive_block(l, p, 0, 0, count_of(p->out)); break;
    default: plan_blocks(l, p); break;
    }
}

/* ---- blocks along other dimensions than the first ---- */

/* t as (parts, outer, inner) in the sense of s; apart: its blocks lie one after the other. */
static gm_status as_blocks(gm_tensor *t, gm_strip s, int parts, bool apart, gm_tensor **out)
{
    int64_t inner = (int64_t)(s.inner / gm_dtype_size(t->dtype)), shape[3] = {parts, s.outer, inner};
    int64_t strided[3] = {inner, parts * inner, 1}, plain[3] = {s.outer * inner, inner, 1};
    return gm_tensor_view(t, 3, shape, apart ? plain : strided, t->offset, out);
}

/* Between a tensor and its blocks one after the other, in the lane's queue. */
static gm_status turn(gm_pending *p, gm_strip s, gm_tensor *whole, gm_tensor *blocks, bool pack)
{
    const gm_queues *queues = queues_of(p->linked);
    gm_tensor       *a = NULL, *b = NULL;
    gm_status        st;
    GM_TRY_OR(as_blocks(whole, s, p->group->size, false, &a), st, done);
    GM_TRY_OR(as_blocks(blocks, s, p->group->size, true, &b), st, done);
    GM_TRY_OR(queues->launch_on(p->linked, gm_links_queue(p->lane->link), pack ? p->ticket : NULL), st, done);
    st = gm_run_one(p->linked, GM_OP_copy, NULL, pack ? a : b, pack ? b : a);
    (void)queues->launch_on(p->linked, NULL, NULL); /* which cannot fail where the call before did not */
    p->account->copied += count_of(whole) * gm_dtype_size(whole->dtype);
done:
    gm_tensor_release(a);
    gm_tensor_release(b);
    return st;
}

static gm_status take_like(gm_pending *p, const gm_tensor *t, gm_tensor **out)
{
    int64_t n = gm_tensor_numel(t);
    gm_pool_set_place(p->linked->pool, gm_comm_place(p->comm), gm_call_name((int)p->call));
    return gm_tensor_new(p->linked, t->dtype, 1, &n, out);
}

/* ---- an operation's way ---- */

bool gm_lane_serves(const gm_pending *p)
{
    const gm_tensor *t = p->in ? p->in : p->out;
    return p->comm->linked && p->group->size > 1 && t->storage->device == p->comm->linked;
}

gm_status gm_lane_take(gm_pending *p)
{
    bool splits = p->call == GM_CALL_reduce_scatter || p->call == GM_CALL_all_to_all || p->call == GM_CALL_scatter;
    bool joins = p->call == GM_CALL_all_gather || p->call == GM_CALL_all_to_all || p->call == GM_CALL_gather;
    if (splits && p->in && !in_one(p->split)) GM_TRY(take_like(p, p->in, &p->packed));
    if (joins && p->out && !in_one(p->join)) GM_TRY(take_like(p, p->out, &p->unpacked));
    GM_TRY(queues_of(p->linked)->enter(p->linked, &p->ticket));
    GM_TRY(lane_of(p, &p->lane));
    p->turn = p->lane->turns++;
    p->stage = GM_LANE_WAITS;
    return GM_OK;
}

static gm_status try_issue(gm_pending *p)
{
    gm_lane *l = p->lane;
    bool     ready = false;
    plan     moves = {0};
    if (l->left != p->turn) return GM_OK;
    GM_TRY(make(p->comm, l, &ready));
    if (!ready) return GM_OK;
    if (p->packed) GM_TRY(turn(p, p->split, p->in, p->packed, true));
    size_t most = p->rows ? (size_t)(p->sends.n + p->receives.n) : 2 * (size_t)p->group->size;
    moves.moves = calloc(most + 1, sizeof *moves.moves);
    if (!moves.moves) return GM_FAIL(GM_ECOMM, "no memory for an operation that has begun");
    plan_moves(&moves, p);
    gm_status st = gm_links_issue(l->link, p->ticket, moves.moves, moves.n);
    free(moves.moves);
    if (st == GM_OK) p->stage = GM_LANE_ISSUED;
    return st;
}

static gm_status try_leave(gm_pending *p)
{
    gm_lane *l = p->lane;
    bool     ready = false;
    GM_TRY(gm_links_ready(l->link, &ready));
    if (!ready) return GM_OK;
    if (p->unpacked) GM_TRY(turn(p, p->join, p->out, p->unpacked, false));
    GM_TRY(queues_of(p->linked)->leave(gm_links_queue(l->link), p->ticket));
    p->stage = GM_LANE_QUEUED;
    l->left++;
    return GM_OK;
}

/* Has it passed the device? While that has not come to it, nobody else is waited for. */
static gm_status look(gm_pending *p)
{
    bool begun = false, done = false, ready;
    if (p->lane->done == p->turn) GM_TRY(queues_of(p->linked)->passed(p->linked, p->ticket, &begun, &done));
    if (!begun) p->progressed = gm_now();
    if (!done) return begun ? gm_links_ready(p->lane->link, &ready) : GM_OK;
    p->lane->done++;
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
    if (p->linked != c->linked) return;
    gm_record_describe(&p->record, p->group->name, call, sizeof call);
    snprintf(text, sizeof text, "%s was given up on this rank; what follows it cannot go on", call);
    if (p->status == GM_OK) gm_lanes_failed(c, GM_ECOMM, text);
    else gm_lanes_failed(c, p->status, p->error);
    gm_lanes_stop(c);
}

/* Nobody may wait for the operation any more, so that the comm remembers. */
static void lane_failed(gm_pending *p, gm_status st)
{
    char call[480], text[600];
    snprintf(text, sizeof text, "%s", gm_last_error());
    gm_record_describe(&p->record, p->group->name, call, sizeof call);
    gm_pending_fail(p, GM_FAIL(st, "%s: %s", call, text));
}

bool gm_lane_advance(gm_pending *p)
{
    gm_lane_stage before = p->stage;
    gm_status     st = GM_OK;
    if (p->stage == GM_LANE_WAITS) st = try_issue(p);
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
    if (!p->done) GM_TRY(queues_of(p->linked)->order(p->linked, p->ticket));
    release_memory(p);
    p->handed_over = true;
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
    if (!p->ticket || p->done || p->stage == GM_LANE_WAITS || p->handed_over) return false;
    if (p->stage == GM_LANE_ISSUED) return p->lane && p->lane->link; /* until its link is closed */
    return queues_of(p->linked)->passed(p->linked, p->ticket, &begun, &done) == GM_OK && !done;
}

/* ---- all lanes ---- */

void gm_lanes_stop(gm_comm *c)
{
    for (gm_lane *l = c->lanes; l; l = l->next)
        if (l->link) gm_links_stop(l->link);
}

void gm_lanes_close(gm_comm *c, bool orderly)
{
    for (gm_pending *p = c->under_way; p; p = p->next) p->lane = NULL;
    for (gm_group *g = c->groups; g; g = g->next) {
        g->lane = NULL;
        for (int i = 0; i < g->size; i++) g->to[i].lane = g->from[i].lane = NULL;
    }
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
        if (!p->ticket || p->done || p->given_up) continue;
        *any = true;
        if (p->lane && p->lane->done == p->turn) return p;
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
