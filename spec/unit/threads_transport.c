/* threads_transport.c - see threads_transport.h. One lock for the whole world: simple rather than fast. */
#include "threads_transport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"
#include "../../host/life.h"

typedef struct request {
    struct request *next; /* of all requests of its rank */
    int             owner, from, to, tag;
    char           *bytes; /* the caller's; of eager messages a copy, owned */
    size_t          n, got;
    bool            send, queued, done, copy, gone; /* gone: the owner has tested it, the message is still queued */
    struct request *after;                          /* in the queue of messages or receives of one rank */
} request;

typedef struct note {
    struct note *next;
    int          from;
    size_t       n;
    char         bytes[GM_NOTICE_MAX];
} note;

typedef struct box {
    request *arrived, *posted; /* queues: messages nobody waits for, receives without a message */
    request *requests;
    note    *notes;
} box;

typedef struct threads_world {
    pthread_mutex_t lock;
    int             n;
    box            *box;
} threads_world;

static void append(request **queue, request *q)
{
    while (*queue) queue = &(*queue)->after;
    *queue = q;
    q->after = NULL;
    q->queued = true;
}

static request *take(request **queue, int from, int tag, const request *this)
{
    for (; *queue; queue = &(*queue)->after) {
        request *q = *queue;
        if (this ? q != this : (from >= 0 && (q->from != from || q->tag != tag))) continue;
        *queue = q->after;
        q->queued = false;
        return q;
    }
    return NULL;
}

static void release(box *b, request *q)
{
    request **at = &b->requests;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    if (q->copy) free(q->bytes);
    free(q);
}

static request *new_request(threads_world *w, int owner, bool send, int from, int to, int tag, void *bytes, size_t n)
{
    request *q = calloc(1, sizeof *q);
    assert_non_null(q);
    *q = (request){.next = w->box[owner].requests,
                   .owner = owner,
                   .from = from,
                   .to = to,
                   .tag = tag,
                   .bytes = bytes,
                   .n = n,
                   .send = send};
    w->box[owner].requests = q;
    return q;
}

/* The message is used up: its sender's request is done; an eager one, tested long ago, goes. */
static void used(threads_world *w, request *message)
{
    message->done = true;
    if (message->gone) release(&w->box[message->owner], message);
}

static void deliver(threads_world *w, request *message, request *receive)
{
    size_t n = message->n < receive->n ? message->n : receive->n;
    if (n) memcpy(receive->bytes, message->bytes, n);
    receive->got = message->n;
    receive->done = true;
    used(w, message);
}

static int threads_send(gm_transport *t, int to, int tag, const void *bytes, size_t n, void **out)
{
    threads_world *w = t->context;
    pthread_mutex_lock(&w->lock);
    request *q = new_request(w, t->rank, true, t->rank, to, tag, (char *)bytes, n);
    request *receive = take(&w->box[to].posted, t->rank, tag, NULL);
    if (receive) {
        deliver(w, q, receive);
    } else {
        if (n <= RENDEZVOUS) {
            q->bytes = malloc(n + 1);
            assert_non_null(q->bytes);
            if (n) memcpy(q->bytes, bytes, n);
            q->copy = q->done = true;
        }
        append(&w->box[to].arrived, q);
    }
    pthread_mutex_unlock(&w->lock);
    *out = q;
    return 0;
}

static int threads_receive(gm_transport *t, int from, int tag, void *bytes, size_t n, void **out)
{
    threads_world *w = t->context;
    pthread_mutex_lock(&w->lock);
    request *q = new_request(w, t->rank, false, from, t->rank, tag, bytes, n);
    request *message = take(&w->box[t->rank].arrived, from, tag, NULL);
    if (message) deliver(w, message, q);
    else append(&w->box[t->rank].posted, q);
    pthread_mutex_unlock(&w->lock);
    *out = q;
    return 0;
}

static int threads_test(gm_transport *t, void *which, size_t *n)
{
    threads_world *w = t->context;
    request       *q = which;
    pthread_mutex_lock(&w->lock);
    bool done = q->done;
    if (done) {
        *n = q->got;
        q->gone = true;
        if (!q->queued) release(&w->box[t->rank], q);
    }
    pthread_mutex_unlock(&w->lock);
    return done;
}

static int threads_cancel(gm_transport *t, void *which)
{
    threads_world *w = t->context;
    request       *q = which;
    pthread_mutex_lock(&w->lock);
    if (!q->done && take(&w->box[t->rank].posted, 0, 0, q)) {
        q->done = true;
        q->got = GM_CANCELLED;
    }
    pthread_mutex_unlock(&w->lock);
    return 0;
}

static int threads_drain(gm_transport *t, int *from)
{
    threads_world *w = t->context;
    pthread_mutex_lock(&w->lock);
    request *q = take(&w->box[t->rank].arrived, -1, 0, NULL);
    if (q) {
        *from = q->from;
        used(w, q);
    }
    pthread_mutex_unlock(&w->lock);
    return q != NULL;
}

static int threads_tell(gm_transport *t, int to, const void *bytes, size_t n)
{
    threads_world *w = t->context;
    note          *m = calloc(1, sizeof *m);
    assert_non_null(m);
    assert_true(n <= GM_NOTICE_MAX);
    m->from = t->rank;
    m->n = n;
    memcpy(m->bytes, bytes, n);
    pthread_mutex_lock(&w->lock);
    note **at = &w->box[to].notes;
    while (*at) at = &(*at)->next;
    *at = m;
    pthread_mutex_unlock(&w->lock);
    return 0;
}

static int threads_hear(gm_transport *t, void *bytes, size_t *n, int *from)
{
    threads_world *w = t->context;
    pthread_mutex_lock(&w->lock);
    note *m = w->box[t->rank].notes;
    if (m) w->box[t->rank].notes = m->next;
    pthread_mutex_unlock(&w->lock);
    if (!m) return 0;
    memcpy(bytes, m->bytes, m->n);
    *n = m->n;
    *from = m->from;
    free(m);
    return 1;
}

/* What this rank has under way leaves the queues of the others: its buffers are gone. */
static void threads_close(gm_transport *t, bool orderly)
{
    threads_world *w = t->context;
    (void)orderly;
    pthread_mutex_lock(&w->lock);
    for (request *q = w->box[t->rank].requests, *next; q; q = next) {
        next = q->next;
        if (q->queued && q->copy) continue; /* on its way, whether or not the sender lives */
        if (q->queued) take(q->send ? &w->box[q->to].arrived : &w->box[t->rank].posted, 0, 0, q);
        release(&w->box[t->rank], q);
    }
    for (request *q = w->box[t->rank].requests; q; q = q->next) q->gone = true;
    pthread_mutex_unlock(&w->lock);
    free(t);
}

/* ---- ranks ---- */

typedef struct seat {
    threads_world *world;
    const gm_mesh *mesh;
    int            rank;
    void (*body)(gm_rank *r, void *context);
    void *context;
} seat;

static gm_transport *threads_transport(threads_world *w, int rank)
{
    gm_transport *t = calloc(1, sizeof *t);
    assert_non_null(t);
    *t = (gm_transport){.size = sizeof *t,
                        .version = GM_TRANSPORT_VERSION,
                        .name = "threads",
                        .rank = rank,
                        .world = w->n,
                        .has_data = true,
                        .context = w,
                        .send = threads_send,
                        .receive = threads_receive,
                        .test = threads_test,
                        .cancel = threads_cancel,
                        .drain = threads_drain,
                        .tell = threads_tell,
                        .hear = threads_hear,
                        .close = threads_close};
    return t;
}

static void *sit(void *which)
{
    seat    *s = which;
    gm_rank *r = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_connect_over(r, threads_transport(s->world, s->rank)));
    OK(gm_rank_set_mesh(r, s->mesh));
    OK(gm_rank_open_device(r, "cpu", 1));
    s->body(r, s->context);
    if (!gm_comm_failure(r->comm)) (void)gm_comm_leave(r->comm); /* fails where a test has made a rank fail */
    gm_rank_free(r);
    return NULL;
}

void run_ranks(const gm_mesh *mesh, void (*body)(gm_rank *r, void *context), void *context)
{
    threads_world w = {.n = gm_mesh_size(mesh)};
    pthread_t    *thread = calloc((size_t)w.n, sizeof *thread);
    seat         *seats = calloc((size_t)w.n, sizeof *seats);
    w.box = calloc((size_t)w.n, sizeof *w.box);
    assert_true(thread && seats && w.box);
    pthread_mutex_init(&w.lock, NULL);
    for (int i = 0; i < w.n; i++) {
        seats[i] = (seat){&w, mesh, i, body, context};
        assert_int_equal(pthread_create(&thread[i], NULL, sit, &seats[i]), 0);
    }
    for (int i = 0; i < w.n; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < w.n; i++) {
        while (w.box[i].requests) release(&w.box[i], w.box[i].requests);
        for (note *m = w.box[i].notes, *next; m; m = next) {
            next = m->next;
            free(m);
        }
    }
    pthread_mutex_destroy(&w.lock);
    free(w.box);
    free(seats);
    free(thread);
}

void run_world(int world, void (*body)(gm_rank *r, void *context), void *context)
{
    gm_mesh mesh = gm_mesh_of_one();
    OK(gm_mesh_add_axis(&mesh, "data", world));
    run_ranks(&mesh, body, context);
}

gm_mesh mesh_of(const char *a, int na, const char *b, int nb, const char *c, int nc)
{
    gm_mesh mesh = gm_mesh_of_one();
    if (na > 1) OK(gm_mesh_add_axis(&mesh, a, na));
    if (nb > 1) OK(gm_mesh_add_axis(&mesh, b, nb));
    if (nc > 1) OK(gm_mesh_add_axis(&mesh, c, nc));
    return mesh;
}
