/* synthetic_dataset.c - made-up data that a model can learn, for specs and recipes without files.
 *
 * Clusters: class c has a centre of standard normal numbers; a sample is its centre plus noise.
 * Chains: token t is followed by successor(t), a fixed permutation of the vocabulary, or, with
 * probability `noise`, by any token. Centres and successors depend on the seed alone, samples on
 * (seed, split, number): so training and test data are different draws of the same law.
 * Successors are made with the first sample. A rehearsal reads none, and for the vocabulary of a large model they cost
 * it a fifth of its time. */
#include "../../kernels/philox.h"
#include "dataset.h"
#include "normals.h"
#include "sampler.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SITE_CENTRE = 1, SITE_SAMPLE, SITE_CHAIN };

typedef struct chain {
    gm_sampler         order;
    pthread_mutex_t    lock;      /* of who makes them: several threads may ask for the first sample */
    _Atomic(int64_t *) successor; /* of each token; NULL: not made yet */
} chain;

typedef struct made_up {
    gm_dataset base;
    uint64_t   law, draw; /* stream keys: of what is to be learned, and of the samples */
    double     noise;
    chain     *chain;   /* of tokens */
    double    *centres; /* clusters: (classes, numel of x) */
} made_up;

void gm_normals(uint64_t key, uint64_t step, int64_t n, double scale, const double *base, double *to)
{
    for (int64_t k = 0; k < n; k += 2) {
        gm_philox p = gm_philox_at(key, (uint64_t)k / 2, step);
        double    u = ((double)p.v[0] + 0.5) * 0x1p-32, v = (double)p.v[1] * 0x1p-32;
        double    r = scale * sqrt(-2 * log(u)), angle = 6.283185307179586477 * v;
        to[k] = (base ? base[k] : 0) + r * cos(angle);
        if (k + 1 < n) to[k + 1] = (base ? base[k + 1] : 0) + r * sin(angle);
    }
}

static gm_status cluster_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const made_up *d = (const made_up *)base;
    int64_t        n = gm_dataset_x_numel(base), label = i % base->classes;
    gm_normals(d->draw, (uint64_t)i, n, d->noise, d->centres + label * n, x);
    *y = label;
    return GM_OK;
}

static gm_status made_successors(chain *c, int64_t vocab, int64_t **out)
{
    if (!(*out = malloc((size_t)vocab * sizeof **out))) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    gm_status st = gm_sampler_take(&c->order, 0, vocab, *out);
    if (st == GM_OK) atomic_store_explicit(&c->successor, *out, memory_order_release);
    else free(*out);
    return st;
}

static gm_status successors(chain *c, int64_t vocab, int64_t **out)
{
    if ((*out = atomic_load_explicit(&c->successor, memory_order_acquire))) return GM_OK;
    pthread_mutex_lock(&c->lock);
    *out = atomic_load_explicit(&c->successor, memory_order_relaxed);
    gm_status st = *out ? GM_OK : made_successors(c, vocab, out);
    pthread_mutex_unlock(&c->lock);
    return st;
}

static gm_status chain_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const made_up *d = (const made_up *)base;
    int64_t       *in = x, n = base->x_shape[0], *successor;
    uint64_t       vocab = (uint64_t)base->classes;
    GM_TRY(successors(d->chain, base->classes, &successor));
    gm_philox p = gm_philox_at(d->draw, 0, (uint64_t)i);
    int64_t   token = (int64_t)(((uint64_t)p.v[0] * vocab) >> 32);
    for (int64_t k = 0; k < n; k++) {
        p = gm_philox_at(d->draw, (uint64_t)k + 1, (uint64_t)i);
        in[k] = token;
        bool random = p.v[0] < gm_event_threshold(d->noise);
        token = random ? (int64_t)(((uint64_t)p.v[1] * vocab) >> 32) : successor[token];
        y[k] = token;
    }
    return GM_OK;
}

static void made_up_free(gm_dataset *base)
{
    made_up *d = (made_up *)base;
    if (d->chain) {
        free(atomic_load_explicit(&d->chain->successor, memory_order_relaxed));
        pthread_mutex_destroy(&d->chain->lock);
    }
    free(d->chain);
    free(d->centres);
    free(d);
}

static gm_status made_up_new(int64_t length, int64_t classes, double noise, uint64_t seed, uint64_t split,
                             made_up **out)
{
    if (length < 1 || classes < 1 || classes > INT32_MAX || !(noise >= 0))
        return GM_FAIL(GM_EINVAL, "synthetic data: length, classes and noise must be positive");
    made_up *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1, .length = length, .classes = classes, .free = made_up_free};
    d->noise = noise;
    d->law = gm_stream_key(seed, GM_PURPOSE_USER, SITE_CENTRE);
    d->draw = gm_stream_key(seed, GM_PURPOSE_USER, SITE_SAMPLE + 16 * split);
    *out = d;
    return GM_OK;
}

gm_status gm_cluster_dataset_new(int64_t length, int x_ndim, const int64_t *x_shape, int64_t classes, double noise,
                                 uint64_t seed, uint64_t split, gm_dataset **out)
{
    made_up *d;
    int64_t  numel = 1;
    for (int i = 0; i < x_ndim; i++)
        if (x_shape[i] < 1 || __builtin_mul_overflow(numel, x_shape[i], &numel) || numel > (int64_t)1 << 30)
            return GM_FAIL(GM_ESHAPE, "synthetic data: size %lld of a sample", (long long)x_shape[i]);
    GM_TRY(made_up_new(length, classes, noise, seed, split, &d));
    d->base.x_dtype = GM_F64, d->base.x_ndim = x_ndim, d->base.sample = cluster_sample;
    memcpy(d->base.x_shape, x_shape, (size_t)x_ndim * sizeof *x_shape);
    d->centres = calloc((size_t)(numel * classes), sizeof *d->centres);
    if (!d->centres) {
        made_up_free(&d->base);
        return GM_FAIL(GM_ENOMEM, "no memory for %lld centres of %lld numbers", (long long)classes, (long long)numel);
    }
    for (int64_t c = 0; c < classes; c++) gm_normals(d->law, (uint64_t)c, numel, 1, NULL, d->centres + c * numel);
    *out = &d->base;
    return GM_OK;
}

gm_status gm_chain_dataset_new(int64_t length, int64_t sequence_length, int64_t vocab_size, double noise, uint64_t seed,
                               uint64_t split, gm_dataset **out)
{
    made_up *d;
    if (sequence_length < 1 || noise > 1)
        return GM_FAIL(GM_EINVAL, "synthetic tokens: sequence_length must be at least 1, noise at most 1");
    GM_TRY(made_up_new(length, vocab_size, noise, seed, split, &d));
    d->base.x_dtype = GM_I64, d->base.x_ndim = d->base.y_ndim = 1, d->base.sample = chain_sample;
    d->base.x_shape[0] = d->base.y_shape[0] = sequence_length;
    if (!(d->chain = malloc(sizeof *d->chain))) {
        made_up_free(&d->base);
        return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    }
    gm_sampler_init(&d->chain->order, vocab_size, true, seed, SITE_CHAIN);
    pthread_mutex_init(&d->chain->lock, NULL);
    atomic_init(&d->chain->successor, NULL);
    *out = &d->base;
    return GM_OK;
}
