/* table_look.c - see table_look.h. */
#include "table_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv.h"
#include "dataset.h"
#include "json_lines.h"

static gm_status count_text(gm_column_look *c, const char *text)
{
    for (int64_t i = 0; i < c->different.n; i++)
        if (!strcmp(gm_names_get(&c->different, i), text)) {
            c->counts[i]++;
            return GM_OK;
        }
    if (c->different.n == GM_LOOK_TEXTS) {
        c->more = true;
        return GM_OK;
    }
    c->counts[c->different.n] = 1;
    return gm_names_add(&c->different, text, strlen(text));
}

static gm_status look_at(gm_column_look *c, const char *text)
{
    double v;
    if (gm_is_missing(text)) {
        c->missing++;
        return GM_OK;
    }
    if (gm_field_is_number(text, &v)) {
        if (!c->numbers || v < c->least) c->least = v;
        if (!c->numbers || v > c->most) c->most = v;
        c->numbers++;
        c->sum += v;
    } else c->texts++;
    return c->more ? GM_OK : count_text(c, text);
}

static gm_status read_separated(gm_csv *f, gm_table_look *t)
{
    bool end;
    GM_TRY(gm_csv_next(f, &end));
    t->columns = f->fields.n;
    if (!(t->each = calloc((size_t)t->columns + 1, sizeof *t->each)))
        return GM_FAIL(GM_ENOMEM, "no memory for columns");
    for (int64_t k = 0; k < t->columns; k++) {
        const char *name = gm_names_get(&f->fields, k);
        GM_TRY(gm_names_add(&t->names, name, strlen(name)));
    }
    for (;;) {
        GM_TRY(gm_csv_next(f, &end));
        if (end) return GM_OK;
        t->rows++;
        if (f->fields.n != t->columns && !t->uneven++) t->uneven_line = f->row_line;
        for (int64_t k = 0; k < t->columns && k < f->fields.n; k++)
            GM_TRY(look_at(&t->each[k], gm_names_get(&f->fields, k)));
    }
}

/* The column of a key, which is new if no object had it; `after`: the column behind that of the key before. */
static gm_status column_of(gm_table_look *t, const char *path, const char *name, int64_t *after)
{
    for (int64_t i = 0; i < t->columns; i++) {
        int64_t k = (*after + i) % t->columns;
        if (strcmp(gm_names_get(&t->names, k), name) != 0) continue;
        *after = k + 1;
        return GM_OK;
    }
    if (t->columns == GM_LOOK_KEYS)
        return GM_FAIL(GM_ECORRUPT, "%s: its objects have more than %d keys", path, GM_LOOK_KEYS);
    gm_column_look *more = realloc(t->each, ((size_t)t->columns + 1) * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for columns");
    t->each = more;
    t->each[t->columns] = (gm_column_look){.missing = t->rows - 1}; /* in the objects before */
    GM_TRY(gm_names_add(&t->names, name, strlen(name)));
    *after = ++t->columns;
    return GM_OK;
}

/* The values of an object, whose keys come behind `prefix`. seen: by column, the row in which it was last there. */
static gm_status look_at_object(gm_table_look *t, const char *path, const char *prefix, json_t *object, int64_t *after,
                                int64_t *seen)
{
    const char *key;
    json_t     *v;
    json_object_foreach(object, key, v)
    {
        char name[512], buf[40];
        snprintf(name, sizeof name, "%s%s", prefix, key);
        if (json_is_object(v)) {
            size_t n = strlen(name);
            snprintf(name + n, sizeof name - n, ".");
            GM_TRY(look_at_object(t, path, name, v, after, seen));
            continue;
        }
        GM_TRY(column_of(t, path, name, after));
        if (json_is_array(v)) snprintf(buf, sizeof buf, "list of %zu", json_array_size(v));
        seen[*after - 1] = t->rows;
        GM_TRY(look_at(&t->each[*after - 1], json_is_array(v) ? buf : gm_json_text(v, buf)));
    }
    return GM_OK;
}

static gm_status read_json(gm_json_lines *l, gm_table_look *t)
{
    int64_t *seen = calloc(GM_LOOK_KEYS, sizeof *seen), after = 0;
    if (!seen) return GM_FAIL(GM_ENOMEM, "no memory for columns");
    gm_status st = GM_OK;
    for (bool end = false; st == GM_OK;) {
        st = gm_json_lines_next(l, &end);
        if (st != GM_OK || end) break;
        t->rows++;
        st = look_at_object(t, l->file->path, "", l->object, &after, seen);
        for (int64_t k = 0; k < t->columns; k++)
            if (seen[k] != t->rows) t->each[k].missing++;
    }
    free(seen);
    return st;
}

gm_status gm_table_look_at(const char *path, gm_table_form form, char delimiter, gm_table_look *out)
{
    gm_csv        *f = NULL;
    gm_json_lines *l = NULL;
    gm_table_look  t = {0};
    if (form == GM_TABLE_JSON) GM_TRY(gm_json_lines_open(path, &l));
    else GM_TRY(gm_csv_open(path, delimiter, &f));
    gm_status st = l ? read_json(l, &t) : read_separated(f, &t);
    gm_csv_close(f);
    gm_json_lines_close(l);
    if (st == GM_OK) *out = t;
    else gm_table_look_free(&t);
    return st;
}

void gm_table_look_free(gm_table_look *t)
{
    for (int64_t k = 0; t->each && k < t->columns; k++) gm_names_free(&t->each[k].different);
    gm_names_free(&t->names);
    free(t->each);
    *t = (gm_table_look){0};
}
