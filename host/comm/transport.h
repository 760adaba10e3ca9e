/* transport.h - the interface that carries messages between ranks, below comm.h.
 *
 * A transport moves two kinds of messages. Data messages are matched by (sender, tag), in order for one pair and
 * tag, and go straight between the callers' buffers. Control messages (notices) are small and copied; they arrive in
 * order for each pair. Every call returns at once. The comm makes collectives, sums, accounts and time-outs of this.
 *
 * Transports: `self` (a world of one), `meta` (any world, moves nothing), Open MPI (comm_mpi.c, in a module of its
 * own), TCP (comm_tcp.c), windows of shared memory between ranks of one machine above one of these (comm_windows.c),
 * threads of one process (spec/unit). The module fills this struct across a library boundary: the struct begins with
 * its size and version, failures are texts in `error`, and the module needs no function of the host. */
#ifndef GM_TRANSPORT_H
#define GM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_TRANSPORT_VERSION 2
#define GM_TAG_BITS          31         /* tags are 0 <= tag < 2^31 */
#define GM_MESSAGE_MAX       (1u << 30) /* bytes of one data message; the comm sends longer ones in pieces */
#define GM_NOTICE_MAX        2048       /* bytes of one notice */
#define GM_CANCELLED         SIZE_MAX   /* what test gives as size for a receive that was taken back */
#define GM_LOST              (-2)       /* what test returns when the rank at the other end can no longer be reached */

/* A receive of one message of `bytes` bytes from each of n ranks, whose bytes are not copied: take is called with where
 * they lie, in the order of ranks, for each part of them once and in order. */
typedef struct gm_fold_call {
    const int *ranks;
    int        n, tag;
    size_t     bytes;
    void (*take)(void *context, const char *const *parts, size_t at, size_t bytes);
    void *context;
    /* Not NULL: bytes [at, at + bytes) of it are what take has made of these. They replace the bytes of a message that
     * was lent (below) where this rank can write them; filled[i]: that was done for the i-th rank. */
    const char *result;
    bool       *filled;
} gm_fold_call;

typedef struct gm_transport gm_transport;
struct gm_transport {
    uint32_t size, version;
    char     name[64]; /* "Open MPI 4.1.4", "self" */
    int      rank, world;
    bool     has_data; /* false: counts and moves nothing; no function but close is called */
    void    *context;
    char     error[512]; /* after a function returned a negative number */

    /* Starts a message. The bytes stay untouched until test says done. 0, or negative. */
    int (*send)(gm_transport *t, int to, int tag, const void *bytes, size_t n, void **request);
    int (*receive)(gm_transport *t, int from, int tag, void *bytes, size_t n, void **request);
    /* 1: done, and the request is gone; *n: bytes of the message (more than the buffer holds if the message was longer;
     * the rest is lost), or GM_CANCELLED. 0: under way. GM_LOST, or another negative number: it failed, and is gone.
     * After GM_LOST, hear gives all notices that came from that rank before its end. */
    int (*test)(gm_transport *t, void *request, size_t *n);
    /* Cancels a receive unless its message has begun to arrive. The caller must still test the request. */
    int (*cancel)(gm_transport *t, void *request);
    /* Receives one data message that no receive waits for and drops it. 1: done, *from: its sender. 0: there is none
     * now, or one is still arriving (call again). */
    int (*drain)(gm_transport *t, int *from);
    /* Sends a notice of at most GM_NOTICE_MAX bytes, which are copied. */
    int (*tell)(gm_transport *t, int to, const void *bytes, size_t n);
    /* Receives a notice. 1: there was one; bytes has room for GM_NOTICE_MAX. 0: there was none. */
    int (*hear)(gm_transport *t, void *bytes, size_t *n, int *from);
    /* Frees the transport. orderly: promises that all ranks close and nothing is under way. Otherwise it leaves without
     * waiting for other ranks, but for a second, at most, until they have room for the notices that were told. */
    void (*close)(gm_transport *t, bool orderly);

    /* ---- what not every transport has: NULL where it does not ---- */

    /* Sends a short message if that can be done at once: true, and the bytes are the caller's again. Else: send. */
    bool (*send_now)(gm_transport *t, int to, int tag, const void *bytes, size_t n);
    /* Receives a message of n bytes if it has come. 1: done. 0: nothing has come. -1: something else is to be received
     * before, or together with it. After 0 and -1 bytes may hold anything, and receive goes on. */
    int (*receive_now)(gm_transport *t, int from, int tag, void *bytes, size_t n);
    /* Can such messages be folded? Only then: fold starts it. What it takes in `call` but context may go at once; test
     * and cancel as for a receive. lacks: has the message of this rank not come? */
    bool (*folds)(gm_transport *t, const int *ranks, int n, size_t bytes);
    int (*fold)(gm_transport *t, const gm_fold_call *call, void **request);
    bool (*lacks)(gm_transport *t, void *request, int rank);
    /* As send, of bytes that a fold may replace by its result. When test says done, *filled tells whether it has. */
    int (*lend)(gm_transport *t, int to, int tag, void *bytes, size_t n, bool *filled, void **request);
    /* Before sends of this tag: they have so many bytes, those that go to several ranks counted once; to so many ranks
     * the same bytes go, at most. */
    void (*expect)(gm_transport *t, int tag, size_t bytes, int ranks);
    /* Sleeps until something may have moved, for at most so many seconds. */
    void (*rest)(gm_transport *t, double seconds);
    /* Lets another rank run on this core, between two looks of receive_now. *end: of these looks, 0 at first. False:
     * not now, or they have lasted long enough: rest. */
    bool (*give_way)(gm_transport *t, double *end);
    bool   crowded; /* more ranks than cores wait here: who waits should rest at once */
    double yielded; /* seconds that this rank has waited by giving its core to nobody (crowd.h) */
    /* Negative, with an error: the rank can no longer be reached, and never will be. 0: nothing is known of that. NULL:
     * nobody sees that a rank has ended, as under MPI, whose launcher or a supervisor ends the others. */
    int (*lost)(gm_transport *t, int rank);
};

/* The one function that the module ganymede_mpi.so exports, by this name: joins the job and fills *t (zeroed, but
 * for size and version, which must fit). 0, or negative with a message in t->error. */
#define GM_MPI_MODULE "ganymede_mpi.so"
#define GM_MPI_OPEN   "gm_mpi_open"
typedef int (*gm_mpi_open_function)(gm_transport *t);

#endif
