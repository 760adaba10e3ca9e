/* requests.h - how other programs of the same user ask something of a running job: a Unix socket in its private folder.
 *
 *     gm_requests_open(path, &r);
 *     if (gm_requests_look(r)) ...                 // between two steps: takes in what has come, never waits
 *     while (gm_requests_take(r, &id, &text, &n)) gm_requests_answer(r, id, answer, m);
 *
 * A request is one record (SOCK_SEQPACKET) of text, and so is its answer: half of either does not exist. Who asks again
 * before the answer waits in the socket. Nothing here waits for the other side: a peer that is gone, does not read, is
 * another user or sends too much is closed, and so is one too many, which is told so. What the text says is the
 * business of the caller. The trap: a peer can leave at any time; its request is then not handed out any more. */
#ifndef GM_REQUESTS_H
#define GM_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/status.h"

#define GM_REQUEST_ROOM   16384 /* bytes of a request, at most */
#define GM_REQUEST_ANSWER 65536 /* bytes of an answer: a socket takes so many at once; the rest is cut off */
#define GM_REQUEST_PEERS  8     /* connections at a time */

typedef struct gm_requests gm_requests;

/* Opens the socket; one that an earlier process has left is replaced. GM_EIO, GM_EINVAL: the path is too long. */
gm_status gm_requests_open(const char *path, gm_requests **out);
void      gm_requests_close(gm_requests *r); /* removes the socket; NULL is allowed */
/* Takes in what has come. Returns the number of requests that wait. */
int gm_requests_look(gm_requests *r);
/* Hands out the oldest request; *text, which ends with a zero, belongs to r until the answer. False: none waits. */
bool gm_requests_take(gm_requests *r, int *id, const char **text, size_t *n);
/* Answers the request with this id. False: its peer is gone, or does not read. */
bool gm_requests_answer(gm_requests *r, int id, const char *text, size_t n);

/* The other side. The caller closes *fd. GM_EIO: nobody listens there (any more), or not now; GM_EINVAL: the path is
 * too long, or another user listens. */
gm_status gm_request_connect(const char *path, int *fd);
bool      gm_request_send(int fd, const char *text, size_t n);
/* Waits for an answer, at most so many seconds. Returns its bytes in buf (size of at least GM_REQUEST_ANSWER), 0: the
 * job is gone, -1: nothing has come, -2: an interrupt is pending (signals.h). */
long gm_request_receive(int fd, char *buf, size_t size, double seconds);

#endif
