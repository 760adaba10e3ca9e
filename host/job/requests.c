/* requests.c - see requests.h. */
#define _GNU_SOURCE
#include "requests.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "signals.h"
#include "wire.h"

#define ACCEPTED 4 /* connections in one look */

static const char busy[] = "{\"refused\": \"as many others as this job serves at a time are attached; try again\"}";
static const char long_text[] = "{\"refused\": \"a request of more than 16384 bytes\"}";

typedef struct peer {
    int      fd; /* -1: free */
    uint64_t came;
    char    *text; /* of the request that waits, or is being answered; NULL: none */
    size_t   n;
    bool     taken;
} peer;

struct gm_requests {
    int      listener;
    char    *path;
    uint64_t n;
    peer     peers[GM_REQUEST_PEERS];
};

static bool is_same_user(int fd)
{
    struct ucred who;
    socklen_t    size = sizeof who;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) && who.uid == geteuid();
}

gm_status gm_requests_open(const char *path, gm_requests **out)
{
    gm_requests *r = calloc(1, sizeof *r);
    char        *copy = strdup(path);
    if (!r || !copy) {
        free(r);
        free(copy);
        return GM_FAIL(GM_ENOMEM, "no memory for a socket");
    }
    for (int i = 0; i < GM_REQUEST_PEERS; i++) r->peers[i].fd = -1;
    r->path = copy;
    unlink(path);
    gm_status st = gm_wire_listen(path, &r->listener);
    if (st != GM_OK) {
        free(copy);
        free(r);
        return st;
    }
    fcntl(r->listener, F_SETFL, fcntl(r->listener, F_GETFL) | O_NONBLOCK);
    chmod(path, 0600);
    *out = r;
    return GM_OK;
}

static void forget(peer *p)
{
    free(p->text);
    p->text = NULL;
    p->taken = false;
}

static void drop(peer *p)
{
    close(p->fd);
    p->fd = -1;
    forget(p);
}

void gm_requests_close(gm_requests *r)
{
    if (!r) return;
    for (int i = 0; i < GM_REQUEST_PEERS; i++)
        if (r->peers[i].fd >= 0) drop(&r->peers[i]);
    close(r->listener);
    unlink(r->path);
    free(r->path);
    free(r);
}

static void refuse(int fd, const char *why, size_t n)
{
    ssize_t ignored = send(fd, why, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)ignored;
}

static void take_in(gm_requests *r, int fd)
{
    if (!is_same_user(fd)) {
        close(fd);
        return;
    }
    for (int i = 0; i < GM_REQUEST_PEERS; i++) {
        if (r->peers[i].fd >= 0) continue;
        r->peers[i] = (peer){.fd = fd};
        return;
    }
    refuse(fd, busy, sizeof busy - 1);
    close(fd);
}

static void receive(gm_requests *r, peer *p)
{
    static char buf[GM_REQUEST_ROOM + 1]; /* one thread */
    ssize_t     n = recv(p->fd, buf, sizeof buf, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > GM_REQUEST_ROOM) refuse(p->fd, long_text, sizeof long_text - 1);
    if (n <= 0 || n > GM_REQUEST_ROOM || !(p->text = malloc((size_t)n + 1))) {
        drop(p);
        return;
    }
    memcpy(p->text, buf, (size_t)n);
    p->text[n] = 0;
    p->n = (size_t)n;
    p->came = r->n++;
}

int gm_requests_look(gm_requests *r)
{
    int waiting = 0;
    for (int i = 0; i < ACCEPTED; i++) {
        int fd = gm_wire_accept(r->listener);
        if (fd < 0) break;
        take_in(r, fd);
    }
    for (int i = 0; i < GM_REQUEST_PEERS; i++) {
        peer *p = &r->peers[i];
        if (p->fd >= 0 && !p->text) receive(r, p);
        waiting += p->fd >= 0 && p->text && !p->taken;
    }
    return waiting;
}

static bool is_gone(const peer *p)
{
    char    byte;
    ssize_t n = recv(p->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static peer *oldest(gm_requests *r)
{
    peer *first = NULL;
    for (int i = 0; i < GM_REQUEST_PEERS; i++) {
        peer *p = &r->peers[i];
        if (p->fd >= 0 && p->text && !p->taken && (!first || p->came < first->came)) first = p;
    }
    return first;
}

bool gm_requests_take(gm_requests *r, int *id, const char **text, size_t *n)
{
    for (peer *p; (p = oldest(r));) {
        if (is_gone(p)) {
            drop(p);
            continue;
        }
        p->taken = true;
        *id = (int)(p - r->peers);
        *text = p->text;
        *n = p->n;
        return true;
    }
    return false;
}

bool gm_requests_answer(gm_requests *r, int id, const char *text, size_t n)
{
    peer *p = id >= 0 && id < GM_REQUEST_PEERS ? &r->peers[id] : NULL;
    if (!p || p->fd < 0 || !p->taken) return false;
    if (n > GM_REQUEST_ANSWER) n = GM_REQUEST_ANSWER;
    bool sent = send(p->fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    if (sent) forget(p);
    else drop(p);
    return sent;
}

/* ---- the other side ---- */

gm_status gm_request_connect(const char *path, int *fd)
{
    struct timeval soon = {.tv_usec = 200000};
    GM_TRY(gm_wire_connect_within(path, soon, fd));
    if (is_same_user(*fd)) return GM_OK;
    close(*fd);
    *fd = -1;
    return GM_FAIL(GM_EINVAL, "another user listens at %s", path);
}

bool gm_request_send(int fd, const char *text, size_t n) { return send(fd, text, n, MSG_NOSIGNAL) >= 0; }

long gm_request_receive(int fd, char *buf, size_t size, double seconds)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int           ready = gm_signals_poll(&p, 1, (int)(1e3 * seconds));
    if (ready <= 0) return gm_signals_pending() != GM_STOP_NONE ? -2 : -1;
    ssize_t n = recv(fd, buf, size, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? -1 : 0;
    return n;
}
