/* json_lines.c - see json_lines.h. */
#include "json_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gm_status gm_json_lines_open(const char *path, gm_json_lines **out)
{
    gm_json_lines *l = calloc(1, sizeof *l);
    gm_status st = l ? gm_stream_open(path, GM_STREAM_REGULAR, &l->file) : GM_FAIL(GM_ENOMEM, "no memory for %s", path);
    if (st != GM_OK) {
        free(l);
        return st;
    }
    *out = l;
    return GM_OK;
}

void gm_json_lines_close(gm_json_lines *l)
{
    if (!l) return;
    json_decref(l->object);
    gm_stream_close(l->file);
    free(l->text);
    free(l);
}

static gm_status wrong(const gm_json_lines *l, const char *what)
{
    return GM_FAIL(GM_ECORRUPT, "%s: line %lld: %s", l->file->path, (long long)l->line, what);
}

static gm_status is_at_end(gm_json_lines *l, bool *yes)
{
    if (l->file->next == l->file->held) GM_TRY(gm_stream_fill(l->file));
    *yes = l->file->next == l->file->held;
    return GM_OK;
}

static gm_status more_room(gm_json_lines *l, size_t n)
{
    if (n <= l->room) return GM_OK;
    char *more = realloc(l->text, 2 * n);
    if (!more) return GM_FAIL(GM_ENOMEM, "%s: no memory for a line of %zu bytes", l->file->path, n);
    l->text = more, l->room = 2 * n;
    return GM_OK;
}

/* Copies what comes next in the file, up to the end of the line or of the file -> *n bytes without the end. A line that
 * is too long is passed, and *n is GM_JSON_LINE_MAX + 1. */
static gm_status read_line(gm_json_lines *l, size_t *n)
{
    *n = 0;
    for (const unsigned char *end = NULL; !end;) {
        bool at_end;
        GM_TRY(is_at_end(l, &at_end));
        if (at_end) break;
        const unsigned char *from = l->file->buffer + l->file->next;
        size_t               piece = l->file->held - l->file->next;
        end = memchr(from, '\n', piece);
        if (end) piece = (size_t)(end - from);
        size_t kept = *n <= GM_JSON_LINE_MAX ? *n : 0;
        GM_TRY(more_room(l, kept + piece));
        if (piece) memcpy(l->text + kept, from, piece); /* before the first line that is not empty there is no room */
        l->file->next += piece + (end ? 1 : 0);
        *n = *n + piece <= GM_JSON_LINE_MAX ? *n + piece : GM_JSON_LINE_MAX + 1;
    }
    return GM_OK;
}

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

gm_status gm_json_lines_next(gm_json_lines *l, bool *end)
{
    json_error_t err;
    size_t       n;
    json_decref(l->object);
    l->object = NULL;
    *end = true;
    do {
        bool at_end;
        GM_TRY(is_at_end(l, &at_end));
        if (at_end) return GM_OK;
        l->line++;
        GM_TRY(read_line(l, &n));
    } while (n <= GM_JSON_LINE_MAX && is_blank(l->text, n));
    *end = false;
    if (n > GM_JSON_LINE_MAX) return wrong(l, "has more than 64 MiB; is each object on a line of its own?");
    json_t *v = json_loadb(l->text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &err);
    if (!v) return wrong(l, err.text);
    if (json_is_object(v)) {
        l->object = v;
        return GM_OK;
    }
    json_decref(v);
    return wrong(l, "is no object, such as {\"x\": 1}");
}

static const json_t *find(const json_t *v, const char *name)
{
    const json_t *whole = json_object_get(v, name);
    const char   *dot = strchr(name, '.');
    char         *after, key[256];
    if (whole || !v) return whole;
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    if (n >= sizeof key) return NULL;
    memcpy(key, name, n);
    key[n] = 0;
    if (json_is_array(v)) {
        unsigned long long place = strtoull(key, &after, 10);
        if (*after || after == key || key[0] == '-' || place < 1) return NULL;
        const json_t *at = json_array_get(v, (size_t)place - 1);
        return dot ? find(at, dot + 1) : at;
    }
    return dot ? find(json_object_get(v, key), dot + 1) : NULL;
}

const json_t *gm_json_lines_find(const gm_json_lines *l, const char *name) { return find(l->object, name); }

const char *gm_json_text(const json_t *v, char *buf)
{
    if (!v || json_is_null(v)) return "";
    if (json_is_string(v)) return json_string_value(v);
    if (json_is_boolean(v)) return json_is_true(v) ? "true" : "false";
    if (!json_is_number(v)) return NULL;
    snprintf(buf, 32, "%.17g", json_number_value(v));
    return buf;
}
