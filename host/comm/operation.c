/* operation.c - operations under way: rounds, starting, waiting. See state.h; round.c has the messages of a round.
 *
 * Tags. A group's history is a hash of every call on it so far; the tag of a message is taken from the history
 * after its call. So messages of different calls do not match, a difference shows at the latest at the next call, and
 * operations under way at the same time do not mix. The trap: the transport may still write to a failed operation. Such
 * an operation is given up; it keeps its tensors and scratch and is freed when its last message has ended. */
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"
#include "../../kernels/philox.h"

static void unlink_pending(gm_pending *p)
{
    gm_comm *c = p->comm;
    if (p->before) p->before->next = p->next;
    else c->under_way = p->next;
    if (p->next) p->next->before = p->before;
    gm_pending_free(p);
}

/* ---- failing ---- */

void gm_pending_fail(gm_pending *p, gm_status st)
{
    gm_pending_note(p);
    if (p->status == GM_OK) {
        p->status = st;
        snprintf(p->error, sizeof p->error, "%s", gm_last_error());
    }
    gm_pending_give_up(p);
}

void gm_pending_give_up(gm_pending *p)
{
    gm_transport *t = p->comm->transport;
    if (p->given_up || p->done) return;
    p->given_up = true;
    if (!p->in_graph) gm_flight_end(p->comm->flight, p->flight, -1);
    for (int i = p->first; i < p->n_messages; i++) {
        gm_message *m = &p->messages[i];
        if (m->request && !m->done && !m->send) t->cancel(t, m->request);
    }
    if (p->ticket) gm_lane_give_up(p);
}

bool gm_pending_is_over(const gm_pending *p) { return p->done || (p->given_up && !p->left && !gm_lane_holds(p)); }

/* ---- rounds ---- */

static void run_step(gm_pending *p, int round)
{
    bool   charged = p->comm->charged; /* a wait or a start is being timed: this time is in it */
    double began = charged ? 0 : gm_now();
    p->round = round;
    p->first = p->n_messages;
    gm_status st = p->step(p, round);
    if (st != GM_OK) gm_pending_fail(p, st);
    else gm_round_post(p);
    if (round && p->left) p->progressed = gm_now();
    if (!charged) p->account->exposed += gm_now() - began;
}

void gm_pending_finish(gm_pending *p)
{
    double    now = gm_now();
    gm_status st = gm_host_copy_return(p);
    if (st != GM_OK) {
        gm_pending_fail(p, st);
        return;
    }
    p->done = true;
    p->ended = now;
    p->account->seconds += now - p->started;
    if (!p->in_graph) gm_flight_end(p->comm->flight, p->flight, now);
}

/* Its bytes come from a device: the first step is made when they have come. True when they have. */
static bool take_in(gm_pending *p)
{
    gm_status st = gm_host_copy_came(p);
    if (st != GM_OK) gm_pending_fail(p, st);
    if (p->given_up || p->coming) return false;
    p->progressed = gm_now();
    run_step(p, 0);
    return true;
}

/* As far as it goes now; true when something moved. */
static bool advance(gm_pending *p, bool fresh)
{
    bool moved = p->left ? gm_round_test(p, fresh) : false;
    if (p->coming && !p->given_up) moved |= take_in(p);
    while (!p->done && !p->given_up && !p->left && !p->comparing && !p->coming) {
        if (p->round < p->rounds) run_step(p, p->round + 1);
        else if (!p->linked) gm_pending_finish(p);
        else if (!gm_lane_advance(p)) break;
        moved = true;
    }
    return moved;
}

/* Not from within itself: an operation's own work may wait for the device (gm_device.attend). */
bool gm_operations_advance(gm_comm *c)
{
    bool moved = false;
    if (c->advancing) return false;
    c->advancing = true;
    for (gm_pending *p = c->under_way, *next; p; p = next) {
        next = p->next;
        if (!p->done) moved |= advance(p, false);
        if (p->dropped && gm_pending_is_over(p)) unlink_pending(p);
    }
    c->advancing = false;
    return moved;
}

/* ---- starting ---- */

static uint64_t history_start(const gm_group *g, uint64_t salt)
{
    return gm_mix64(g->id ^ gm_mix64(g->comm->epoch) ^ salt);
}

static uint64_t salt_of(int from, int to) { return gm_mix64(((uint64_t)from + 1) << 32 | (uint64_t)to); }

uint64_t gm_channel_id(const gm_group *g, int from, int to) { return g->id ^ salt_of(from, to); }

/* The history that a call belongs to: that of the group, or of one direction between two members. */
static void enter_history(gm_pending *p, uint64_t *number, uint64_t *history, uint64_t salt)
{
    gm_call_record *r = &p->record;
    if (!*number) *history = history_start(p->group, salt);
    r->group = p->group->id ^ salt;
    r->epoch = p->comm->epoch;
    r->number = *number;
    r->history = *history;
    *history = gm_mix64(*history ^ gm_record_fingerprint(r));
    p->tag = (int)((*history & 0x7fffff) << 8 | (*number & 0xff)); /* GM_TAG_BITS */
    ++*number;
}

/* What fits of a text. */
static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

static void leave_note(const gm_pending *p)
{
    gm_note *note = p->comm->note;
    if (!note || p->silent) return;
    note->call = gm_call_name((int)p->call);
    note->number = p->record.number;
    copy_text(note->group, sizeof note->group, p->group->name);
}

/* Enters p into the records that others read. */
void gm_pending_note(gm_pending *p)
{
    gm_comm *c = p->comm;
    if (p->noted) return;
    p->noted = true;
    copy_text(p->record.place, sizeof p->record.place, gm_comm_place(c));
    if (p->in_graph) return;
    leave_note(p);
    if (c->page && !p->silent) gm_page_called(c->page, p);
    p->flight = gm_flight_add(c->flight, &p->record, p->group->name, p->started);
}

static void enter(gm_pending *p)
{
    gm_comm  *c = p->comm;
    gm_group *g = p->group;
    if (p->call == GM_CALL_send || p->call == GM_CALL_receive) {
        bool        send = p->call == GM_CALL_send;
        gm_channel *channel = send ? &g->to[p->root] : &g->from[p->root];
        uint64_t    salt = send ? salt_of(g->rank, p->root) : salt_of(p->root, g->rank);
        enter_history(p, &channel->number, &channel->history, salt);
    } else {
        enter_history(p, &g->number, &g->history, 0);
    }
    p->account = p->silent ? &c->silent : &g->account[p->call][c->phase];
    p->account->calls++;
    gm_pending **at = &c->under_way; /* at the end: the oldest moves first */
    while (*at) {
        p->before = *at;
        at = &(*at)->next;
    }
    *at = p;
    c->n_under_way++;
}

static gm_status refuse_in_graph(gm_pending *p)
{
    gm_status st = GM_FAIL(GM_EINVAL,
                           "%s of group %s cannot be part of a graph: it goes through messages of the host, "
                           "which has no part in a replay",
                           gm_call_name((int)p->call), p->group->name);
    gm_pending_free(p);
    return st;
}

#define HEAR_AFTER 64 /* calls */

/* Calls whose messages are always there never come to the loop of waits, which listens to other ranks and the user. */
static void hear(gm_pending *p)
{
    gm_comm *c = p->comm;
    gm_pending_note(p); /* of which others may ask */
    c->unheard = 0;
    (void)gm_notice_read(c);
    gm_status st = gm_comm_check_failed(c);
    if (st == GM_OK) st = gm_comm_check_interrupt(c);
    if (st != GM_OK) gm_pending_fail(p, st);
}

/* The clock is read as rarely as can be: each time costs a tenth of a small call. */
static gm_status wait_since(gm_comm *c, gm_pending *p, double began);
static gm_status wait_until_recorded(gm_pending *p, double began);

gm_status gm_pending_start(gm_pending *p, gm_pending **out)
{
    gm_comm *c = p->comm;
    bool     charged = c->charged;
    if (c->recording && !p->linked && !p->silent && p->group->size > 1) return refuse_in_graph(p);
    if (p->linked) {
        gm_status st = gm_lane_take(p);
        if (st != GM_OK) gm_pending_free(p);
        if (st != GM_OK) return st;
    }
    c->charged = true;
    p->awaited = !out;
    p->started = p->progressed = gm_now();
    enter(p);
    if (!p->awaited || c->checked || !c->transport->send_now) gm_pending_note(p); /* else when its messages are sent */
    if (c->trace && !p->silent && !p->in_graph) {
        gm_status st = gm_trace_call(c->trace, gm_comm_place(c), p->group, &p->record, c->phase, &p->traced);
        if (st != GM_OK) gm_pending_fail(p, st);
    }
    gm_comm_journal_begin(p);
    if (p->status == GM_OK && c->checked && !p->silent && !p->in_graph && p->group->size > 1 &&
        p->call != GM_CALL_send && p->call != GM_CALL_receive && c->transport->has_data) {
        gm_status st = gm_notice_compare(p);
        if (st != GM_OK) gm_pending_fail(p, st);
    }
    if (p->awaited && ++c->unheard == HEAR_AFTER) hear(p);
    if (p->status == GM_OK) {
        gm_status st = gm_host_copy_begin(p);
        if (st != GM_OK) gm_pending_fail(p, st);
        else if (!p->coming) run_step(p, 0);
        advance(p, true);
    }
    double now = p->done ? p->ended : gm_now();
    p->account->exposed += now - p->started;
    c->charged = charged;
    if (!out) return wait_since(c, p, now);
    if (p->in_graph) GM_TRY(wait_until_recorded(p, now));
    *out = p;
    return GM_OK;
}

/* ---- waiting ---- */

#define ASK_AFTER 0.2 /* seconds without progress until the others are asked, */
#define ASK_EVERY 1.0 /* and again; from half of the time-out on all ranks, of other groups too, */
#define HEAR      0.6 /* who have so long to answer, at least, before any is called silent (gm_notice_is_silent) */

gm_status gm_pending_watch(gm_pending *p, double since, double *asked)
{
    gm_comm *c = p->comm;
    double   now = gm_now(), quiet = gm_comm_quiet(c, since);
    if (p->coming) return GM_OK; /* this rank's own device computes still: nobody else is waited for */
    bool late = c->timeout > 0 && quiet > c->timeout / 2, all_asked = p->asked_all > now - quiet;
    if (all_asked && quiet > c->timeout && now - p->asked_all > HEAR) return gm_pending_hang(p);
    if (quiet > ASK_AFTER && now - *asked > ASK_EVERY) {
        *asked = now;
        if (late && !all_asked) p->asked_all = now;
        gm_notice_ask(p, late);
        gm_pending_see_gone(p);
    }
    return GM_OK;
}

/* Is it to be waited for, or has it failed? A rank may be gone because of another one's failure: those who know of it,
 * whose notices travel on other ways, have a moment to say so before the rank itself is blamed. */
static gm_status standing(gm_pending *p)
{
    if (p->cut) GM_TRY(gm_comm_check_failed(p->comm));
    if (p->status != GM_OK && !(p->cut && gm_now() - p->cut < GM_SAY_SECONDS))
        return gm_fail_again(p->status, p->error);
    if (p->status == GM_OK && p->given_up)
        return GM_FAIL(GM_EINVAL, "this operation was abandoned when a section ended");
    return GM_OK;
}

static gm_status wait_until(gm_pending *p, bool (*met)(gm_pending *p), double began)
{
    gm_comm *c = p->comm;
    double   asked = 0;
    unsigned turns = 0;
    while (!met(p)) {
        bool moved = gm_operations_advance(c);
        moved |= gm_notice_read(c);
        if (met(p)) return GM_OK;
        GM_TRY(standing(p));
        GM_TRY(gm_comm_check_failed(c));
        GM_TRY(gm_comm_check_interrupt(c));
        double since = p->progressed > began ? p->progressed : began;
        bool   slept = false;
        if (moved) turns = 0;
        else slept = gm_comm_rest(c, since, &turns);
        if (!p->cut && (slept || turns % 64 == 63)) GM_TRY(gm_pending_watch(p, since, &asked));
    }
    return GM_OK;
}

gm_status gm_pending_wait_until(gm_pending *p, bool (*met)(gm_pending *p)) { return wait_until(p, met, gm_now()); }

/* As far as a wait goes: between devices, the device does the rest of the waiting. */
static bool is_done(gm_pending *p) { return p->done || (p->linked && p->stage == GM_LANE_QUEUED); }

/* After a wait that went well. */
static gm_status settle(gm_pending *p)
{
    gm_status st = p->linked && !p->done ? gm_lane_hand_over(p) : GM_OK;
    p->comm->n_under_way--;
    p->dropped = true;
    if (st != GM_OK) gm_pending_give_up(p);
    if (gm_pending_is_over(p)) unlink_pending(p);
    return st;
}

/* After a wait that failed. */
static gm_status abandon(gm_pending *p, gm_status st)
{
    p->comm->n_under_way--;
    p->dropped = true;
    gm_pending_give_up(p);
    if (gm_pending_is_over(p)) unlink_pending(p);
    return st;
}

/* Until the library has recorded it. NCCL does so in a thread of its own, and CUDA's graphs are not to be used by two
 * threads at a time (CUDA runtime, "Graph object thread safety"). */
static gm_status wait_until_recorded(gm_pending *p, double began)
{
    gm_status st = wait_until(p, is_done, began);
    return st == GM_OK ? GM_OK : abandon(p, st);
}

static gm_status wait_since(gm_comm *c, gm_pending *p, double began)
{
    int32_t id = p->call == GM_CALL_send ? 0 : p->recorded;
    gm_comm_journal_end(p);
    if (p->done) return settle(p);
    const gm_pending *outer = c->waiting;
    bool              charged = c->charged;
    c->waiting = p;
    c->charged = true;
    if (c->page) gm_page_waits(c->page, p, began);
    gm_status st = wait_until(p, is_done, began);
    double    waited = (p->ended > began ? p->ended : gm_now()) - began;
    if (c->page) gm_page_waited(c->page, charged ? 0 : waited); /* within another wait: the time is in that one */
    gm_comm_journal_waited(c, id);
    c->charged = charged;
    c->waiting = outer;
    p->account->exposed += waited;
    return st == GM_OK ? settle(p) : abandon(p, st);
}

gm_status gm_comm_wait(gm_comm *c, gm_pending *p) { return wait_since(c, p, p->done ? 0 : gm_now()); }

gm_status gm_comm_test(gm_comm *c, gm_pending *p, bool *done)
{
    if (!p->done) {
        gm_operations_advance(c);
        gm_notice_read(c);
    }
    *done = p->done;
    if (p->done) return GM_OK;
    GM_TRY(standing(p));
    return gm_comm_check_failed(c);
}

gm_status gm_comm_finish(gm_comm *c, gm_pending **p)
{
    gm_pending *waited = *p;
    *p = NULL;
    return waited ? gm_comm_wait(c, waited) : GM_OK;
}

gm_status gm_comm_once(gm_status st) { return st == GM_ENOMEM ? gm_fail_again(GM_EINVAL, gm_last_error()) : st; }

void gm_comm_drop(gm_comm *c, gm_pending *p)
{
    if (!p) return;
    c->n_under_way--;
    p->dropped = true;
    if (gm_pending_is_over(p)) unlink_pending(p);
}

gm_status gm_comm_poll(gm_comm *c)
{
    if (c->world == 1 || !c->transport->has_data) return GM_OK;
    gm_operations_advance(c);
    gm_notice_read(c);
    return gm_comm_check_failed(c);
}

int gm_comm_under_way(const gm_comm *c) { return c->n_under_way; }
