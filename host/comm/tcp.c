/* tcp.c - see tcp.h. */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

void gm_tcp_lose(gm_tcp *c, gm_tcp_peer *p, int why)
{
    if (p->gone) return;
    p->gone = true;
    p->why = why;
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    if (p->out) c->sending--;
}

/* ---- lists ---- */

void gm_tcp_append(gm_tcp_request **list, gm_tcp_request *q)
{
    while (*list) list = &(*list)->next;
    q->next = NULL;
    *list = q;
}

bool gm_tcp_unlink(gm_tcp_request **list, const gm_tcp_request *q)
{
    for (; *list; list = &(*list)->next)
        if (*list == q) {
            *list = q->next;
            return true;
        }
    return false;
}

void gm_tcp_unlink_early(gm_tcp_early **list, const gm_tcp_early *e)
{
    while (*list != e) list = &(*list)->next;
    *list = e->next;
}

static gm_tcp_request *of_id(gm_tcp_request *list, uint64_t id)
{
    while (list && list->id != id) list = list->next;
    return list;
}

/* ---- sending ---- */

static gm_tcp_outgoing *new_outgoing(gm_tcp_head h, const void *bytes, size_t n, gm_tcp_request *of)
{
    size_t           own = of ? 0 : n;
    gm_tcp_outgoing *o = malloc(sizeof *o + own);
    if (!o) return NULL;
    *o = (gm_tcp_outgoing){.head = h, .bytes = of ? bytes : o->own, .n = n, .of = of};
    if (own) memcpy(o->own, bytes, own);
    return o;
}

/* One write of what is left of o. False: the socket is full, or the connection is lost. */
static bool write_some(gm_tcp *c, gm_tcp_peer *p, gm_tcp_outgoing *o)
{
    struct iovec  parts[2];
    struct msghdr m = {.msg_iov = parts};
    if (o->at < sizeof o->head)
        parts[m.msg_iovlen++] = (struct iovec){(char *)&o->head + o->at, sizeof o->head - o->at};
    size_t at = o->at < sizeof o->head ? 0 : o->at - sizeof o->head;
    if (at < o->n) parts[m.msg_iovlen++] = (struct iovec){(char *)(uintptr_t)o->bytes + at, o->n - at};
    ssize_t put = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno != EAGAIN && errno != EINTR) gm_tcp_lose(c, p, errno);
    if (put > 0) o->at += (size_t)put;
    return put > 0;
}

static void flush(gm_tcp *c, gm_tcp_peer *p)
{
    while (p->out && !p->gone) {
        gm_tcp_outgoing *o = p->out;
        if (!write_some(c, p, o)) return;
        if (o->at < sizeof o->head + o->n) continue;
        if (o->of) o->of->done = true;
        p->out = o->next;
        if (!p->out) {
            p->out_end = &p->out;
            c->sending--;
        }
        free(o);
    }
}

/* The bytes belong to `of`, or are copied. False: no memory. */
bool gm_tcp_put(gm_tcp *c, gm_tcp_peer *p, gm_tcp_head h, const void *bytes, size_t n, gm_tcp_request *of)
{
    gm_tcp_outgoing *o = new_outgoing(h, bytes, n, of);
    if (!o) return false;
    if (p->gone) {
        free(o);
        return true;
    }
    if (!p->out) c->sending++;
    *p->out_end = o;
    p->out_end = &o->next;
    flush(c, p);
    return true;
}

/* ---- receiving ---- */

static void finish(gm_tcp_request *q, size_t n)
{
    q->n = n;
    q->done = true;
}

void gm_tcp_give(gm_tcp_request *q, const gm_tcp_early *e)
{
    size_t n = e->n < q->room ? e->n : q->room;
    if (n) memcpy(q->bytes, e->bytes, n);
    finish(q, e->n);
}

bool gm_tcp_grant(gm_tcp *c, gm_tcp_peer *p, gm_tcp_request *q, uint64_t id)
{
    q->id = id;
    gm_tcp_append(&p->granted, q);
    return gm_tcp_put(c, p, (gm_tcp_head){KIND_GRANT, q->tag, 0, id}, NULL, 0, NULL);
}

static gm_tcp_early *keep_early(gm_tcp_peer *p, const gm_tcp_head *h, size_t room)
{
    gm_tcp_early *e = malloc(sizeof *e + room), **end = &p->early;
    if (!e) return NULL;
    *e = (gm_tcp_early){.tag = h->tag, .n = h->n, .id = h->id, .offered = h->kind == KIND_OFFER};
    while (*end) end = &(*end)->next;
    *end = e;
    return e;
}

static gm_tcp_request *take_posted(gm_tcp_peer *p, int tag)
{
    gm_tcp_request *q = p->posted;
    while (q && q->tag != tag) q = q->next;
    if (q) gm_tcp_unlink(&p->posted, q);
    return q;
}

static bool take_offer(gm_tcp *c, gm_tcp_peer *p)
{
    gm_tcp_request *q = take_posted(p, p->in.tag);
    if (!q) return keep_early(p, &p->in, 0) != NULL;
    q->n = p->in.n;
    return gm_tcp_grant(c, p, q, p->in.id);
}

static bool take_grant(gm_tcp *c, gm_tcp_peer *p)
{
    gm_tcp_request *q = of_id(p->offered, p->in.id);
    if (!q) return true;
    gm_tcp_unlink(&p->offered, q);
    return gm_tcp_put(c, p, (gm_tcp_head){KIND_BODY, q->tag, q->n, q->id}, q->bytes, q->n, q);
}

/* What a message that was offered to nobody was granted for: to be dropped (drain). */
static gm_tcp_early *granted_early(gm_tcp_peer *p, uint64_t id)
{
    gm_tcp_early *e = p->early;
    while (e && (e->offered || e->whole || e->id != id)) e = e->next;
    return e;
}

/* The head of a frame is here: where do its bytes go? False: no memory, or no frame of ours. */
static bool begin_frame(gm_tcp *c, gm_tcp_peer *p)
{
    p->into = NULL;
    p->into_early = NULL;
    switch ((gm_tcp_kind)p->in.kind) {
    case KIND_NOTICE: return p->in.n <= GM_NOTICE_MAX;
    case KIND_DATA:
        if (p->in.n > GM_TCP_EAGER) return false;
        p->into = take_posted(p, p->in.tag);
        if (!p->into) p->into_early = keep_early(p, &p->in, p->in.n);
        return p->into || p->into_early;
    case KIND_OFFER: return p->in.n <= GM_MESSAGE_MAX && take_offer(c, p);
    case KIND_GRANT: return take_grant(c, p);
    case KIND_BODY:
        p->into = of_id(p->granted, p->in.id);
        if (p->into) gm_tcp_unlink(&p->granted, p->into);
        else p->into_early = granted_early(p, p->in.id);
        return p->into || p->into_early;
    }
    return false;
}

static bool keep_note(gm_tcp *c, int from, const char *bytes, size_t n)
{
    gm_tcp_note *k = malloc(sizeof *k + n);
    if (!k) return false;
    *k = (gm_tcp_note){.from = from, .n = n};
    memcpy(k->bytes, bytes, n);
    *c->notes_end = k;
    c->notes_end = &k->next;
    return true;
}

static bool end_frame(gm_tcp *c, gm_tcp_peer *p)
{
    gm_tcp_early *e = p->into_early;
    if (p->in.kind == KIND_NOTICE && !keep_note(c, (int)(p - c->peers), p->notice, p->in.n)) return false;
    if (p->into) finish(p->into, p->in.n);
    if (e) e->whole = true;
    if (e && e->wanted) {
        gm_tcp_give(e->wanted, e);
        gm_tcp_unlink_early(&p->early, e);
        free(e);
    }
    p->into = NULL;
    p->into_early = NULL;
    p->in_at = 0;
    return true;
}

/* Bytes that follow the head; an offer and a grant have none, although n says how long the message is. */
static size_t body_of(const gm_tcp_head *h) { return h->kind == KIND_OFFER || h->kind == KIND_GRANT ? 0 : h->n; }

/* Where the next bytes go, and how many fit there. Those beyond a receive's buffer are read into scrap. */
static char *next_room(gm_tcp_peer *p, size_t *n)
{
    static char scrap[4096]; /* nobody reads it */
    if (p->in_at < sizeof p->in) {
        *n = sizeof p->in - p->in_at;
        return (char *)&p->in + p->in_at;
    }
    size_t at = p->in_at - sizeof p->in, left = body_of(&p->in) - at;
    char  *to = p->into_early ? p->into_early->bytes : p->into ? p->into->bytes : p->notice;
    size_t room = p->into ? p->into->room : p->in.n;
    if (at < room) {
        *n = left < room - at ? left : room - at;
        return to + at;
    }
    *n = left < sizeof scrap ? left : sizeof scrap;
    return scrap;
}

/* One read. False: there is nothing to read now, or never again. */
static bool read_some(gm_tcp *c, gm_tcp_peer *p)
{
    size_t  n;
    char   *to = next_room(p, &n);
    ssize_t got = recv(p->fd, to, n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
        gm_tcp_lose(c, p, got < 0 ? errno : 0);
        return false;
    }
    size_t before = p->in_at;
    p->in_at += (size_t)got;
    bool well = true;
    if (before < sizeof p->in && p->in_at == sizeof p->in) well = begin_frame(c, p);
    if (well && p->in_at == sizeof p->in + body_of(&p->in) && p->in_at >= sizeof p->in) well = end_frame(c, p);
    if (!well) gm_tcp_lose(c, p, EPROTO);
    return well;
}

/* Moves what can be moved now. */
void gm_tcp_progress(gm_tcp *c)
{
    struct epoll_event ready[32];
    int                n = epoll_wait(c->epoll, ready, 32, 0);
    for (int i = 0; i < n; i++) {
        gm_tcp_peer *p = &c->peers[ready[i].data.u32];
        for (int reads = 0; reads < 64 && read_some(c, p); reads++) {
        }
    }
    for (int i = 0; c->sending && i < c->world; i++)
        if (c->peers[i].out) flush(c, &c->peers[i]);
}
