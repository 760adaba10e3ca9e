/* fake_nccl.h - what the files of the emulation's NCCL share: fake_nccl.c has the calls and the communicators,
 * fake_nccl_op.c an operation as a task of its stream. */
#ifndef GM_FAKE_NCCL_H
#define GM_FAKE_NCCL_H

#include <cuda.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define PLACES   9
#define MESSAGES 64                 /* of one operation */
#define BOX      ((size_t)16 << 20) /* bytes of one message; pages are taken as they are touched */

typedef enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, MESSAGE } kind;

typedef struct heading { /* equal at both ends, where calls fit together */
    int    kind, type, op, root;
    size_t count;
} heading;

typedef struct box {
    atomic_uint sent, taken;
    heading     heading;
    size_t      bytes;
} box;

typedef struct shared {
    atomic_int joined;
    char       device[PLACES][16];
    box        boxes[PLACES][PLACES]; /* from, to */
} shared;

struct ncclComm {
    int          refs, n, place;
    shared      *shared;
    char         name[64];
    ncclResult_t state;
    int          asked;         /* how often since the last call */
    bool         made, aborted; /* aborted: streams and graphs go on without it */
    int          operations;
    int          in_graphs;     /* operations that graphs hold, and their launches */
    bool         records;       /* its thread records into a graph */
    struct op   *issued, *last; /* the calls of the group that is at work */
    const char  *words;
};

/* One message, out of or into memory of the device. */
typedef struct message {
    int     peer;
    bool    send, through;
    heading heading;
    char   *bytes, *room; /* room: what came, until all has come */
    size_t  n;
} message;

typedef struct op {
    struct op   *next;
    ncclComm_t   comm;
    cudaStream_t stream;
    heading      heading; /* of the first call */
    const void  *from;
    void        *to;
    int          n_messages;
    message      messages[MESSAGES];
    unsigned     waits_for[PLACES]; /* what the boxes that it sent through shall say when they are empty again */
    bool         fails, in_graph;
} op;

size_t gm_fake_shared_bytes(void); /* of a communicator's shared memory */
void   gm_fake_drop_comm(ncclComm_t comm);
/* Does the operation that a communicator comes to now fail, as GANYMEDE_NCCL_FAIL asks? */
bool gm_fake_operation_fails(ncclComm_t comm);
/* Puts o, which is taken, on its stream, or into the graph that is captured there. The driver's result. */
int  gm_fake_queue_op(op *o, const char *line);
void gm_fake_drop_op(void *o);

#endif
