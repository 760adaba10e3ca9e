/* text_server.c - see text_server.h. */
#define _GNU_SOURCE
#include "text_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../../kernels/clock.h"

#define CONNECTIONS 8
#define HEAD        4096
#define SECONDS     5.0   /* of a connection, whatever it does */
#define IGNORED     65536 /* bytes that are read behind the answer, so that closing does not cut it off */

typedef struct connection {
    int    fd; /* -1: free */
    double ends;
    char   head[HEAD + 1];
    size_t n;
    char  *answer; /* NULL: the request is not whole */
    size_t size, sent, ignored;
    bool   done; /* all is sent; waits for the other side to close */
} connection;

struct gm_text_server {
    pthread_t       thread;
    pthread_mutex_t lock; /* of text */
    char           *text;
    size_t          n;
    char           *path, *type;
    int             listener, port, leave;
    connection      connections[CONNECTIONS];
};

static void drop(connection *c)
{
    if (c->fd >= 0) close(c->fd);
    free(c->answer);
    c->fd = -1;
    c->answer = NULL;
}

/* ---- one request ---- */

static bool answer(connection *c, const char *status, const char *type, const char *body, size_t n, bool head_only)
{
    char   head[400];
    size_t size = (size_t)snprintf(
        head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
        status, type, n, strncmp(status, "405", 3) ? "" : "Allow: GET, HEAD\r\n");
    size_t take = head_only ? 0 : n;
    if (size >= sizeof head || !(c->answer = malloc(size + take + 1))) return false;
    memcpy(c->answer, head, size);
    if (take) memcpy(c->answer + size, body, take);
    c->size = size + take;
    return true;
}

static bool refuse(connection *c, const char *status)
{
    return answer(c, status, "text/plain", status, strlen(status), false);
}

static bool is_path(const gm_text_server *s, const char *target)
{
    size_t n = strlen(s->path);
    return !strncmp(target, s->path, n) && (!target[n] || target[n] == '?');
}

/* The head of a request is whole. False: no memory, or not worth an answer. */
static bool respond(gm_text_server *s, connection *c)
{
    char method[16], target[512], version[16], end;
    c->head[c->n] = 0;
    c->head[strcspn(c->head, "\r\n")] = 0;
    if (sscanf(c->head, "%15s %511s %15s%c", method, target, version, &end) != 3 || strncmp(version, "HTTP/1.", 7))
        return refuse(c, "400 Bad Request");
    bool get = !strcmp(method, "GET"), head = !strcmp(method, "HEAD");
    if (!get && !head) return refuse(c, "405 Method Not Allowed");
    if (!is_path(s, target)) return refuse(c, "404 Not Found");
    pthread_mutex_lock(&s->lock);
    bool made = answer(c, "200 OK", s->type, s->text, s->n, head);
    pthread_mutex_unlock(&s->lock);
    return made;
}

static bool is_whole(connection *c)
{
    c->head[c->n] = 0;
    return strstr(c->head, "\r\n\r\n") || strstr(c->head, "\n\n");
}

/* Text of ASCII: a byte that no request has ends it before its end. */
static bool is_text(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)bytes[i] < 9 || (unsigned char)bytes[i] > 126) return false;
    return true;
}

/* These return false when the connection is over. */
static bool receive(gm_text_server *s, connection *c)
{
    ssize_t got = recv(c->fd, c->head + c->n, HEAD - c->n, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0 || !is_text(c->head + c->n, (size_t)got)) return false;
    c->n += (size_t)got;
    if (is_whole(c)) return respond(s, c);
    return c->n < HEAD || refuse(c, "431 Request Header Fields Too Large");
}

static bool send_more(connection *c)
{
    ssize_t sent = send(c->fd, c->answer + c->sent, c->size - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)sent;
    if (c->sent < c->size) return true;
    c->done = true;
    return shutdown(c->fd, SHUT_WR) == 0;
}

static bool ignore(connection *c)
{
    char    bytes[1024];
    ssize_t got = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    c->ignored += (size_t)got;
    return got > 0 && c->ignored < IGNORED;
}

/* ---- the thread ---- */

static connection *free_one(gm_text_server *s)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (s->connections[i].fd < 0) return &s->connections[i];
    return NULL;
}

static void accept_one(gm_text_server *s)
{
    connection *c = free_one(s);
    int         fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    memset(c, 0, sizeof *c);
    c->fd = fd;
    c->ends = gm_now() + SECONDS;
}

static short wanted(const connection *c) { return c->answer && !c->done ? POLLOUT : POLLIN; }

static void *serve(void *context)
{
    gm_text_server *s = context;
    struct pollfd   p[CONNECTIONS + 2];
    for (;;) {
        bool open = false;
        p[0] = (struct pollfd){.fd = s->leave, .events = POLLIN};
        p[1] = (struct pollfd){.fd = free_one(s) ? s->listener : -1, .events = POLLIN};
        for (int i = 0; i < CONNECTIONS; i++) {
            connection *c = &s->connections[i];
            p[i + 2] = (struct pollfd){.fd = c->fd, .events = wanted(c)};
            open |= c->fd >= 0;
        }
        if (poll(p, CONNECTIONS + 2, open ? 250 : -1) < 0 && errno != EINTR) return NULL;
        if (p[0].revents) return NULL;
        for (int i = 0; i < CONNECTIONS; i++) {
            connection *c = &s->connections[i];
            if (c->fd < 0) continue;
            bool goes_on = gm_now() < c->ends;
            if (goes_on && p[i + 2].revents) goes_on = !c->answer ? receive(s, c) : c->done ? ignore(c) : send_more(c);
            if (!goes_on) drop(c);
        }
        if (p[1].revents) accept_one(s);
    }
}

/* No signal is for this thread. */
static bool start_thread(gm_text_server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !error;
}

static gm_status listen_at(gm_text_server *s, int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int       on = 1;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, size) || listen(s->listener, 16) ||
        getsockname(s->listener, (struct sockaddr *)&address, &size))
        return GM_FAIL(GM_EIO, "cannot listen at 127.0.0.1:%d: %s", port, strerror(errno));
    s->port = ntohs(address.sin_port);
    return GM_OK;
}

static void free_server(gm_text_server *s)
{
    for (int i = 0; i < CONNECTIONS; i++) drop(&s->connections[i]);
    if (s->listener >= 0) close(s->listener);
    if (s->leave >= 0) close(s->leave);
    free(s->text);
    free(s->path);
    free(s->type);
    free(s);
}

gm_status gm_text_server_open(int port, const char *path, const char *type, gm_text_server **out)
{
    gm_text_server *s = calloc(1, sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for a server");
    for (int i = 0; i < CONNECTIONS; i++) s->connections[i].fd = -1;
    s->listener = -1;
    s->leave = eventfd(0, EFD_CLOEXEC);
    s->path = strdup(path);
    s->type = strdup(type);
    s->text = strdup("");
    pthread_mutex_init(&s->lock, NULL);
    gm_status st = s->path && s->type && s->text ? listen_at(s, port) : GM_FAIL(GM_ENOMEM, "no memory for a server");
    if (st == GM_OK && !start_thread(s)) st = GM_FAIL(GM_EIO, "cannot start a thread");
    if (st != GM_OK) free_server(s);
    else *out = s;
    return st;
}

int gm_text_server_port(const gm_text_server *s) { return s->port; }

gm_status gm_text_server_set(gm_text_server *s, const char *text, size_t n)
{
    char *copy = malloc(n + 1), *old;
    if (!copy) return GM_FAIL(GM_ENOMEM, "no memory for a text");
    memcpy(copy, text, n);
    pthread_mutex_lock(&s->lock);
    old = s->text;
    s->text = copy;
    s->n = n;
    pthread_mutex_unlock(&s->lock);
    free(old);
    return GM_OK;
}

void gm_text_server_close(gm_text_server *s)
{
    uint64_t one = 1;
    if (!s) return;
    ssize_t ignored = write(s->leave, &one, sizeof one);
    (void)ignored;
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    free_server(s);
}
