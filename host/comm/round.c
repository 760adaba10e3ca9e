/* round.c - the messages of one round of an operation. See state.h.
 *
 * Short messages go at once where the transport can (transport.h, send_now): they are in the receiver's memory before
 * anything is noted about them here. A rank that waits for such messages looks for them a while, without any of the
 * steps of a wait. What has not come by then is received like all others, by the waiting loop (operation.c). */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include "../../kernels/clock.h"

/* ---- making a round ---- */

gm_message *gm_pending_message(gm_pending *p)
{
    if (p->n_messages == p->room) {
        gm_message *more = realloc(p->messages, 2 * (size_t)(p->room + 1) * sizeof *more);
        if (!more) {
            gm_pending_fail(p, GM_FAIL(GM_ECOMM, "no memory for the messages of an operation that has begun"));
            return NULL;
        }
        p->messages = more;
        p->room = 2 * (p->room + 1);
    }
    p->messages[p->n_messages] = (gm_message){0};
    return &p->messages[p->n_messages++];
}

static void add_message(gm_pending *p, bool send, int place, char *bytes, size_t n, bool always)
{
    if (!n && !always) return;
    do {
        size_t      piece = n < GM_MESSAGE_MAX ? n : GM_MESSAGE_MAX;
        gm_message *m = gm_pending_message(p);
        if (!m) return;
        m->bytes = bytes;
        m->n = piece;
        m->place = place;
        m->send = send;
        n -= piece;
        if (bytes) bytes += piece;
    } while (n);
}

void gm_pending_send(gm_pending *p, int place, const void *bytes, size_t n, bool always)
{
    add_message(p, true, place, (char *)bytes, n, always);
}

void gm_pending_receive(gm_pending *p, int place, void *bytes, size_t n, bool always)
{
    add_message(p, false, place, bytes, n, always);
}

/* ---- starting them ---- */

#define LOOKS     512 /* for messages that come at once, some 5 us; */
#define LOOKS_FEW 4   /* where other ranks wait for this core */

static void count_sent(gm_pending *p, const gm_message *m)
{
    if (m->uncounted) return;
    p->account->bytes += m->n;
    gm_trace_sent(p->comm->trace, p->traced, m->n);
    gm_comm_journal_sent(p, m->n);
}

/* Does it go through the transport? */
static bool travels(const gm_pending *p, const gm_message *m)
{
    return p->comm->transport->has_data && !p->linked && !m->given;
}

static int rank_of(const gm_pending *p, const gm_message *m) { return p->group->member[m->place]; }

/* Up to the first that cannot go at once: one behind it may be for the same rank, and their order tells them apart. */
static void send_short(gm_pending *p)
{
    gm_comm      *c = p->comm;
    gm_transport *t = c->transport;
    for (int i = p->first; i < p->n_messages; i++) {
        gm_message *m = &p->messages[i];
        if (!m->send || !travels(p, m)) continue;
        if (m->filled || !t->send_now(t, rank_of(p, m), p->tag, m->bytes, m->n)) return;
        m->done = true;
        c->sent[rank_of(p, m)]++;
        count_sent(p, m);
    }
}

typedef struct looks {
    int    left;
    double end; /* of those between which other ranks run; 0: there were none */
} looks;

/* Is there another look? Other operations of this rank, which it does not move meanwhile, may be what others wait for:
 * beside them the core is not given away here. */
static bool look_again(gm_pending *p, looks *l)
{
    gm_transport *t = p->comm->transport;
    if (--l->left > 0) return true;
    return t->crowded && p->comm->under_way == p && !p->next && t->give_way(t, &l->end);
}

/* 1, 0 or -1 as receive_now says. The page counts the time until it is not 0. */
static int look_for(gm_pending *p, gm_message *m, looks *l)
{
    gm_comm      *c = p->comm;
    gm_transport *t = c->transport;
    int           came = t->receive_now(t, rank_of(p, m), p->tag, m->bytes, m->n);
    if (came) return came;
    double began = c->page ? gm_now() : 0;
    while (!came && look_again(p, l)) came = t->receive_now(t, rank_of(p, m), p->tag, m->bytes, m->n);
    if (c->page) gm_page_waited(c->page, c->waiting ? 0 : gm_now() - began); /* within a wait: the time is in that */
    return came;
}

/* Has the same member a message before it that has not come? */
static bool is_behind(const gm_pending *p, const gm_message *m)
{
    for (const gm_message *other = p->messages + p->first; other < m; other++)
        if (!other->done && other->place == m->place) return true;
    return false;
}

/* Looks for the messages one by one: the last of them ends the round, whatever their order. One that came too early,
 * while this rank looked around, is left for the others' way, and they are not: to look around for them would bring in
 * messages of the next call, and so on, for ever. True: the round is over. */
static bool receive_short(gm_pending *p)
{
    gm_comm *c = p->comm;
    looks    l = {.left = c->transport->crowded ? LOOKS_FEW : LOOKS};
    bool     all = true;
    for (int i = p->first; i < p->n_messages; i++) {
        gm_message *m = &p->messages[i];
        if (m->done) continue;
        if (m->send || m->fold || !travels(p, m)) return false;
        int came = !all && is_behind(p, m) ? -1 : look_for(p, m, &l);
        if (!came) return false;
        all = all && came > 0;
        if (came < 0) continue;
        m->done = true;
        c->taken[rank_of(p, m)]++;
    }
    return all;
}

static int start(gm_pending *p, gm_message *m)
{
    gm_transport *t = p->comm->transport;
    int           rank = rank_of(p, m);
    if (m->filled) return t->lend(t, rank, p->tag, m->bytes, m->n, m->filled, &m->request);
    if (m->send) return t->send(t, rank, p->tag, m->bytes, m->n, &m->request);
    if (m->fold) return gm_terms_start(p, m);
    return t->receive(t, rank, p->tag, m->bytes, m->n, &m->request);
}

/* What is sent to several members, one after the other, counts once. Terms of sums are not counted: to be folded where
 * they are copied to is quicker, however many they are. */
static void expect(const gm_pending *p)
{
    gm_transport *t = p->comm->transport;
    const char   *last = NULL;
    size_t        bytes = 0;
    int           ranks = 0, most = 0;
    for (int i = p->first; i < p->n_messages; i++) {
        const gm_message *m = &p->messages[i];
        if (m->fold) return;
        if (!m->send || m->done || !travels(p, m)) continue;
        ranks = m->bytes == last ? ranks + 1 : 1;
        if (ranks == 1) bytes += m->n;
        if (ranks > most) most = ranks;
        last = m->bytes;
    }
    if (bytes) t->expect(t, p->tag, bytes, most);
}

/* Receives first, so that what arrives finds its place; folds last, because they may do all their work at once. */
void gm_round_post(gm_pending *p)
{
    gm_comm *c = p->comm;
    if (c->transport->send_now) send_short(p);
    gm_pending_note(p); /* while they are on their way: to write to memory that is in no cache takes as long */
    if (c->transport->receive_now && p->awaited && receive_short(p)) return;
    if (c->transport->expect) expect(p);
    for (int pass = 0; pass < 3; pass++)
        for (int i = p->first; i < p->n_messages && p->status == GM_OK; i++) {
            gm_message *m = &p->messages[i];
            if (m->done || (m->fold ? 2 : m->send) != pass) continue;
            if (m->send) count_sent(p, m);
            m->done = !travels(p, m);
            if (m->done) continue;
            if (start(p, m)) {
                gm_pending_fail(p, gm_comm_transport_failed(c));
                return;
            }
            if (m->send) c->sent[rank_of(p, m)]++;
            p->left++;
        }
}

/* ---- their ends ---- */

static void wrong_size(gm_pending *p, const gm_message *m, size_t got)
{
    char call[480];
    gm_record_describe(&p->record, p->group->name, call, sizeof call);
    gm_pending_fail(p, GM_FAIL(GM_EMISMATCH, "%s: rank %d sent %s%zu bytes where %zu were expected", call,
                               p->group->member[m->place], got > m->n ? "at least " : "", got, m->n));
}

bool gm_round_test(gm_pending *p, bool fresh)
{
    gm_comm      *c = p->comm;
    gm_transport *t = c->transport;
    bool          moved = false;
    for (int i = p->first; i < p->n_messages && p->left; i++) {
        gm_message *m = &p->messages[i];
        size_t      got = 0;
        if (m->done || !m->request) continue;
        int ended = t->test(t, m->request, &got);
        if (!ended) continue;
        m->request = NULL;
        m->done = moved = true;
        p->left--;
        if (ended == GM_LOST && p->status == GM_OK) p->cut = gm_now();
        if (ended < 0) {
            gm_pending_fail(p, gm_comm_transport_failed(c));
        } else if (!m->send && got != GM_CANCELLED) {
            gm_terms_took(p, m);
            if (got != m->n) wrong_size(p, m, got);
        }
    }
    if (moved && p->left && !fresh) p->progressed = gm_now(); /* else the next round, or the end, looks at the clock */
    return moved;
}
