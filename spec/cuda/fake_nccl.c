/* fake_nccl.c - NCCL as far as we call it, between processes of one machine that have the fake driver (fake_driver.h):
 * libgm_fake_nccl.so, which specs name in GANYMEDE_CUDA_NCCL.
 *
 * Every two places of a communicator have a mailbox in shared memory for each direction, and every operation is
 * messages through them. It is a task of its stream: it does nothing before the stream has come to it, is not through
 * before the others have come too, and where calls do not fit together it never is, as on GPUs. Communicators are
 * non-blocking: a call is at work until ncclCommGetAsyncError has been asked twice, and refuses everything else before.
 * Two places on one device are refused. Sums begin with the last place, in the tensors' own type, so that they are
 * other bits than those of the host's order.
 *
 * GANYMEDE_NCCL_FAIL="1 3": at place 1 the third operation of each communicator fails, and is not through. */
#include <cuda.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_driver.h"
#include "fake_sums.h"

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#define PLACES 9
#define BOX    ((size_t)16 << 20) /* bytes of one message; pages are taken as they are touched */
#define API    __attribute__((visibility("default")))

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
    int          asked; /* how often since the last call */
    bool         made, stopped;
    int          operations;
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
    message      messages[2 * PLACES];
    unsigned     waits_for[PLACES]; /* what the boxes that it sent through shall say when they are empty again */
    bool         fails;
} op;

static int         depth;
static ncclComm_t  grouped; /* whose calls are collected */
static const char *last_words = "";

static ncclResult_t refuse(ncclComm_t comm, ncclResult_t r, const char *words)
{
    last_words = words;
    if (comm) comm->words = words;
    return r;
}

/* ---- shared memory ---- */

static size_t shared_bytes(void) { return sizeof(shared) + PLACES * PLACES * BOX; }

static char *data_of(shared *s, int from, int to)
{
    return (char *)(s + 1) + ((size_t)from * PLACES + (size_t)to) * BOX;
}

static shared *map(const char *name, int flags)
{
    int   file = shm_open(name, flags, 0600);
    void *p = MAP_FAILED;
    if (file < 0) return NULL;
    if (!(flags & O_CREAT) || !ftruncate(file, (off_t)shared_bytes()))
        p = mmap(NULL, shared_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return p == MAP_FAILED ? NULL : p;
}

static void drop_comm(ncclComm_t comm)
{
    if (--comm->refs) return;
    munmap(comm->shared, shared_bytes());
    free(comm);
}

/* ---- an operation as a task of its stream ---- */

static const char *came_from(const op *o, int place)
{
    for (int i = 0; i < o->n_messages; i++)
        if (!o->messages[i].send && o->messages[i].peer == place) return o->messages[i].room;
    return NULL;
}

static bool sums(const op *o)
{
    return o->heading.kind == ALL_REDUCE || o->heading.kind == REDUCE || o->heading.kind == REDUCE_SCATTER;
}

/* All has come: the result, where this place gets one. */
static void finish(op *o)
{
    ncclComm_t  comm = o->comm;
    size_t      count = o->heading.count, bytes = count * gm_fake_size(o->heading.type);
    bool        scatter = o->heading.kind == REDUCE_SCATTER;
    const char *own = (const char *)o->from + (scatter ? (size_t)comm->place * bytes : 0);
    if (sums(o) && (o->heading.kind != REDUCE || o->heading.root == comm->place)) {
        char *sum = malloc(bytes + 1);
        for (int place = comm->n - 1; place >= 0; place--) {
            const char *term = place == comm->place ? own : came_from(o, place);
            if (place == comm->n - 1) memcpy(sum, term, bytes);
            else gm_fake_combine(o->heading.type, o->heading.op, comm->n, sum, term, place == 0, count);
        }
        memcpy(o->to, sum, bytes);
        free(sum);
    }
    if (o->heading.kind == ALL_GATHER) memmove((char *)o->to + (size_t)comm->place * bytes, o->from, bytes);
    if (o->heading.kind == BROADCAST && o->heading.root == comm->place && o->to != o->from)
        memcpy(o->to, o->from, bytes);
    for (int i = 0; i < o->n_messages && !sums(o); i++)
        if (!o->messages[i].send) memcpy(o->messages[i].bytes, o->messages[i].room, o->messages[i].n);
}

static void try_send(op *o, message *m)
{
    ncclComm_t comm = o->comm;
    box       *b = &comm->shared->boxes[comm->place][m->peer];
    if (atomic_load(&b->sent) != atomic_load(&b->taken)) return;
    b->heading = m->heading;
    b->bytes = m->n;
    memcpy(data_of(comm->shared, comm->place, m->peer), m->bytes, m->n);
    m->through = true;
    o->waits_for[m->peer] = atomic_fetch_add(&b->sent, 1) + 1;
}

/* What does not fit is left there: both ends hang. */
static void try_receive(op *o, message *m)
{
    ncclComm_t comm = o->comm;
    box       *b = &comm->shared->boxes[m->peer][comm->place];
    if (atomic_load(&b->sent) == atomic_load(&b->taken)) return;
    if (memcmp(&b->heading, &m->heading, sizeof b->heading) || b->bytes != m->n) return;
    memcpy(m->room, data_of(comm->shared, m->peer, comm->place), m->n);
    m->through = true;
    atomic_fetch_add(&b->taken, 1);
}

static int attempt(void *context, char *error, size_t size)
{
    op        *o = context;
    ncclComm_t comm = o->comm;
    bool       through = true;
    (void)error, (void)size;
    if (comm->stopped) return 0;
    if (o->fails) return GM_FAKE_NOT_READY;
    for (int i = 0; i < o->n_messages; i++) {
        message *m = &o->messages[i];
        if (!m->through && m->send) try_send(o, m);
        if (!m->through && !m->send) try_receive(o, m);
        through &= m->through;
    }
    for (int i = 0; through && i < comm->n; i++) {
        box *b = &comm->shared->boxes[comm->place][i];
        if (o->waits_for[i] && (int)(atomic_load(&b->taken) - o->waits_for[i]) < 0) through = false;
    }
    if (!through) return GM_FAKE_NOT_READY;
    finish(o);
    return 0;
}

static void drop(void *context)
{
    op *o = context;
    for (int i = 0; i < o->n_messages; i++) free(o->messages[i].room);
    drop_comm(o->comm);
    free(o);
}

/* ---- calls ---- */

static const char *add_message(op *o, bool send, int peer, heading h, const void *bytes, size_t n)
{
    if (n > BOX) return "a message that is too large for the emulation";
    if (n && gm_fake_outside(bytes, n)) return gm_fake_outside(bytes, n);
    message *m = &o->messages[o->n_messages++];
    *m = (message){.peer = peer, .send = send, .heading = h, .bytes = (char *)(uintptr_t)bytes, .n = n};
    if (!send && !(m->room = malloc(n + 1))) return "no memory";
    return NULL;
}

/* The messages of a collective; what one place has for itself needs none. */
static const char *add_messages(op *o, const void *from, void *to, size_t bytes)
{
    ncclComm_t  comm = o->comm;
    heading     h = o->heading;
    const char *why = NULL;
    for (int i = 0; i < comm->n && !why; i++) {
        bool here = h.root == comm->place, there = h.root == i, rooted = h.kind == REDUCE || h.kind == BROADCAST;
        bool sends = !rooted || (h.kind == REDUCE ? there : here), takes = !rooted || (h.kind == REDUCE ? here : there);
        size_t at = h.kind == REDUCE_SCATTER ? (size_t)i * bytes : 0,
               into = h.kind == ALL_GATHER ? (size_t)i * bytes : 0;
        if (i == comm->place) continue;
        if (sends) why = add_message(o, true, i, h, (const char *)from + at, bytes);
        if (takes && !why) why = add_message(o, false, i, h, (char *)to + into, bytes);
    }
    return why;
}

static op *new_op(ncclComm_t comm, cudaStream_t stream, heading h)
{
    int place = -1, at = 0;
    op *o = calloc(1, sizeof *o);
    *o = (op){.comm = comm, .stream = stream, .heading = h};
    comm->refs++;
    comm->operations++;
    const char *fail = getenv("GANYMEDE_NCCL_FAIL");
    o->fails = fail && sscanf(fail, "%d %d", &place, &at) == 2 && place == comm->place && at == comm->operations;
    if (comm->last) comm->last->next = o;
    else comm->issued = o;
    comm->last = o;
    return o;
}

static const char *unfit(ncclComm_t comm)
{
    if (!depth) return "a call outside of a group";
    if (comm->stopped || !comm->made) return "a communicator that is not made, or was stopped";
    if (comm->state != ncclSuccess) return "a call while the communicator is at work, or has failed";
    if (grouped && grouped != comm) return "calls of two communicators in one group";
    return NULL;
}

static ncclResult_t call(ncclComm_t comm, cudaStream_t stream, heading h, const void *from, void *to)
{
    const char *why = unfit(comm);
    size_t      bytes = h.count * gm_fake_size(h.type);
    if (why) return refuse(comm, ncclInvalidUsage, why);
    grouped = comm;
    op *o = new_op(comm, stream, h);
    o->from = from;
    o->to = to;
    why = add_messages(o, from, to ? to : (void *)(uintptr_t)from, bytes);
    return why ? refuse(comm, ncclInvalidArgument, why) : ncclSuccess;
}

/* Messages of one group are one operation. */
static ncclResult_t call_message(ncclComm_t comm, cudaStream_t stream, bool send, const void *bytes, size_t count,
                                 ncclDataType_t type, int peer)
{
    const char *why = unfit(comm);
    heading     h = {MESSAGE, (int)type, 0, 0, count};
    if (!why && (peer < 0 || peer >= comm->n)) why = "a peer that is not there";
    if (why) return refuse(comm, ncclInvalidUsage, why);
    grouped = comm;
    op *o = comm->last && comm->last->heading.kind == MESSAGE ? comm->last
                                                              : new_op(comm, stream, (heading){.kind = MESSAGE});
    why = add_message(o, send, peer, h, bytes, count * gm_fake_size((int)type));
    return why ? refuse(comm, ncclInvalidArgument, why) : ncclSuccess;
}

API ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream, (heading){ALL_REDUCE, (int)type, (int)operation, 0, count}, from, to);
}

API ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                            int root, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream, (heading){REDUCE, (int)type, (int)operation, root, count}, from, to);
}

API ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                               cudaStream_t stream)
{
    return call(comm, stream, (heading){BROADCAST, (int)type, 0, root, count}, from, to);
}

API ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream)
{
    return call(comm, stream, (heading){ALL_GATHER, (int)type, 0, 0, count}, from, to);
}

API ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                                   ncclComm_t comm, cudaStream_t stream)
{
    heading h = {REDUCE_SCATTER, (int)type, (int)operation, 0, count};
    return call(comm, stream, h, from, to);
}

API ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream)
{
    return call_message(comm, stream, true, from, count, type, peer);
}

API ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return call_message(comm, stream, false, to, count, type, peer);
}

API ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void)
{
    ncclComm_t comm = grouped;
    if (!depth) return refuse(NULL, ncclInvalidUsage, "the end of no group");
    if (--depth || !comm) return ncclSuccess;
    grouped = NULL;
    comm->state = ncclInProgress;
    comm->asked = 0;
    return ncclInProgress;
}

/* ---- communicators ---- */

API ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t r)
{
    if (r == ncclRemoteError) return "remote process exited or there was a network error";
    return r == ncclInvalidUsage ? "invalid usage" : "said by the emulation";
}

API const char *ncclGetLastError(ncclComm_t comm) { return comm && comm->words ? comm->words : last_words; }

static int  ids; /* made in this process */
static void name_id(char *name, size_t size, int id) { snprintf(name, size, "/gm_nccl_%d_%d", (int)getpid(), id); }

/* Names that not all places have opened, after failures. */
__attribute__((destructor)) static void forget_ids(void)
{
    char name[64];
    while (ids) {
        name_id(name, sizeof name, --ids);
        shm_unlink(name);
    }
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    name_id(id->internal, sizeof id->internal, ids++);
    shm_unlink(id->internal); /* of a process that was killed, whose number this one has got */
    shared *s = map(id->internal, O_CREAT | O_EXCL | O_RDWR);
    if (!s) return refuse(NULL, ncclSystemError, "no shared memory");
    munmap(s, shared_bytes());
    return ncclSuccess;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int place, ncclConfig_t *config)
{
    CUdevice device;
    CUuuid   uuid;
    if (!config || config->blocking || config->size != sizeof *config)
        return refuse(NULL, ncclInvalidUsage, "blocking");
    if (n > PLACES || place < 0 || place >= n) return refuse(NULL, ncclInvalidArgument, "so many places");
    if (cuCtxGetDevice(&device) || cuDeviceGetUuid(&uuid, device))
        return refuse(NULL, ncclUnhandledCudaError, "no device");
    shared *s = map(id.internal, O_RDWR);
    if (!s) return refuse(NULL, ncclSystemError, "an id that nobody made");
    ncclComm_t comm = calloc(1, sizeof *comm);
    *comm = (struct ncclComm){.refs = 1, .n = n, .place = place, .shared = s, .state = ncclInProgress};
    memcpy(comm->name, id.internal, sizeof comm->name - 1);
    memcpy(s->device[place], uuid.bytes, sizeof uuid.bytes);
    if (atomic_fetch_add(&s->joined, 1) + 1 == n) shm_unlink(comm->name);
    *out = comm;
    return ncclInProgress;
}

static void make(ncclComm_t comm)
{
    const shared *s = comm->shared;
    if (atomic_load(&comm->shared->joined) < comm->n) return;
    comm->made = true;
    comm->state = ncclSuccess;
    for (int i = 0; i < comm->n; i++)
        if (i != comm->place && !memcmp(s->device[i], s->device[comm->place], 16)) {
            comm->words = "Duplicate GPU detected";
            comm->state = ncclInvalidUsage;
        }
}

static const char *const names[] = {"ncclAllReduce", "ncclReduce",        "ncclBroadcast",
                                    "ncclAllGather", "ncclReduceScatter", "ncclGroup"};

/* What was called goes to its stream. */
static void queue_issued(ncclComm_t comm)
{
    char line[160];
    while (comm->issued) {
        op *o = comm->issued;
        comm->issued = o->next;
        snprintf(line, sizeof line, "%s %zu of %d places, %d messages", names[o->heading.kind], o->heading.count,
                 comm->n, o->n_messages);
        bool fails = o->fails;
        gm_fake_queue(o->stream, line, (gm_fake_call){.attempt = attempt, .drop = drop, .context = o});
        if (!fails) continue;
        comm->words = "the emulation was asked to fail";
        comm->state = ncclRemoteError;
    }
    comm->last = NULL;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (comm->state == ncclInProgress && !comm->made) {
        make(comm);
    } else if (comm->state == ncclInProgress && ++comm->asked > 1) {
        comm->state = ncclSuccess;
        queue_issued(comm);
    }
    *state = comm->state;
    return ncclSuccess;
}

API ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    if (flags) return refuse(comm, ncclInvalidArgument, "flags");
    comm->stopped = true;
    if (comm->state == ncclInProgress) comm->state = ncclSuccess;
    return ncclSuccess;
}

static void forget(ncclComm_t comm)
{
    while (comm->issued) {
        op *o = comm->issued;
        comm->issued = o->next;
        drop(o);
    }
    drop_comm(comm);
}

API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->stopped = true;
    forget(comm);
    return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (comm->stopped) return refuse(comm, ncclInvalidUsage, "the end of a communicator that was revoked");
    return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    forget(comm);
    return ncclSuccess;
}
