/* documents.c - see documents.h. zlib reads files that are not gzipped as they are. */
#include "documents.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define CHUNK ((size_t)1 << 18)

struct gm_documents {
    char         *path, *field;
    gzFile        file;
    bool          json, lines, gave; /* gave: a file that is one text was given */
    char         *chunk;
    size_t        at, n; /* in the chunk: what was given, what there is */
    bool          end;
    uint64_t      bytes, line; /* of what was given */
    gm_text_bytes text;        /* a line of JSON */
};

static bool ends_with(const char *path, size_t n, const char *ending)
{
    size_t k = strlen(ending);
    return n >= k && !memcmp(path + n - k, ending, k);
}

static bool is_json(const char *path)
{
    size_t n = strlen(path);
    if (ends_with(path, n, ".gz")) n -= 3;
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".ndjson") || ends_with(path, n, ".json");
}

static gm_status read_failed(gm_documents *d)
{
    int         code;
    const char *why = gzerror(d->file, &code);
    if (code == Z_ERRNO) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", d->path, strerror(errno));
    return GM_FAIL(GM_ECORRUPT, "%s: after byte %llu: %s", d->path, (unsigned long long)d->bytes, why);
}

static gm_status fill(gm_documents *d)
{
    int got = gzread(d->file, d->chunk, (unsigned)CHUNK), code = Z_OK;
    if (got <= 0) gzerror(d->file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) return read_failed(d);
    d->at = 0, d->n = (size_t)got, d->end = got == 0;
    return GM_OK;
}

static gm_status skip(gm_documents *d, uint64_t from)
{
    while (d->bytes < from) {
        if (d->at == d->n) GM_TRY(fill(d));
        if (d->end) return GM_FAIL(GM_EINVAL, "%s: is shorter than it was", d->path);
        uint64_t k = d->n - d->at < from - d->bytes ? d->n - d->at : from - d->bytes;
        d->at += (size_t)k, d->bytes += k;
    }
    return GM_OK;
}

gm_status gm_documents_open(const char *path, const gm_document_options *o, uint64_t from, uint64_t line,
                            gm_documents **out)
{
    gm_documents *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "%s: no memory for it", path);
    d->path = strdup(path), d->field = strdup(o->field ? o->field : "text"), d->chunk = malloc(CHUNK);
    d->json = is_json(path), d->lines = o->lines;
    gm_status st = d->path && d->field && d->chunk ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for it", path);
    if (st == GM_OK && !(d->file = gzopen(path, "rbe")))
        st = GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (st == GM_OK) gzbuffer(d->file, 1 << 17);
    if (st == GM_OK) st = skip(d, from);
    d->line = line, d->gave = from > 0;
    if (st == GM_OK) *out = d;
    else gm_documents_close(d);
    return st;
}

void gm_documents_close(gm_documents *d)
{
    if (!d) return;
    if (d->file) gzclose(d->file);
    gm_text_free(&d->text);
    free(d->path);
    free(d->field);
    free(d->chunk);
    free(d);
}

/* Adds bytes to the end of a line (without it) or, whole, of the file. *any: were there bytes? */
static gm_status take(gm_documents *d, bool whole, gm_text_bytes *to, bool *any)
{
    size_t before = to->n;
    for (*any = false;;) {
        if (d->at == d->n && !d->end) GM_TRY(fill(d));
        if (d->end) break;
        const char *p = d->chunk + d->at, *newline = whole ? NULL : memchr(p, '\n', d->n - d->at);
        size_t      k = newline ? (size_t)(newline - p) : d->n - d->at;
        if (to->n - before > GM_DOCUMENT_MAX - k)
            return GM_FAIL(GM_ECORRUPT, "%s: a text after byte %llu has more than %zu bytes%s", d->path,
                           (unsigned long long)d->bytes, GM_DOCUMENT_MAX,
                           whole ? "; --lines takes each line as a text" : "");
        GM_TRY(gm_text_add(to, p, k));
        k += newline != NULL;
        d->at += k, d->bytes += k, *any = true;
        if (newline) break;
    }
    d->line += *any;
    return GM_OK;
}

static gm_status add_field(gm_documents *d, gm_text_bytes *to)
{
    json_error_t       e;
    unsigned long long line = (unsigned long long)d->line;
    json_t            *root = json_loadb(d->text.data, d->text.n, JSON_ALLOW_NUL, &e);
    if (!root) return GM_FAIL(GM_ECORRUPT, "%s: line %llu: %s", d->path, line, e.text);
    const json_t *v = json_object_get(root, d->field);
    gm_status     st = GM_OK;
    if (json_is_string(v)) st = gm_text_add(to, json_string_value(v), json_string_length(v));
    else
        st = GM_FAIL(GM_ECORRUPT, "%s: line %llu: has no text '%.60s'; --field names another", d->path, line, d->field);
    json_decref(root);
    return st;
}

static bool is_blank(const gm_text_bytes *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (!strchr(" \t\r", b->data[i]) || !b->data[i]) return false;
    return true;
}

gm_status gm_documents_next(gm_documents *d, gm_text_bytes *to, bool *found)
{
    size_t before = to->n;
    *found = false;
    if (!d->json && !d->lines) {
        if (d->gave) return GM_OK;
        d->gave = true;
        return take(d, true, to, found);
    }
    for (bool any;;) {
        gm_text_bytes *line = d->json ? &d->text : to;
        if (d->json) line->n = 0;
        GM_TRY(take(d, false, line, &any));
        if (!any) return GM_OK;
        if (d->json && !is_blank(line)) return *found = true, add_field(d, to);
        if (!d->json && line->n > before && line->data[line->n - 1] == '\r') line->n--;
        if (!d->json && line->n > before) return *found = true, GM_OK;
    }
}

void gm_documents_place(const gm_documents *d, uint64_t *bytes, uint64_t *line) { *bytes = d->bytes, *line = d->line; }
