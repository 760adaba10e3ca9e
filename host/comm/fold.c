/* fold.c - receives from several ranks at once whose bytes are read where they lie. See frames.h.
 *
 * The request that the caller tests has peer -1 and owns the fold; each of the messages is a request of its own, in no
 * list of requests. When all messages have been offered, they are taken piece by piece, where they lie if this process
 * maps that memory. Else each piece is copied out of the memory of its sender and taken while it is in the caches.
 * Where this cannot be done, all are granted. The result goes back into mapped memory in the same pass, if it was asked
 * for. Grants go out in the same order to all peers, and a stream brings bodies in the order of their grants: so of two
 * folds the first is first in every stream, and its bytes are never behind those of the second. */
#include <stdlib.h>
#include <string.h>
#include "frames.h"

#define PIECE ((size_t)32 << 10) /* bytes of each message that are taken at once: they stay in the caches */

typedef struct gm_fold {
    gm_frame_request *whole, *part; /* part[n] */
    const char      **where;
    int               n, offered;
    bool              granted;
    size_t            at, bytes;
    void (*take)(void *context, const char *const *parts, size_t at, size_t bytes);
    void       *context;
    const char *result; /* and filled: as transport.h has them */
    bool       *filled;
} gm_fold;

static bool post(gm_frames *f, gm_frame_request *q)
{
    gm_frame_peer  *p = &f->peers[q->peer];
    gm_frame_early *e = p->early;
    while (e && (e->tag != q->tag || e->wanted || !e->offered)) e = e->next;
    if (!e) {
        gm_frames_append(&p->posted, q);
        return true;
    }
    gm_frame_head h = {FRAME_OFFER, e->tag, e->n, e->id, e->at};
    gm_frames_free_early(f, p, e);
    return gm_fold_offered(f, q, &h);
}

int gm_frames_fold(gm_frames *f, gm_transport *t, const gm_fold_call *call, const int *peers, void **out)
{
    size_t            n = (size_t)call->n;
    gm_frame_request *whole = calloc(1, sizeof *whole);
    gm_fold          *fold = calloc(1, sizeof *fold);
    if (fold) fold->part = calloc(n, sizeof *fold->part);
    if (fold) fold->where = calloc(n, sizeof *fold->where);
    if (!whole || !fold || !fold->part || !fold->where) {
        if (fold) free(fold->part), free(fold->where);
        free(fold);
        free(whole);
        return gm_frames_no_memory(t);
    }
    *whole = (gm_frame_request){.after = f->requests, .peer = -1, .tag = call->tag, .n = call->bytes, .fold = fold};
    if (f->requests) f->requests->before = whole;
    f->requests = whole;
    fold->whole = whole;
    fold->n = call->n;
    fold->bytes = call->bytes;
    fold->take = call->take;
    fold->context = call->context;
    fold->result = call->result;
    fold->filled = call->filled;
    *out = whole;
    for (int i = 0; i < call->n; i++)
        fold->part[i] = (gm_frame_request){.peer = peers[i], .tag = call->tag, .room = call->bytes, .fold = fold};
    for (int i = 0; i < call->n; i++)
        if (!post(f, &fold->part[i])) return gm_frames_no_memory(t);
    return 0;
}

static bool make_room(gm_frames *f, size_t size)
{
    char *room = f->room_size < size ? realloc(f->room, size) : f->room;
    if (!room) return false;
    f->room = room;
    if (f->room_size < size) f->room_size = size;
    return true;
}

/* The next m bytes of message i: where they lie, or pulled into a piece of the room. NULL: the system refuses. */
static const char *bring(gm_frames *f, const gm_fold *fold, int i, size_t m)
{
    const gm_frame_request *q = &fold->part[i];
    char                   *to = f->room + (size_t)i * PIECE;
    const char             *there = f->stream->reach ? f->stream->reach(f, q->peer, q->at, fold->bytes) : NULL;
    if (there) return there + fold->at;
    return f->stream->pull(f, q->peer, to, q->at + fold->at, m) ? to : NULL;
}

/* The result of the next m bytes, which are in the caches still, goes where the senders of the terms want it. */
static void fill(gm_frames *f, const gm_fold *fold, size_t m)
{
    for (int i = 0; i < fold->n && fold->result; i++) {
        const gm_frame_request *q = &fold->part[i];
        char                   *there = f->stream->reach ? f->stream->reach(f, q->peer, q->at, fold->bytes) : NULL;
        if (there) memcpy(there + fold->at, fold->result + fold->at, m);
        fold->filled[i] = there != NULL;
    }
}

/* Takes all bytes from the memory of the senders. False: it cannot, and nothing was taken. A sender that dies meanwhile
 * leaves the fold as it is: it never ends, as if its bytes never came. */
static bool pull_all(gm_frames *f, gm_fold *fold)
{
    if (!f->stream->pull || !make_room(f, (size_t)fold->n * PIECE)) return false;
    while (fold->at < fold->bytes) {
        size_t left = fold->bytes - fold->at, m = left < PIECE ? left : PIECE;
        for (int i = 0; i < fold->n; i++) {
            fold->where[i] = bring(f, fold, i, m);
            if (!fold->where[i]) return fold->at > 0;
        }
        fold->take(fold->context, fold->where, fold->at, m);
        fill(f, fold, m);
        fold->at += m;
    }
    fold->whole->done = true;
    return true;
}

bool gm_fold_offered(gm_frames *f, gm_frame_request *q, const gm_frame_head *h)
{
    gm_fold *fold = q->fold;
    bool     well = h->n == fold->bytes;
    q->id = h->id;
    q->at = h->at;
    q->n = h->n;
    fold->offered++;
    if (!well || fold->offered < fold->n) return well;
    fold->granted = true;
    bool pulled = pull_all(f, fold);
    for (int i = 0; i < fold->n && well; i++) {
        gm_frame_request *part = &fold->part[i];
        if (!pulled) well = gm_frames_grant(f, &f->peers[part->peer], part, part->id);
        else if (fold->whole->done)
            well = gm_frames_have(f, &f->peers[part->peer], part->id, fold->result && fold->filled[i]);
    }
    return well;
}

/* Is the next byte of its stream one of this message? */
static bool is_next(const gm_frames *f, const gm_frame_request *q) { return f->peers[q->peer].into == q; }

/* The bytes that have come of all messages, at most PIECE. Elements are whole: streams hold multiples of `pad`. */
static size_t come(gm_frames *f, gm_fold *fold)
{
    size_t left = fold->bytes - fold->at, m = left < PIECE ? left : PIECE;
    for (int i = 0; i < fold->n && m; i++) {
        size_t here = 0;
        fold->where[i] = f->stream->look(f, fold->part[i].peer, &here);
        if (here < m) m = here;
    }
    return m < left ? m / f->stream->pad * f->stream->pad : m;
}

static void finish(gm_frames *f, gm_fold *fold)
{
    for (int i = 0; i < fold->n; i++) {
        gm_frame_peer *p = &f->peers[fold->part[i].peer];
        p->into = NULL; /* what is left of the frame belongs to nobody */
        (void)gm_frames_taken(f, p);
    }
    fold->whole->done = true;
    f->again = true;
}

bool gm_fold_advance(gm_frames *f, gm_frame_request *q)
{
    gm_fold *fold = q->fold;
    bool     moved = false;
    size_t   m;
    for (int i = 0; i < fold->n; i++)
        if (!is_next(f, &fold->part[i])) return false;
    while ((m = come(f, fold))) {
        fold->take(fold->context, fold->where, fold->at, m);
        for (int i = 0; i < fold->n; i++) {
            f->stream->skip(f, fold->part[i].peer, m);
            f->peers[fold->part[i].peer].in_at += m;
        }
        fold->at += m;
        moved = true;
    }
    if (fold->at == fold->bytes) finish(f, fold);
    return moved;
}

int gm_fold_lost(const gm_frames *f, const gm_frame_request *whole)
{
    const gm_fold *fold = whole->fold;
    for (int i = 0; i < fold->n && !whole->done; i++)
        if (f->peers[fold->part[i].peer].gone) return fold->part[i].peer;
    return -1;
}

bool gm_fold_lacks(const gm_frames *f, const gm_frame_request *whole, int peer)
{
    const gm_fold *fold = whole->fold;
    for (int i = 0; i < fold->n && !whole->done; i++)
        if (fold->part[i].peer == peer) return fold->granted ? !is_next(f, &fold->part[i]) : !fold->part[i].id;
    return false;
}

int gm_fold_cancel(gm_frames *f, gm_transport *t, gm_frame_request *whole)
{
    gm_fold *fold = whole->fold;
    if (fold->granted) return 0;
    for (int i = 0; i < fold->n; i++) {
        gm_frame_request *q = &fold->part[i];
        gm_frame_peer    *p = &f->peers[q->peer];
        if (gm_frames_unlink(&p->posted, q)) continue;
        if (!gm_frames_keep(f, p, &(gm_frame_head){FRAME_OFFER, q->tag, q->n, q->id, q->at}, 0))
            return gm_frames_no_memory(t);
    }
    whole->done = whole->cancelled = true;
    return 0;
}

void gm_fold_free(gm_frames *f, gm_frame_request *whole)
{
    gm_fold *fold = whole->fold;
    for (int i = 0; i < fold->n; i++) {
        gm_frame_request *q = &fold->part[i];
        gm_frame_peer    *p = &f->peers[q->peer];
        if (p->into == q) p->into = NULL;
        gm_frames_unlink(&p->posted, q);
        gm_frames_unlink(&p->granted, q);
    }
    free(fold->part);
    free(fold->where);
    free(fold);
}
