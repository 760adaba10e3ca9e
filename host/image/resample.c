/* resample.c - see resample.h. The loops are compiled for several instruction sets; whole numbers give the same. */
#include "resample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/each_cpu.h"

#define BITS 22 /* of a weight, behind the point: a sum of 255 x 2^22 fits */

/* ---- weights ---- */

static gm_status axis_room(gm_resample_axis *a, int64_t out, int64_t taps)
{
    size_t need = (size_t)out * (size_t)taps;
    if (need <= a->room && out <= a->out) return GM_OK;
    free(a->first);
    free(a->count);
    free(a->weights);
    a->first = malloc((size_t)out * sizeof *a->first);
    a->count = malloc((size_t)out * sizeof *a->count);
    a->weights = malloc(need * sizeof *a->weights);
    a->room = need;
    if (a->first && a->count && a->weights) return GM_OK;
    a->room = 0;
    return GM_FAIL(GM_ENOMEM, "no memory for the weights of %lld pixels", (long long)out);
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* The values that result i is made of, from *first to before *last. */
static void reach(int64_t in, int64_t out, int64_t i, double *c, double *f, int64_t *first, int64_t *last)
{
    double scale = (double)in / (double)out;
    *f = scale < 1 ? 1 : scale;
    *c = ((double)i + 0.5) * scale;
    *first = (int64_t)(*c - *f + 0.5), *last = (int64_t)(*c + *f + 0.5);
    if (*first < 0) *first = 0;
    if (*last > in) *last = in;
}

void gm_resample_needs(gm_resample_span *s)
{
    double  c, f;
    int64_t last, unused;
    reach(s->in, s->out, s->from, &c, &f, &s->first, &unused);
    reach(s->in, s->out, s->from + s->n - 1, &c, &f, &unused, &last);
    s->held = last - s->first;
}

static gm_status plan_axis(gm_resample_axis *a, const gm_resample_span *s)
{
    const int64_t key[5] = {s->in, s->out, s->from, s->n, s->first};
    double        c, f;
    int64_t       first, last;
    a->in = s->held;
    if (!memcmp(key, a->key, sizeof key)) return GM_OK;
    memset(a->key, 0, sizeof a->key); /* until all is there */
    reach(s->in, s->out, 0, &c, &f, &first, &last);
    int64_t taps = (int64_t)ceil(f) * 2 + 1;
    GM_TRY(axis_room(a, s->n, taps));
    for (int64_t i = 0; i < s->n; i++) {
        double sum = 0;
        reach(s->in, s->out, s->from + i, &c, &f, &first, &last);
        for (int64_t k = first; k < last; k++) sum += triangle(((double)k - c + 0.5) / f);
        int32_t *w = a->weights + i * taps;
        for (int64_t k = first; k < last; k++)
            *w++ = (int32_t)(0.5 + triangle(((double)k - c + 0.5) / f) / sum * (1 << BITS));
        a->first[i] = first - s->first, a->count[i] = last - first;
    }
    a->out = s->n, a->taps = taps;
    memcpy(a->key, key, sizeof key);
    return GM_OK;
}

static void free_axis(gm_resample_axis *a)
{
    free(a->first);
    free(a->count);
    free(a->weights);
}

void gm_resampler_free(gm_resampler *r)
{
    free_axis(&r->x);
    free_axis(&r->y);
    free(r->between);
    free(r->sums);
    *r = (gm_resampler){0};
}

/* ---- loops ---- */

static inline uint8_t to_byte(int32_t sum)
{
    int32_t v = sum >> BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* n rows of a->in values to n rows of a->out: four at a time, which share their weights. */
GM_FOR_EACH_CPU static void across(const gm_resample_axis *a, const uint8_t *from, int64_t n, uint8_t *to)
{
    int64_t in = a->in, out = a->out, y = 0;
    for (; y + 4 <= n; y += 4, from += 4 * in, to += 4 * out)
        for (int64_t i = 0; i < out; i++) {
            const int32_t *w = a->weights + i * a->taps;
            const uint8_t *p = from + a->first[i];
            int32_t        s0 = 1 << (BITS - 1), s1 = s0, s2 = s0, s3 = s0;
            for (int64_t k = 0; k < a->count[i]; k++) {
                s0 += w[k] * p[k];
                s1 += w[k] * p[k + in];
                s2 += w[k] * p[k + 2 * in];
                s3 += w[k] * p[k + 3 * in];
            }
            to[i] = to_byte(s0), to[i + out] = to_byte(s1);
            to[i + 2 * out] = to_byte(s2), to[i + 3 * out] = to_byte(s3);
        }
    for (; y < n; y++, from += in, to += out)
        for (int64_t i = 0; i < out; i++) {
            int32_t s = 1 << (BITS - 1);
            for (int64_t k = 0; k < a->count[i]; k++) s += a->weights[i * a->taps + k] * from[a->first[i] + k];
            to[i] = to_byte(s);
        }
}

/* a->in rows of w values to a->out rows. */
GM_FOR_EACH_CPU static void down(const gm_resample_axis *a, const uint8_t *restrict from, int64_t w,
                                 int32_t *restrict sums, uint8_t *restrict to)
{
    for (int64_t i = 0; i < a->out; i++, to += w) {
        for (int64_t x = 0; x < w; x++) sums[x] = 1 << (BITS - 1);
        for (int64_t k = 0; k < a->count[i]; k++) {
            const uint8_t *row = from + (a->first[i] + k) * w;
            int32_t        weight = a->weights[i * a->taps + k];
            for (int64_t x = 0; x < w; x++) sums[x] += weight * row[x];
        }
        for (int64_t x = 0; x < w; x++) to[x] = to_byte(sums[x]);
    }
}

/* ---- the face ---- */

static gm_status make_room(gm_resampler *r, size_t between, size_t sums)
{
    if (between > r->room) {
        free(r->between);
        r->between = malloc(between), r->room = r->between ? between : 0;
    }
    if (sums > r->sums_room) {
        free(r->sums);
        r->sums = malloc(sums * sizeof *r->sums), r->sums_room = r->sums ? sums : 0;
    }
    return between <= r->room && sums <= r->sums_room ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to resize a picture");
}

static void all_down(gm_resampler *r, const uint8_t *from, int64_t channels, int64_t w, uint8_t *to)
{
    for (int64_t c = 0; c < channels; c++) down(&r->y, from + c * r->y.in * w, w, r->sums, to + c * r->y.out * w);
}

gm_status gm_resample_part(gm_resampler *r, const uint8_t *from, int64_t channels, const gm_resample_span *y,
                           const gm_resample_span *x, uint8_t *to)
{
    bool    wide = x->in != x->out || x->n != x->held, high = y->in != y->out || y->n != y->held;
    bool    rows_first = x->out > x->in && y->out < y->in;
    int64_t between = rows_first ? y->n * x->held : y->held * x->n;
    GM_TRY(plan_axis(&r->x, x));
    GM_TRY(plan_axis(&r->y, y));
    GM_TRY(make_room(r, (size_t)(channels * between), (size_t)(x->n > x->held ? x->n : x->held)));
    if (!wide && !high) memcpy(to, from, (size_t)(channels * y->n * x->n));
    else if (rows_first) {
        all_down(r, from, channels, x->held, r->between);
        across(&r->x, r->between, channels * y->n, to);
    } else {
        if (wide) across(&r->x, from, channels * y->held, high ? r->between : to);
        if (high) all_down(r, wide ? r->between : from, channels, x->n, to);
    }
    return GM_OK;
}

gm_status gm_resample(gm_resampler *r, const uint8_t *from, int64_t channels, int64_t height, int64_t width,
                      uint8_t *to, int64_t to_height, int64_t to_width)
{
    const gm_resample_span y = {height, to_height, 0, to_height, 0, height},
                           x = {width, to_width, 0, to_width, 0, width};
    return gm_resample_part(r, from, channels, &y, &x, to);
}
