/* meet.c - see meet.h. The messages of the meeting, of fixed sizes:
 *
 *     hello   every rank that connects: which job, which rank, and to which of the two listeners it means to speak
 *     answer  rank 0, once all are there: that it goes on, or why not; and the address at which it itself was reached
 *     place   the other ranks: where they listen for those above
 *     places  rank 0: where all listen */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../../kernels/clock.h"
#include "place.h"

#define MAGIC   0x31706374656d6e67u /* "gnmetcp1" */
#define GUESTS  64                  /* who has connected, and not yet said who it is */
#define BACKLOG 1024

typedef struct hello {
    uint64_t magic, key;
    int32_t  world, rank, to_place; /* to_place: to the listener of a place, not to that of the meeting */
    int32_t  unused;
} hello;

typedef struct answer {
    int32_t  goes_on;
    gm_place reached; /* where rank 0 was reached by other machines, or by its own if there is no other */
    char     why[300];
} answer;

typedef struct guest {
    int    fd;
    size_t at;
    double came;
    hello  says;
} guest;

typedef struct meeting {
    const gm_meeting *m;
    double            deadline;
    int               listener; /* -1: none */
    guest             guests[GUESTS];
    int               n_guests;
    int              *met; /* by rank: of rank 0 in the meeting, then of all; -1: none */
} meeting;

static bool is_over(const meeting *t) { return gm_now() > t->deadline || (t->m->stop && t->m->stop(NULL)); }

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* ---- bytes ---- */

/* Waits for a name server that does not answer yet. */
static gm_status resolve(const meeting *t, gm_place *out)
{
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *list = NULL;
    int              code;
    while ((code = getaddrinfo(t->m->address, NULL, &hints, &list)) == EAI_AGAIN && !is_over(t))
        nanosleep(&(struct timespec){0, 200000000}, NULL);
    if (code)
        return GM_FAIL(GM_EINVAL, "rank 0 is said to be at %s, which is no address known here (%s); set MASTER_ADDR",
                       t->m->address, gai_strerror(code));
    gm_place_copy(out, list->ai_addr);
    gm_place_set_port(out, t->m->port);
    freeaddrinfo(list);
    return GM_OK;
}

/* Waits until fd is ready for `events`, or it is over. */
static bool ready(const meeting *t, int fd, short events)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        if (is_over(t)) return false;
        int got = poll(&p, 1, 100);
        if (got > 0) return true;
        if (got < 0 && errno != EINTR) return false;
    }
}

/* 0; or -1: the other side is gone, or nothing came in time. */
static int read_all(const meeting *t, int fd, void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        if (!ready(t, fd, POLLIN)) return -1;
        ssize_t got = recv(fd, (char *)bytes + at, n - at, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return -1;
        if (got > 0) at += (size_t)got;
    }
    return 0;
}

static int write_all(const meeting *t, int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        if (!ready(t, fd, POLLOUT)) return -1;
        ssize_t put = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (put < 0 && errno != EAGAIN && errno != EINTR) return -1;
        if (put > 0) at += (size_t)put;
    }
    return 0;
}

/* ---- listening ---- */

static gm_status listen_at(meeting *t, gm_place *at, bool everywhere)
{
    char     text[INET6_ADDRSTRLEN];
    int      yes = 1;
    gm_place bound = *at;
    t->listener = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listener < 0) return GM_FAIL(GM_ECOMM, "cannot make a socket: %s", strerror(errno));
    setsockopt(t->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (everywhere && at->any.sa_family == AF_INET) bound.v4.sin_addr.s_addr = htonl(INADDR_ANY);
    if (everywhere && at->any.sa_family == AF_INET6) bound.v6.sin6_addr = in6addr_any;
    if (bind(t->listener, &bound.any, gm_place_length(&bound)) || listen(t->listener, BACKLOG)) {
        int why = errno, port = gm_place_port(at);
        close_fd(&t->listener);
        return GM_FAIL(GM_ECOMM, "rank %d cannot listen at %s, port %d: %s%s", t->m->rank,
                       gm_place_show(at, text, sizeof text), port, strerror(why),
                       why == EADDRINUSE      ? "; set another MASTER_PORT"
                       : why == EADDRNOTAVAIL ? "; MASTER_ADDR must be an address of the machine of rank 0"
                                              : "");
    }
    socklen_t n = sizeof bound;
    getsockname(t->listener, &bound.any, &n);
    gm_place_set_port(at, gm_place_port(&bound));
    return GM_OK;
}

static void drop_guest(meeting *t, int i)
{
    close_fd(&t->guests[i].fd);
    t->guests[i] = t->guests[--t->n_guests];
}

static void accept_guests(meeting *t)
{
    for (int fd; (fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        if (t->n_guests == GUESTS) drop_guest(t, 0);
        t->guests[t->n_guests++] = (guest){.fd = fd, .came = gm_now()};
    }
}

/* Reads what a guest says of itself; drops it if it is no rank of this job that is still awaited. */
static gm_status hear_guest(meeting *t, int i, bool to_place)
{
    guest  *g = &t->guests[i];
    ssize_t got = recv(g->fd, (char *)&g->says + g->at, sizeof g->says - g->at, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return GM_OK;
    if (got > 0) g->at += (size_t)got;
    bool ours = g->at < sizeof g->says || (g->says.magic == MAGIC && g->says.key == t->m->key);
    if (got <= 0 || !ours) {
        drop_guest(t, i);
        return GM_OK;
    }
    if (g->at < sizeof g->says) return GM_OK;
    int rank = g->says.rank, world = g->says.world;
    if (world != t->m->world)
        return GM_FAIL(GM_EINVAL, "rank %d was started as one of %d ranks, rank %d as one of %d", rank, world,
                       t->m->rank, t->m->world);
    if (rank <= t->m->rank || rank >= world || t->met[rank] >= 0 || g->says.to_place != to_place)
        return GM_FAIL(GM_EINVAL, "two processes say that they are rank %d of %d", rank, world);
    t->met[rank] = g->fd;
    t->guests[i] = t->guests[--t->n_guests];
    return GM_OK;
}

static void list_missing(const meeting *t, char *out, size_t n)
{
    size_t at = 0;
    for (int r = t->m->rank + 1, said = 0; r < t->m->world && said < 8 && at < n; r++) {
        if (t->met[r] >= 0) continue;
        at += (size_t)snprintf(out + at, n - at, "%s%d", said ? ", " : "", r);
        if (++said == 8 && at < n) snprintf(out + at, n - at, ", ...");
    }
}

/* One look at all that may bring news: the listener, guests, ranks that are here and could leave. */
static gm_status look(meeting *t, struct pollfd *p, bool to_place)
{
    int world = t->m->world, n = 0;
    p[n++] = (struct pollfd){.fd = t->listener, .events = POLLIN};
    for (int i = 0; i < t->n_guests; i++) p[n++] = (struct pollfd){.fd = t->guests[i].fd, .events = POLLIN};
    int guests = t->n_guests, ranks = n;
    for (int r = t->m->rank + 1; r < world; r++) p[n++] = (struct pollfd){.fd = t->met[r], .events = POLLRDHUP};
    if (poll(p, (nfds_t)n, 100) <= 0) return GM_OK;
    for (int i = guests - 1; i >= 0; i--)
        if (p[1 + i].revents) GM_TRY(hear_guest(t, i, to_place));
    for (int r = t->m->rank + 1, i = ranks; r < world; r++, i++)
        if (p[i].fd >= 0 && p[i].revents) return GM_FAIL(GM_ECOMM, "rank %d left while the ranks were meeting", r);
    if (p[0].revents) accept_guests(t);
    return GM_OK;
}

/* Waits until all ranks above this one have connected. */
static gm_status gather(meeting *t, bool to_place)
{
    int            missing = 0;
    struct pollfd *p = calloc((size_t)(1 + GUESTS + t->m->world), sizeof *p);
    gm_status      st = p ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to meet %d ranks", t->m->world);
    while (st == GM_OK) {
        missing = 0;
        for (int r = t->m->rank + 1; r < t->m->world; r++) missing += t->met[r] < 0;
        if (!missing || is_over(t)) break;
        for (int i = t->n_guests - 1; i >= 0; i--)
            if (gm_now() - t->guests[i].came > 5) drop_guest(t, i); /* it said nothing */
        st = look(t, p, to_place);
    }
    free(p);
    if (st == GM_OK && missing) {
        char who[100] = "";
        list_missing(t, who, sizeof who);
        st = GM_FAIL(GM_EHANG, "rank %d waited %g s at %s, port %d, and rank%s %s of %d did not come", t->m->rank,
                     t->m->seconds, t->m->address, t->m->port, missing > 1 ? "s" : "", who, t->m->world);
    }
    return st;
}

/* ---- connecting ---- */

/* A client of a port that nobody has yet can be given that very port, and then speaks with itself. */
static bool is_itself(int fd)
{
    gm_place  a, b;
    socklen_t n = sizeof a, o = sizeof b;
    if (getsockname(fd, &a.any, &n) || getpeername(fd, &b.any, &o)) return false;
    return n == o && !memcmp(&a, &b, n);
}

/* One try: a socket, or -1 and errno. */
static int try_to_connect(const meeting *t, const gm_place *to, const gm_place *from)
{
    int       fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    socklen_t n = sizeof why;
    if (fd < 0) return -1;
    if (from && from->any.sa_family == to->any.sa_family) {
        gm_place any_port = *from;
        gm_place_set_port(&any_port, 0);
        if (bind(fd, &any_port.any, gm_place_length(&any_port))) why = errno;
    }
    if (!why && connect(fd, &to->any, gm_place_length(to))) why = errno;
    if (why == EINPROGRESS) {
        why = ETIMEDOUT;
        if (ready(t, fd, POLLOUT)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
    }
    if (!why && is_itself(fd)) why = ECONNREFUSED;
    if (!why) return fd;
    close(fd);
    errno = why;
    return -1;
}

/* Who comes first waits for the other. */
static gm_status connect_to(const meeting *t, int rank, const gm_place *to, const gm_place *from, bool to_place,
                            int *fd)
{
    hello h = {MAGIC, t->m->key, t->m->world, t->m->rank, to_place, 0};
    char  text[INET6_ADDRSTRLEN];
    while ((*fd = try_to_connect(t, to, from)) < 0) {
        bool early = errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ETIMEDOUT ||
                     errno == ECONNRESET;
        if (!early || is_over(t))
            return GM_FAIL(early ? GM_EHANG : GM_ECOMM, "rank %d cannot connect to rank %d at %s, port %d: %s",
                           t->m->rank, rank, gm_place_show(to, text, sizeof text), gm_place_port(to), strerror(errno));
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    if (write_all(t, *fd, &h, sizeof h))
        return GM_FAIL(GM_ECOMM, "rank %d went away while the ranks were meeting", rank);
    return GM_OK;
}

/* ---- the meeting ---- */

/* Where this rank listens for those above it. reached: the address at which it was, or reaches others. */
static gm_status listen_for_ranks(meeting *t, const gm_place *reached, gm_place *mine)
{
    *mine = *reached;
    if (t->m->interface) GM_TRY(gm_place_of_interface(t->m->interface, reached->any.sa_family, mine));
    gm_place_set_port(mine, 0);
    return listen_at(t, mine, false);
}

/* The address of this machine that others reached; of the ranks of rank 0's own machine, one that is no loopback. */
static void where_reached(const meeting *t, gm_place *out)
{
    for (int r = 1; r < t->m->world; r++) {
        gm_place  p = {0};
        socklen_t n = sizeof p;
        if (getsockname(t->met[r], &p.any, &n)) continue;
        if (r == 1 || !gm_place_is_loopback(&p)) *out = p;
        if (!gm_place_is_loopback(&p)) return;
    }
}

/* Many systems give a machine's own name an address of the loopback, under which no other machine finds it. */
static bool is_own_name(const meeting *t, const gm_place *at)
{
    return gm_place_is_loopback(at) && strcmp(t->m->address, "localhost") && !strspn(t->m->address, "0123456789:");
}

static void tell_why(meeting *t, gm_status st)
{
    answer a = {.goes_on = 0};
    snprintf(a.why, sizeof a.why, "%.*s", (int)strcspn(gm_last_error(), "["), gm_last_error());
    for (int r = 1; st != GM_OK && r < t->m->world; r++)
        if (t->met[r] >= 0) (void)!send(t->met[r], &a, sizeof a, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static gm_status lost(const meeting *t, int rank)
{
    if (t->m->stop && t->m->stop(NULL)) return GM_FAIL(GM_EINTERRUPT, "interrupted while the ranks were meeting");
    return GM_FAIL(GM_ECOMM, "rank %d went away while the ranks were meeting, or did not answer", rank);
}

static gm_status exchange_places(meeting *t, gm_place *places)
{
    answer a = {.goes_on = 1, .reached = places[0]};
    for (int r = 1; r < t->m->world; r++)
        if (write_all(t, t->met[r], &a, sizeof a)) return lost(t, r);
    for (int r = 1; r < t->m->world; r++)
        if (read_all(t, t->met[r], &places[r], sizeof *places)) return lost(t, r);
    for (int r = 1; r < t->m->world; r++)
        if (write_all(t, t->met[r], places, (size_t)t->m->world * sizeof *places)) return lost(t, r);
    return GM_OK;
}

static gm_status host_meeting(meeting *t, gm_place *places)
{
    gm_place at, reached = {0};
    GM_TRY(resolve(t, &at));
    GM_TRY(listen_at(t, &at, is_own_name(t, &at)));
    gm_status st = gather(t, false);
    tell_why(t, st);
    GM_TRY(st);
    close_fd(&t->listener);
    where_reached(t, &reached);
    GM_TRY(listen_for_ranks(t, &reached, &places[0]));
    GM_TRY(exchange_places(t, places));
    for (int r = 1; r < t->m->world; r++) close_fd(&t->met[r]);
    return GM_OK;
}

static gm_status join_meeting(meeting *t, gm_place *places)
{
    int       rank = t->m->rank;
    answer    a = {0};
    gm_place  at, mine = {0};
    socklen_t n = sizeof mine;
    GM_TRY(resolve(t, &at));
    GM_TRY(connect_to(t, 0, &at, NULL, false, &t->met[0]));
    t->deadline += 5; /* rank 0 waits as long, and then says for whom it waited */
    if (read_all(t, t->met[0], &a, sizeof a)) return lost(t, 0);
    if (!a.goes_on) return GM_FAIL(GM_ECOMM, "%.*s", (int)sizeof a.why - 1, a.why);
    getsockname(t->met[0], &mine.any, &n);
    if (gm_place_is_loopback(&mine) && !gm_place_is_loopback(&a.reached))
        mine = a.reached; /* it is the machine of rank 0 */
    GM_TRY(listen_for_ranks(t, &mine, &places[rank]));
    if (write_all(t, t->met[0], &places[rank], sizeof *places)) return lost(t, 0);
    if (read_all(t, t->met[0], places, (size_t)t->m->world * sizeof *places)) return lost(t, 0);
    close_fd(&t->met[0]);
    for (int r = 0; r < rank; r++)
        GM_TRY(connect_to(t, r, &places[r], t->m->interface ? &places[rank] : NULL, true, &t->met[r]));
    return GM_OK;
}

static gm_status prepare(const gm_meeting *m, double silence, int fd)
{
    int yes = 1, seconds = silence < 3 ? 1 : (int)(silence / 3), probes = 2, milliseconds = (int)(1000 * silence);
    if (fd < 0) return GM_OK;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) ||
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds) ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes) ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds) ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds) ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes))
        return GM_FAIL(GM_ECOMM, "rank %d cannot set up a connection: %s", m->rank, strerror(errno));
    return GM_OK;
}

static gm_status meet(meeting *t, double silence, char *through, size_t n)
{
    gm_place *places = calloc((size_t)t->m->world, sizeof *places);
    if (!places) return GM_FAIL(GM_ENOMEM, "no memory to meet %d ranks", t->m->world);
    gm_status st = t->m->rank ? join_meeting(t, places) : host_meeting(t, places);
    if (st == GM_OK) st = gather(t, true);
    for (int r = 0; st == GM_OK && r < t->m->world; r++) st = prepare(t->m, silence, t->met[r]);
    gm_place_interface(&places[t->m->rank], through, n);
    free(places);
    return st;
}

gm_status gm_meet(const gm_meeting *m, double silence, int *fds, char *through, size_t n)
{
    meeting t = {.m = m, .deadline = gm_now() + m->seconds, .listener = -1, .met = fds};
    for (int r = 0; r < m->world; r++) fds[r] = -1;
    gm_status st = meet(&t, silence, through, n);
    close_fd(&t.listener);
    while (t.n_guests) drop_guest(&t, 0);
    for (int r = 0; st != GM_OK && r < m->world; r++) close_fd(&fds[r]);
    return st;
}
