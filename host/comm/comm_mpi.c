/* comm_mpi.c - the transport over MPI: the only file that includes mpi.h, built as a module of its own.
 *
 * It exports gm_mpi_open and needs no function of the host. Data messages go through one duplicate of
 * MPI_COMM_WORLD ("ganymede data"), notices through another, so that neither can meet the other's, nor
 * those of a library. Nothing blocks but joining and an orderly close; one thread calls (MPI_THREAD_FUNNELED).
 * The trap: MPI cannot take back a send, so a rank that fails leaves without MPI_Finalize, which would wait. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <mpi.h>

#include "transport.h"

typedef struct mpi_request {
    MPI_Request         mpi;
    struct mpi_request *next; /* free ones */
    size_t              n;    /* bytes asked for */
} mpi_request;

typedef struct mpi_note { /* a notice on its way out */
    MPI_Request      mpi;
    struct mpi_note *next;
    char             bytes[];
} mpi_note;

typedef struct mpi_context {
    MPI_Comm     data, notices;
    mpi_request *spare;
    mpi_note    *notes;
    MPI_Request  hearing; /* a receive that is always posted */
    char         heard[GM_NOTICE_MAX];
    MPI_Request  draining; /* of a message that nobody waits for */
    int          draining_from;
    char        *drained;
} mpi_context;

static int failed(gm_transport *t, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int  n = 0;
    MPI_Error_string(code, text, &n);
    snprintf(t->error, sizeof t->error, "%s: %s", what, text);
    return -1;
}

static int no_memory(gm_transport *t)
{
    snprintf(t->error, sizeof t->error, "no memory for a message");
    return -1;
}

/* ---- data ---- */

static mpi_request *take_request(mpi_context *m, size_t n)
{
    mpi_request *q = m->spare;
    if (q) m->spare = q->next;
    else q = malloc(sizeof *q);
    if (q) *q = (mpi_request){MPI_REQUEST_NULL, NULL, n};
    return q;
}

static void give_request(mpi_context *m, mpi_request *q)
{
    q->next = m->spare;
    m->spare = q;
}

static int mpi_send(gm_transport *t, int to, int tag, const void *bytes, size_t n, void **request)
{
    mpi_context *m = t->context;
    mpi_request *q = take_request(m, n);
    if (!q) return no_memory(t);
    int code = MPI_Isend(bytes, (int)n, MPI_BYTE, to, tag, m->data, &q->mpi);
    if (code != MPI_SUCCESS) {
        give_request(m, q);
        return failed(t, "MPI_Isend", code);
    }
    *request = q;
    return 0;
}

static int mpi_receive(gm_transport *t, int from, int tag, void *bytes, size_t n, void **request)
{
    mpi_context *m = t->context;
    mpi_request *q = take_request(m, n);
    if (!q) return no_memory(t);
    int code = MPI_Irecv(bytes, (int)n, MPI_BYTE, from, tag, m->data, &q->mpi);
    if (code != MPI_SUCCESS) {
        give_request(m, q);
        return failed(t, "MPI_Irecv", code);
    }
    *request = q;
    return 0;
}

static int mpi_test(gm_transport *t, void *request, size_t *n)
{
    mpi_request *q = request;
    MPI_Status   status;
    int          done = 0, cancelled = 0, count = 0;
    int          code = MPI_Test(&q->mpi, &done, &status), class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    if (code != MPI_SUCCESS && class != MPI_ERR_TRUNCATE) {
        give_request(t->context, q);
        return failed(t, "MPI_Test", code);
    }
    if (code == MPI_SUCCESS && !done) return 0;
    if (code == MPI_SUCCESS) {
        MPI_Test_cancelled(&status, &cancelled);
        MPI_Get_count(&status, MPI_BYTE, &count);
    }
    *n = class == MPI_ERR_TRUNCATE ? q->n + 1 : cancelled ? GM_CANCELLED : (size_t)count;
    give_request(t->context, q);
    return 1;
}

static int mpi_cancel(gm_transport *t, void *request)
{
    int code = MPI_Cancel(&((mpi_request *)request)->mpi);
    return code == MPI_SUCCESS ? 0 : failed(t, "MPI_Cancel", code);
}

/* Begins to take in a message that nobody waits for, if one is there. */
static int begin_drain(gm_transport *t)
{
    mpi_context *m = t->context;
    MPI_Message  message;
    MPI_Status   status;
    int          there = 0, n = 0;
    int          code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, m->data, &there, &message, &status);
    if (code != MPI_SUCCESS) return failed(t, "MPI_Improbe", code);
    if (!there) return 0;
    MPI_Get_count(&status, MPI_BYTE, &n);
    m->drained = malloc((size_t)n + 1);
    if (!m->drained) return no_memory(t);
    m->draining_from = status.MPI_SOURCE;
    code = MPI_Imrecv(m->drained, n, MPI_BYTE, &message, &m->draining);
    return code == MPI_SUCCESS ? 1 : failed(t, "MPI_Imrecv", code);
}

static int mpi_drain(gm_transport *t, int *from)
{
    mpi_context *m = t->context;
    int          done = 0, began = 1;
    if (m->draining == MPI_REQUEST_NULL) began = begin_drain(t);
    if (began <= 0) return began;
    int code = MPI_Test(&m->draining, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return failed(t, "MPI_Test", code);
    if (!done) return 0;
    free(m->drained);
    m->drained = NULL;
    *from = m->draining_from;
    return 1;
}

/* ---- notices ---- */

static void reap_notes(mpi_context *m)
{
    for (mpi_note **at = &m->notes; *at;) {
        mpi_note *note = *at;
        int       done = 0;
        if (MPI_Test(&note->mpi, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        free(note);
    }
}

static int mpi_tell(gm_transport *t, int to, const void *bytes, size_t n)
{
    mpi_context *m = t->context;
    mpi_note    *note = malloc(sizeof *note + n);
    if (!note) return no_memory(t);
    memcpy(note->bytes, bytes, n);
    int code = MPI_Isend(note->bytes, (int)n, MPI_BYTE, to, 0, m->notices, &note->mpi);
    if (code != MPI_SUCCESS) {
        free(note);
        return failed(t, "MPI_Isend of a notice", code);
    }
    note->next = m->notes;
    m->notes = note;
    return 0;
}

static int listen(gm_transport *t)
{
    mpi_context *m = t->context;
    int          code = MPI_Irecv(m->heard, GM_NOTICE_MAX, MPI_BYTE, MPI_ANY_SOURCE, 0, m->notices, &m->hearing);
    return code == MPI_SUCCESS ? 0 : failed(t, "MPI_Irecv of notices", code);
}

static int mpi_hear(gm_transport *t, void *bytes, size_t *n, int *from)
{
    mpi_context *m = t->context;
    MPI_Status   status;
    int          done = 0, count = 0;
    if (m->notes) reap_notes(m);
    int code = MPI_Test(&m->hearing, &done, &status);
    if (code != MPI_SUCCESS) return failed(t, "MPI_Test of notices", code);
    if (!done) return 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    memcpy(bytes, m->heard, (size_t)count);
    *n = (size_t)count;
    *from = status.MPI_SOURCE;
    return listen(t) ? -1 : 1;
}

/* ---- life ---- */

static void free_context(mpi_context *m)
{
    for (mpi_request *q = m->spare, *next; q; q = next) {
        next = q->next;
        free(q);
    }
    free(m->drained);
    free(m);
}

/* Leaving in disorder, buffers that MPI may still know stay where they are until the process ends. */
static void mpi_close(gm_transport *t, bool orderly)
{
    mpi_context *m = t->context;
    if (orderly) {
        while (m->notes) reap_notes(m);
        MPI_Cancel(&m->hearing);
        MPI_Wait(&m->hearing, MPI_STATUS_IGNORE);
        MPI_Comm_free(&m->data);
        MPI_Comm_free(&m->notices);
        MPI_Finalize();
        free_context(m);
    }
    free(t);
}

/* Both duplicates at once. Ranks that share cores wait asleep: MPI's own wait would keep a core from those that it is
 * waiting for. */
static int new_comms(gm_transport *t)
{
    mpi_context *m = t->context;
    MPI_Request  both[2];
    int          done = 0, code = MPI_Comm_idup(MPI_COMM_WORLD, &m->data, &both[0]);
    if (code == MPI_SUCCESS) code = MPI_Comm_idup(MPI_COMM_WORLD, &m->notices, &both[1]);
    while (code == MPI_SUCCESS && !done) {
        code = MPI_Testall(2, both, &done, MPI_STATUSES_IGNORE);
        if (!done) nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    if (code != MPI_SUCCESS) return failed(t, "MPI_Comm_idup", code);
    MPI_Comm_set_name(m->data, "ganymede data");
    MPI_Comm_set_name(m->notices, "ganymede notices");
    MPI_Comm_set_errhandler(m->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(m->notices, MPI_ERRORS_RETURN);
    return 0;
}

static int start_mpi(gm_transport *t)
{
    int  level = 0, n = 0, found = 0, *largest_tag = NULL;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int  code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS) return failed(t, "MPI_Init_thread", code);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t->world);
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = 0; /* "Open MPI v4.1.4" */
    snprintf(t->name, sizeof t->name, "%.60s", version);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &found);
    if (level >= MPI_THREAD_FUNNELED && found && *largest_tag == INT_MAX) return 0;
    snprintf(t->error, sizeof t->error,
             "%.60s cannot carry Ganymede: it needs MPI_THREAD_FUNNELED and tags of %d bits; use Open MPI", version,
             GM_TAG_BITS);
    return -1;
}

__attribute__((visibility("default"))) int gm_mpi_open(gm_transport *t);

int gm_mpi_open(gm_transport *t)
{
    if (t->size != sizeof *t || t->version != GM_TRANSPORT_VERSION) {
        if (t->size > offsetof(gm_transport, error) + sizeof t->error)
            snprintf(t->error, sizeof t->error, GM_MPI_MODULE " is of another build; build again");
        return -1;
    }
    mpi_context *m = calloc(1, sizeof *m);
    if (!m) return no_memory(t);
    m->draining = m->hearing = MPI_REQUEST_NULL;
    t->context = m;
    t->has_data = true;
    t->send = mpi_send;
    t->receive = mpi_receive;
    t->test = mpi_test;
    t->cancel = mpi_cancel;
    t->drain = mpi_drain;
    t->tell = mpi_tell;
    t->hear = mpi_hear;
    t->close = mpi_close;
    return start_mpi(t) || new_comms(t) || listen(t) ? -1 : 0;
}
