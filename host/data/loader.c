/* loader.c - see loader.h.
 *
 * The ring: slot `tail` is the next to be used, slots tail .. tail + ready - 1 are assembled (or failed),
 * the one given out stays untouched until the next call. The thread lives from the first batch after a
 * seek to the end of the epoch, an error, or the next seek, which stops and joins it: so there is never
 * a half-old state to reason about, for the price of a thread an epoch. */
#define _GNU_SOURCE
#include "loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "readers.h"
#include "sampler.h"

typedef struct slot {
    gm_batch  batch;
    gm_status status;
    char      error[1024];
    int64_t  *samples;
    char     *x, *y;
} slot;

struct gm_loader {
    gm_dataset       *dataset;
    gm_readers       *readers;
    gm_loader_options o;
    gm_sampler        sampler;
    int64_t          *order; /* replaces the sampler; order_n samples */
    int64_t           order_n;
    int64_t           first; /* of the order: batch 0 begins there */
    uint64_t          epoch;
    gm_wanted        *wanted; /* rows of the batch that is assembled */
    int64_t           n_wanted;
    gm_batch          planned; /* no_data */
    int64_t           pieces;  /* asked for of each batch */
    int               n_cuts;
    gm_batch_cut      cuts[GM_BATCH_CUTS_MAX];

    int             n_slots;
    slot            slots[GM_PREFETCH_MAX + 1];
    int64_t         next; /* the batch to be assembled next */
    int             tail, ready;
    bool            given;    /* slot tail - 1 is in the consumer's hands */
    bool            finished; /* the thread assembled its last */
    bool            running, stop;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
};

static int64_t order_samples(const gm_loader *l) { return l->order ? l->order_n : l->dataset->length; }
static int64_t epoch_samples(const gm_loader *l) { return order_samples(l) - l->first; }

static int64_t batches_of(const gm_loader *l, int64_t samples)
{
    int64_t b = l->o.batch_size;
    return l->o.drop_last ? samples / b : (samples + b - 1) / b;
}

int64_t gm_loader_length(const gm_loader *l) { return batches_of(l, epoch_samples(l)); }

const gm_transform_chain *gm_loader_transforms(const gm_loader *l) { return gm_readers_transforms(l->readers); }
const gm_dataset         *gm_loader_dataset(const gm_loader *l) { return l->dataset; }
gm_dtype                  gm_loader_y_dtype(const gm_loader *l) { return gm_readers_y_dtype(l->readers); }
int gm_loader_y_shape(const gm_loader *l, int64_t *shape) { return gm_readers_y_shape(l->readers, shape); }

static int64_t count_of(const gm_loader *l, int64_t batch)
{
    if (batch >= gm_loader_length(l)) return 0;
    int64_t left = epoch_samples(l) - batch * l->o.batch_size;
    return left < l->o.batch_size ? left : l->o.batch_size;
}

/* ---- assembling: the prefetch thread, or the caller where prefetch is 0 ---- */

void gm_batch_block(int n, const gm_batch_cut *cuts, int64_t count, int64_t *first, int64_t *own, int64_t *rows)
{
    int64_t begin = 0, end = count, size = count;
    for (int i = 0; i < n; i++) {
        size = (size + cuts[i].parts - 1) / cuts[i].parts;
        begin += size * cuts[i].part;
        if (begin > end) begin = end;
        if (begin + size < end) end = begin + size;
    }
    *first = begin;
    *own = end - begin;
    *rows = size;
}

int64_t gm_batch_piece(int64_t count, int64_t pieces, int64_t k, int64_t *first)
{
    int64_t least = count / pieces, larger = count % pieces;
    *first = k * least + (k < larger ? k : larger);
    return least + (k < larger);
}

/* How many pieces a batch has: none is empty. */
static int64_t pieces_of(const gm_loader *l, int64_t count) { return l->pieces < count ? l->pieces : count; }

/* Row `to` of the batch will be sample number `sample`. */
static void want_row(gm_loader *l, int64_t to, int64_t sample) { l->wanted[l->n_wanted++] = (gm_wanted){to, sample}; }

/* Rows from `to` on are no samples. */
static void zero_rows(gm_loader *l, slot *s, int64_t to, int64_t n)
{
    size_t x_bytes = gm_readers_x_bytes(l->readers), y_bytes = gm_readers_y_bytes(l->readers);
    memset(s->x + (size_t)to * x_bytes, 0, (size_t)n * x_bytes);
    memset(s->y + (size_t)to * y_bytes, 0, (size_t)n * y_bytes);
}

/* Rows from `to` on become the block of the samples from `at` on, n of them -> rows of the block. */
static int64_t want_block(gm_loader *l, slot *s, int64_t to, int64_t at, int64_t n)
{
    int64_t begin, own, rows;
    gm_batch_block(l->n_cuts, l->cuts, n, &begin, &own, &rows);
    for (int64_t i = 0; i < own; i++) want_row(l, to + i, s->samples[at + begin + i]);
    zero_rows(l, s, to + own, rows - own);
    return rows;
}

static gm_status assemble(gm_loader *l, slot *s, int64_t batch)
{
    int64_t count = count_of(l, batch), first = l->first + batch * l->o.batch_size, to = 0;
    s->batch = (gm_batch){.index = batch, .count = count, .samples = s->samples, .x = s->x, .y = s->y};
    if (!count) return GM_OK; /* the end of the epoch */
    s->batch.pieces = pieces_of(l, count);
    if (l->order) memcpy(s->samples, l->order + first, (size_t)count * sizeof *s->samples);
    else GM_TRY(gm_sampler_take(&l->sampler, first, count, s->samples));
    l->n_wanted = 0;
    for (int64_t k = 0; k < s->batch.pieces; k++) {
        int64_t at, n = gm_batch_piece(count, s->batch.pieces, k, &at);
        to += want_block(l, s, to, at, n);
    }
    return gm_readers_run(l->readers, l->epoch, l->wanted, l->n_wanted, s->x, s->y);
}

static void assemble_into(gm_loader *l, slot *s, int64_t batch)
{
    s->status = assemble(l, s, batch);
    if (s->status == GM_OK) return;
    strncpy(s->error, gm_last_error(), sizeof s->error - 1);
    s->batch.count = 0;
}

static void *prefetch(void *arg)
{
    gm_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->finished) {
        if (l->ready + (l->given ? 1 : 0) == l->n_slots) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        slot   *s = &l->slots[(l->tail + l->ready) % l->n_slots];
        int64_t batch = l->next++;
        pthread_mutex_unlock(&l->lock);
        assemble_into(l, s, batch);
        pthread_mutex_lock(&l->lock);
        l->ready++;
        l->finished = s->status != GM_OK || s->batch.count == 0; /* the empty batch ends the epoch */
        pthread_cond_signal(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static gm_status start_thread(gm_loader *l)
{
    int rc = gm_start_quiet_thread(&l->thread, prefetch, l);
    if (rc) return GM_FAIL(GM_ENOMEM, "the loader cannot start its thread: %s", strerror(rc));
    l->running = true;
    return GM_OK;
}

static void stop_thread(gm_loader *l)
{
    if (!l->running) {
        if (l->readers) gm_readers_stop(l->readers);
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->running = l->stop = false;
    gm_readers_stop(l->readers);
}

static void rewind_to(gm_loader *l, int64_t batch)
{
    stop_thread(l);
    l->next = batch, l->tail = l->ready = 0;
    l->given = l->finished = false;
}

/* ---- the caller's side ---- */

gm_status gm_loader_seek(gm_loader *l, uint64_t epoch, int64_t batch)
{
    bool    same = epoch == l->epoch;
    int64_t length = batches_of(l, same ? epoch_samples(l) : l->dataset->length);
    if (batch < 0 || batch > length)
        return GM_FAIL(GM_EINVAL, "batch %lld of an epoch of %lld", (long long)batch, (long long)length);
    stop_thread(l);
    if (!same) {
        free(l->order);
        l->order = NULL, l->first = 0;
    }
    gm_sampler_init(&l->sampler, l->dataset->length, l->o.shuffle, l->o.seed, epoch);
    l->epoch = epoch;
    rewind_to(l, batch);
    return GM_OK;
}

gm_status gm_loader_order(gm_loader *l, const int64_t *samples, int64_t n)
{
    int64_t *copy = NULL;
    if (samples) {
        if (!(copy = malloc((size_t)n * sizeof *copy + 1)))
            return GM_FAIL(GM_ENOMEM, "no memory for an order of %lld samples", (long long)n);
        memcpy(copy, samples, (size_t)n * sizeof *copy);
    }
    rewind_to(l, 0);
    free(l->order);
    l->order = copy, l->order_n = n, l->first = 0;
    return GM_OK;
}

gm_status gm_loader_begin(gm_loader *l, int64_t first)
{
    if (first < 0 || first > order_samples(l))
        return GM_FAIL(GM_EINVAL, "sample %lld of an epoch of %lld", (long long)first, (long long)order_samples(l));
    rewind_to(l, 0);
    l->first = first;
    return GM_OK;
}

/* The batch that gm_loader_next would give. */
static int64_t next_to_give(const gm_loader *l) { return l->next - l->ready; }

gm_status gm_loader_cut(gm_loader *l, int64_t pieces, int n, const gm_batch_cut *cuts)
{
    if (pieces == l->pieces && n == l->n_cuts && !memcmp(cuts, l->cuts, (size_t)n * sizeof *cuts)) return GM_OK;
    if (pieces < 1) return GM_FAIL(GM_EINVAL, "a batch has at least one piece, not %lld", (long long)pieces);
    if (n < 0 || n > GM_BATCH_CUTS_MAX)
        return GM_FAIL(GM_EINVAL, "a batch is cut %d times; at most %d", n, GM_BATCH_CUTS_MAX);
    stop_thread(l); /* before looking: it moves next and ready together, but not both at once */
    int64_t at = next_to_give(l);
    memcpy(l->cuts, cuts, (size_t)n * sizeof *cuts);
    l->n_cuts = n, l->pieces = pieces;
    rewind_to(l, at);
    return GM_OK;
}

/* Gives out the slot at the tail. An error stays there, to be met again. */
static gm_status hand_over(gm_loader *l, const gm_batch **b)
{
    slot *s = &l->slots[l->tail];
    *b = &s->batch;
    if (s->status != GM_OK) return gm_fail_again(s->status, s->error);
    if (!s->batch.count) return GM_OK; /* the end stays in its place too */
    l->tail = (l->tail + 1) % l->n_slots;
    l->ready--;
    l->given = true;
    return GM_OK;
}

gm_status gm_loader_next(gm_loader *l, const gm_batch **b)
{
    if (l->o.no_data) {
        int64_t count = count_of(l, l->next);
        l->planned = (gm_batch){.index = l->next, .count = count, .pieces = pieces_of(l, count)};
        l->next += l->planned.count > 0;
        *b = &l->planned;
        return GM_OK;
    }
    if (!l->o.prefetch) {
        l->given = false;
        if (!l->ready) {
            assemble_into(l, &l->slots[l->tail], l->next++);
            l->ready = 1;
        }
        return hand_over(l, b);
    }
    if (!l->running) GM_TRY(start_thread(l));
    pthread_mutex_lock(&l->lock);
    if (l->given) {
        l->given = false; /* its slot is free again */
        pthread_cond_signal(&l->changed);
    }
    while (!l->ready) pthread_cond_wait(&l->changed, &l->lock);
    gm_status st = hand_over(l, b);
    pthread_mutex_unlock(&l->lock);
    return st;
}

static gm_status make_slots(gm_loader *l)
{
    size_t x_bytes = gm_readers_x_bytes(l->readers), y_bytes = gm_readers_y_bytes(l->readers);
    size_t b = (size_t)l->o.batch_size, total;
    l->n_slots = l->o.prefetch + 1;
    l->wanted = malloc(b * sizeof *l->wanted + 1);
    bool ok = l->wanted && !__builtin_mul_overflow(b, x_bytes + y_bytes, &total);
    for (int i = 0; ok && i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        s->samples = malloc(b * sizeof *s->samples + 1);
        s->y = malloc(b * y_bytes + 1);
        s->x = malloc(b * x_bytes + 1);
        ok = s->samples && s->y && s->x;
    }
    if (!ok)
        return GM_FAIL(GM_ENOMEM, "no memory for %d batches of %zu samples; make batch_size or prefetch smaller",
                       l->n_slots, b);
    return GM_OK;
}

gm_status gm_loader_new(gm_dataset *d, const gm_transform *transforms, int n, const gm_loader_options *o,
                        gm_loader **out)
{
    if (o->batch_size < 1 || o->batch_size > INT32_MAX)
        return GM_FAIL(GM_EINVAL, "batch_size is %lld", (long long)o->batch_size);
    if (o->prefetch < 0 || o->prefetch > GM_PREFETCH_MAX)
        return GM_FAIL(GM_EINVAL, "prefetch is %d; 0 to %d batches are possible", o->prefetch, GM_PREFETCH_MAX);
    if (o->dtype != GM_F32 && o->dtype != GM_F64)
        return GM_FAIL(GM_EINVAL, "batches are f32 or f64, not %s", gm_dtype_name(o->dtype));
    if (o->threads < 1 || o->threads > GM_LOADER_THREADS_MAX)
        return GM_FAIL(GM_EINVAL, "%d threads; 1 to %d are possible", o->threads, GM_LOADER_THREADS_MAX);
    gm_loader *l = calloc(1, sizeof *l);
    if (!l) return GM_FAIL(GM_ENOMEM, "no memory for a loader");
    l->o = *o, l->dataset = d, l->pieces = 1;
    gm_dataset_retain(d);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    int       threads = o->no_data ? 1 : o->threads;
    gm_status st = gm_readers_new(d, transforms, n, &o->blends, o->dtype, o->seed, threads, &l->readers);
    if (st == GM_OK && !o->no_data) st = make_slots(l);
    if (st == GM_OK) st = gm_loader_seek(l, 0, 0);
    if (st == GM_OK) *out = l;
    else gm_loader_free(l);
    return st;
}

void gm_loader_free(gm_loader *l)
{
    if (!l) return;
    stop_thread(l);
    for (int i = 0; i < l->n_slots; i++) {
        free(l->slots[i].samples);
        free(l->slots[i].y);
        free(l->slots[i].x);
    }
    free(l->wanted);
    free(l->order);
    gm_readers_free(l->readers);
    gm_dataset_release(l->dataset);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
