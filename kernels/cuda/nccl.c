/* nccl.c - links between GPUs (links.h) over NCCL: a communicator and a stream for each, and events as tickets.
 *
 * Communicators are non-blocking, so that a place that never comes makes nobody hang: each call may leave the library
 * at work (ncclInProgress), and only when ncclCommGetAsyncError says that it is through may the next one be made, or an
 * event be recorded behind what it launched. Streams of links have the highest priority: what others wait for goes
 * first. The trap: an aborted communicator is gone, so link->comm is NULL from then on; events are not, and pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../links.h"
#include "driver.h"
#include "graph.h"
#include "nccl_library.h"

#define STOP_SECONDS 2.0 /* that a communicator gets to stop, or to end in order, before it is aborted */

struct gm_link {
    gm_cuda               *cu;
    const gm_nccl_library *lib;
    ncclComm_t             comm; /* NULL: aborted */
    CUstream               stream;
    bool                   stopped;
};

struct gm_ticket {
    CUevent entered, left;
    bool    has_left;
};

_Static_assert(sizeof(gm_link_id) == sizeof(ncclUniqueId), "an id is NCCL's");

#define NCCL(link, call)                                                                     \
    do {                                                                                     \
        ncclResult_t r_ = (link)->lib->call;                                                 \
        if (r_ != ncclSuccess && r_ != ncclInProgress)                                       \
            return gm_nccl_failed((link)->lib, (link)->comm, r_, __FILE__, __LINE__, #call); \
    } while (0)

/* ---- the library ---- */

/* Loaded the first time, for the process. Devices are opened by one thread. */
static gm_status library_of(gm_device *dev, const gm_nccl_library **out)
{
    static gm_nccl_library library;
    static bool            loaded;
    if (!loaded) GM_TRY(gm_nccl_load(gm_cuda_of(dev)->driver->nccl, &library));
    loaded = true;
    *out = &library;
    return GM_OK;
}

static gm_status find(gm_device *dev, gm_link_facts *out)
{
    const gm_nccl_library *lib;
    GM_TRY(library_of(dev, &lib));
    snprintf(out->library, sizeof out->library, "NCCL %d.%d.%d", lib->version / 10000, lib->version / 100 % 100,
             lib->version % 100);
    return GM_OK;
}

static gm_status new_id(gm_device *dev, gm_link_id *out)
{
    gm_cuda               *cu;
    const gm_nccl_library *lib;
    ncclUniqueId           id;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(library_of(dev, &lib));
    ncclResult_t r = lib->ncclGetUniqueId(&id);
    if (r != ncclSuccess) return gm_nccl_failed(lib, NULL, r, __FILE__, __LINE__, "ncclGetUniqueId");
    memcpy(out->bytes, id.internal, sizeof out->bytes);
    return GM_OK;
}

/* ---- life ---- */

static gm_status make(gm_link *link, const gm_link_id *id, int n, int place)
{
    ncclUniqueId unique;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memcpy(unique.internal, id->bytes, sizeof unique.internal);
    GM_CU(link->cu->driver, cuStreamCreateWithPriority(&link->stream, CU_STREAM_NON_BLOCKING, INT16_MIN));
    NCCL(link, ncclCommInitRankConfig(&link->comm, n, unique, place, &config));
    return GM_OK;
}

static void close_link(gm_link *link, bool orderly);

static gm_status open_link(gm_device *dev, const gm_link_id *id, int n, int place, gm_link **out)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    gm_link *link = calloc(1, sizeof *link);
    if (!link) return GM_FAIL(GM_ENOMEM, "no memory for a link between GPUs");
    link->cu = cu;
    gm_status st = library_of(dev, &link->lib);
    if (st == GM_OK) st = make(link, id, n, place);
    if (st != GM_OK) {
        char error[1100];
        snprintf(error, sizeof error, "%s", gm_last_error());
        close_link(link, false);
        return gm_fail_again(st, error);
    }
    *out = link;
    return GM_OK;
}

static gm_status is_ready(gm_link *link, bool *ready)
{
    ncclResult_t state = ncclSuccess;
    *ready = false;
    if (!link->comm || link->stopped) return GM_FAIL(GM_ECOMM, "this link between GPUs was stopped");
    NCCL(link, ncclCommGetAsyncError(link->comm, &state));
    if (state != ncclSuccess && state != ncclInProgress)
        return gm_nccl_failed(link->lib, link->comm, state, __FILE__, __LINE__, "an operation under way");
    *ready = state == ncclSuccess;
    return GM_OK;
}

/* Waits for the library to get through, for a short time; it has not hung, or the communicator is aborted. */
static bool gets_through(gm_link *link)
{
    for (int i = 0; i < (int)(STOP_SECONDS / 1e-4); i++) {
        ncclResult_t state = ncclSuccess;
        if (link->lib->ncclCommGetAsyncError(link->comm, &state) != ncclSuccess) return false;
        if (state != ncclInProgress) return state == ncclSuccess;
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    return false;
}

/* Revoked, where the library can and does it in time: what runs on the device ends. Else aborted, which does that too
 * and frees the communicator. */
static void stop(gm_link *link)
{
    if (!link->comm || link->stopped) return;
    link->stopped = true;
    if (link->lib->ncclCommRevoke) {
        ncclResult_t r = link->lib->ncclCommRevoke(link->comm, NCCL_REVOKE_DEFAULT);
        if ((r == ncclSuccess || r == ncclInProgress) && gets_through(link)) return;
    }
    link->lib->ncclCommAbort(link->comm);
    link->comm = NULL;
}

static void close_link(gm_link *link, bool orderly)
{
    if (!link) return;
    if (orderly && link->comm && !link->stopped) {
        ncclResult_t r = link->lib->ncclCommFinalize(link->comm);
        orderly = (r == ncclSuccess || r == ncclInProgress) && gets_through(link);
    }
    if (!orderly) stop(link);
    if (link->comm) link->lib->ncclCommDestroy(link->comm);
    if (link->stream) link->cu->driver->cuStreamDestroy(link->stream);
    free(link);
}

/* ---- operations ---- */

static gm_status new_events(gm_cuda *cu, gm_ticket *t)
{
    GM_CU(cu->driver, cuEventCreate(&t->entered, CU_EVENT_DISABLE_TIMING));
    GM_CU(cu->driver, cuEventCreate(&t->left, CU_EVENT_DISABLE_TIMING));
    return GM_OK;
}

static void free_ticket(gm_cuda *cu, gm_ticket *t)
{
    if (t->entered) cu->driver->cuEventDestroy(t->entered);
    if (t->left) cu->driver->cuEventDestroy(t->left);
    free(t);
}

static gm_status take_ticket(gm_cuda *cu, gm_ticket **out)
{
    if (cu->n_spare_tickets) {
        *out = cu->spare_tickets[--cu->n_spare_tickets];
        (*out)->has_left = false;
        return GM_OK;
    }
    gm_ticket *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for an operation between GPUs");
    gm_status st = new_events(cu, t);
    if (st == GM_OK) *out = t;
    else free_ticket(cu, t);
    return st;
}

static void give(gm_device *dev, gm_ticket *t)
{
    gm_cuda *cu;
    if (!t || gm_cuda_enter(dev, &cu) != GM_OK) return;
    if (cu->n_spare_tickets < GM_CUDA_TICKETS) cu->spare_tickets[cu->n_spare_tickets++] = t;
    else free_ticket(cu, t);
}

void gm_cuda_free_tickets(gm_cuda *cu)
{
    while (cu->n_spare_tickets) free_ticket(cu, cu->spare_tickets[--cu->n_spare_tickets]);
}

static gm_status enter(gm_device *dev, gm_ticket **out)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_outside_graph(dev, "an operation between GPUs"));
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(take_ticket(cu, out));
    GM_CU(cu->driver, cuEventRecord((*out)->entered, cu->stream));
    return GM_OK;
}

static ncclDataType_t type_of(gm_dtype t)
{
    switch (t) {
    case GM_F32: return ncclFloat32;
    case GM_F64: return ncclFloat64;
    case GM_BF16: return ncclBfloat16;
    case GM_F16: return ncclFloat16;
    case GM_I32: return ncclInt32;
    case GM_I64: return ncclInt64;
    default: return ncclUint8;
    }
}

static ncclRedOp_t operation_of(gm_link_sum sum)
{
    static const ncclRedOp_t operations[] = {
        [GM_LINK_SUM] = ncclSum, [GM_LINK_MEAN] = ncclAvg, [GM_LINK_MAX] = ncclMax, [GM_LINK_MIN] = ncclMin};
    return operations[sum];
}

static gm_status issue_one(gm_link *link, const gm_link_move *m)
{
    ncclDataType_t type = type_of(m->dtype);
    ncclRedOp_t    op = operation_of(m->sum);
    ncclComm_t     comm = link->comm;
    CUstream       stream = link->stream;
    switch (m->kind) {
    case GM_LINK_ALL_REDUCE: NCCL(link, ncclAllReduce(m->from, m->to, m->count, type, op, comm, stream)); break;
    case GM_LINK_REDUCE: NCCL(link, ncclReduce(m->from, m->to, m->count, type, op, m->peer, comm, stream)); break;
    case GM_LINK_BROADCAST: NCCL(link, ncclBroadcast(m->from, m->to, m->count, type, m->peer, comm, stream)); break;
    case GM_LINK_ALL_GATHER: NCCL(link, ncclAllGather(m->from, m->to, m->count, type, comm, stream)); break;
    case GM_LINK_REDUCE_SCATTER: NCCL(link, ncclReduceScatter(m->from, m->to, m->count, type, op, comm, stream)); break;
    case GM_LINK_SEND: NCCL(link, ncclSend(m->from, m->count, type, m->peer, comm, stream)); break;
    case GM_LINK_RECEIVE: NCCL(link, ncclRecv(m->to, m->count, type, m->peer, comm, stream)); break;
    }
    return GM_OK;
}

/* The group is ended, whatever was refused in it. */
static gm_status issue_all(gm_link *link, const gm_link_move *moves, int n)
{
    gm_status st = GM_OK;
    char      error[1100] = "";
    NCCL(link, ncclGroupStart());
    for (int i = 0; i < n && st == GM_OK; i++) st = issue_one(link, &moves[i]);
    if (st != GM_OK) snprintf(error, sizeof error, "%s", gm_last_error());
    ncclResult_t r = link->lib->ncclGroupEnd();
    if (st != GM_OK) return gm_fail_again(st, error);
    if (r == ncclSuccess || r == ncclInProgress) return GM_OK;
    return gm_nccl_failed(link->lib, link->comm, r, __FILE__, __LINE__, "ncclGroupEnd");
}

static gm_status issue(gm_link *link, gm_ticket *t, const gm_link_move *moves, int n)
{
    if (!link->comm || link->stopped) return GM_FAIL(GM_ECOMM, "this link between GPUs was stopped");
    GM_CU(link->cu->driver, cuStreamWaitEvent(link->stream, t->entered, CU_EVENT_WAIT_DEFAULT));
    return issue_all(link, moves, n);
}

static gm_status leave(gm_link *link, gm_ticket *t)
{
    GM_CU(link->cu->driver, cuEventRecord(t->left, link->stream));
    t->has_left = true;
    return GM_OK;
}

static gm_status order(gm_device *dev, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_CU(cu->driver, cuStreamWaitEvent(cu->stream, t->left, CU_EVENT_WAIT_DEFAULT));
    return GM_OK;
}

static gm_status is_over(gm_cuda *cu, CUevent event, bool *over)
{
    CUresult r = cu->driver->cuEventQuery(event);
    *over = r == CUDA_SUCCESS;
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY) return GM_OK;
    return gm_cuda_failed(r, __FILE__, __LINE__, "an operation between GPUs");
}

static gm_status passed(gm_device *dev, gm_ticket *t, bool *begun, bool *done)
{
    gm_cuda *cu;
    *begun = *done = false;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (t->has_left) GM_TRY(is_over(cu, t->left, done));
    *begun = *done;
    return *done ? GM_OK : is_over(cu, t->entered, begun);
}

static gm_status launch_on(gm_device *dev, gm_link *link, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    cu->launches = link ? link->stream : cu->stream;
    if (link && t) GM_CU(cu->driver, cuStreamWaitEvent(link->stream, t->entered, CU_EVENT_WAIT_DEFAULT));
    return GM_OK;
}

const gm_links gm_cuda_links = {find,  new_id, open_link, is_ready,  enter, issue,     leave,
                                order, passed, give,      launch_on, stop,  close_link};
