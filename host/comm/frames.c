/* frames.c - see frames.h. */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/past_caches.h"

#define LARGE ((size_t)4 << 20) /* bytes of a message that the caches will not hold until they are used */

static int index_of(const gm_frames *f, const gm_frame_peer *p) { return (int)(p - f->peers); }

void gm_frames_lose(gm_frames *f, gm_frame_peer *p, int why)
{
    if (p->gone) return;
    p->gone = true;
    if (!p->deaf) p->why = why;
    f->stream->lost(f, index_of(f, p));
    if (p->out && !p->deaf) f->sending--;
}

/* A peer that ends may have said why: this lies here still when it takes nothing more. */
static void fall_deaf(gm_frames *f, gm_frame_peer *p, int why)
{
    p->deaf = true;
    p->why = why;
    if (p->out) f->sending--;
}

/* ---- lists ---- */

void gm_frames_append(gm_frame_request **list, gm_frame_request *q)
{
    while (*list) list = &(*list)->next;
    q->next = NULL;
    *list = q;
}

bool gm_frames_unlink(gm_frame_request **list, const gm_frame_request *q)
{
    while (*list && *list != q) list = &(*list)->next;
    if (!*list) return false;
    *list = q->next;
    return true;
}

void gm_frames_free_early(gm_frames *f, gm_frame_peer *p, gm_frame_early *e)
{
    gm_frame_early **list = &p->early;
    while (*list != e) list = &(*list)->next;
    *list = e->next;
    if (!e->next) p->early_end = list;
    f->early--;
    free(e);
}

static gm_frame_request *of_id(gm_frame_request *list, uint64_t id)
{
    while (list && list->id != id) list = list->next;
    return list;
}

/* ---- sending ---- */

static gm_frame_outgoing *new_outgoing(gm_frame_head h, const void *bytes, size_t n, gm_frame_request *of)
{
    size_t             own = of ? 0 : n;
    gm_frame_outgoing *o = malloc(sizeof *o + own);
    if (!o) return NULL;
    *o = (gm_frame_outgoing){.head = h, .bytes = of ? bytes : o->own, .n = n, .of = of};
    if (own) memcpy(o->own, bytes, own);
    return o;
}

/* Bytes behind the head of a frame that holds n: it ends with a line of memory, so that the next one begins with one.
 */
static size_t padded(const gm_frames *f, size_t n)
{
    size_t line = f->stream->line, whole = sizeof(gm_frame_head) + n;
    return (whole + line - 1) / line * line - sizeof(gm_frame_head);
}

static size_t whole_size(const gm_frames *f, const gm_frame_outgoing *o) { return sizeof o->head + padded(f, o->n); }

/* One write of what is left of o. False: the stream is full, or lost. */
static bool write_some(gm_frames *f, gm_frame_peer *p, gm_frame_outgoing *o)
{
    static const char zeros[FRAME_LINE_MOST];
    struct iovec      parts[3];
    int               n = 0;
    size_t            all = padded(f, o->n), at = 0;
    if (o->at < sizeof o->head) parts[n++] = (struct iovec){(char *)&o->head + o->at, sizeof o->head - o->at};
    else at = o->at - sizeof o->head;
    if (at < o->n) parts[n++] = (struct iovec){(char *)(uintptr_t)o->bytes + at, o->n - at};
    if (all > o->n) parts[n++] = (struct iovec){(char *)(uintptr_t)zeros, all - (at > o->n ? at : o->n)};
    ssize_t put = f->stream->put(f, index_of(f, p), parts, n);
    if (put < 0 && errno != EAGAIN && errno != EINTR) fall_deaf(f, p, errno);
    if (put > 0) o->at += (size_t)put;
    return put > 0;
}

void gm_frames_flush(gm_frames *f, gm_frame_peer *p)
{
    while (p->out && !p->gone && !p->deaf) {
        gm_frame_outgoing *o = p->out;
        if (!write_some(f, p, o)) return;
        if (o->at < whole_size(f, o)) continue;
        if (o->of) o->of->done = true;
        p->out = o->next;
        if (!p->out) {
            p->out_end = &p->out;
            f->sending--;
        }
        free(o);
    }
}

/* Keeps what the stream has not taken, behind what waits already. */
static bool queue(gm_frames *f, gm_frame_peer *p, const gm_frame_outgoing *now)
{
    gm_frame_outgoing *o = new_outgoing(now->head, now->bytes, now->n, now->of);
    if (!o) return false;
    o->at = now->at;
    if (!p->out) f->sending++;
    *p->out_end = o;
    p->out_end = &o->next;
    return true;
}

/* The bytes belong to `of`, or are copied. A stream that nothing waits for takes most frames at once: these need no
 * memory. False: no memory. */
bool gm_frames_put(gm_frames *f, gm_frame_peer *p, gm_frame_head h, const void *bytes, size_t n, gm_frame_request *of)
{
    gm_frame_outgoing now = {.head = h, .bytes = bytes, .n = n, .of = of};
    if (p->gone || p->deaf) return true;
    while (!p->out && now.at < whole_size(f, &now) && write_some(f, p, &now)) {
    }
    if (p->deaf) return true;
    if (now.at < whole_size(f, &now)) return queue(f, p, &now);
    if (of) of->done = true;
    return true;
}

/* ---- receiving ---- */

static void finish(gm_frame_request *q, size_t n)
{
    q->n = n;
    q->done = true;
}

void gm_frames_give(gm_frame_request *q, const gm_frame_early *e)
{
    size_t n = e->n < q->room ? e->n : q->room;
    if (n) memcpy(q->bytes, e->bytes, n);
    finish(q, e->n);
}

bool gm_frames_grant(gm_frames *f, gm_frame_peer *p, gm_frame_request *q, uint64_t id)
{
    q->id = id;
    gm_frames_append(&p->granted, q);
    return gm_frames_put(f, p, (gm_frame_head){FRAME_GRANT, q->tag, 0, id, 0}, NULL, 0, NULL);
}

bool gm_frames_have(gm_frames *f, gm_frame_peer *p, uint64_t id, bool filled)
{
    return gm_frames_put(f, p, (gm_frame_head){FRAME_DONE, 0, 0, id, filled}, NULL, 0, NULL);
}

static void copy(char *to, const char *from, size_t n)
{
    if (n < LARGE) {
        memcpy(to, from, n);
        return;
    }
    gm_stream_out(to, from, (int64_t)n);
    gm_stream_end();
}

bool gm_frames_accept(gm_frames *f, gm_frame_peer *p, gm_frame_request *q, const gm_frame_head *h)
{
    size_t      n = h->n < q->room ? h->n : q->room;
    const char *there = f->stream->reach ? f->stream->reach(f, index_of(f, p), h->at, n) : NULL;
    q->n = h->n;
    if (there) copy(q->bytes, there, n);
    else if (!f->stream->pull || !f->stream->pull(f, index_of(f, p), q->bytes, h->at, n))
        return gm_frames_grant(f, p, q, h->id);
    finish(q, h->n);
    return gm_frames_have(f, p, h->id, false);
}

gm_frame_early *gm_frames_keep(gm_frames *f, gm_frame_peer *p, const gm_frame_head *h, size_t room)
{
    gm_frame_early *e = malloc(sizeof *e + room);
    if (!e) return NULL;
    *e = (gm_frame_early){.tag = h->tag, .n = h->n, .id = h->id, .at = h->at};
    e->offered = h->kind == FRAME_OFFER;
    *p->early_end = e;
    p->early_end = &e->next;
    f->early++;
    return e;
}

static gm_frame_request *take_posted(gm_frame_peer *p, int tag)
{
    gm_frame_request *q = p->posted;
    while (q && q->tag != tag) q = q->next;
    if (q) gm_frames_unlink(&p->posted, q);
    return q;
}

static bool take_offer(gm_frames *f, gm_frame_peer *p)
{
    gm_frame_request *q = take_posted(p, p->in.tag);
    if (!q) return gm_frames_keep(f, p, &p->in, 0) != NULL;
    if (q->fold) return gm_fold_offered(f, q, &p->in);
    return gm_frames_accept(f, p, q, &p->in);
}

void gm_frames_unstage(gm_frames *f, gm_frame_request *q)
{
    if (q->staged) f->stream->unstage(f, q->staged);
    q->staged = NULL;
}

static bool take_grant(gm_frames *f, gm_frame_peer *p)
{
    gm_frame_request *q = of_id(p->offered, p->in.id);
    if (!q) return true;
    gm_frames_unstage(f, q);
    gm_frames_unlink(&p->offered, q);
    return gm_frames_put(f, p, (gm_frame_head){FRAME_BODY, q->tag, q->n, q->id, 0}, q->bytes, q->n, q);
}

/* The receiver has the bytes, or does not want them. */
static bool take_done(gm_frames *f, gm_frame_peer *p)
{
    gm_frame_request *q = of_id(p->offered, p->in.id);
    if (!q || !gm_frames_unlink(&p->offered, q)) return true;
    if (q->filled) *q->filled = p->in.at != 0;
    if (q->staged && p->in.at) memcpy(q->bytes, q->staged, q->n);
    gm_frames_unstage(f, q);
    q->done = true;
    return true;
}

/* The head of a frame is here: where do its bytes go? False: no memory, or no frame of ours. */
static bool begin_frame(gm_frames *f, gm_frame_peer *p)
{
    p->into = NULL;
    p->into_early = NULL;
    switch ((gm_frame_kind)p->in.kind) {
    case FRAME_NOTICE: return p->in.n <= GM_NOTICE_MAX;
    case FRAME_DATA:
        if (p->in.n > f->stream->eager) return false;
        p->into = take_posted(p, p->in.tag);
        if (p->into && p->into->fold) return false; /* its messages are longer */
        if (!p->into) p->into_early = gm_frames_keep(f, p, &p->in, p->in.n);
        return p->into || p->into_early;
    case FRAME_OFFER: return p->in.n <= GM_MESSAGE_MAX && take_offer(f, p);
    case FRAME_GRANT: return take_grant(f, p);
    case FRAME_BODY:
        p->into = of_id(p->granted, p->in.id);
        if (p->into) gm_frames_unlink(&p->granted, p->into);
        return true; /* nowhere: of a fold that was freed meanwhile */
    case FRAME_DONE: return take_done(f, p);
    }
    return false;
}

static bool keep_note(gm_frames *f, int from, const char *bytes, size_t n)
{
    gm_frame_note *k = malloc(sizeof *k + n);
    if (!k) return false;
    *k = (gm_frame_note){.from = from, .n = n};
    memcpy(k->bytes, bytes, n);
    *f->notes_end = k;
    f->notes_end = &k->next;
    return true;
}

static bool end_frame(gm_frames *f, gm_frame_peer *p)
{
    gm_frame_early *e = p->into_early;
    if (p->in.kind == FRAME_NOTICE && !keep_note(f, (int)(p - f->peers), p->notice, p->in.n)) return false;
    if (p->into) finish(p->into, p->in.n);
    if (e) e->whole = true;
    if (e && e->wanted) {
        gm_frames_give(e->wanted, e);
        gm_frames_free_early(f, p, e);
    }
    p->into = NULL;
    p->into_early = NULL;
    p->in_at = 0;
    return true;
}

/* Bytes that follow the head; those of an offer and of a grant are none of the message, whose length n is. */
static size_t body_of(const gm_frames *f, const gm_frame_head *h)
{
    return padded(f, h->kind == FRAME_OFFER || h->kind == FRAME_GRANT ? 0 : h->n);
}

/* Where the next bytes go, and how many fit there. Those beyond a receive's buffer, and those that nobody waits for any
 * more, are read into scrap. */
static char *next_room(const gm_frames *f, gm_frame_peer *p, size_t *n)
{
    static _Thread_local char scrap[4096]; /* nobody reads it; ranks that are threads (in tests) have one each */
    if (p->in_at < sizeof p->in) {
        *n = sizeof p->in - p->in_at;
        return (char *)&p->in + p->in_at;
    }
    size_t at = p->in_at - sizeof p->in, left = body_of(f, &p->in) - at, room = 0;
    char  *to = NULL;
    if (p->into_early) to = p->into_early->bytes, room = p->in.n;
    else if (p->into) to = p->into->bytes, room = p->into->room < p->in.n ? p->into->room : p->in.n;
    else if (p->in.kind == FRAME_NOTICE) to = p->notice, room = p->in.n;
    if (at < room) {
        *n = left < room - at ? left : room - at;
        return to + at;
    }
    *n = left < sizeof scrap ? left : sizeof scrap;
    return scrap;
}

bool gm_frames_taken(gm_frames *f, gm_frame_peer *p)
{
    bool well = p->in_at < sizeof p->in + body_of(f, &p->in) || end_frame(f, p);
    if (!well) gm_frames_lose(f, p, EPROTO);
    return well;
}

/* Takes up a frame that lies in a stream in one piece: once for the whole of it. Not bodies, which folds read where
 * they lie, and not notices, which are rare. False: there is none, and nothing was taken. */
static bool take_whole(gm_frames *f, gm_frame_peer *p, bool *well)
{
    size_t      n;
    const char *bytes = f->stream->look(f, index_of(f, p), &n);
    if (n < sizeof p->in) return false;
    memcpy(&p->in, bytes, sizeof p->in);
    size_t all = sizeof p->in + body_of(f, &p->in);
    if (n < all || p->in.kind == FRAME_BODY || p->in.kind == FRAME_NOTICE) return false;
    p->in_at = sizeof p->in;
    bool message = p->in.kind == FRAME_DATA;
    if (!message) f->stream->skip(f, index_of(f, p), all); /* what begins now may read behind it */
    *well = begin_frame(f, p);
    while (*well && p->in_at < all) {
        char *to = next_room(f, p, &n);
        if (message) memcpy(to, bytes + p->in_at, n);
        p->in_at += n;
    }
    if (message) f->stream->skip(f, index_of(f, p), all);
    return true;
}

bool gm_frames_read(gm_frames *f, gm_frame_peer *p)
{
    size_t n;
    bool   well = true;
    if (p->gone) return false;
    if (!p->in_at && f->stream->look && take_whole(f, p, &well)) {
        if (well) return gm_frames_taken(f, p);
        gm_frames_lose(f, p, EPROTO);
        return false;
    }
    if (p->into && p->into->fold) return gm_fold_advance(f, p->into);
    char   *to = next_room(f, p, &n);
    ssize_t got = f->stream->get(f, index_of(f, p), to, n);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
        gm_frames_lose(f, p, got < 0 ? errno : 0);
        return false;
    }
    size_t before = p->in_at;
    p->in_at += (size_t)got;
    if (p->in_at < sizeof p->in) return true;
    if (before >= sizeof p->in || begin_frame(f, p)) return gm_frames_taken(f, p);
    gm_frames_lose(f, p, EPROTO);
    return false;
}
