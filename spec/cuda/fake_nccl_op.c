/* fake_nccl_op.c - an operation of the emulation's NCCL as a task of its stream (fake_nccl.h): messages through
 * mailboxes in shared memory, tried until all have gone through, and then the result. */
#include "fake_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_driver.h"
#include "fake_sums.h"

size_t gm_fake_shared_bytes(void) { return sizeof(shared) + PLACES * PLACES * BOX; }

static char *data_of(shared *s, int from, int to)
{
    return (char *)(s + 1) + ((size_t)from * PLACES + (size_t)to) * BOX;
}

void gm_fake_drop_comm(ncclComm_t comm)
{
    if (--comm->refs) return;
    munmap(comm->shared, gm_fake_shared_bytes());
    free(comm);
}

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

/* Does message i wait for one before it, of the same direction and peer? NCCL pairs those of two places in the order of
 * their calls. */
static bool comes_later(const op *o, int i)
{
    const message *m = &o->messages[i];
    for (int k = 0; k < i; k++) {
        const message *other = &o->messages[k];
        if (!other->through && other->send == m->send && other->peer == m->peer) return true;
    }
    return false;
}

/* Receives are tried from the last to the first, so that nothing but comes_later brings them into order. */
static bool try_messages(op *o)
{
    bool through = true;
    for (int i = 0; i < o->n_messages; i++)
        if (o->messages[i].send && !o->messages[i].through && !comes_later(o, i)) try_send(o, &o->messages[i]);
    for (int i = o->n_messages - 1; i >= 0; i--)
        if (!o->messages[i].send && !o->messages[i].through && !comes_later(o, i)) try_receive(o, &o->messages[i]);
    for (int i = 0; i < o->n_messages; i++) through &= o->messages[i].through;
    return through;
}

static int attempt(void *context, char *error, size_t size)
{
    op        *o = context;
    ncclComm_t comm = o->comm;
    (void)error, (void)size;
    if (comm->aborted) return 0;
    if (o->fails) return GM_FAKE_NOT_READY;
    bool through = try_messages(o);
    for (int i = 0; through && i < comm->n; i++) {
        box *b = &comm->shared->boxes[comm->place][i];
        if (o->waits_for[i] && (int)(atomic_load(&b->taken) - o->waits_for[i]) < 0) through = false;
    }
    if (!through) return GM_FAKE_NOT_READY;
    finish(o);
    return 0;
}

void gm_fake_drop_op(void *context)
{
    op *o = context;
    for (int i = 0; i < o->n_messages; i++) free(o->messages[i].room);
    if (o->in_graph) o->comm->in_graphs--;
    gm_fake_drop_comm(o->comm);
    free(o);
}

/* One launch of a graph: the same operation, of which nothing has been done. */
static void *fresh(const void *context)
{
    const op *captured = context;
    op       *o = malloc(sizeof *o);
    if (!o) abort();
    *o = *captured;
    o->comm->refs++;
    o->comm->in_graphs++;
    o->fails = gm_fake_operation_fails(o->comm);
    memset(o->waits_for, 0, sizeof o->waits_for);
    for (int i = 0; i < o->n_messages; i++) {
        message *m = &o->messages[i];
        m->through = false;
        if (m->room && !(m->room = malloc(m->n + 1))) abort();
    }
    return o;
}

int gm_fake_queue_op(op *o, const char *line)
{
    o->in_graph = gm_fake_is_captured(o->stream);
    if (o->in_graph) {
        o->comm->in_graphs++;
        o->fails = false; /* it does not run */
    }
    return gm_fake_queue(o->stream, line,
                         (gm_fake_call){.attempt = attempt,
                                        .fresh = fresh,
                                        .drop = gm_fake_drop_op,
                                        .ordered = o->heading.kind != MESSAGE,
                                        .context = o});
}
