/* table_look.c - see table_look.h. */
#include "table_look.h"

#include <stdlib.h>
#include <string.h>

#include "csv.h"
#include "dataset.h"

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

static gm_status read_rows(gm_csv *f, gm_table_look *t)
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

gm_status gm_table_look_at(const char *path, char delimiter, gm_table_look *out)
{
    gm_csv       *f;
    gm_table_look t = {0};
    GM_TRY(gm_csv_open(path, delimiter, &f));
    gm_status st = read_rows(f, &t);
    gm_csv_close(f);
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
