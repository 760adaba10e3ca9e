/* windows_stream.c - the streams of frames (frames.h) between ranks of one machine: rings in windows. See
 * windows_state.h.
 *
 * A frame of a short message also goes as a whole, with a letter that repeats it (window.h), past all that frames.c
 * does for streams which may be full or stand within a frame. It is the same frame: the receiver takes it either way.
 */
#define _GNU_SOURCE
#include "windows_state.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

static ssize_t put(gm_frames *f, int peer, const struct iovec *parts, int n)
{
    size_t done = gm_ring_put(&((gm_windows *)f->context)->out[peer], parts, n);
    if (done) return (ssize_t)done;
    errno = EAGAIN;
    return -1;
}

static const char *look(gm_frames *f, int peer, size_t *n)
{
    return gm_ring_look(&((gm_windows *)f->context)->in[peer], n);
}

static void skip(gm_frames *f, int peer, size_t n) { gm_ring_skip(&((gm_windows *)f->context)->in[peer], n); }

static ssize_t get(gm_frames *f, int peer, void *to, size_t n)
{
    size_t      here;
    const char *bytes = look(f, peer, &here);
    if (here < n) n = here;
    if (!n) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(to, bytes, n);
    skip(f, peer, n);
    return (ssize_t)n;
}

/* Reads the memory of another process, if the system lets it: else bytes go through the ring. */
static bool pull(gm_frames *f, int peer, void *to, uint64_t at, size_t n)
{
    int *pid = &((gm_windows *)f->context)->pid[gm_place_of_peer(f->context, peer)];
    for (size_t got = 0; got < n && *pid;) {
        struct iovec here = {(char *)to + got, n - got}, there = {(void *)(uintptr_t)(at + got), n - got};
        ssize_t      more = process_vm_readv(*pid, &here, 1, &there, 1, 0);
        if (more <= 0) *pid = 0;
        else got += (size_t)more;
    }
    return *pid != 0;
}

static char *reach(gm_frames *f, int peer, uint64_t at, size_t n)
{
    const gm_windows *w = f->context;
    return gm_reach_at(&w->reach[gm_place_of_peer(w, peer)], at, n);
}

static char *stage(gm_frames *f, const void *bytes, size_t n, int tag, bool alone)
{
    gm_stage *s = ((gm_windows *)f->context)->stage;
    return s ? gm_stage_put(s, bytes, n, alone ? GM_STAGE_ALONE : tag) : NULL;
}

static void unstage(gm_frames *f, char *copy) { gm_stage_drop(((gm_windows *)f->context)->stage, copy); }

static void lost(gm_frames *f, int peer) { (void)f, (void)peer; }

const gm_stream gm_windows_stream = {.put = put,
                                     .get = get,
                                     .lost = lost,
                                     .look = look,
                                     .skip = skip,
                                     .reach = reach,
                                     .pull = pull,
                                     .stage = stage,
                                     .unstage = unstage,
                                     .eager = 16 << 10,
                                     .pad = 8,
                                     .line = 64};

/* ---- at once ---- */

/* Bytes of the frame of a message: whole lines. */
static size_t whole_size(size_t n)
{
    size_t line = gm_windows_stream.line;
    return (sizeof(gm_frame_head) + n + line - 1) / line * line;
}

static uint64_t label_of(int tag, size_t n) { return (uint64_t)(uint32_t)tag << 32 | ((uint32_t)n + 1); }

bool gm_windows_send_now(gm_windows *w, int place, int tag, const void *bytes, size_t n)
{
    const gm_frame_peer *p = &w->frames.peers[place];
    if (p->out || p->gone || p->deaf || n > gm_windows_stream.eager) return false;
    gm_frame_head      h = {FRAME_DATA, tag, n, ++w->frames.ids, 0};
    const struct iovec parts[] = {{&h, sizeof h}, {(void *)(uintptr_t)bytes, n}};
    return gm_ring_put_letter(&w->out[place], parts, whole_size(n), label_of(tag, n));
}

/* Only what is next in its stream, and if no frame that came before can be meant. */
int gm_windows_receive_now(gm_windows *w, int place, int tag, void *bytes, size_t n)
{
    const gm_frame_peer *p = &w->frames.peers[place];
    gm_ring             *in = &w->in[place];
    size_t               whole = whole_size(n), here;
    if (p->gone || p->in_at || p->early || p->posted || n > gm_windows_stream.eager) return -1;
    int came = gm_ring_read_letter(in, label_of(tag, n), whole, bytes, n);
    if (!came) return 0;
    if (came < 0) {
        gm_frame_head h;
        const char   *frame = gm_ring_look_at_once(in, &here);
        if (here < whole) return -1;
        memcpy(&h, frame, sizeof h);
        if (h.kind != FRAME_DATA || h.tag != tag || h.n != n) return -1;
        if (n) memcpy(bytes, frame + sizeof h, n);
    }
    gm_ring_skip(in, whole);
    return 1;
}
