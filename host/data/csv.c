/* csv.c - see csv.h. */
#include "csv.h"

#include <stdlib.h>

#define NO_BYTE (-1)

gm_status gm_csv_open(const char *path, char delimiter, gm_csv **out)
{
    gm_csv   *c = calloc(1, sizeof *c);
    gm_status st = c ? gm_stream_open(path, GM_STREAM_REGULAR, &c->file) : GM_FAIL(GM_ENOMEM, "no memory for %s", path);
    if (st != GM_OK) {
        free(c);
        return st;
    }
    c->delimiter = delimiter, c->line = 1;
    *out = c;
    return GM_OK;
}

void gm_csv_close(gm_csv *c)
{
    if (!c) return;
    gm_stream_close(c->file);
    gm_names_free(&c->fields);
    free(c->text);
    free(c);
}

static gm_status wrong(const gm_csv *c, int64_t line, const char *what)
{
    return GM_FAIL(GM_ECORRUPT, "%s: line %lld: %s", c->file->path, (long long)line, what);
}

/* The next byte, which stays; NO_BYTE: there is none. */
static gm_status look(gm_csv *c, int *byte)
{
    gm_stream *f = c->file;
    if (f->next == f->held) GM_TRY(gm_stream_fill(f));
    *byte = f->next < f->held ? f->buffer[f->next] : NO_BYTE;
    return *byte ? GM_OK : wrong(c, c->line, "has a byte 0; is it a text?");
}

static void take(gm_csv *c)
{
    if (c->file->buffer[c->file->next++] == '\n') c->line++;
}

static gm_status put(gm_csv *c, int byte)
{
    if (c->used == c->room) {
        size_t room = 2 * c->room + 256;
        char  *more = realloc(c->text, room);
        if (!more) return GM_FAIL(GM_ENOMEM, "%s: no memory for a field of %zu bytes", c->file->path, room);
        c->text = more, c->room = room;
    }
    c->text[c->used++] = (char)byte;
    return GM_OK;
}

/* Behind the opening quote, to behind the closing one. */
static gm_status quoted(gm_csv *c)
{
    int     byte;
    int64_t begun = c->line;
    for (;;) {
        GM_TRY(look(c, &byte));
        if (byte == NO_BYTE) return wrong(c, begun, "a quote is opened here and never closed");
        take(c);
        if (byte == '"') {
            GM_TRY(look(c, &byte));
            if (byte != '"') return GM_OK;
            take(c);
        }
        GM_TRY(put(c, byte));
    }
}

/* One field; *last: the row ends behind it. */
static gm_status read_field(gm_csv *c, bool *last)
{
    int  byte;
    bool in_quotes = false;
    c->used = 0;
    GM_TRY(look(c, &byte));
    if (byte == '"') {
        take(c);
        GM_TRY(quoted(c));
        in_quotes = true;
    }
    for (;;) {
        GM_TRY(look(c, &byte));
        if (byte == NO_BYTE || byte == '\n' || byte == c->delimiter) break;
        take(c);
        if (byte == '\r') {
            int after;
            GM_TRY(look(c, &after));
            if (after == '\n' || after == NO_BYTE) continue;
        }
        if (in_quotes) return wrong(c, c->line, "there is text behind a closing quote");
        GM_TRY(put(c, byte));
    }
    *last = byte != c->delimiter;
    if (byte != NO_BYTE) take(c);
    if (c->fields.n == GM_CSV_FIELDS_MAX) return wrong(c, c->line, "the row has too many fields");
    return gm_names_add(&c->fields, c->text ? c->text : "", c->used);
}

gm_status gm_csv_next(gm_csv *c, bool *end)
{
    int  byte;
    bool last = false;
    c->fields.n = 0, c->fields.used = 0;
    do {
        GM_TRY(look(c, &byte));
        if (byte == '\n' || byte == '\r') take(c);
    } while (byte == '\n' || byte == '\r');
    *end = byte == NO_BYTE;
    c->row_line = c->line;
    while (!*end && !last) GM_TRY(read_field(c, &last));
    return GM_OK;
}
