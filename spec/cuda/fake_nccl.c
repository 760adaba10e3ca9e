/* fake_nccl.c - NCCL as far as we call it, between processes of one machine that have the fake driver (fake_driver.h):
 * libgm_fake_nccl.so, which specs name in GANYMEDE_CUDA_NCCL.
 *
 * Every two places of a communicator have a mailbox in shared memory for each direction, and every operation is
 * messages through them. It is a task of its stream: it does nothing before the stream has come to it, is not through
 * before the others have come too, and where calls do not fit together it never is, as on GPUs. Communicators are
 * non-blocking: a call is at work until ncclCommGetAsyncError has been asked some times, and refuses everything else
 * before. NCCL works in a thread meanwhile; if that records into a graph, nobody else may.
 * Two places on one device are refused. Sums begin with the last place, in the tensors' own type, so that they are
 * other bits than those of the host's order.
 *
 * An operation on a stream that is captured becomes part of the graph, and each launch runs it anew. As in NCCL, a
 * communicator cannot be freed while a graph holds operations of it, and those of several must be in one order in a
 * graph.
 *
 * GANYMEDE_NCCL_FAIL="1 3": at place 1 the third operation of each communicator fails, and is not through. Operations
 * count when they are called, and in each launch of a graph. */
#include "fake_nccl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_driver.h"
#include "fake_sums.h"

#define ASKED 5 /* so often, until a call is through: who begins two calls finds the first at work */

#define API __attribute__((visibility("default")))

ncclResult_t ncclGroupStart(void); /* which the header declares without void */
ncclResult_t ncclGroupEnd(void);

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

static shared *map(const char *name, int flags)
{
    int   file = shm_open(name, flags, 0600);
    void *p = MAP_FAILED;
    if (file < 0) return NULL;
    if (!(flags & O_CREAT) || !ftruncate(file, (off_t)gm_fake_shared_bytes()))
        p = mmap(NULL, gm_fake_shared_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- calls ---- */

static const char *add_message(op *o, bool send, int peer, heading h, const void *bytes, size_t n)
{
    if (n > BOX) return "a message that is too large for the emulation";
    if (n && gm_fake_outside(bytes, n)) return gm_fake_outside(bytes, n);
    if (o->n_messages == MESSAGES) return "more messages in a group than the emulation has room for";
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

bool gm_fake_operation_fails(ncclComm_t comm)
{
    int         place = -1, at = 0;
    const char *fail = getenv("GANYMEDE_NCCL_FAIL");
    comm->operations++;
    if (!fail || sscanf(fail, "%d %d", &place, &at) != 2 || place != comm->place || at != comm->operations)
        return false;
    comm->words = "the emulation was asked to fail";
    if (comm->state == ncclSuccess) comm->state = ncclRemoteError; /* in a launch of a graph */
    return true;
}

static op *new_op(ncclComm_t comm, cudaStream_t stream, heading h)
{
    op *o = calloc(1, sizeof *o);
    *o = (op){.comm = comm, .stream = stream, .heading = h};
    comm->refs++;
    o->fails = gm_fake_operation_fails(comm);
    if (comm->last) comm->last->next = o;
    else comm->issued = o;
    comm->last = o;
    return o;
}

static const char *unfit(ncclComm_t comm)
{
    if (!depth) return "a call outside of a group";
    if (!comm->made) return "a communicator that is not made";
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

static ncclComm_t ended[256]; /* that are to be freed at the end of the group */
static int        n_ended;

/* Its thread is through with what it records. */
static void end_recording(ncclComm_t comm)
{
    if (comm->records) gm_fake_occupy_capture(-1);
    comm->records = false;
}

/* The calls that have not come to their streams. */
static void forget(ncclComm_t comm)
{
    end_recording(comm);
    while (comm->issued) {
        op *o = comm->issued;
        comm->issued = o->next;
        gm_fake_drop_op(o);
    }
    comm->last = NULL;
}

/* What NCCL waits for, and nothing would ever end. */
static void never(const char *what, int n)
{
    fprintf(stderr, "the emulation's NCCL: a communicator is freed while %s %d operations of it\n", what, n);
    abort();
}

/* NCCL waits for the end of every graph that holds operations of a communicator, and for what is on its streams. That
 * ends at once where all communicators that are in its way are aborted in the same group. */
static void free_ended(void)
{
    if (n_ended) gm_fake_progress();
    while (n_ended) {
        ncclComm_t comm = ended[--n_ended];
        forget(comm);
        if (comm->in_graphs) never("a graph holds", comm->in_graphs);
        if (comm->refs > 1) never("streams have", comm->refs - 1);
        gm_fake_drop_comm(comm);
    }
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
    if (--depth) return ncclSuccess;
    free_ended();
    if (!comm) return ncclSuccess;
    grouped = NULL;
    comm->state = ncclInProgress;
    comm->asked = 0;
    comm->records = comm->issued && gm_fake_is_captured(comm->issued->stream);
    if (comm->records) gm_fake_occupy_capture(1);
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
    munmap(s, gm_fake_shared_bytes());
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
        if (gm_fake_queue_op(o, line)) {
            comm->words = "the driver takes no operation of NCCL here; in a graph, those of several communicators must "
                          "be in one order";
            comm->state = ncclUnhandledCudaError;
        } else if (fails) {
            comm->state = ncclRemoteError;
        }
    }
    comm->last = NULL;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (comm->state == ncclInProgress && !comm->made) {
        make(comm);
    } else if (comm->state == ncclInProgress && ++comm->asked >= ASKED) {
        comm->state = ncclSuccess;
        end_recording(comm);
        queue_issued(comm);
    }
    *state = comm->state;
    return ncclSuccess;
}

static void end(ncclComm_t comm)
{
    if (n_ended == (int)(sizeof ended / sizeof *ended)) abort();
    ended[n_ended++] = comm;
    if (!depth) free_ended();
}

API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->aborted = true;
    end(comm);
    return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    end(comm);
    return ncclSuccess;
}
