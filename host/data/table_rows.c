/* table_rows.c - see table_rows.h. */
#include "table_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv.h"
#include "json_lines.h"

struct gm_table_rows {
    gm_table_rows_options o;
    const char           *path;
    const char *const    *names;
    int                   n;
    gm_csv               *csv;
    int64_t              *at;     /* of GM_TABLE_SEPARATED: the places of the columns in a row */
    int64_t               fields; /* of the first row */
    bool                  waits;  /* the first row is read, and no header */
    gm_json_lines        *json;
    gm_names              texts; /* of GM_TABLE_JSON: the fields of the last row */
};

/* ---- separated values ---- */

/* The names of the first line, as many as there is place for. */
static void say_names(const gm_table_rows *r, char *out, size_t size)
{
    size_t at = 0;
    for (int64_t i = 0; i < r->fields; i++) {
        const char *name = gm_names_get(&r->csv->fields, i);
        if (at + strlen(name) + 8 > size) {
            snprintf(out + at, size - at, ", ...");
            return;
        }
        at += (size_t)snprintf(out + at, size - at, "%s'%s'", i ? ", " : "", name);
    }
}

static gm_status place_of(const gm_table_rows *r, const char *name, int64_t *at)
{
    char *end, there[200] = "";
    *at = -1;
    if (!r->o.header) {
        *at = strtoll(name, &end, 10) - 1;
        if (*end || *at < 0 || *at >= r->fields) *at = -1;
    }
    for (int64_t i = 0; r->o.header && i < r->fields; i++) {
        if (strcmp(gm_names_get(&r->csv->fields, i), name) != 0) continue;
        if (*at >= 0) return GM_FAIL(GM_EINVAL, "%s: has two columns '%s'", r->path, name);
        *at = i;
    }
    if (*at >= 0) return GM_OK;
    if (!r->o.header)
        return GM_FAIL(GM_EINVAL, "%s: has no column '%s'; without a header they are 1, 2, ...", r->path, name);
    say_names(r, there, sizeof there);
    return GM_FAIL(GM_EINVAL, "%s: has no column '%s'; its first line names %s", r->path, name, there);
}

static gm_status open_separated(gm_table_rows *r, const char *path)
{
    bool end;
    GM_TRY(gm_csv_open(path, r->o.delimiter, &r->csv));
    r->path = r->csv->file->path;
    r->at = calloc((size_t)r->n + 1, sizeof *r->at);
    if (!r->at) return GM_FAIL(GM_ENOMEM, "no memory for columns");
    GM_TRY(gm_csv_next(r->csv, &end));
    if (end) return GM_FAIL(GM_ECORRUPT, "%s: is empty", path);
    r->fields = r->csv->fields.n;
    r->waits = !r->o.header;
    for (int k = 0; k < r->n; k++) GM_TRY(place_of(r, r->names[k], &r->at[k]));
    return GM_OK;
}

static gm_status next_separated(gm_table_rows *r, bool *end)
{
    *end = true; /* where a row begins behind a wrong one, nobody knows */
    if (!r->waits) GM_TRY(gm_csv_next(r->csv, end));
    else *end = r->waits = false;
    if (*end || r->csv->fields.n == r->fields) return GM_OK;
    return GM_FAIL(GM_ECORRUPT, "%s: line %lld has %lld fields, the first row %lld", r->path,
                   (long long)r->csv->row_line, (long long)r->csv->fields.n, (long long)r->fields);
}

/* ---- JSON ---- */

static gm_status open_json(gm_table_rows *r, const char *path)
{
    GM_TRY(gm_json_lines_open(path, &r->json));
    r->path = r->json->file->path;
    return r->json->file->held ? GM_OK : GM_FAIL(GM_ECORRUPT, "%s: is empty", path);
}

static gm_status next_json(gm_table_rows *r, bool *end)
{
    char buf[32];
    r->texts.n = 0, r->texts.used = 0;
    GM_TRY(gm_json_lines_next(r->json, end));
    for (int k = 0; k < r->n && !*end; k++) {
        const json_t *v = gm_json_lines_find(r->json, r->names[k]);
        const char   *text = gm_json_text(v, buf);
        if (!text)
            return GM_FAIL(GM_ECORRUPT, "%s: line %lld, column '%s': is %s; name what is in it, such as \"%s.%s\"",
                           r->path, (long long)r->json->line, r->names[k], json_is_array(v) ? "a list" : "an object",
                           r->names[k], json_is_array(v) ? "1" : "key");
        GM_TRY(gm_names_add(&r->texts, text, strlen(text)));
    }
    return GM_OK;
}

/* ---- both ---- */

gm_status gm_table_rows_open(const char *path, const gm_table_rows_options *o, const char *const *names, int n,
                             gm_table_rows **out)
{
    gm_table_rows *r = calloc(1, sizeof *r);
    if (!r) return GM_FAIL(GM_ENOMEM, "no memory for %s", path);
    r->o = *o, r->names = names, r->n = n;
    gm_status st = o->form == GM_TABLE_JSON ? open_json(r, path) : open_separated(r, path);
    if (st == GM_OK) *out = r;
    else gm_table_rows_close(r);
    return st;
}

gm_status gm_table_rows_next(gm_table_rows *r, bool *end)
{
    return r->json ? next_json(r, end) : next_separated(r, end);
}

const char *gm_table_rows_field(const gm_table_rows *r, int k)
{
    return r->json ? gm_names_get(&r->texts, k) : gm_names_get(&r->csv->fields, r->at[k]);
}

int64_t gm_table_rows_line(const gm_table_rows *r) { return r->json ? r->json->line : r->csv->row_line; }

void gm_table_rows_close(gm_table_rows *r)
{
    if (!r) return;
    gm_csv_close(r->csv);
    gm_json_lines_close(r->json);
    gm_names_free(&r->texts);
    free(r->at);
    free(r);
}
