/* wire.c - see wire.h. */
#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static gm_status open_socket(const char *path, int *fd, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        return GM_FAIL(GM_EINVAL, "%s is too long a path for a socket (%zu bytes at most); set TMPDIR to a shorter one",
                       path, sizeof address->sun_path - 1);
    strcpy(address->sun_path, path);
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return *fd < 0 ? GM_FAIL(GM_EIO, "cannot open a socket: %s", strerror(errno)) : GM_OK;
}

gm_status gm_wire_listen(const char *path, int *fd)
{
    struct sockaddr_un address;
    GM_TRY(open_socket(path, fd, &address));
    if (bind(*fd, (struct sockaddr *)&address, sizeof address) || listen(*fd, SOMAXCONN)) {
        gm_status st = GM_FAIL(GM_EIO, "cannot listen at %s: %s", path, strerror(errno));
        close(*fd);
        *fd = -1;
        return st;
    }
    return GM_OK;
}

gm_status gm_wire_connect_within(const char *path, struct timeval limit, int *fd)
{
    struct sockaddr_un address;
    GM_TRY(open_socket(path, fd, &address));
    setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* of connect and send */
    if (connect(*fd, (struct sockaddr *)&address, sizeof address)) {
        gm_status st = GM_FAIL(GM_EIO, "nobody answers at %s: %s", path, strerror(errno));
        close(*fd);
        *fd = -1;
        return st;
    }
    return GM_OK;
}

gm_status gm_wire_connect(const char *path, int *fd) { return gm_wire_connect_within(path, (struct timeval){0}, fd); }

int gm_wire_accept(int fd) { return accept4(fd, NULL, NULL, SOCK_CLOEXEC); }

static bool send_message(int fd, const struct msghdr *message, bool wait)
{
    ssize_t sent;
    do sent = sendmsg(fd, message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && wait && errno == EAGAIN) { /* the descriptor itself does not wait */
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        while (poll(&p, 1, -1) < 0 && errno == EINTR) {
        }
        return !(p.revents & (POLLERR | POLLHUP)) && send_message(fd, message, wait);
    }
    return sent >= 0;
}

bool gm_wire_send(int fd, gm_word word, int rank, int code, int extra, const char *text, size_t n, bool wait)
{
    gm_packet head = {.word = (int32_t)word, .rank = rank, .code = code, .extra = extra};
    head.n = (uint32_t)(n > GM_WIRE_TEXT ? GM_WIRE_TEXT : n);
    struct iovec  parts[2] = {{&head, GM_PACKET_HEAD}, {(void *)text, head.n}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = head.n ? 2 : 1};
    return send_message(fd, &message, wait);
}

bool gm_wire_send_long(int fd, gm_word word, int rank, int code, const char *text, size_t n, bool wait)
{
    for (;;) {
        size_t        take = n > GM_WIRE_TEXT ? GM_WIRE_TEXT : n;
        gm_packet     head = {.word = (int32_t)word, .rank = rank, .code = code, .n = (uint32_t)take, .more = n > take};
        struct iovec  parts[2] = {{&head, GM_PACKET_HEAD}, {(void *)text, take}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = take ? 2 : 1};
        if (!send_message(fd, &message, wait)) return false;
        if (!head.more) return true;
        text += take;
        n -= take;
    }
}

bool gm_wire_welcome(int fd, int rank, int first_cpu, int cpus, const int descriptors[2])
{
    gm_packet head = {.word = GM_WORD_WELCOME, .rank = rank, .code = first_cpu, .extra = cpus};
    union {
        struct cmsghdr align;
        char           room[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec  part = {&head, GM_PACKET_HEAD};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(c), descriptors, 2 * sizeof(int));
    return send_message(fd, &message, true);
}

/* Fills *p from a record of n bytes (or a failed call: -1). */
static int take_record(gm_packet *p, ssize_t n)
{
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n < (ssize_t)GM_PACKET_HEAD || p->n > GM_WIRE_TEXT) return -1;
    p->text[p->n] = 0;
    return 1;
}

int gm_wire_receive(int fd, gm_packet *p, bool wait)
{
    ssize_t n;
    do n = recv(fd, p, sizeof *p, wait ? 0 : MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n == 0 ? -1 : take_record(p, n);
}

bool gm_wire_receive_welcome(int fd, gm_packet *p, int descriptors[2])
{
    union {
        struct cmsghdr align;
        char           room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec  part = {p, sizeof *p};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t n;
    do n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!c || take_record(p, n) != 1 || p->word != GM_WORD_WELCOME || c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    memcpy(descriptors, CMSG_DATA(c), 2 * sizeof(int));
    return true;
}

gm_word gm_wire_peek(int fd)
{
    int32_t word = GM_WORD_NONE;
    ssize_t n = recv(fd, &word, sizeof word, MSG_PEEK | MSG_DONTWAIT);
    return n == sizeof word ? (gm_word)word : GM_WORD_NONE;
}
