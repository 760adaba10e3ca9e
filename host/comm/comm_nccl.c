/* comm_nccl.c - links between GPUs (links.h): the only file that includes nccl.h. gm_links_find loads the library; a
 * build without nccl.h (GM_WITHOUT_NCCL) has no links.
 *
 * Communicators are non-blocking, so that an absent place cannot hang the others. A call may leave the library at work
 * (ncclInProgress). The next call, or an event behind the launched work, must wait until ncclCommGetAsyncError reports
 * that the library has finished. Memory of operations in graphs is not registered with NCCL (NCCL_GRAPH_REGISTER):
 * ranks would wait for each other while they record, and the pool may free the memory before NCCL lets go of it.
 *
 * The trap: aborting a communicator frees it, so link->comm is NULL from then on; tickets outlive it, and pass. */
#include "links.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef GM_WITHOUT_NCCL
#include <nccl.h>

#define OLDEST      22800 /* 2.28: the oldest that was tried; ncclConfig_t is its */
#define END_SECONDS 2.0   /* that a communicator gets to end in order, before it is aborted */

/* clang-format off */
#define FUNCTIONS(X)                                                                                      \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclGetErrorString) X(ncclGetLastError) X(ncclCommInitRankConfig) \
    X(ncclCommGetAsyncError) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclGroupStart)    \
    X(ncclGroupEnd) X(ncclAllReduce) X(ncclReduce) X(ncclBroadcast) X(ncclAllGather) X(ncclReduceScatter) \
    X(ncclSend) X(ncclRecv)
/* clang-format on */

typedef struct nccl {
    int version; /* 22809 is 2.28.9 */
#define FUNCTION(name) __typeof__(name) *name;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    char path[256];
} nccl;

struct gm_link {
    const nccl *lib;
    ncclComm_t  comm; /* NULL: aborted */
    gm_device  *dev;
    gm_queue   *queue;
};

_Static_assert(sizeof(gm_link_id) == sizeof(ncclUniqueId), "an id is NCCL's");

/* GM_ECOMM with what was done, NCCL's name for the error and its last words. comm may be NULL. */
static gm_status failed(const nccl *lib, ncclComm_t comm, ncclResult_t r, int line, const char *what)
{
    const char *words = lib->ncclGetLastError(comm);
    return gm_fail(GM_ECOMM, __FILE__, line, "NCCL failed: %s%s%s in %s", lib->ncclGetErrorString(r),
                   words && *words ? ": " : "", words ? words : "", what);
}

#define NCCL(link, call)                                                                                              \
    do {                                                                                                              \
        ncclResult_t r_ = (link)->lib->call;                                                                          \
        if (r_ != ncclSuccess && r_ != ncclInProgress) return failed((link)->lib, (link)->comm, r_, __LINE__, #call); \
    } while (0)

/* ---- the library ---- */

static gm_status find_functions(void *library, nccl *out)
{
    void *symbol;
#define FUNCTION(name)                                                                                             \
    if (!(symbol = dlsym(library, #name)))                                                                         \
        return GM_FAIL(GM_EINVAL, "%s has no function " #name "; NCCL 2.28 is the oldest that serves", out->path); \
    memcpy(&out->name, &symbol, sizeof symbol);
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    return GM_OK;
}

static gm_status load(nccl *out)
{
    const char *named = getenv("GANYMEDE_CUDA_NCCL");
    snprintf(out->path, sizeof out->path, "%s", named && *named ? named : "libnccl.so.2");
    if (!strcmp(out->path, "none")) return GM_FAIL(GM_EINVAL, "NCCL was not to be used (GANYMEDE_CUDA_NCCL=none)");
    setenv("NCCL_GRAPH_REGISTER", "0", 0); /* whoever sets it otherwise has a reason */
    void *library = dlopen(out->path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return GM_FAIL(GM_EINVAL, "there is no NCCL here (%s); install libnccl2, or put it on LD_LIBRARY_PATH",
                       dlerror());
    GM_TRY(find_functions(library, out));
    ncclResult_t r = out->ncclGetVersion(&out->version);
    if (r != ncclSuccess) return failed(out, NULL, r, __LINE__, "ncclGetVersion");
    if (out->version < OLDEST)
        return GM_FAIL(GM_EINVAL, "%s is NCCL %d.%d.%d; 2.28 is the oldest that serves", out->path,
                       out->version / 10000, out->version / 100 % 100, out->version % 100);
    return GM_OK;
}

/* Loaded the first time, for the process; one thread communicates. */
static gm_status find(const nccl **out)
{
    static nccl library;
    static bool loaded;
    if (!loaded) GM_TRY(load(&library));
    loaded = true;
    *out = &library;
    return GM_OK;
}

gm_status gm_links_find(gm_link_facts *out)
{
    const nccl *lib;
    GM_TRY(find(&lib));
    snprintf(out->library, sizeof out->library, "NCCL %d.%d.%d", lib->version / 10000, lib->version / 100 % 100,
             lib->version % 100);
    snprintf(out->path, sizeof out->path, "%s", lib->path);
    return GM_OK;
}

gm_status gm_links_new_id(gm_link_id *out)
{
    const nccl  *lib;
    ncclUniqueId id;
    GM_TRY(find(&lib));
    ncclResult_t r = lib->ncclGetUniqueId(&id);
    if (r != ncclSuccess) return failed(lib, NULL, r, __LINE__, "ncclGetUniqueId");
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
    GM_TRY(find(&link->lib));
    GM_TRY(link->dev->backend->queues->open(link->dev, &link->queue));
    NCCL(link, ncclCommInitRankConfig(&link->comm, n, unique, place, &config));
    return GM_OK;
}

gm_status gm_links_open(gm_device *dev, const gm_link_id *id, int n, int place, gm_link **out)
{
    gm_link *link = calloc(1, sizeof *link);
    if (!link) return GM_FAIL(GM_ENOMEM, "no memory for a link between GPUs");
    link->dev = dev;
    gm_status st = make(link, id, n, place);
    if (st != GM_OK) {
        char error[1100];
        snprintf(error, sizeof error, "%s", gm_last_error());
        gm_links_close(link, false);
        return gm_fail_again(st, error);
    }
    *out = link;
    return GM_OK;
}

gm_queue *gm_links_queue(gm_link *link) { return link->queue; }

static gm_status check_open(const gm_link *link)
{
    if (link->comm) return GM_OK;
    return GM_FAIL(GM_ECOMM, "this link between GPUs was stopped");
}

gm_status gm_links_ready(gm_link *link, bool *ready)
{
    ncclResult_t state = ncclSuccess;
    *ready = false;
    GM_TRY(check_open(link));
    NCCL(link, ncclCommGetAsyncError(link->comm, &state));
    if (state != ncclSuccess && state != ncclInProgress)
        return failed(link->lib, link->comm, state, __LINE__, "an operation under way");
    *ready = state == ncclSuccess;
    return GM_OK;
}

/* Waits for the library to get through, for a short time; it has not hung, or the communicator is aborted. */
static bool gets_through(gm_link *link)
{
    for (int i = 0; i < (int)(END_SECONDS / 1e-4); i++) {
        ncclResult_t state = ncclSuccess;
        if (link->lib->ncclCommGetAsyncError(link->comm, &state) != ncclSuccess) return false;
        if (state != ncclInProgress) return state == ncclSuccess;
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    return false;
}

/* All in one group of calls (NCCL 2.22 and newer). Each call sets the flag that ends kernels, and the end of the group
 * waits for the streams of all. One by one, a link whose kernels are behind those of the next would wait for ever. For
 * the same reason nothing is revoked (ncclCommRevoke): a revocation that waits for its streams cannot be given up,
 * since an abort joins its thread first (ncclCommEnsureReady). */
void gm_links_stop(gm_link *const *links, int n)
{
    const nccl *lib = NULL;
    for (int i = 0; i < n; i++) {
        gm_link *link = links[i];
        if (!link->comm) continue;
        if (!lib) (void)(lib = link->lib)->ncclGroupStart();
        (void)lib->ncclCommAbort(link->comm);
        link->comm = NULL;
    }
    if (lib) (void)lib->ncclGroupEnd();
}

void gm_links_close(gm_link *link, bool orderly)
{
    if (!link) return;
    if (orderly && link->comm) {
        ncclResult_t r = link->lib->ncclCommFinalize(link->comm);
        orderly = (r == ncclSuccess || r == ncclInProgress) && gets_through(link);
    }
    if (!orderly) gm_links_stop(&link, 1);
    if (link->comm) link->lib->ncclCommDestroy(link->comm);
    link->dev->backend->queues->close(link->queue);
    free(link);
}

/* ---- operations ---- */

static ncclDataType_t type_of(gm_dtype t)
{
    static const ncclDataType_t f32 = ncclFloat32, f64 = ncclFloat64, bf16 = ncclBfloat16, f16 = ncclFloat16;
    static const ncclDataType_t i32 = ncclInt32, i64 = ncclInt64, u8 = ncclUint8;
#define GM_DTYPE(NAME, name, bytes, kind) \
    if (t == GM_##NAME) return name;
#include "../../kernels/dtypes.def"
#undef GM_DTYPE
    return u8;
}

static ncclRedOp_t operation_of(gm_link_sum sum)
{
    static const ncclRedOp_t operations[] = {
        [GM_LINK_SUM] = ncclSum, [GM_LINK_MEAN] = ncclAvg, [GM_LINK_MAX] = ncclMax, [GM_LINK_MIN] = ncclMin};
    return operations[sum];
}

static gm_status issue_one(gm_link *link, cudaStream_t stream, const gm_link_move *m)
{
    ncclDataType_t type = type_of(m->dtype);
    ncclRedOp_t    op = operation_of(m->sum);
    ncclComm_t     comm = link->comm;
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
static gm_status issue_all(gm_link *link, cudaStream_t stream, const gm_link_move *moves, int n)
{
    gm_status st = GM_OK;
    char      error[1100] = "";
    NCCL(link, ncclGroupStart());
    for (int i = 0; i < n && st == GM_OK; i++) st = issue_one(link, stream, &moves[i]);
    if (st != GM_OK) snprintf(error, sizeof error, "%s", gm_last_error());
    ncclResult_t r = link->lib->ncclGroupEnd();
    if (st != GM_OK) return gm_fail_again(st, error);
    if (r == ncclSuccess || r == ncclInProgress) return GM_OK;
    return failed(link->lib, link->comm, r, __LINE__, "ncclGroupEnd");
}

gm_status gm_links_issue(gm_link *link, gm_ticket *ticket, const gm_link_move *moves, int n)
{
    const gm_queues *queues = link->dev->backend->queues;
    void            *stream;
    GM_TRY(check_open(link));
    GM_TRY(queues->handle(link->queue, &stream));
    GM_TRY(queues->follow(link->queue, ticket));
    return issue_all(link, stream, moves, n);
}

#else /* GM_WITHOUT_NCCL: nothing opens a link, as there is no id for one */

static gm_status missing(void)
{
    return GM_FAIL(GM_EINVAL,
                   "there is no NCCL in this build: it found no nccl.h; install libnccl-dev and build again");
}

gm_status gm_links_find(gm_link_facts *out) { return (void)out, missing(); }
gm_status gm_links_new_id(gm_link_id *out) { return (void)out, missing(); }
gm_status gm_links_open(gm_device *dev, const gm_link_id *id, int n, int place, gm_link **out)
{
    return (void)dev, (void)id, (void)n, (void)place, (void)out, missing();
}
gm_queue *gm_links_queue(gm_link *link) { return (void)link, NULL; }
gm_status gm_links_ready(gm_link *link, bool *ready) { return (void)link, (void)ready, missing(); }
gm_status gm_links_issue(gm_link *link, gm_ticket *ticket, const gm_link_move *moves, int n)
{
    return (void)link, (void)ticket, (void)moves, (void)n, missing();
}
void gm_links_stop(gm_link *const *links, int n) { (void)links, (void)n; }
void gm_links_close(gm_link *link, bool orderly) { (void)link, (void)orderly; }

#endif
