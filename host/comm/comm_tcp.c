/* comm_tcp.c - the transport over TCP connections between every two ranks (meet.h), where no MPI joined them.
 *
 * tcp.h says what travels. A connection that ends or fails is an error for those who wait for that rank, and for nobody
 * else. The trap: the kernel reports a machine that does not answer only after the silence that gm_meet was told. */
#include "comm_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../../kernels/clock.h"
#include "meet.h"
#include "tcp.h"

#define CLOSE_SECONDS 10

static int no_memory(gm_transport *t)
{
    snprintf(t->error, sizeof t->error, "no memory for a message");
    return -1;
}

static int is_gone(gm_transport *t, int rank)
{
    gm_tcp_peer *p = &((gm_tcp *)t->context)->peers[rank];
    snprintf(t->error, sizeof t->error, "the connection to rank %d %s%s", rank,
             p->why ? "failed: " : "was closed by it", p->why ? strerror(p->why) : "");
    return -1;
}

static gm_tcp_request *new_request(gm_tcp *c, int peer, int tag, const void *bytes, size_t n)
{
    gm_tcp_request *q = malloc(sizeof *q);
    if (!q) return NULL;
    *q = (gm_tcp_request){.after = c->requests, .peer = peer, .tag = tag, .room = n, .n = n};
    q->bytes = (char *)(uintptr_t)bytes;
    if (c->requests) c->requests->before = q;
    c->requests = q;
    return q;
}

static void free_request(gm_tcp *c, gm_tcp_request *q)
{
    if (q->before) q->before->after = q->after;
    else c->requests = q->after;
    if (q->after) q->after->before = q->before;
    free(q);
}

static int tcp_send(gm_transport *t, int to, int tag, const void *bytes, size_t n, void **out)
{
    gm_tcp         *c = t->context;
    gm_tcp_peer    *p = &c->peers[to];
    gm_tcp_request *q = new_request(c, to, tag, bytes, n);
    bool            offer = n > GM_TCP_EAGER, put_it;
    if (!q) return no_memory(t);
    q->id = ++c->ids;
    if (offer) gm_tcp_append(&p->offered, q);
    if (offer) put_it = gm_tcp_put(c, p, (gm_tcp_head){KIND_OFFER, tag, n, q->id}, NULL, 0, NULL);
    else put_it = gm_tcp_put(c, p, (gm_tcp_head){KIND_DATA, tag, n, q->id}, bytes, n, q);
    if (!put_it) {
        if (offer) gm_tcp_unlink(&p->offered, q);
        free_request(c, q);
        return no_memory(t);
    }
    *out = q;
    return 0;
}

static int tcp_receive(gm_transport *t, int from, int tag, void *bytes, size_t n, void **out)
{
    gm_tcp         *c = t->context;
    gm_tcp_peer    *p = &c->peers[from];
    gm_tcp_early   *e = p->early;
    gm_tcp_request *q = new_request(c, from, tag, bytes, n);
    if (!q) return no_memory(t);
    *out = q;
    while (e && (e->tag != tag || e->wanted)) e = e->next;
    if (!e) {
        gm_tcp_append(&p->posted, q);
        return 0;
    }
    if (!e->offered && !e->whole) { /* it arrives just now */
        e->wanted = q;
        return 0;
    }
    if (e->whole) gm_tcp_give(q, e);
    else if (!gm_tcp_grant(c, p, q, e->id)) return no_memory(t);
    gm_tcp_unlink_early(&p->early, e);
    free(e);
    return 0;
}

/* Nobody writes into what failed any more. */
static void forget(gm_tcp_peer *p, const gm_tcp_request *q)
{
    if (p->into == q) p->into = NULL;
    gm_tcp_unlink(&p->posted, q);
    gm_tcp_unlink(&p->offered, q);
    gm_tcp_unlink(&p->granted, q);
    for (gm_tcp_outgoing *o = p->out; o; o = o->next)
        if (o->of == q) o->of = NULL;
    for (gm_tcp_early *e = p->early; e; e = e->next)
        if (e->wanted == q) e->wanted = NULL;
}

static int tcp_test(gm_transport *t, void *request_, size_t *n)
{
    gm_tcp         *c = t->context;
    gm_tcp_request *q = request_;
    gm_tcp_peer    *p = &c->peers[q->peer];
    if (!q->done) gm_tcp_progress(c);
    if (!q->done && !p->gone) return 0;
    bool done = q->done;
    *n = q->cancelled ? GM_CANCELLED : q->n;
    if (!done) forget(p, q);
    free_request(c, q);
    return done ? 1 : is_gone(t, (int)(p - c->peers));
}

static int tcp_cancel(gm_transport *t, void *request_)
{
    gm_tcp         *c = t->context;
    gm_tcp_request *q = request_;
    if (!q->done && gm_tcp_unlink(&c->peers[q->peer].posted, q)) q->done = q->cancelled = true;
    return 0;
}

/* Asks for the bytes of an offer that nobody wants; they come into a message that nobody takes. */
static bool accept_offer(gm_tcp *c, gm_tcp_peer *p, gm_tcp_early *e)
{
    gm_tcp_early *whole = malloc(sizeof *whole + e->n);
    if (!whole) return false;
    *whole = *e;
    whole->offered = false;
    gm_tcp_early **at = &p->early;
    while (*at != e) at = &(*at)->next;
    *at = whole;
    free(e);
    return gm_tcp_put(c, p, (gm_tcp_head){KIND_GRANT, whole->tag, 0, whole->id}, NULL, 0, NULL);
}

static int tcp_drain(gm_transport *t, int *from)
{
    gm_tcp *c = t->context;
    gm_tcp_progress(c);
    for (int r = 0; r < c->world; r++) {
        gm_tcp_peer  *p = &c->peers[r];
        gm_tcp_early *e = p->early;
        while (e && e->wanted) e = e->next;
        if (!e || p->gone) continue;
        if (e->whole) {
            gm_tcp_unlink_early(&p->early, e);
            free(e);
            *from = r;
            return 1;
        }
        if (e->offered && !accept_offer(c, p, e)) return no_memory(t);
    }
    return 0;
}

static int tcp_tell(gm_transport *t, int to, const void *bytes, size_t n)
{
    gm_tcp *c = t->context;
    return gm_tcp_put(c, &c->peers[to], (gm_tcp_head){KIND_NOTICE, 0, n, 0}, bytes, n, NULL) ? 0 : no_memory(t);
}

static int tcp_hear(gm_transport *t, void *bytes, size_t *n, int *from)
{
    gm_tcp      *c = t->context;
    gm_tcp_note *k;
    if (!c->notes) gm_tcp_progress(c);
    k = c->notes;
    if (!k) return 0;
    c->notes = k->next;
    if (!c->notes) c->notes_end = &c->notes;
    memcpy(bytes, k->bytes, k->n);
    *n = k->n;
    *from = k->from;
    free(k);
    return 1;
}

/* ---- life ---- */

static void free_peer(gm_tcp_peer *p)
{
    for (gm_tcp_outgoing *o = p->out, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    for (gm_tcp_early *e = p->early, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    if (p->fd >= 0) close(p->fd);
}

static void free_tcp(gm_tcp *c)
{
    for (int r = 0; c->peers && r < c->world; r++) free_peer(&c->peers[r]);
    for (gm_tcp_note *k = c->notes, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    while (c->requests) free_request(c, c->requests); /* of operations that were given up */
    if (c->epoll >= 0) close(c->epoll);
    free(c->peers);
    free(c);
}

/* What a socket still holds is lost for the other side if bytes of that side lie here unread when it is closed. So all
 * say that they have sent everything, and wait until they have read that of the others. */
static void part(gm_tcp *c)
{
    double deadline = gm_now() + CLOSE_SECONDS;
    int    left = c->world - 1;
    bool  *told = calloc((size_t)c->world, sizeof *told);
    while (told && left && gm_now() < deadline) {
        gm_tcp_progress(c);
        left = 0;
        for (int r = 0; r < c->world; r++) {
            gm_tcp_peer *p = &c->peers[r];
            if (p->gone) continue;
            if (!p->out && !told[r]) told[r] = !shutdown(p->fd, SHUT_WR);
            left++;
        }
        if (left) nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    free(told);
}

static void tcp_close(gm_transport *t, bool orderly)
{
    gm_tcp *c = t->context;
    if (orderly) part(c);
    else gm_tcp_progress(c);
    free_tcp(c);
    free(t);
}

static gm_status watch(gm_tcp *c, const int *fds, int rank)
{
    for (int r = 0; r < c->world; r++) {
        gm_tcp_peer *p = &c->peers[r];
        p->fd = fds[r];
        p->out_end = &p->out;
        p->gone = r == rank;
    }
    for (int r = 0; r < c->world; r++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)r};
        if (r != rank && epoll_ctl(c->epoll, EPOLL_CTL_ADD, fds[r], &e))
            return GM_FAIL(GM_ECOMM, "cannot watch the connection to rank %d: %s", r, strerror(errno));
    }
    return GM_OK;
}

static gm_status new_tcp(const int *fds, int world, int rank, gm_tcp **out)
{
    gm_tcp *c = calloc(1, sizeof *c);
    if (c) c->peers = calloc((size_t)world, sizeof *c->peers);
    if (!c || !c->peers) {
        free(c);
        return GM_FAIL(GM_ENOMEM, "no memory for connections to %d ranks", world);
    }
    c->world = world;
    c->notes_end = &c->notes;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    gm_status st = c->epoll < 0 ? GM_FAIL(GM_ECOMM, "epoll: %s", strerror(errno)) : watch(c, fds, rank);
    if (st == GM_OK) {
        *out = c;
        return GM_OK;
    }
    for (int r = 0; r < world; r++) c->peers[r].fd = -1; /* the caller closes them */
    free_tcp(c);
    return st;
}

static void fill(gm_transport *t, gm_tcp *c, const gm_meeting *m, const char *through)
{
    t->size = sizeof *t;
    t->version = GM_TRANSPORT_VERSION;
    snprintf(t->name, sizeof t->name, "TCP through %.50s", through);
    t->rank = m->rank;
    t->world = m->world;
    t->has_data = true;
    t->context = c;
    t->send = tcp_send;
    t->receive = tcp_receive;
    t->test = tcp_test;
    t->cancel = tcp_cancel;
    t->drain = tcp_drain;
    t->tell = tcp_tell;
    t->hear = tcp_hear;
    t->close = tcp_close;
}

gm_status gm_transport_tcp(const gm_meeting *m, double silence, gm_transport **out)
{
    char          through[64] = "";
    int          *fds = malloc((size_t)m->world * sizeof *fds);
    gm_transport *t = calloc(1, sizeof *t);
    gm_tcp       *c = NULL;
    gm_status     st = fds && t ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a transport");
    if (st == GM_OK) st = gm_meet(m, silence, fds, through, sizeof through);
    if (st == GM_OK) {
        st = new_tcp(fds, m->world, m->rank, &c);
        for (int r = 0; st != GM_OK && r < m->world; r++)
            if (fds[r] >= 0) close(fds[r]);
    }
    free(fds);
    if (st == GM_OK) fill(t, c, m, through);
    else free(t);
    if (st == GM_OK) *out = t;
    return st;
}
