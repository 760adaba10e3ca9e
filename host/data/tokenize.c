/* tokenize.c - see tokenize.h. */
#define _GNU_SOURCE
#include "tokenize.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../files/files.h"
#include "token_file.h"

#define STEP_BYTES ((size_t)4 << 20)
#define STEP_TEXTS 65536

typedef struct worker {
    gm_encoder   *encoder;
    gm_text_ids   ids;
    gm_text_bytes packed;
    gm_status     st;
    char          why[600];
} worker;

struct gm_tokenize {
    gm_tokenize_options o;
    gm_tokenize_place   now;
    gm_documents       *documents; /* of the file that is read; NULL: it is not open yet */
    gm_threads         *threads;
    worker             *workers;
    gm_text_bytes       text;
    size_t             *ends; /* of the texts of a step */
    int64_t             n;
    int                 fd, width;
    char                part[4096];
};

int gm_tokenize_width(const gm_tokenizer *t) { return t->size <= 65536 ? 2 : 4; }

static void destroy(gm_tokenize *z)
{
    for (int i = 0; z->workers && i < z->o.threads; i++) {
        gm_encoder_free(z->workers[i].encoder);
        gm_ids_free(&z->workers[i].ids);
        gm_text_free(&z->workers[i].packed);
    }
    gm_documents_close(z->documents);
    gm_threads_free(z->threads);
    gm_text_free(&z->text);
    if (z->fd >= 0) close(z->fd);
    free(z->workers);
    free(z->ends);
    free(z);
}

static gm_status failed(const gm_tokenize *z, const char *what)
{
    return GM_FAIL(GM_EIO, "%s: cannot be %s: %s", z->part, what, gm_file_error(errno));
}

static gm_status write_all(const gm_tokenize *z, const char *p, size_t n, off_t at)
{
    while (n) {
        ssize_t k = pwrite(z->fd, p, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return failed(z, "written");
        p += k, n -= (size_t)k, at += k;
    }
    return GM_OK;
}

static off_t place_of(const gm_tokenize *z, uint64_t tokens)
{
    return (off_t)(GM_TOKEN_HEADER + tokens * (uint64_t)z->width);
}

static gm_status open_part(gm_tokenize *z)
{
    off_t begin = place_of(z, z->now.tokens);
    if (snprintf(z->part, sizeof z->part, "%s.part", z->o.path) >= (int)sizeof z->part)
        return GM_FAIL(GM_EINVAL, "%s: the name is too long", z->o.path);
    z->fd = open(z->part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (z->fd < 0) return failed(z, "opened");
    off_t size = lseek(z->fd, 0, SEEK_END);
    if (z->now.tokens && size < begin)
        return GM_FAIL(GM_ECORRUPT, "%s: has %lld bytes, fewer than the %lld that were written", z->part,
                       (long long)size, (long long)begin);
    return ftruncate(z->fd, begin) ? failed(z, "cut") : GM_OK;
}

gm_status gm_tokenize_open(const gm_tokenize_options *o, const gm_tokenize_place *start, gm_tokenize **out)
{
    gm_tokenize *z = calloc(1, sizeof *z);
    if (!z) return GM_FAIL(GM_ENOMEM, "no memory to tokenize");
    z->o = *o, z->now = *start, z->fd = -1, z->width = gm_tokenize_width(o->tokenizer);
    z->workers = calloc((size_t)o->threads, sizeof *z->workers);
    z->ends = malloc(STEP_TEXTS * sizeof *z->ends);
    gm_status st = z->workers && z->ends ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to tokenize");
    if (st == GM_OK) st = gm_threads_new(o->threads, &z->threads);
    for (int i = 0; st == GM_OK && i < o->threads; i++) st = gm_encoder_new(o->tokenizer, &z->workers[i].encoder);
    if (st == GM_OK) st = open_part(z);
    if (st == GM_OK) *out = z;
    else destroy(z);
    return st;
}

/* Texts until there are enough for a step, over as many files as that takes. */
static gm_status read_texts(gm_tokenize *z)
{
    z->n = 0, z->text.n = 0;
    while (z->n < STEP_TEXTS && z->text.n < STEP_BYTES && z->now.file < z->o.n_files) {
        bool found;
        if (!z->documents)
            GM_TRY(
                gm_documents_open(z->o.files[z->now.file], &z->o.documents, z->now.bytes, z->now.line, &z->documents));
        GM_TRY(gm_documents_next(z->documents, &z->text, &found));
        gm_documents_place(z->documents, &z->now.bytes, &z->now.line);
        if (found) z->ends[z->n++] = z->text.n;
        if (found) continue;
        gm_documents_close(z->documents);
        z->documents = NULL;
        z->now.file++, z->now.bytes = z->now.line = 0;
    }
    return GM_OK;
}

/* A worker's texts, as bytes of tokens. */
static gm_status encode(const gm_tokenize *z, worker *w, int64_t begin, int64_t end)
{
    w->ids.n = w->packed.n = 0;
    for (int64_t i = begin; i < end; i++) {
        size_t from = i ? z->ends[i - 1] : 0;
        GM_TRY(gm_encode(w->encoder, z->text.data + from, z->ends[i] - from, z->o.special, &w->ids));
        if (z->o.end >= 0) GM_TRY(gm_ids_add(&w->ids, (uint32_t)z->o.end));
    }
    GM_TRY(gm_text_room(&w->packed, w->ids.n * (size_t)z->width));
    unsigned char *p = (unsigned char *)w->packed.data;
    for (size_t i = 0; i < w->ids.n; i++)
        for (int k = 0; k < z->width; k++) *p++ = (unsigned char)(w->ids.data[i] >> 8 * k);
    w->packed.n = w->ids.n * (size_t)z->width;
    return GM_OK;
}

static void job(void *context, int64_t begin, int64_t end, int thread)
{
    gm_tokenize *z = context;
    worker      *w = &z->workers[thread];
    w->st = encode(z, w, begin, end);
    if (w->st != GM_OK) snprintf(w->why, sizeof w->why, "%s", gm_last_error());
}

gm_status gm_tokenize_step(gm_tokenize *z, gm_tokenize_place *now)
{
    const char *name = z->now.file < z->o.n_files ? z->o.files[z->now.file] : "";
    uint64_t    line = z->now.line;
    GM_TRY(read_texts(z));
    for (int i = 0; i < z->o.threads; i++) z->workers[i].st = GM_OK, z->workers[i].ids.n = z->workers[i].packed.n = 0;
    if (z->n) gm_parallel(z->threads, z->n, 1, job, z);
    for (int i = 0; i < z->o.threads; i++) { /* parts in order: the first that failed is the first in the texts */
        worker *w = &z->workers[i];
        if (w->st != GM_OK)
            return GM_FAIL(w->st, "%s, in what follows line %llu: %s", name, (unsigned long long)line, w->why);
        GM_TRY(write_all(z, w->packed.data, w->packed.n, place_of(z, z->now.tokens)));
        z->now.tokens += w->ids.n;
    }
    z->now.documents += (uint64_t)z->n, z->now.text += z->text.n;
    z->now.done = z->now.file >= z->o.n_files;
    *now = z->now;
    return GM_OK;
}

gm_status gm_tokenize_sync(const gm_tokenize *z) { return fdatasync(z->fd) ? failed(z, "written") : GM_OK; }

static gm_status finish(gm_tokenize *z)
{
    unsigned char h[GM_TOKEN_HEADER];
    gm_token_header(h, z->width, (int64_t)z->o.tokenizer->size, (int64_t)z->now.tokens);
    GM_TRY(write_all(z, (char *)h, sizeof h, 0));
    if (fsync(z->fd)) return failed(z, "written");
    return rename(z->part, z->o.path) ? failed(z, "renamed") : GM_OK;
}

gm_status gm_tokenize_close(gm_tokenize *z, bool whole)
{
    gm_status st = whole ? finish(z) : GM_OK;
    destroy(z);
    return st;
}
