/* passage.c - see passage.h. */
#include "passage.h"

#include <stdlib.h>
#include "../../kernels/queues.h"

struct gm_passage {
    gm_storage *there; /* of the host; a reference */
    void       *at;    /* of the device */
    size_t      bytes;
    bool        up;     /* to the device */
    bool        flies;  /* its copy is queued; else its bytes still come from the disk */
    bool        open;   /* the storage: the copy uses it */
    bool        loose;  /* settled: nobody holds its handle */
    gm_ticket  *ticket; /* behind the copy; NULL on meta */
    gm_passage *next;
};

struct gm_passages {
    gm_device  *dev;
    gm_queue   *down, *up_; /* NULL on meta */
    gm_passage *first, *last;
    uint64_t    room, open; /* bytes of storages */
};

static const gm_queues *queues_of(const gm_passages *p) { return p->dev->backend->queues; }

static bool moves(const gm_passages *p) { return p->dev->backend->has_data; }

gm_status gm_passages_new(gm_device *dev, uint64_t room, gm_passages **out)
{
    gm_status    st = GM_OK;
    gm_passages *p = calloc(1, sizeof *p);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for the ways to a tier");
    p->dev = dev;
    p->room = room;
    if (moves(p)) st = queues_of(p)->open(dev, &p->down);
    if (moves(p) && st == GM_OK) st = queues_of(p)->open(dev, &p->up_);
    if (st == GM_OK) *out = p;
    else gm_passages_free(p);
    return st;
}

void gm_passages_free(gm_passages *p)
{
    if (!p) return;
    (void)gm_passages_drain(p); /* without: a storage that a copy may still use stays open, and its memory taken */
    if (p->down) queues_of(p)->close(p->down);
    if (p->up_) queues_of(p)->close(p->up_);
    free(p);
}

/* ---- one way ---- */

/* Queues the copy, behind all that the device has been given so far. */
static gm_status copy(gm_passages *p, gm_passage *w)
{
    const gm_queues *q = queues_of(p);
    gm_queue        *queue = w->up ? p->up_ : p->down;
    if (!moves(p)) return GM_OK;
    GM_TRY(q->enter(p->dev, &w->ticket));
    GM_TRY(q->follow(queue, w->ticket));
    gm_status st = w->up ? q->copy_up(queue, w->at, w->there->data, w->bytes)
                         : q->copy_down(queue, w->there->data, w->at, w->bytes);
    gm_status left = q->leave(queue, w->ticket);
    return st == GM_OK ? left : st;
}

static gm_status passed(gm_passages *p, gm_passage *w, bool *done)
{
    bool begun;
    *done = true;
    return w->ticket ? queues_of(p)->passed(p->dev, w->ticket, &begun, done) : GM_OK;
}

/* Its copy is done: the storage is free again. */
static void land(gm_passages *p, gm_passage *w)
{
    gm_storage_close(w->there, !w->up);
    w->open = false;
    p->open -= w->bytes;
    if (w->ticket) queues_of(p)->give(p->dev, w->ticket);
    w->ticket = NULL;
}

static void drop_settled(gm_passages *p)
{
    p->last = NULL;
    for (gm_passage **at = &p->first; *at;) {
        gm_passage *w = *at;
        if (!w->loose || w->open) {
            p->last = w;
            at = &w->next;
            continue;
        }
        *at = w->next;
        gm_storage_release(w->there);
        free(w);
    }
}

static gm_status land_done(gm_passages *p)
{
    bool done;
    for (gm_passage *w = p->first; w; w = w->next) {
        if (!w->open) continue;
        GM_TRY(passed(p, w, &done));
        if (done) land(p, w);
    }
    drop_settled(p);
    return GM_OK;
}

static gm_status wait_for(gm_passages *p, gm_passage *w)
{
    if (w->ticket) GM_TRY(gm_queues_wait(p->dev, w->ticket));
    land(p, w);
    return GM_OK;
}

/* Room for one more storage of the host: the oldest copies end. */
static gm_status make_room(gm_passages *p, size_t bytes)
{
    for (gm_passage *w = p->first; w && p->room && p->open + bytes > p->room; w = w->next)
        if (w->open) GM_TRY(wait_for(p, w));
    return GM_OK;
}

static gm_status land_all(gm_passages *p)
{
    for (gm_passage *w = p->first; w; w = w->next)
        if (w->open) GM_TRY(wait_for(p, w));
    return GM_OK;
}

static gm_status fly(gm_passages *p, gm_passage *w)
{
    GM_TRY(make_room(p, w->bytes));
    gm_status st = gm_storage_open(w->there);
    if (st == GM_ENOMEM && p->open) { /* what is open lies in the way of a gap that is large enough */
        GM_TRY(land_all(p));
        st = gm_storage_open(w->there);
    }
    if (st != GM_OK) return st;
    w->flies = w->open = true;
    p->open += w->bytes;
    st = copy(p, w);
    if (st != GM_OK) land(p, w);
    return st;
}

static gm_status begin(gm_passages *p, gm_storage *there, void *at, size_t bytes, bool up, gm_passage **out)
{
    gm_passage *w = calloc(1, sizeof *w);
    if (!w) return GM_FAIL(GM_ENOMEM, "no memory for a way to a tier");
    *w = (gm_passage){.there = there, .at = at, .bytes = bytes, .up = up};
    gm_storage_retain(there);
    if (p->last) p->last->next = w;
    else p->first = w;
    *out = p->last = w;
    return GM_OK;
}

gm_status gm_passages_read(gm_passages *p, gm_storage *from, void *at, size_t bytes, gm_passage **out)
{
    GM_TRY(gm_passages_pump(p));
    GM_TRY(gm_tier_begin(from));
    GM_TRY(begin(p, from, at, bytes, true, out));
    return gm_tier_is_here(from) ? fly(p, *out) : GM_OK;
}

gm_status gm_passages_write(gm_passages *p, gm_storage *to, void *at, size_t bytes, gm_passage **out)
{
    GM_TRY(gm_passages_pump(p));
    gm_tier_discard(to); /* what is there now needs not come from the disk */
    GM_TRY(begin(p, to, at, bytes, false, out));
    return fly(p, *out);
}

gm_status gm_passages_settle(gm_passages *p, gm_passage *w)
{
    const gm_queues *q = queues_of(p);
    gm_status        st = w->flies ? GM_OK : fly(p, w);
    w->loose = true;
    GM_TRY(st);
    if (!w->ticket) return gm_passages_pump(p);
    GM_TRY(q->order(p->dev, w->ticket));
    GM_TRY(q->after(w->up ? p->down : p->up_, w->ticket));
    return gm_passages_pump(p);
}

gm_status gm_passages_pump(gm_passages *p)
{
    GM_TRY(land_done(p));
    for (gm_passage *w = p->first; w; w = w->next) {
        if (w->flies || w->loose || !gm_tier_is_here(w->there)) continue;
        if (p->room && p->open + w->bytes > p->room) return GM_OK;
        GM_TRY(fly(p, w));
    }
    return GM_OK;
}

gm_status gm_passages_drain(gm_passages *p)
{
    GM_TRY(land_all(p));
    drop_settled(p);
    return GM_OK;
}
