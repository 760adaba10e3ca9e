/* table_dataset.c - rows of numbers from files of separated values or of JSON, see dataset.h. Opening reads all of
 * them. */
#include "dataset.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct column {
    gm_column        is;
    gm_column_report report;
    double           sum;
} column;

typedef struct table_dataset {
    gm_dataset       base;
    gm_table_options o;
    int              n; /* columns: those of x, then y */
    column          *columns;
    gm_table_rows   *rows;   /* of the file that is read */
    const char      *path;   /* of that file */
    double          *values; /* (rows, n); NaN: missing */
    int64_t          room;
    gm_table_report  report;
} table_dataset;

/* ---- values ---- */

static const char *trim(const char *text, size_t *n)
{
    while (isspace((unsigned char)*text)) text++;
    *n = strlen(text);
    while (*n && isspace((unsigned char)text[*n - 1])) --*n;
    return text;
}

bool gm_is_missing(const char *text)
{
    static const char *const words[] = {"", "NA", "N/A", "NaN", "nan", "null", "NULL"};
    size_t                   n;
    text = trim(text, &n);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], text, n)) return true;
    return false;
}

/* A whole field as a number. */
bool gm_field_is_number(const char *text, double *out)
{
    size_t n;
    char  *end;
    text = trim(text, &n);
    *out = strtod(text, &end);
    return end == text + n && n && isfinite(*out) && !strpbrk(text, "xX"); /* no hexadecimal numbers */
}

/* The place of a field among the values that its column has. */
static bool place_of(const gm_column *c, const char *text, double *out)
{
    size_t n;
    text = trim(text, &n);
    for (int k = 0; k < c->n_values; k++)
        if (strlen(c->values[k]) == n && !memcmp(c->values[k], text, n)) {
            *out = k;
            return true;
        }
    return false;
}

static gm_status bad_field(const table_dataset *d, const column *c, const char *text, const char *why)
{
    return GM_FAIL(GM_ECORRUPT, "%s: line %lld, column '%s': '%.40s' %s", d->path,
                   (long long)gm_table_rows_line(d->rows), c->is.name, text, why);
}

/* A field as a number, NaN if it is missing; *drop: the row is left out for that. */
static gm_status read_field(const table_dataset *d, int k, double *out, bool *drop)
{
    const column *c = &d->columns[k];
    const char   *text = gm_table_rows_field(d->rows, k);
    bool          label = k == d->o.n_x && d->base.classes;
    if (c->is.n_values ? place_of(&c->is, text, out) : !gm_is_missing(text) && gm_field_is_number(text, out)) {
        if (!label || (*out >= 0 && *out < (double)d->base.classes && *out == floor(*out))) return GM_OK;
        return bad_field(d, c, text, "is no class");
    }
    *out = NAN;
    if (!gm_is_missing(text))
        return bad_field(d, c, text,
                         c->is.n_values ? "is none of its values"
                                        : "is no number; a column of texts has a list of values");
    if (c->is.missing == GM_MISSING_REFUSE)
        return bad_field(d, c, text,
                         "is missing, and the column has no rule for that (missing: a number, "
                         "\"mean\" or \"drop\")");
    if (c->is.missing == GM_MISSING_DROP) *drop = true;
    return GM_OK;
}

/* ---- rows ---- */

static gm_status more_room(table_dataset *d)
{
    if (d->base.length < d->room) return GM_OK;
    int64_t room = 2 * d->room + 1024;
    double *more = realloc(d->values, (size_t)room * (size_t)d->n * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for %lld rows", (long long)room);
    d->values = more, d->room = room;
    return GM_OK;
}

static void count(column *c, double v)
{
    gm_column_report *r = &c->report;
    if (isnan(v)) {
        r->missing++;
        return;
    }
    if (!r->present || v < r->least) r->least = v;
    if (!r->present || v > r->most) r->most = v;
    r->present++;
    c->sum += v;
}

static gm_status add_row(table_dataset *d)
{
    bool drop = false;
    GM_TRY(more_room(d));
    double *row = d->values + d->base.length * d->n;
    for (int k = 0; k < d->n; k++) GM_TRY(read_field(d, k, &row[k], &drop));
    if (drop) {
        d->report.dropped++;
        return GM_OK;
    }
    for (int k = 0; k < d->n; k++) count(&d->columns[k], row[k]);
    d->base.length++;
    return GM_OK;
}

static gm_status read_rows(table_dataset *d)
{
    for (bool end = false; !end;) {
        gm_status st = gm_table_rows_next(d->rows, &end);
        if (st == GM_OK && !end) st = add_row(d);
        if (st == GM_ECORRUPT && !end && d->o.skip_damaged) {
            if (!d->report.refused++) snprintf(d->report.first, sizeof d->report.first, "%s", gm_last_error());
        } else GM_TRY(st);
    }
    return GM_OK;
}

static gm_status read_files(table_dataset *d, const char *const *paths, int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        d->path = paths[i];
        GM_TRY(gm_table_rows_open(paths[i], &d->o.rows, names, d->n, &d->rows));
        gm_status st = read_rows(d);
        gm_table_rows_close(d->rows);
        d->rows = NULL;
        GM_TRY(st);
    }
    return d->base.length ? GM_OK : GM_FAIL(GM_EINVAL, "%s: no row is left", paths[0]);
}

/* What is missing gets its value, once all rows are known. */
static gm_status fill(table_dataset *d, const char *path)
{
    for (int k = 0; k < d->n; k++) {
        column *c = &d->columns[k];
        if (d->o.rows.form == GM_TABLE_JSON && !c->report.present)
            return GM_FAIL(GM_EINVAL, "%s: no object has a value '%s'", path, c->is.name);
        c->report.mean = c->report.present ? c->sum / (double)c->report.present : 0;
        if (c->is.missing == GM_MISSING_MEAN && !c->report.present && c->report.missing)
            return GM_FAIL(GM_EINVAL, "%s: column '%s' has no value at all, and so no mean", path, c->is.name);
        double v = c->is.missing == GM_MISSING_MEAN ? c->report.mean : c->is.value;
        for (int64_t i = 0; i < d->base.length; i++)
            if (isnan(d->values[i * d->n + k])) d->values[i * d->n + k] = v;
    }
    return GM_OK;
}

/* ---- the dataset ---- */

static gm_status table_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const table_dataset *d = (const table_dataset *)base;
    const double        *row = d->values + i * d->n;
    memcpy(x, row, (size_t)d->o.n_x * sizeof *row);
    if (!d->o.y) *y = 0;
    else if (base->y_real) memcpy(y, row + d->o.n_x, sizeof *row);
    else *y = (int64_t)row[d->o.n_x];
    return GM_OK;
}

static void table_free(gm_dataset *base)
{
    table_dataset *d = (table_dataset *)base;
    free(d->columns);
    free(d->values);
    free(d);
}

void gm_table_report_of(const gm_dataset *d, gm_table_report *out) { *out = ((const table_dataset *)d)->report; }

gm_column_report gm_table_column(const gm_dataset *d, int k) { return ((const table_dataset *)d)->columns[k].report; }

gm_status gm_table_dataset_new(const char *const *paths, int n, const gm_table_options *o, gm_dataset **out)
{
    table_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1,
                           .x_dtype = GM_F64,
                           .x_ndim = 1,
                           .x_shape = {o->n_x},
                           .classes = o->classes,
                           .y_real = o->y && !o->classes,
                           .sample = table_sample,
                           .free = table_free};
    d->o = *o, d->n = o->n_x + (o->y ? 1 : 0);
    d->columns = calloc((size_t)d->n + 1, sizeof *d->columns);
    const char **names = calloc((size_t)d->n + 1, sizeof *names);
    gm_status    st = d->columns && names ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for columns");
    for (int k = 0; st == GM_OK && k < d->n; k++) {
        d->columns[k].is = k < o->n_x ? o->x[k] : *o->y;
        names[k] = d->columns[k].is.name;
    }
    if (st == GM_OK) st = read_files(d, paths, n, names);
    if (st == GM_OK) st = fill(d, paths[0]);
    free(names);
    for (int k = 0; d->columns && k < d->n; k++) d->columns[k].is = (gm_column){0}; /* the caller's texts */
    if (st == GM_OK) *out = &d->base;
    else table_free(&d->base);
    return st;
}
