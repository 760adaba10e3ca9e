/* mix_dataset.c - samples of several datasets by weights, see dataset.h.
 *
 * Samples 0 to count(0) - 1 of an epoch come from the first part, the next count(1) from the second, and so on; the
 * loader's order mixes them. Place p of part k in epoch e is number e count(k) + p of the walk through part k, which
 * goes through all of its samples in a new random order each time. So it is a function of (seed, epoch, number). */
#include "dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "sampler.h"

typedef struct mix_dataset {
    gm_dataset   base;
    int          n;
    gm_dataset **parts;
    int64_t     *count;
    uint64_t     seed;
} mix_dataset;

/* The part and the number in it of sample i. */
static gm_status find(const mix_dataset *d, uint64_t epoch, int64_t i, const gm_dataset **part, int64_t *number)
{
    int        k = 0;
    gm_sampler s;
    for (; i >= d->count[k]; k++) i -= d->count[k];
    uint64_t length = (uint64_t)d->parts[k]->length, at = epoch * (uint64_t)d->count[k] + (uint64_t)i;
    gm_sampler_init(&s, (int64_t)length, true, d->seed + (uint64_t)k, at / length);
    *part = d->parts[k];
    return gm_sampler_take(&s, (int64_t)(at % length), 1, number);
}

static gm_status mix_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    const gm_dataset *part;
    int64_t           number;
    GM_TRY(find((const mix_dataset *)base, epoch, i, &part, &number));
    return gm_dataset_read(part, epoch, number, x, y);
}

static gm_status mix_image(const gm_dataset *base, uint64_t epoch, int64_t i, const gm_window_rule *rule, gm_image *x,
                           int64_t *y)
{
    const gm_dataset *part;
    int64_t           number;
    GM_TRY(find((const mix_dataset *)base, epoch, i, &part, &number));
    return gm_dataset_image(part, epoch, number, rule, x, y);
}

static gm_status mix_checksum(const gm_dataset *base, uint32_t *sum)
{
    const mix_dataset *d = (const mix_dataset *)base;
    *sum = (uint32_t)crc32_z(0, (const unsigned char *)d->count, (size_t)d->n * sizeof *d->count);
    for (int k = 0; k < d->n; k++) {
        uint32_t one;
        GM_TRY(gm_dataset_checksum(d->parts[k], &one));
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)&one, sizeof one);
    }
    return GM_OK;
}

static void mix_free(gm_dataset *base)
{
    mix_dataset *d = (mix_dataset *)base;
    for (int k = 0; k < d->n; k++) gm_dataset_release(d->parts[k]);
    free(d->parts);
    free(d->count);
    free(d);
}

static bool fits(const gm_dataset *a, const gm_dataset *b)
{
    return a->x_dtype == b->x_dtype && a->x_ndim == b->x_ndim && a->y_ndim == b->y_ndim && a->y_real == b->y_real &&
           !a->image == !b->image && !memcmp(a->x_shape, b->x_shape, (size_t)a->x_ndim * sizeof *a->x_shape) &&
           !memcmp(a->y_shape, b->y_shape, (size_t)a->y_ndim * sizeof *a->y_shape);
}

/* Shares `length` out by weights: each part gets the whole number below its share, and those with the largest rests one
 * more. */
static void share_out(mix_dataset *d, const double *weights, int64_t length)
{
    double  sum = 0;
    int64_t left = length;
    for (int k = 0; k < d->n; k++) sum += weights[k];
    for (int k = 0; k < d->n; k++) left -= d->count[k] = (int64_t)floor((double)length * weights[k] / sum);
    for (; left > 0; left--) {
        int    best = 0;
        double most = -INFINITY;
        for (int k = 0; k < d->n; k++) {
            double rest = (double)length * weights[k] / sum - (double)d->count[k];
            if (rest > most) most = rest, best = k;
        }
        d->count[best]++;
    }
}

int64_t gm_mix_count(const gm_dataset *d, int k) { return ((const mix_dataset *)d)->count[k]; }

gm_status gm_mix_dataset_new(gm_dataset *const *parts, const double *weights, int n, int64_t length, uint64_t seed,
                             gm_dataset **out)
{
    mix_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    const gm_dataset *a = parts[0];
    d->base = *a;
    d->base.refs = 1, d->base.length = length, d->base.damage = NULL;
    d->base.sample = a->image ? NULL : mix_sample, d->base.image = a->image ? mix_image : NULL;
    d->base.checksum = mix_checksum, d->base.free = mix_free, d->base.file = NULL;
    d->seed = seed;
    d->parts = calloc((size_t)n, sizeof *d->parts), d->count = calloc((size_t)n, sizeof *d->count);
    gm_status st = d->parts && d->count ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    for (int k = 0; st == GM_OK && k < n; k++) {
        if (!fits(a, parts[k]))
            st = GM_FAIL(GM_ESHAPE, "samples of datasets 1 and %d differ in shape or dtype; a mix needs equal ones",
                         k + 1);
        else if (parts[k]->length < 1) st = GM_FAIL(GM_EINVAL, "dataset %d has no samples", k + 1);
        else {
            gm_dataset_retain(d->parts[d->n++] = parts[k]);
            if (parts[k]->classes > d->base.classes) d->base.classes = parts[k]->classes;
        }
    }
    if (st == GM_OK) share_out(d, weights, length);
    if (st == GM_OK) *out = &d->base;
    else mix_free(&d->base);
    return st;
}
