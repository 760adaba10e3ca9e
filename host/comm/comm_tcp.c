/* comm_tcp.c - the transport over TCP connections between every two ranks (meet.h), where no MPI joined them.
 *
 * frames.h says what travels. A connection that ends or fails is an error for those who wait for that rank, and for
 * nobody else. All that the rank said before is read first. The trap: the kernel reports a machine that does not answer
 * only after the silence that gm_meet was told. */
#include "comm_tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../../kernels/clock.h"
#include "frames.h"
#include "meet.h"

#define CLOSE_SECONDS 10
#define LEAVE_SECONDS 1

typedef struct tcp {
    gm_frames frames; /* a peer for each rank */
    int       epoll;
    int      *fds; /* -1: of this rank */
} tcp;

static int is_gone(gm_transport *t, int rank)
{
    gm_frame_peer *p = &((tcp *)t->context)->frames.peers[rank];
    snprintf(t->error, sizeof t->error, "the connection to rank %d %s%s", rank,
             p->why ? "failed: " : "was closed by it", p->why ? strerror(p->why) : "");
    return GM_LOST;
}

/* ---- streams ---- */

static ssize_t put(gm_frames *f, int peer, const struct iovec *parts, int n)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    int           fd = ((tcp *)f->context)->fds[peer];
    ssize_t       done = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done >= 0 || errno == EAGAIN || errno == EINTR) return done;
    int why = errno;
    shutdown(fd, SHUT_RDWR); /* what has come is read to its end, and then the peer is gone */
    errno = why;
    return -1;
}

static ssize_t get(gm_frames *f, int peer, void *to, size_t n)
{
    return recv(((tcp *)f->context)->fds[peer], to, n, MSG_DONTWAIT);
}

static void lost(gm_frames *f, int peer)
{
    tcp *c = f->context;
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->fds[peer], NULL);
}

static const gm_stream stream = {.put = put, .get = get, .lost = lost, .eager = 64 << 10, .pad = 1, .line = 1};

/* Moves what can be moved now. */
static void progress(tcp *c)
{
    gm_frames         *f = &c->frames;
    struct epoll_event ready[32];
    int                n = epoll_wait(c->epoll, ready, 32, 0);
    for (int i = 0; i < n; i++) {
        gm_frame_peer *p = &f->peers[ready[i].data.u32];
        for (int reads = 0; reads < 64 && gm_frames_read(f, p); reads++) {
        }
    }
    for (int i = 0; f->sending && i < f->n; i++)
        if (f->peers[i].out) gm_frames_flush(f, &f->peers[i]);
}

/* ---- messages ---- */

static int tcp_send(gm_transport *t, int to, int tag, const void *bytes, size_t n, void **out)
{
    return gm_frames_send(&((tcp *)t->context)->frames, t, to, tag, bytes, n, NULL, out);
}

static int tcp_receive(gm_transport *t, int from, int tag, void *bytes, size_t n, void **out)
{
    return gm_frames_receive(&((tcp *)t->context)->frames, t, from, tag, bytes, n, out);
}

static int tcp_test(gm_transport *t, void *request, size_t *n)
{
    tcp *c = t->context;
    int  rank;
    if (!((gm_frame_request *)request)->done) progress(c);
    int ended = gm_frames_test(&c->frames, request, n, &rank);
    return ended < 0 ? is_gone(t, rank) : ended;
}

static int tcp_cancel(gm_transport *t, void *request)
{
    return gm_frames_cancel(&((tcp *)t->context)->frames, t, request);
}

static int tcp_drain(gm_transport *t, int *from)
{
    tcp *c = t->context;
    progress(c);
    return gm_frames_drain(&c->frames, t, from);
}

static int tcp_tell(gm_transport *t, int to, const void *bytes, size_t n)
{
    return gm_frames_tell(&((tcp *)t->context)->frames, t, to, bytes, n);
}

static int tcp_hear(gm_transport *t, void *bytes, size_t *n, int *from)
{
    tcp *c = t->context;
    if (!c->frames.notes) progress(c);
    return gm_frames_hear(&c->frames, bytes, n, from);
}

static int tcp_lost(gm_transport *t, int rank)
{
    tcp *c = t->context;
    progress(c);
    return c->frames.peers[rank].gone ? is_gone(t, rank) : 0;
}

/* ---- life ---- */

static void free_tcp(tcp *c)
{
    gm_frames_free(&c->frames);
    for (int r = 0; c->fds && r < c->frames.n; r++)
        if (c->fds[r] >= 0) close(c->fds[r]);
    if (c->epoll >= 0) close(c->epoll);
    free(c->fds);
    free(c);
}

/* What a socket still holds is lost for the other side if bytes of that side lie here unread when it is closed. So all
 * say that they have sent everything, and wait until they have read that of the others. */
static void part(tcp *c)
{
    double deadline = gm_now() + CLOSE_SECONDS;
    int    world = c->frames.n, left = world - 1;
    bool  *told = calloc((size_t)world, sizeof *told);
    while (told && left && gm_now() < deadline) {
        progress(c);
        left = 0;
        for (int r = 0; r < world; r++) {
            gm_frame_peer *p = &c->frames.peers[r];
            if (p->gone) continue;
            if (!p->out && !told[r]) told[r] = !shutdown(c->fds[r], SHUT_WR);
            left++;
        }
        if (left) nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    free(told);
}

/* The others go on, and are to learn why this rank does not: what was told is sent, and what they sent is read, because
 * the kernel throws away what it has not delivered when it closes a socket with bytes unread. */
static void leave(tcp *c)
{
    double deadline = gm_now() + LEAVE_SECONDS;
    for (progress(c); c->frames.sending && gm_now() < deadline; progress(c))
        nanosleep(&(struct timespec){0, 200000}, NULL);
    for (int r = 0; r < c->frames.n; r++)
        if (!c->frames.peers[r].gone) shutdown(c->fds[r], SHUT_WR);
    progress(c);
}

static void tcp_close(gm_transport *t, bool orderly)
{
    tcp *c = t->context;
    if (orderly) part(c);
    else leave(c);
    free_tcp(c);
    free(t);
}

static gm_status watch(tcp *c, int rank)
{
    for (int r = 0; r < c->frames.n; r++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)r};
        c->frames.peers[r].gone = r == rank;
        if (r != rank && epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->fds[r], &e))
            return GM_FAIL(GM_ECOMM, "cannot watch the connection to rank %d: %s", r, strerror(errno));
    }
    return GM_OK;
}

/* Takes the sockets, also on failure. */
static gm_status new_tcp(int *fds, int world, int rank, tcp **out)
{
    tcp *c = calloc(1, sizeof *c);
    if (!c || !gm_frames_make(&c->frames, world)) {
        for (int r = 0; r < world; r++)
            if (fds[r] >= 0) close(fds[r]);
        free(fds);
        free(c);
        return GM_FAIL(GM_ENOMEM, "no memory for connections to %d ranks", world);
    }
    c->frames.stream = &stream;
    c->frames.context = c;
    c->fds = fds;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    gm_status st = c->epoll < 0 ? GM_FAIL(GM_ECOMM, "epoll: %s", strerror(errno)) : watch(c, rank);
    if (st == GM_OK) *out = c;
    else free_tcp(c);
    return st;
}

static void fill(gm_transport *t, tcp *c, const gm_meeting *m, const char *through)
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
    t->lost = tcp_lost;
}

gm_status gm_transport_tcp(const gm_meeting *m, double silence, gm_transport **out)
{
    char          through[64] = "";
    int          *fds = malloc((size_t)m->world * sizeof *fds);
    gm_transport *t = calloc(1, sizeof *t);
    tcp          *c = NULL;
    gm_status     st = fds && t ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a transport");
    if (st == GM_OK) st = gm_meet(m, silence, fds, through, sizeof through);
    if (st == GM_OK) st = new_tcp(fds, m->world, m->rank, &c);
    else free(fds);
    if (st == GM_OK) fill(t, c, m, through);
    else free(t);
    if (st == GM_OK) *out = t;
    return st;
}
