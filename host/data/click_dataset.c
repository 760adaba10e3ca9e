/* click_dataset.c - logs of clicks, and made-up ones, see dataset.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"
#include "csv.h"
#include "dataset.h"
#include "normals.h"

enum { SITE_LAW = 101, SITE_DRAW }; /* beside those of synthetic_dataset.c */
enum { EFFECTS = 3 };               /* numbers of a row of a table: its own effect, and a vector of two */

typedef struct click_dataset {
    gm_dataset base;
    int        dense, tables;
    int64_t   *rows;
    int32_t   *fields; /* of a log: (length, 1 + dense + tables) */
    int64_t    room;
    double     signal;
    uint64_t   law, draw; /* of made-up ones: stream keys of what is to be learned, and of the samples */
} click_dataset;

static int fields_of(const click_dataset *d) { return 1 + d->dense + d->tables; }

static void click_free(gm_dataset *base)
{
    click_dataset *d = (click_dataset *)base;
    free(d->rows);
    free(d->fields);
    free(d);
}

static gm_status click_new(const gm_click_options *o, click_dataset **out)
{
    if (o->dense < 0 || o->tables < 0 || o->dense + o->tables < 1 || o->dense + o->tables >= GM_CSV_FIELDS_MAX)
        return GM_FAIL(GM_EINVAL, "clicks: %d counts and %d tables", o->dense, o->tables);
    for (int t = 0; t < o->tables; t++)
        if (o->rows[t] < 1 || o->rows[t] > INT32_MAX)
            return GM_FAIL(GM_EINVAL, "clicks: table %d has %lld rows, should have 1 to 2^31 - 1", t + 1,
                           (long long)o->rows[t]);
    click_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){
        .refs = 1, .x_dtype = GM_I64, .x_ndim = 1, .x_shape = {o->dense + o->tables}, .classes = 2, .free = click_free};
    d->dense = o->dense, d->tables = o->tables;
    d->rows = malloc(((size_t)o->tables + 1) * sizeof *d->rows);
    if (!d->rows) {
        click_free(&d->base);
        return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    }
    if (o->tables) memcpy(d->rows, o->rows, (size_t)o->tables * sizeof *d->rows);
    *out = d;
    return GM_OK;
}

/* ---- logs ---- */

static gm_status log_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const click_dataset *d = (const click_dataset *)base;
    const int32_t       *row = d->fields + i * fields_of(d);
    *y = row[0];
    for (int k = 1; k < fields_of(d); k++) ((int64_t *)x)[k - 1] = row[k];
    return GM_OK;
}

static gm_status bad_field(const gm_csv *f, int k, const char *why)
{
    return GM_FAIL(GM_ECORRUPT, "%s: line %lld, field %d: '%.40s' %s", f->file->path, (long long)f->row_line, k + 1,
                   gm_names_get(&f->fields, k), why);
}

/* A field of digits of this base, alone. */
static bool whole(const char *text, int base, long long *out)
{
    char *end;
    if (strpbrk(text, " \t+xX") || (base == 16 && *text == '-')) return false;
    errno = 0;
    *out = strtoll(text, &end, base);
    return end != text && !*end && !errno;
}

/* Field k of a line as what samples hold. */
static gm_status read_field(const click_dataset *d, const gm_csv *f, int k, int32_t *out)
{
    long long   v = 0;
    const char *text = gm_names_get(&f->fields, k);
    bool        hex = k > d->dense;
    if (k == 0) {
        if (strcmp(text, "0") && strcmp(text, "1")) return bad_field(f, k, "is no label, which is 0 or 1");
        v = *text - '0';
    } else if (*text && !whole(text, hex ? 16 : 10, &v)) {
        return bad_field(f, k, hex ? "is no hexadecimal number" : "is no whole number");
    } else if (!hex && (v < INT32_MIN || v > INT32_MAX)) {
        return bad_field(f, k, "needs more than 32 bits");
    }
    *out = (int32_t)(hex ? v % d->rows[k - 1 - d->dense] : v);
    return GM_OK;
}

static gm_status add_line(click_dataset *d, const gm_csv *f)
{
    int n = fields_of(d);
    if (f->fields.n != n)
        return GM_FAIL(GM_ECORRUPT, "%s: line %lld has %lld fields, should have %d: a label, %d counts, %d categories",
                       f->file->path, (long long)f->row_line, (long long)f->fields.n, n, d->dense, d->tables);
    if (d->base.length == d->room) {
        int64_t  room = 2 * d->room + 1024;
        int32_t *more = realloc(d->fields, (size_t)room * (size_t)n * sizeof *more);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for %lld lines", (long long)room);
        d->fields = more, d->room = room;
    }
    for (int k = 0; k < n; k++) GM_TRY(read_field(d, f, k, &d->fields[d->base.length * n + k]));
    d->base.length++;
    return GM_OK;
}

static gm_status read_log(click_dataset *d, const char *path, bool skip, gm_click_report *report)
{
    gm_csv   *f = NULL;
    bool      end = false;
    gm_status st = gm_csv_open(path, '\t', &f);
    while (st == GM_OK) {
        st = gm_csv_next(f, &end);
        if (st != GM_OK || end) break;
        st = add_line(d, f);
        if (st == GM_ECORRUPT && skip) {
            if (!report->refused++) snprintf(report->first, sizeof report->first, "%s", gm_last_error());
            st = GM_OK;
        }
    }
    gm_csv_close(f);
    return st;
}

gm_status gm_click_log_new(const char *const *paths, int n, const gm_click_options *o, gm_click_report *report,
                           gm_dataset **out)
{
    click_dataset *d;
    gm_status      st = GM_OK;
    GM_TRY(click_new(o, &d));
    d->base.sample = log_sample;
    *report = (gm_click_report){0};
    for (int i = 0; i < n && st == GM_OK; i++) st = read_log(d, paths[i], o->skip_damaged, report);
    if (st == GM_OK && !d->base.length) st = GM_FAIL(GM_EINVAL, "%s: no line is left", paths[0]);
    if (st == GM_OK) *out = &d->base;
    else click_free(&d->base);
    return st;
}

/* ---- made-up clicks ----
 *
 * Row v of table t has an effect and a vector of two numbers, all standard normal; a count has a slope. The log-odds of
 * a click are -1 and `signal` times the sum, of variance 1, of the effects of the rows, the slopes times the logs of
 * the counts, and the products of the vectors of tables that follow one another, without which a linear model would do.
 * Low rows are more frequent than high ones: v is rows u^3 for an even u. One count in ten is 0. */

static double even(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32; }

static void effects_of(const click_dataset *d, int t, int64_t row, double *e)
{
    gm_normals(d->law, (uint64_t)row << 16 | (uint64_t)(t + 1), EFFECTS, 1, NULL, e);
}

static double made_counts(const click_dataset *d, uint64_t i, int64_t *x)
{
    double sum = 0;
    for (int k = 0; k < d->dense; k++) {
        double    slope;
        gm_philox p = gm_philox_at(d->draw, (uint64_t)k, i << 1);
        gm_normals(d->law, (uint64_t)k << 16, 1, 1, NULL, &slope);
        double z = sqrt(-2 * log(even(p.v[0]))) * cos(6.283185307179586477 * even(p.v[1]));
        bool   none = p.v[2] < UINT32_MAX / 10;
        x[k] = none ? 0 : (int64_t)exp(2 + z);
        sum += slope * (log1p((double)x[k]) - 2);
    }
    return sum;
}

static double made_rows(const click_dataset *d, uint64_t i, int64_t *x)
{
    double sum = 0, before[EFFECTS] = {0}, e[EFFECTS];
    for (int t = 0; t < d->tables; t++) {
        double u = even(gm_philox_at(d->draw, (uint64_t)t, i << 1 | 1).v[0]);
        x[t] = (int64_t)((double)d->rows[t] * u * u * u);
        effects_of(d, t, x[t], e);
        sum += e[0] + before[1] * e[1] + before[2] * e[2];
        memcpy(before, e, sizeof e);
    }
    return sum;
}

static gm_status made_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const click_dataset *d = (const click_dataset *)base;
    double               sum = made_counts(d, (uint64_t)i, x), terms = d->dense + 3 * d->tables;
    sum += made_rows(d, (uint64_t)i, (int64_t *)x + d->dense);
    double chance = 1 / (1 + exp(1 - d->signal * sum / sqrt(terms)));
    *y = even(gm_philox_at(d->draw, UINT32_MAX, (uint64_t)i).v[0]) < chance;
    return GM_OK;
}

gm_status gm_made_click_new(int64_t length, const gm_click_options *o, double signal, uint64_t seed, uint64_t split,
                            gm_dataset **out)
{
    click_dataset *d;
    if (length < 1 || !(signal >= 0))
        return GM_FAIL(GM_EINVAL, "made-up clicks: length must be at least 1, signal not negative");
    GM_TRY(click_new(o, &d));
    d->base.length = length, d->base.sample = made_sample, d->signal = signal;
    d->law = gm_stream_key(seed, GM_PURPOSE_USER, SITE_LAW);
    d->draw = gm_stream_key(seed, GM_PURPOSE_USER, SITE_DRAW + 16 * split);
    *out = &d->base;
    return GM_OK;
}
