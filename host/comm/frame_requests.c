/* frame_requests.c - the messages of a transport over frames: sends, receives, notices. See frames.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "frames.h"

#define LONG       4096 /* bytes of a message */
#define MANY_EARLY 64   /* messages that came before they were asked for */

int gm_frames_no_memory(gm_transport *t)
{
    snprintf(t->error, sizeof t->error, "no memory for a message");
    return -1;
}

static gm_frame_request *new_request(gm_frames *f, int peer, int tag, const void *bytes, size_t n)
{
    gm_frame_request *q = f->spare ? f->spare : malloc(sizeof *q);
    if (!q) return NULL;
    f->spare = q == f->spare ? q->next : f->spare;
    *q = (gm_frame_request){.after = f->requests, .peer = peer, .tag = tag, .room = n, .n = n};
    q->bytes = (char *)(uintptr_t)bytes;
    if (f->requests) f->requests->before = q;
    f->requests = q;
    return q;
}

static void free_request(gm_frames *f, gm_frame_request *q)
{
    if (q->before) q->before->after = q->after;
    else f->requests = q->after;
    if (q->after) q->after->before = q->before;
    if (q->fold) gm_fold_free(f, q);
    gm_frames_unstage(f, q);
    q->next = f->spare;
    f->spare = q;
}

int gm_frames_send(gm_frames *f, gm_transport *t, int peer, int tag, const void *bytes, size_t n, bool *filled,
                   void **out)
{
    gm_frame_peer    *p = &f->peers[peer];
    gm_frame_request *q = new_request(f, peer, tag, bytes, n);
    bool              offer = n > f->stream->eager, put_it;
    if (!q) return gm_frames_no_memory(t);
    q->id = ++f->ids;
    q->filled = filled;
    if (offer) {
        const void *at = bytes;
        gm_frames_append(&p->offered, q);
        if (f->stream->stage) q->staged = f->stream->stage(f, bytes, n, tag, filled != NULL);
        if (q->staged) at = q->staged;
        put_it = gm_frames_put(f, p, (gm_frame_head){FRAME_OFFER, tag, n, q->id, (uintptr_t)at}, NULL, 0, NULL);
    } else put_it = gm_frames_put(f, p, (gm_frame_head){FRAME_DATA, tag, n, q->id, 0}, bytes, n, q);
    if (!put_it) {
        if (offer) gm_frames_unlink(&p->offered, q);
        free_request(f, q);
        return gm_frames_no_memory(t);
    }
    *out = q;
    return 0;
}

int gm_frames_receive(gm_frames *f, gm_transport *t, int peer, int tag, void *bytes, size_t n, void **out)
{
    gm_frame_peer    *p = &f->peers[peer];
    gm_frame_early   *e = p->early;
    gm_frame_request *q = new_request(f, peer, tag, bytes, n);
    if (!q) return gm_frames_no_memory(t);
    *out = q;
    while (e && (e->tag != tag || e->wanted)) e = e->next;
    if (!e) {
        gm_frames_append(&p->posted, q);
        return 0;
    }
    if (!e->offered && !e->whole) { /* it arrives just now */
        e->wanted = q;
        return 0;
    }
    if (e->whole) gm_frames_give(q, e);
    else if (!gm_frames_accept(f, p, q, &(gm_frame_head){FRAME_OFFER, tag, e->n, e->id, e->at}))
        return gm_frames_no_memory(t);
    gm_frames_free_early(f, p, e);
    return 0;
}

/* Nobody writes into what failed any more. */
static void forget(gm_frame_peer *p, const gm_frame_request *q)
{
    if (p->into == q) p->into = NULL;
    gm_frames_unlink(&p->posted, q);
    gm_frames_unlink(&p->offered, q);
    gm_frames_unlink(&p->granted, q);
    for (gm_frame_outgoing *o = p->out; o; o = o->next)
        if (o->of == q) o->of = NULL;
    for (gm_frame_early *e = p->early; e; e = e->next)
        if (e->wanted == q) e->wanted = NULL;
}

int gm_frames_test(gm_frames *f, gm_frame_request *q, size_t *n, int *lost)
{
    *lost = q->fold ? gm_fold_lost(f, q) : f->peers[q->peer].gone ? q->peer : -1;
    bool done = q->done;
    if (!done && *lost < 0) return 0;
    *n = q->cancelled ? GM_CANCELLED : q->n;
    if (!done && !q->fold) forget(&f->peers[q->peer], q);
    free_request(f, q);
    return done ? 1 : -1;
}

bool gm_frames_serve(const gm_frames *f, const gm_frame_request *q)
{
    return q && q->done && (q->n >= LONG || f->early >= MANY_EARLY);
}

int gm_frames_cancel(gm_frames *f, gm_transport *t, gm_frame_request *q)
{
    if (q->fold) return gm_fold_cancel(f, t, q);
    if (!q->done && gm_frames_unlink(&f->peers[q->peer].posted, q)) q->done = q->cancelled = true;
    return 0;
}

int gm_frames_drain(gm_frames *f, gm_transport *t, int *peer)
{
    for (int r = 0; r < f->n; r++) {
        gm_frame_peer  *p = &f->peers[r];
        gm_frame_early *e = p->early;
        while (e && (e->wanted || !(e->whole || e->offered))) e = e->next;
        if (!e || p->gone) continue;
        if (e->offered && !gm_frames_have(f, p, e->id, false)) return gm_frames_no_memory(t);
        gm_frames_free_early(f, p, e);
        *peer = r;
        return 1;
    }
    return 0;
}

int gm_frames_tell(gm_frames *f, gm_transport *t, int peer, const void *bytes, size_t n)
{
    bool put_it = gm_frames_put(f, &f->peers[peer], (gm_frame_head){FRAME_NOTICE, 0, n, 0, 0}, bytes, n, NULL);
    return put_it ? 0 : gm_frames_no_memory(t);
}

int gm_frames_hear(gm_frames *f, void *bytes, size_t *n, int *from)
{
    gm_frame_note *k = f->notes;
    if (!k) return 0;
    f->notes = k->next;
    if (!f->notes) f->notes_end = &f->notes;
    memcpy(bytes, k->bytes, k->n);
    *n = k->n;
    *from = k->from;
    free(k);
    return 1;
}

/* ---- life ---- */

bool gm_frames_make(gm_frames *f, int n)
{
    f->peers = calloc((size_t)n, sizeof *f->peers);
    f->notes_end = &f->notes;
    f->n = f->peers ? n : 0;
    for (int i = 0; i < f->n; i++) {
        f->peers[i].out_end = &f->peers[i].out;
        f->peers[i].early_end = &f->peers[i].early;
    }
    return f->peers != NULL;
}

static void free_peer(gm_frame_peer *p)
{
    for (gm_frame_outgoing *o = p->out, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    for (gm_frame_early *e = p->early, *next; e; e = next) {
        next = e->next;
        free(e);
    }
}

void gm_frames_free(gm_frames *f)
{
    while (f->requests) free_request(f, f->requests); /* of operations that were given up */
    for (gm_frame_request *q = f->spare, *next; q; q = next) {
        next = q->next;
        free(q);
    }
    for (int i = 0; i < f->n; i++) free_peer(&f->peers[i]);
    for (gm_frame_note *k = f->notes, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    free(f->peers);
    free(f->room);
}
