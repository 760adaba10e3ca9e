/* comm_windows.c - see comm_windows.h.
 *
 * Peers of the frames: for each place of this machine a stream for data, then for each a stream for notices, which must
 * not wait behind data that a fold cannot take yet. A stream is a ring in the window of the sender (windows_stream.c).
 * Requests of the transport below hang in requests of ours whose peer is BELOW. */
#define _GNU_SOURCE
#include "comm_windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../kernels/clock.h"
#include "lines.h"
#include "windows_state.h"

#define LOOK_BELOW    256 /* turns after which the transport below is asked for notices, where it carries no data */
#define CLOSE_SECONDS 10
#define LEAVE_SECONDS 1

typedef struct below { /* a request of the transport below; begins as ours do, so that test can tell */
    gm_frame_request head;
    void            *request;
} below;
#define BELOW (-2)

#define LOST_ROOM 200

/* ---- looking ---- */

/* Looks at the streams from `first` on until q is served (NULL: until nothing more comes), at notices to the end. */
static void look_until(gm_windows *w, int first, const gm_frame_request *q)
{
    gm_frames *f = &w->frames;
    do {
        f->again = false;
        for (int i = 2 * w->here - 1; i >= first; i--) { /* notices first */
            gm_frame_peer *p = &f->peers[i];
            while ((i >= w->here || !gm_frames_serve(&w->frames, q)) && gm_frames_read(f, p)) {
            }
            if (p->out) gm_frames_flush(f, p);
        }
    } while (f->again && !gm_frames_serve(&w->frames, q));
}

static void look_around(gm_windows *w)
{
    w->left = false;
    look_until(w, 0, NULL);
}

/* Has something come since the last look? */
static bool has_come(gm_windows *w)
{
    uint32_t rung = gm_window_rung(w->window[w->place]), seen = w->seen;
    w->seen = rung;
    return rung != seen;
}

/* Moves what can be moved now, until q is served. */
static void progress(gm_windows *w, const gm_frame_request *q)
{
    if (!has_come(w) && !w->left) return;
    look_until(w, 0, q);
    w->left = gm_frames_serve(&w->frames, q);
}

/* ---- messages ---- */

static bool is_below(const gm_windows *w, int rank) { return w->place_of[rank] < 0; }

static int below_failed(gm_transport *t)
{
    const gm_windows *w = t->context;
    snprintf(t->error, sizeof t->error, "%s", w->base->error);
    return -1;
}

static int start_below(gm_transport *t, bool send, int rank, int tag, void *bytes, size_t n, void **out)
{
    gm_transport *base = ((gm_windows *)t->context)->base;
    below        *b = calloc(1, sizeof *b);
    if (!b) return gm_frames_no_memory(t);
    b->head.peer = BELOW;
    *out = b;
    if (!(send ? base->send(base, rank, tag, bytes, n, &b->request)
               : base->receive(base, rank, tag, bytes, n, &b->request)))
        return 0;
    free(b);
    return below_failed(t);
}

static int windows_send(gm_transport *t, int to, int tag, const void *bytes, size_t n, void **out)
{
    gm_windows *w = t->context;
    if (is_below(w, to)) return start_below(t, true, to, tag, (void *)(uintptr_t)bytes, n, out);
    return gm_frames_send(&w->frames, t, w->place_of[to], tag, bytes, n, NULL, out);
}

static int windows_lend(gm_transport *t, int to, int tag, void *bytes, size_t n, bool *filled, void **out)
{
    gm_windows *w = t->context;
    if (is_below(w, to)) return start_below(t, true, to, tag, bytes, n, out);
    return gm_frames_send(&w->frames, t, w->place_of[to], tag, bytes, n, filled, out);
}

static void windows_expect(gm_transport *t, int tag, size_t bytes, int ranks)
{
    gm_windows *w = t->context;
    if (w->stage) gm_stage_tell(w->stage, tag, bytes, ranks);
}

static int windows_receive(gm_transport *t, int from, int tag, void *bytes, size_t n, void **out)
{
    gm_windows *w = t->context;
    if (is_below(w, from)) return start_below(t, false, from, tag, bytes, n, out);
    return gm_frames_receive(&w->frames, t, w->place_of[from], tag, bytes, n, out);
}

static bool windows_send_now(gm_transport *t, int to, int tag, const void *bytes, size_t n)
{
    gm_windows *w = t->context;
    return !is_below(w, to) && gm_windows_send_now(w, w->place_of[to], tag, bytes, n);
}

static int windows_receive_now(gm_transport *t, int from, int tag, void *bytes, size_t n)
{
    gm_windows *w = t->context;
    return is_below(w, from) ? -1 : gm_windows_receive_now(w, w->place_of[from], tag, bytes, n);
}

static int test_below(gm_transport *t, below *b, size_t *n)
{
    gm_transport *base = ((gm_windows *)t->context)->base;
    int           ended = base->test(base, b->request, n);
    if (ended) free(b);
    if (ended < 0) (void)below_failed(t);
    return ended;
}

static int windows_test(gm_transport *t, void *request, size_t *n)
{
    gm_windows       *w = t->context;
    gm_frame_request *q = request;
    int               peer;
    if (q->peer == BELOW) return test_below(t, request, n);
    if (!q->done) progress(w, q);
    int ended = gm_frames_test(&w->frames, q, n, &peer);
    if (ended >= 0) return ended;
    const char *why = w->lost + (size_t)LOST_ROOM * (size_t)gm_place_of_peer(w, peer);
    snprintf(t->error, sizeof t->error, "%s", *why ? why : "a frame that is none of ours came through a window");
    return *why ? GM_LOST : -1;
}

static int windows_cancel(gm_transport *t, void *request)
{
    gm_windows       *w = t->context;
    gm_frame_request *q = request;
    if (q->peer != BELOW) return gm_frames_cancel(&w->frames, t, q);
    return w->base->cancel(w->base, ((below *)request)->request) ? below_failed(t) : 0;
}

static int windows_drain(gm_transport *t, int *from)
{
    gm_windows *w = t->context;
    int         peer, got;
    progress(w, NULL);
    if ((got = gm_frames_drain(&w->frames, t, &peer))) {
        if (got > 0) *from = w->rank[gm_place_of_peer(w, peer)];
        return got;
    }
    got = w->base->drain(w->base, from);
    return got < 0 ? below_failed(t) : got;
}

static int windows_tell(gm_transport *t, int to, const void *bytes, size_t n)
{
    gm_windows *w = t->context;
    if (!is_below(w, to)) return gm_frames_tell(&w->frames, t, w->here + w->place_of[to], bytes, n);
    return w->base->tell(w->base, to, bytes, n) ? below_failed(t) : 0;
}

static int hear_below(gm_transport *t, void *bytes, size_t *n, int *from)
{
    gm_windows *w = t->context;
    int         got = w->base->hear(w->base, bytes, n, from);
    return got < 0 ? below_failed(t) : got;
}

/* Where all ranks are here, the transport below brings only what was said before the windows were there. */
static int windows_hear(gm_transport *t, void *bytes, size_t *n, int *from)
{
    gm_windows *w = t->context;
    if (has_come(w)) {
        look_until(w, w->here, NULL);
        w->left = true;
    }
    if (gm_frames_hear(&w->frames, bytes, n, from)) {
        *from = w->rank[gm_place_of_peer(w, *from)];
        return 1;
    }
    if (w->reachable == t->world && ++w->turns % LOOK_BELOW) return 0;
    return hear_below(t, bytes, n, from);
}

/* ---- folds ---- */

static bool windows_folds(gm_transport *t, const int *ranks, int n, size_t bytes)
{
    const gm_windows *w = t->context;
    for (int i = 0; i < n; i++)
        if (is_below(w, ranks[i])) return false;
    return bytes > gm_windows_stream.eager && bytes <= GM_MESSAGE_MAX;
}

static int windows_fold(gm_transport *t, const gm_fold_call *call, void **request)
{
    gm_windows *w = t->context;
    int        *peers = malloc((size_t)call->n * sizeof *peers);
    if (!peers) return gm_frames_no_memory(t);
    for (int i = 0; i < call->n; i++) peers[i] = w->place_of[call->ranks[i]];
    int bad = gm_frames_fold(&w->frames, t, call, peers, request);
    free(peers);
    return bad;
}

static bool windows_lacks(gm_transport *t, void *request, int rank)
{
    gm_windows *w = t->context;
    return gm_fold_lacks(&w->frames, request, w->place_of[rank]);
}

/* ---- waiting ---- */

static int windows_lost(gm_transport *t, int rank)
{
    gm_windows *w = t->context;
    int         lost = w->base->lost(w->base, rank);
    return lost ? below_failed(t) : 0;
}

/* Nobody rings for a rank that has gone: the transport below may know of it. All that it said before lies in its
 * window, and is read now. */
static void look_for_lost(gm_windows *w)
{
    for (int i = 0; i < w->here && w->base->lost; i++) {
        char *why = w->lost + (size_t)LOST_ROOM * (size_t)i;
        if (i == w->place || !w->window[i] || *why || !w->base->lost(w->base, w->rank[i])) continue;
        snprintf(why, LOST_ROOM, "%.*s", LOST_ROOM - 1, w->base->error);
        look_around(w);
        gm_frames_lose(&w->frames, &w->frames.peers[i], 0);
        gm_frames_lose(&w->frames, &w->frames.peers[w->here + i], 0);
    }
}

static void windows_rest(gm_transport *t, double seconds)
{
    gm_windows *w = t->context;
    gm_window  *own = w->window[w->place];
    if (w->left) {
        look_around(w);
        return;
    }
    bool came = gm_window_rung(own) != w->seen || gm_crowd_yield(&w->crowd, own, w->seen);
    t->yielded = w->crowd.yielded;
    if (came) return;
    gm_window_sleep(own, w->seen, seconds);
    if (gm_window_rung(own) != w->seen) return;
    look_for_lost(w);
    w->turns = LOOK_BELOW - 1;
}

static bool windows_give_way(gm_transport *t, double *end)
{
    gm_windows *w = t->context;
    bool        gave = gm_crowd_give_way(&w->crowd, end);
    t->yielded = w->crowd.yielded;
    return gave;
}

/* ---- life ---- */

static void free_windows(gm_windows *w)
{
    gm_frames_free(&w->frames);
    gm_stage_free(w->stage);
    for (int i = 0; w->window && w->reach && i < w->here; i++) {
        gm_window_close(w->window[i]);
        gm_reach_close(&w->reach[i]);
    }
    free(w->window);
    free(w->in);
    free(w->out);
    free(w->reach);
    free(w->rank);
    free(w->pid);
    free(w->place_of);
    free(w->lost);
    free(w);
}

static bool has_data(const gm_windows *w) { return w->frames.sending; }

static bool has_notices(const gm_windows *w)
{
    for (int i = w->here; i < 2 * w->here; i++)
        if (w->frames.peers[i].out && !w->frames.peers[i].gone) return true;
    return false;
}

/* Moves what can be moved as long as this rank has such things, for so many seconds at most. */
static void linger(gm_windows *w, bool (*has)(const gm_windows *w), double seconds)
{
    double deadline = gm_now() + seconds;
    while (has(w) && gm_now() < deadline) {
        look_around(w);
        if (has(w)) nanosleep(&(struct timespec){0, 200000}, NULL);
    }
}

/* Until all that this rank has said is in its window, where it stays as long as somebody reads it. */
static void part(gm_windows *w) { linger(w, has_data, CLOSE_SECONDS); }

/* Until what was told is in the window. Data are needed no more. */
static void leave(gm_windows *w) { linger(w, has_notices, LEAVE_SECONDS); }

static void windows_close(gm_transport *t, bool orderly)
{
    gm_windows *w = t->context;
    if (orderly) part(w);
    else leave(w);
    w->base->close(w->base, orderly);
    free_windows(w);
    free(t);
}

gm_transport *gm_transport_windows_end(gm_transport *t)
{
    gm_windows   *w = t->context;
    gm_transport *base = w->base;
    part(w);
    free_windows(w);
    free(t);
    return base;
}

static void fill(gm_transport *t, gm_windows *w)
{
    *t = *w->base;
    t->context = w;
    t->error[0] = 0;
    if (w->reachable == t->world) snprintf(t->name, sizeof t->name, "shared memory");
    else snprintf(t->name, sizeof t->name, "%.40s and shared memory", w->base->name);
    t->send = windows_send;
    t->receive = windows_receive;
    t->send_now = windows_send_now;
    t->receive_now = windows_receive_now;
    t->test = windows_test;
    t->cancel = windows_cancel;
    t->drain = windows_drain;
    t->tell = windows_tell;
    t->hear = windows_hear;
    t->close = windows_close;
    t->folds = windows_folds;
    t->fold = windows_fold;
    t->lacks = windows_lacks;
    t->lend = windows_lend;
    t->expect = windows_expect;
    t->rest = windows_rest;
    t->give_way = windows_give_way;
    t->lost = w->base->lost ? windows_lost : NULL;
    t->crowded = w->crowd.ranks > w->crowd.cores;
}

static bool take(gm_windows *w, const gm_window_ranks *r, int world)
{
    size_t n = (size_t)r->shape.n;
    w->here = r->shape.n;
    w->place = r->place;
    w->rank = malloc(n * sizeof *w->rank);
    w->lost = calloc(n, LOST_ROOM);
    w->place_of = malloc((size_t)world * sizeof *w->place_of);
    w->pid = malloc(n * sizeof *w->pid);
    if (!w->rank || !w->pid || !w->lost || !w->place_of || !gm_frames_make(&w->frames, 2 * w->here)) return false;
    w->in = calloc(2 * n, sizeof *w->in);
    w->out = calloc(2 * n, sizeof *w->out);
    w->window = malloc(n * sizeof *w->window);
    w->reach = malloc(n * sizeof *w->reach);
    if (!w->window || !w->reach || !w->in || !w->out) {
        free(w->window);
        w->window = NULL; /* the caller's still */
        return false;
    }
    memcpy(w->reach, r->reach, n * sizeof *w->reach);
    memcpy(w->rank, r->rank, n * sizeof *w->rank);
    memcpy(w->pid, r->pid, n * sizeof *w->pid);
    w->crowd = (gm_crowd){.ranks = r->shape.n, .cores = r->cores, .pid = w->pid};
    memcpy(w->window, r->window, n * sizeof *w->window);
    for (int i = 0; i < world; i++) w->place_of[i] = -1;
    for (int i = 0; i < w->here; i++) {
        bool here = w->window[i] != NULL;
        if (here) w->place_of[w->rank[i]] = i;
        w->reachable += here;
        w->frames.peers[i].gone = w->frames.peers[w->here + i].gone = !here || i == w->place;
        for (int small = 0; small < 2 && here && i != w->place; small++) {
            gm_window *own = w->window[w->place];
            w->out[small * w->here + i] = gm_ring_of(own, w->place, w->window[i], i, small);
            w->in[small * w->here + i] = gm_ring_of(w->window[i], i, own, w->place, small);
        }
    }
    w->frames.stream = &gm_windows_stream;
    w->frames.context = w;
    return true;
}

gm_status gm_transport_windows(gm_transport *base, const gm_window_ranks *ranks, gm_transport **out)
{
    gm_transport *t = calloc(1, sizeof *t);
    gm_windows   *w = calloc(1, sizeof *w);
    bool          well = t && w;
    if (well && ranks->arena) well = gm_stage_new(ranks->arena, ranks->copies, gm_lines_stores(), &w->stage) == GM_OK;
    if (!well || !take(w, ranks, base->world)) {
        if (w) free_windows(w);
        free(t);
        return GM_FAIL(GM_ENOMEM, "no memory for a transport");
    }
    w->base = base;
    fill(t, w);
    *out = t;
    return GM_OK;
}
