/* wire.h - the words that a supervisor, its keepers and its ranks say to each other over Unix sockets.
 *
 *     supervisor (supervise.c)  --- one connection each ---  keeper (keeper.c), the parent of a rank's process
 *                         --- one connection each ---  rank (link.c), the process that runs Lua
 *
 * The sockets carry records (SOCK_SEQPACKET): a word arrives whole or not at all. Only processes of one build on one
 * machine talk to each other, so a word is sent as its struct. A text that is too long for one word travels in several
 * words; `more` says that another one follows. The trap: a signal handler also receives words (link.c), so nothing here
 * allocates or locks. */
#ifndef GM_WIRE_H
#define GM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>
#include "../../kernels/status.h"

typedef enum gm_word {
    GM_WORD_NONE,
    /* keeper to supervisor */
    GM_WORD_KEEPER, /* rank, pid of the keeper: I am here */
    GM_WORD_END,    /* rank, code, signal, text: the rank's process has ended; text: what it did last */
    GM_WORD_HALTED, /* rank, signal, 0: a signal such as SIGSTOP has stopped it; rank, 0, 0: it goes on */
    /* supervisor to keeper */
    GM_WORD_WELCOME, /* rank, first, count of CPUs to run on (count 0: any); comes with the rank's stdout, stderr */
    GM_WORD_SIGNAL,  /* send `code` to the rank */
    GM_WORD_LEAVE,   /* end */
    /* rank to supervisor */
    GM_WORD_RANK,    /* rank, pid: I am here */
    GM_WORD_JOINED,  /* I have joined the others, and hear stops */
    GM_WORD_FAIL,    /* code, agreed, text: I end because of this error (agreed: all ranks do) */
    GM_WORD_PEER_IS, /* code: I end because another rank has failed */
    GM_WORD_DONE,    /* code: I am about to end in good order, with that status */
    GM_WORD_READY,   /* code: I wait for a line; code is the exit status with which I want to end, or -1 */
    GM_WORD_ANSWER,  /* code (its kind), text: the answer to a line */
    /* supervisor to rank */
    GM_WORD_PEER, /* rank, code, text: that rank has failed; rank -1: the supervisor itself ends */
    GM_WORD_STOP, /* code (gm_stop): Ctrl-C, SIGTERM, a time limit */
    GM_WORD_LINE, /* code (its kind), text: run this */
} gm_word;

#define GM_WIRE_TEXT 16000

typedef struct gm_packet {
    int32_t  word, rank, code, extra;
    uint32_t n; /* bytes of text */
    uint32_t more;
    char     text[GM_WIRE_TEXT + 1]; /* ends with a zero after n bytes */
} gm_packet;

#define GM_PACKET_HEAD offsetof(gm_packet, text)

/* These open a socket at `path`, or connect to one. The caller closes *fd. GM_EINVAL: the path is too long for a
 * socket. */
gm_status gm_wire_listen(const char *path, int *fd);
gm_status gm_wire_connect(const char *path, int *fd);
/* The same for a listener that may not be a supervisor: waits so long at most, in sends too; 0: for ever. */
gm_status gm_wire_connect_within(const char *path, struct timeval limit, int *fd);
/* The next connection, which the caller closes; -1: there is none. */
int gm_wire_accept(int fd);

/* Sends one record; a text that is too long is cut. wait: waits while the buffer of the other side is full. False: the
 * other side is gone, or full. */
bool gm_wire_send(int fd, gm_word word, int rank, int code, int extra, const char *text, size_t n, bool wait);
/* The same for a text of any length, in as many records as it takes. */
bool gm_wire_send_long(int fd, gm_word word, int rank, int code, const char *text, size_t n, bool wait);
/* Sends GM_WORD_WELCOME with two descriptors. */
bool gm_wire_welcome(int fd, int rank, int first_cpu, int cpus, const int descriptors[2]);
/* Receives one record. Returns 1: *p is filled; 0: nothing has come; -1: the other side is gone. */
int gm_wire_receive(int fd, gm_packet *p, bool wait);
/* Waits for GM_WORD_WELCOME; the caller closes the descriptors. False: the other side is gone. */
bool gm_wire_receive_welcome(int fd, gm_packet *p, int descriptors[2]);
/* The next word, without receiving it; GM_WORD_NONE: nothing has come. */
gm_word gm_wire_peek(int fd);

#endif
