/* readers.c - see readers.h. A run is a counter: whoever draws a number reads that row. The caller draws too, and
 * leaves when all rows are drawn and nobody is at work any more. */
#include "readers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    gm_readers         *all;
    gm_transform_chain *chain;
    gm_image            image;
    void               *raw; /* one sample as the dataset gives it, and its targets */
    int64_t            *y;
    void               *other;  /* where samples are mixed: the partner of one */
    pthread_t           thread; /* none of number 0, the caller */
} reader;

struct gm_readers {
    const gm_dataset *d;
    gm_blends         blends;
    uint64_t          seed;
    gm_dtype          y_dtype;
    size_t            x_bytes, y_bytes;
    int               n, started; /* readers; threads that run */
    reader           *each;

    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    bool             stop;
    uint64_t         epoch;
    const gm_wanted *list;
    int64_t          count, next, at_work;
    char            *x, *y;
    int64_t          failed; /* the first row of the list that failed; count: none did */
    gm_status        status;
    char             error[1024];
};

const gm_transform_chain *gm_readers_transforms(const gm_readers *r) { return r->each[0].chain; }
gm_dtype                  gm_readers_y_dtype(const gm_readers *r) { return r->y_dtype; }
size_t                    gm_readers_x_bytes(const gm_readers *r) { return r->x_bytes; }
size_t                    gm_readers_y_bytes(const gm_readers *r) { return r->y_bytes; }

int gm_start_quiet_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t most, before;
    sigfillset(&most);
    sigdelset(&most, SIGBUS);
    sigdelset(&most, SIGSEGV);
    sigdelset(&most, SIGFPE);
    sigdelset(&most, SIGILL);
    sigdelset(&most, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &most, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int gm_readers_y_shape(const gm_readers *r, int64_t *shape)
{
    if (r->blends.n) shape[0] = r->d->classes;
    else memcpy(shape, r->d->y_shape, (size_t)r->d->y_ndim * sizeof *shape);
    return r->blends.n ? 1 : r->d->y_ndim;
}

static int64_t y_numel(const gm_readers *r) { return r->blends.n ? r->d->classes : gm_dataset_y_numel(r->d); }

/* ---- a row ---- */

static void put_targets(const gm_readers *r, const int64_t *y, char *to)
{
    int64_t n = gm_dataset_y_numel(r->d);
    if (r->y_dtype != GM_F32) memcpy(to, y, (size_t)n * 8); /* i64 and f64 */
    else
        for (int64_t i = 0; i < n; i++) ((float *)to)[i] = (float)((const double *)y)[i];
}

/* What a transform says about a sample, with the sample in front. name: of a picture, which says its number too. */
static gm_status about(const gm_dataset *d, int64_t sample, const char *name, gm_status st)
{
    char why[800], text[1600];
    if (st == GM_OK || st == GM_ENOMEM) return st;
    snprintf(why, sizeof why, "%s", gm_last_error());
    if (name) snprintf(text, sizeof text, "%s: %s", name, why);
    else if (d->file)
        snprintf(text, sizeof text, "%s (sample %lld): %s", d->file(d, sample), (long long)sample + 1, why);
    else snprintf(text, sizeof text, "sample %lld: %s", (long long)sample + 1, why);
    return gm_fail_again(st, text);
}

/* A transformed sample into x; what belongs to it into me->y. */
static gm_status read_sample(reader *me, uint64_t epoch, int64_t sample, void *x)
{
    const gm_dataset *d = me->all->d;
    if (!d->image) {
        GM_TRY(gm_dataset_read(d, epoch, sample, me->raw, me->y));
        return about(d, sample, NULL, gm_transform_chain_run(me->chain, me->raw, epoch, sample, x));
    }
    gm_window_rule rule = gm_transform_chain_begin(me->chain, epoch, sample);
    GM_TRY(gm_dataset_image(d, epoch, sample, &rule, &me->image, me->y));
    return about(d, sample, me->image.name, gm_transform_chain_image(me->chain, &me->image, x));
}

/* Mixes the sample in x with another one, if that is chosen for it. */
static gm_status blend_row(reader *me, uint64_t epoch, int64_t sample, void *x, void *y)
{
    int64_t           shape[GM_MAX_DIMS], label = *me->y;
    const gm_readers *r = me->all;
    int               ndim = gm_transform_chain_shape(me->chain, shape);
    gm_blend_choice c = gm_blend_choose(r->blends.list, r->blends.n, r->seed, epoch, sample, r->d->length, ndim, shape);
    if (c.blended) {
        GM_TRY(read_sample(me, epoch, c.partner, me->other));
        gm_blend_samples(&c, r->y_dtype, gm_transform_chain_numel(me->chain), shape, x, me->other);
    }
    gm_blend_labels(&c, r->y_dtype, r->d->classes, label, *me->y, y);
    return GM_OK;
}

static gm_status read_row(reader *me, uint64_t epoch, const gm_wanted *w, char *x, char *y)
{
    const gm_readers *r = me->all;
    x += (size_t)w->row * r->x_bytes;
    y += (size_t)w->row * r->y_bytes;
    GM_TRY(read_sample(me, epoch, w->sample, x));
    if (r->blends.n) return blend_row(me, epoch, w->sample, x, y);
    put_targets(r, me->y, y);
    return GM_OK;
}

/* ---- a run ---- */

/* Draws rows until there are none; called and left with the lock held. */
static void draw(reader *me)
{
    gm_readers *r = me->all;
    r->at_work++;
    while (r->next < r->count && r->next < r->failed) {
        int64_t at = r->next++;
        pthread_mutex_unlock(&r->lock);
        gm_status st = read_row(me, r->epoch, &r->list[at], r->x, r->y);
        pthread_mutex_lock(&r->lock);
        if (st != GM_OK && at < r->failed) {
            r->failed = at, r->status = st;
            strncpy(r->error, gm_last_error(), sizeof r->error - 1);
        }
    }
    if (--r->at_work == 0) pthread_cond_broadcast(&r->changed);
}

static void *helper(void *arg)
{
    reader     *me = arg;
    gm_readers *r = me->all;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        if (r->next < r->count && r->next < r->failed) draw(me);
        else pthread_cond_wait(&r->changed, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static gm_status start(gm_readers *r)
{
    for (int k = r->started + 1; k < r->n; k++, r->started++) {
        int rc = gm_start_quiet_thread(&r->each[k].thread, helper, &r->each[k]);
        if (rc) return GM_FAIL(GM_ENOMEM, "the loader cannot start thread %d of %d: %s", k + 1, r->n, strerror(rc));
    }
    return GM_OK;
}

gm_status gm_readers_run(gm_readers *r, uint64_t epoch, const gm_wanted *list, int64_t n, char *x, char *y)
{
    GM_TRY(start(r));
    pthread_mutex_lock(&r->lock);
    r->epoch = epoch, r->list = list, r->x = x, r->y = y;
    r->count = r->failed = n, r->next = 0, r->status = GM_OK;
    pthread_cond_broadcast(&r->changed);
    draw(&r->each[0]);
    while (r->at_work) pthread_cond_wait(&r->changed, &r->lock);
    gm_status st = r->status;
    r->count = 0;
    pthread_mutex_unlock(&r->lock);
    return st == GM_OK ? st : gm_fail_again(st, r->error);
}

void gm_readers_stop(gm_readers *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (; r->started; r->started--) pthread_join(r->each[r->started].thread, NULL);
    r->stop = false;
}

/* ---- their life ---- */

static gm_status check_blends(const gm_readers *r)
{
    int64_t           shape[GM_MAX_DIMS];
    const gm_dataset *d = r->d;
    for (int i = 0; i < r->blends.n; i++) {
        bool        parts = r->blends.list[i].kind == GM_CUTMIX;
        const char *name = parts ? "cutmix" : "mixup";
        if (d->x_dtype == GM_I64) return GM_FAIL(GM_ESHAPE, "%s: samples are tokens, which cannot be mixed", name);
        if (d->y_ndim || d->y_real || d->classes < 1)
            return GM_FAIL(GM_ESHAPE, "%s: samples need one label each, to become probabilities of classes", name);
        if (parts && gm_transform_chain_shape(r->each[0].chain, shape) != 3)
            return GM_FAIL(GM_ESHAPE, "cutmix: samples are no pictures (channels, height, width)");
    }
    return GM_OK;
}

#define LOOKED_AT 100 /* pictures that are read to say why there is no batch */

/* GM_OK, or why one of the first pictures cannot be read. */
static gm_status try_pictures(const gm_dataset *d)
{
    gm_image  picture = {0};
    gm_status st = GM_OK;
    int64_t   y;
    for (int64_t i = 0; st == GM_OK && i < d->length && i < LOOKED_AT; i++) st = d->image(d, 0, i, NULL, &picture, &y);
    gm_image_free(&picture);
    return st;
}

static gm_status make_reader(gm_readers *r, reader *me, const gm_transform *transforms, int n, gm_dtype dtype,
                             uint64_t seed)
{
    const gm_dataset *d = r->d;
    size_t            raw = d->image ? 0 : (size_t)gm_dataset_x_numel(d) * gm_dtype_size(d->x_dtype);
    me->all = r;
    me->raw = malloc(raw + 1);
    me->y = malloc((size_t)gm_dataset_y_numel(d) * 8 + 8);
    if (!me->raw || !me->y) return GM_FAIL(GM_ENOMEM, "no memory for a sample of %zu bytes", raw);
    gm_status st = gm_transform_chain_new(transforms, n, d->x_dtype, d->x_ndim, d->x_shape, dtype, seed, &me->chain);
    if (st == GM_ESHAPE && d->image && !d->damage) GM_TRY(try_pictures(d)); /* a damaged picture is the better reason */
    return st;
}

static gm_status make_rooms_for_partners(gm_readers *r)
{
    for (int k = 0; k < r->n && r->blends.n; k++)
        if (!(r->each[k].other = malloc(r->x_bytes + 1)))
            return GM_FAIL(GM_ENOMEM, "no memory for a sample of %zu bytes", r->x_bytes);
    return GM_OK;
}

gm_status gm_readers_new(const gm_dataset *d, const gm_transform *transforms, int n, const gm_blends *blends,
                         gm_dtype dtype, uint64_t seed, int threads, gm_readers **out)
{
    gm_status   st = GM_OK;
    gm_readers *r = calloc(1, sizeof *r);
    if (!r) return GM_FAIL(GM_ENOMEM, "no memory for a loader");
    r->d = d, r->n = threads, r->blends = *blends, r->seed = seed;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    if (!(r->each = calloc((size_t)threads, sizeof *r->each))) st = GM_FAIL(GM_ENOMEM, "no memory for a loader");
    for (int k = 0; st == GM_OK && k < threads; k++) st = make_reader(r, &r->each[k], transforms, n, dtype, seed);
    if (st == GM_OK) st = check_blends(r);
    if (st == GM_OK) {
        const gm_transform_chain *chain = r->each[0].chain;
        r->y_dtype = d->y_real || r->blends.n ? dtype : GM_I64;
        r->x_bytes = (size_t)gm_transform_chain_numel(chain) * gm_dtype_size(gm_transform_chain_dtype(chain));
        r->y_bytes = (size_t)y_numel(r) * gm_dtype_size(r->y_dtype);
        st = make_rooms_for_partners(r);
    }
    if (st == GM_OK) *out = r;
    else gm_readers_free(r);
    return st;
}

void gm_readers_free(gm_readers *r)
{
    if (!r) return;
    gm_readers_stop(r);
    for (int k = 0; r->each && k < r->n; k++) {
        gm_transform_chain_free(r->each[k].chain);
        gm_image_free(&r->each[k].image);
        free(r->each[k].raw);
        free(r->each[k].y);
        free(r->each[k].other);
    }
    free(r->each);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
