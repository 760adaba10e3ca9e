/* token_dataset.c - windows of a token stream, for language models. */
#include "dataset.h"
#include "token_file.h"

#include <stdlib.h>

typedef struct token_dataset {
    gm_dataset    base;
    gm_token_file file;
    int64_t       begin, stride, end_token;
} token_dataset;

/* Numbers of the documents behind the tokens of x; the target behind the last token of each is none. */
static void mark_documents(int64_t end_token, int64_t n, int64_t *x, int64_t *y)
{
    int64_t *segments = x + n, document = 0;
    for (int64_t k = 0; k < n; k++) {
        segments[k] = document;
        if (x[k] != end_token) continue;
        y[k] = GM_TARGET_IGNORED;
        document++;
    }
}

/* x and y overlap in all but one token; each is read by itself, so that x needs no room beyond its own. */
static gm_status token_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const token_dataset *d = (const token_dataset *)base;
    int64_t              at = d->begin + i * d->stride, n = base->y_shape[0];
    GM_TRY(gm_token_read(&d->file, at, n, x));
    GM_TRY(gm_token_read(&d->file, at + 1, n, y));
    if (d->end_token != GM_NO_END_TOKEN) mark_documents(d->end_token, n, x, y);
    return GM_OK;
}

static void token_free(gm_dataset *base)
{
    gm_token_close(&((token_dataset *)base)->file);
    free(base);
}

/* The windows that fit in tokens [begin, end), the last target included. */
static gm_status token_fit(token_dataset *d, const gm_token_options *o)
{
    int64_t begin = (int64_t)(o->begin * (double)d->file.count), end = (int64_t)(o->end * (double)d->file.count);
    if (end - begin < o->length + 1)
        return GM_FAIL(GM_EINVAL,
                       "%s: %lld tokens are too few for one window of %lld and its last target; "
                       "make sequence_length smaller",
                       d->file.bytes.path, (long long)(end - begin), (long long)o->length);
    if (o->end_token != GM_NO_END_TOKEN && (o->end_token < 0 || o->end_token >= d->file.vocab_size))
        return GM_FAIL(GM_EINVAL, "%s: end_token %lld is none of the %lld tokens of the vocabulary", d->file.bytes.path,
                       (long long)o->end_token, (long long)d->file.vocab_size);
    d->begin = begin, d->stride = o->stride, d->end_token = o->end_token;
    d->base.length = (end - begin - o->length - 1) / o->stride + 1;
    d->base.x_ndim = o->end_token == GM_NO_END_TOKEN ? 1 : 2;
    d->base.x_shape[0] = 2; /* tokens, and numbers of documents */
    d->base.x_shape[d->base.x_ndim - 1] = d->base.y_shape[0] = o->length;
    d->base.classes = d->file.vocab_size;
    return GM_OK;
}

gm_status gm_token_dataset_new(const char *path, const gm_token_options *o, gm_dataset **out)
{
    if (o->length < 1 || o->stride < 1) return GM_FAIL(GM_EINVAL, "sequence_length and stride must be at least 1");
    if (!(o->begin >= 0 && o->begin <= o->end && o->end <= 1))
        return GM_FAIL(GM_EINVAL, "the part %g to %g of a stream: fractions from 0 to 1 in order are needed", o->begin,
                       o->end);
    token_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1, .x_dtype = GM_I64, .y_ndim = 1, .sample = token_sample, .free = token_free};
    gm_status st = gm_token_open(path, o->width, o->vocab_size, &d->file);
    if (st == GM_OK) st = token_fit(d, o);
    if (st == GM_OK) *out = &d->base;
    else token_free(&d->base);
    return st;
}
