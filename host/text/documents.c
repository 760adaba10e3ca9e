/* documents.c - see documents.h. */
#include "documents.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "../files/stream.h"

struct gm_documents {
    char         *field;
    gm_stream    *file;
    bool          json, lines, gave; /* gave: a file that is one text was given */
    uint64_t      bytes, line;       /* of what was given */
    gm_text_bytes text;              /* a line of JSON */
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

/* How many bytes of the file are there to be given; 0: it ends here. */
static gm_status held(gm_documents *d, size_t *n)
{
    if (d->file->next == d->file->held) GM_TRY(gm_stream_fill(d->file));
    *n = d->file->held - d->file->next;
    return GM_OK;
}

static void pass(gm_documents *d, size_t n) { d->file->next += n, d->bytes += n; }

static gm_status skip(gm_documents *d, uint64_t from)
{
    while (d->bytes < from) {
        size_t n;
        GM_TRY(held(d, &n));
        if (!n) return GM_FAIL(GM_EINVAL, "%s: is shorter than it was", d->file->path);
        pass(d, n < from - d->bytes ? n : (size_t)(from - d->bytes));
    }
    return GM_OK;
}

gm_status gm_documents_open(const char *path, const gm_document_options *o, uint64_t from, uint64_t line,
                            gm_documents **out)
{
    gm_documents *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "%s: no memory for it", path);
    d->field = strdup(o->field ? o->field : "text");
    d->json = is_json(path), d->lines = o->lines;
    gm_status st = d->field ? gm_stream_open(path, GM_STREAM_ANY, &d->file)
                            : GM_FAIL(GM_ENOMEM, "%s: no memory for it", path);
    if (st == GM_OK) st = skip(d, from);
    d->line = line, d->gave = from > 0;
    if (st == GM_OK) *out = d;
    else gm_documents_close(d);
    return st;
}

void gm_documents_close(gm_documents *d)
{
    if (!d) return;
    gm_stream_close(d->file);
    gm_text_free(&d->text);
    free(d->field);
    free(d);
}

/* Adds bytes to the end of a line (without it) or, whole, of the file. *any: were there bytes? */
static gm_status take(gm_documents *d, bool whole, gm_text_bytes *to, bool *any)
{
    size_t before = to->n;
    for (*any = false;;) {
        size_t n;
        GM_TRY(held(d, &n));
        if (!n) break;
        const char *p = (const char *)d->file->buffer + d->file->next, *newline = whole ? NULL : memchr(p, '\n', n);
        size_t      k = newline ? (size_t)(newline - p) : n;
        if (to->n - before > GM_DOCUMENT_MAX - k)
            return GM_FAIL(GM_ECORRUPT, "%s: a text after byte %llu has more than %zu bytes%s", d->file->path,
                           (unsigned long long)d->bytes, GM_DOCUMENT_MAX,
                           whole ? "; --lines takes each line as a text" : "");
        GM_TRY(gm_text_add(to, p, k));
        pass(d, k + (newline != NULL));
        *any = true;
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
    if (!root) return GM_FAIL(GM_ECORRUPT, "%s: line %llu: %s", d->file->path, line, e.text);
    const json_t *v = json_object_get(root, d->field);
    gm_status     st = GM_OK;
    if (json_is_string(v)) st = gm_text_add(to, json_string_value(v), json_string_length(v));
    else
        st = GM_FAIL(GM_ECORRUPT, "%s: line %llu: has no text '%.60s'; --field names another", d->file->path, line,
                     d->field);
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
