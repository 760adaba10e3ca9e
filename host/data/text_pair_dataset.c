/* text_pair_dataset.c - pairs of pieces of text with hidden tokens, for BERT (Devlin et al. 2019); see dataset.h. */
#include "../../kernels/philox.h"
#include "dataset.h"

#include <stdlib.h>

/* One text: bytes [begin, begin + size) of a file are in use. */
typedef struct text {
    gm_bytes bytes;
    int64_t  begin, size;
    int64_t  samples, places; /* of this text: samples that begin in it; places where a second piece may begin */
} text;

typedef struct pair_dataset {
    gm_dataset      base;
    gm_pair_options o;
    uint64_t        key;  /* of all draws */
    int64_t         room; /* bytes of text in a full sample */
    int64_t         places;
    int             n;
    text           *texts;
} pair_dataset;

/* What is drawn for a sample as a whole, and then for each of its tokens: blocks of its part of the stream. */
enum { DRAW_SHAPE, DRAW_PLACE, DRAW_TOKENS };

static gm_philox draw(const pair_dataset *d, uint64_t epoch, int64_t sample, int64_t what)
{
    return gm_philox_at(d->key, (uint64_t)sample * (uint64_t)(d->o.length + DRAW_TOKENS) + (uint64_t)what, epoch);
}

static int64_t below(uint32_t word, int64_t n) { return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32); }

/* The text in which sample *i lies; *i becomes its number in there. */
static const text *text_of_sample(const pair_dataset *d, int64_t *i)
{
    const text *t = d->texts;
    for (; *i >= t->samples; t++) *i -= t->samples;
    return t;
}

/* Copies n bytes at `at` of a text to tokens. */
static gm_status read_text(const text *t, int64_t at, int64_t n, int64_t *to)
{
    unsigned char raw[4096];
    for (int64_t done = 0; done < n; done += (int64_t)sizeof raw) {
        int64_t m = n - done < (int64_t)sizeof raw ? n - done : (int64_t)sizeof raw;
        GM_TRY(gm_bytes_copy(&t->bytes, (size_t)(t->begin + at + done), (size_t)m, raw));
        for (int64_t k = 0; k < m; k++) to[done + k] = raw[k];
    }
    return GM_OK;
}

/* n bytes from any place of any text but place `not_at` of text `not_in`. */
static gm_status read_elsewhere(const pair_dataset *d, gm_philox p, const text *not_in, int64_t not_at, int64_t n,
                                int64_t *to)
{
    uint64_t wide = (uint64_t)p.v[0] << 32 | p.v[1];
    int64_t  place = (int64_t)((unsigned __int128)wide * (uint64_t)(d->places - 1) >> 64);
    for (const text *t = d->texts; t < not_in; t++) not_at += t->places;
    if (place >= not_at) place++;
    const text *t = d->texts;
    for (; place >= t->places; t++) place -= t->places;
    return read_text(t, place, n, to);
}

/* Hides tokens: of those drawn, 8 in 10 become the mask, 1 in 10 any byte, 1 in 10 stays; all are targets. */
static void hide(const pair_dataset *d, uint64_t epoch, int64_t sample, int64_t *tokens, int64_t *y)
{
    uint32_t chosen = gm_event_threshold(d->o.mask), masked = gm_event_threshold(0.8), any = gm_event_threshold(0.9);
    for (int64_t k = 0; k < d->o.length; k++) {
        y[k] = GM_TARGET_IGNORED;
        if (tokens[k] >= GM_PAIR_PADDING) continue; /* only bytes of text are asked for */
        gm_philox p = draw(d, epoch, sample, DRAW_TOKENS + k);
        if (p.v[0] >= chosen) continue;
        y[k] = tokens[k];
        if (p.v[1] < masked) tokens[k] = GM_PAIR_MASK;
        else if (p.v[1] < any) tokens[k] = below(p.v[2], 256);
    }
}

static gm_status pair_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    const pair_dataset *d = (const pair_dataset *)base;
    int64_t             s = d->o.length, in_text = i, *tokens = x, *segments = tokens + s, *mask = segments + s;
    gm_philox           p = draw(d, epoch, i, DRAW_SHAPE);
    bool                shorter = p.v[0] < gm_event_threshold(d->o.shorter), random = p.v[2] < 0x80000000u;
    int64_t             n = shorter ? 2 + below(p.v[1], d->room - 1) : d->room, a = (n + 1) / 2, b = n - a;
    const text         *t = text_of_sample(d, &in_text);
    int64_t             at = in_text * d->o.stride;
    tokens[0] = GM_PAIR_CLASS, tokens[a + 1] = tokens[n + 2] = GM_PAIR_SEPARATOR;
    GM_TRY(read_text(t, at, a, tokens + 1));
    if (random) GM_TRY(read_elsewhere(d, draw(d, epoch, i, DRAW_PLACE), t, at + a, b, tokens + a + 2));
    else GM_TRY(read_text(t, at + a, b, tokens + a + 2));
    for (int64_t k = n + 3; k < s; k++) tokens[k] = GM_PAIR_PADDING;
    for (int64_t k = 0; k < s; k++) segments[k] = k >= a + 2 && k < n + 3, mask[k] = k < n + 3;
    hide(d, epoch, i, tokens, y);
    y[s] = random;
    return GM_OK;
}

static void pair_free(gm_dataset *base)
{
    pair_dataset *d = (pair_dataset *)base;
    for (int i = 0; i < d->n; i++) gm_bytes_close(&d->texts[i].bytes);
    free(d->texts);
    free(d);
}

static gm_status add_text(pair_dataset *d, const char *path)
{
    text *t = &d->texts[d->n];
    GM_TRY(gm_bytes_map(path, GM_ACCESS_RANDOM, &t->bytes));
    d->n++;
    t->begin = (int64_t)(d->o.begin * (double)t->bytes.size);
    t->size = (int64_t)(d->o.end * (double)t->bytes.size) - t->begin;
    if (t->size < d->room)
        return GM_FAIL(GM_EINVAL,
                       "%s: the %lld bytes from %lld on are too few for one sample, which takes %lld; make "
                       "sequence_length smaller or leave the file out",
                       path, (long long)t->size, (long long)t->begin, (long long)d->room);
    t->samples = (t->size - d->room) / d->o.stride + 1;
    t->places = t->size - d->room / 2 + 1; /* at least 2, since room is */
    d->base.length += t->samples;
    d->places += t->places;
    return GM_OK;
}

static gm_status check(const gm_pair_options *o, int n)
{
    if (n < 1) return GM_FAIL(GM_EINVAL, "pairs of texts: no file was given");
    if (o->length < GM_PAIR_SHORTEST || o->length > INT32_MAX || o->stride < 1)
        return GM_FAIL(GM_EINVAL,
                       "pairs of texts: sequence_length %lld, stride %lld; a sample has at least %d tokens (three "
                       "special ones, a byte of each text), a stride at least 1",
                       (long long)o->length, (long long)o->stride, GM_PAIR_SHORTEST);
    if (!(o->begin >= 0 && o->begin <= o->end && o->end <= 1))
        return GM_FAIL(GM_EINVAL, "the part %g to %g of a text: fractions from 0 to 1 in order are needed", o->begin,
                       o->end);
    if (!(o->mask >= 0 && o->mask <= 1 && o->shorter >= 0 && o->shorter <= 1))
        return GM_FAIL(GM_EINVAL, "pairs of texts: mask %g and shorter %g are probabilities, 0 to 1", o->mask,
                       o->shorter);
    return GM_OK;
}

gm_status gm_pair_dataset_new(const char *const *paths, int n, const gm_pair_options *o, gm_dataset **out)
{
    gm_status st = GM_OK;
    GM_TRY(check(o, n));
    pair_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1,
                           .x_dtype = GM_I64,
                           .x_ndim = 2,
                           .x_shape = {3, o->length},
                           .y_ndim = 1,
                           .y_shape = {o->length + 1},
                           .classes = GM_PAIR_VOCABULARY,
                           .sample = pair_sample,
                           .free = pair_free};
    d->o = *o;
    d->room = o->length - 3;
    d->key = gm_stream_key(o->seed, GM_PURPOSE_AUGMENT, gm_hash_text(GM_HASH_START, "text pairs"));
    if (!(d->texts = calloc((size_t)n, sizeof *d->texts))) st = GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    for (int i = 0; st == GM_OK && i < n; i++) st = add_text(d, paths[i]);
    if (st == GM_OK) *out = &d->base;
    else pair_free(&d->base);
    return st;
}
