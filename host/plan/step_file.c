/* step_file.c - see step_file.h. */
#include "step_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../files/files.h"

#define VERSION "ganymede-step 1"
#define KINDS   "obwaf" /* by gm_event_kind */
#define AGAIN   'r'     /* an op that runs again */

/* ---- writing ---- */

static void write_number(FILE *f, double v)
{
    if (v == floor(v) && fabs(v) < 1e15) fprintf(f, " %.0f", v);
    else fprintf(f, " %.17g", v);
}

static void write_event(FILE *f, const gm_event *e)
{
    fputc(e->again ? AGAIN : KINDS[e->kind], f);
    if (e->kind == GM_EVENT_OP)
        fprintf(f, " %d %d %d %d %lld", e->name, e->about, e->dtype, e->path, (long long)e->size);
    if (e->kind == GM_EVENT_BEGIN || e->kind == GM_EVENT_WAIT) fprintf(f, " %d", e->id);
    if (e->kind == GM_EVENT_BEGIN)
        fprintf(f, " %d %d %d %d %d %d %d", e->name, e->about, e->dtype, e->path, e->phase, e->group, e->peer);
    if (e->kind == GM_EVENT_OP) {
        write_number(f, e->flops);
        write_number(f, e->products);
    }
    if (e->kind != GM_EVENT_WAIT) write_number(f, e->bytes);
    if (e->kind == GM_EVENT_BEGIN) write_number(f, e->sent);
    write_number(f, e->seconds);
    fputc('\n', f);
}

static void write_text(FILE *f, const char *text)
{
    fputs("t ", f);
    for (; *text; text++) fputc(*text == '\n' ? ' ' : *text, f);
    fputc('\n', f);
}

static void write_all(FILE *f, const gm_step *s)
{
    const gm_journal *r = s->journal;
    fprintf(f, VERSION "\nrank %d\n", s->rank);
    for (int a = 0; a < s->mesh.n_axes; a++) fprintf(f, "axis %s %d\n", s->mesh.axis[a].name, s->mesh.axis[a].size);
    fprintf(f, "live");
    write_number(f, r->live);
    fputc('\n', f);
    for (int32_t i = 0; i < r->n_texts; i++) write_text(f, r->texts[i]);
    for (int64_t i = 0; i < r->n; i++) write_event(f, &r->events[i]);
    fprintf(f, "end %lld\n", (long long)r->n);
}

gm_status gm_step_write(const gm_step *s, const char *path)
{
    char  *bytes = NULL;
    size_t n = 0;
    if (s->journal->failed) return GM_FAIL(GM_ENOMEM, "no memory for the record of a step: it is not complete");
    FILE *f = open_memstream(&bytes, &n);
    if (!f) return GM_FAIL(GM_ENOMEM, "no memory for the file of a step");
    write_all(f, s);
    bool      bad = ferror(f) != 0;
    gm_status st = fclose(f) != 0 || bad ? GM_FAIL(GM_ENOMEM, "no memory for the file of a step") : GM_OK;
    if (st == GM_OK) st = gm_write_whole(path, bytes, n);
    free(bytes);
    return st;
}

/* ---- reading ---- */

typedef struct reader {
    const char *path;
    long long   line, ended; /* ended: what the line `end` says; -1: it has not come */
    char       *at;          /* the rest of the line */
    bool        bad;
} reader;

static double number(reader *in)
{
    char  *end;
    double v = strtod(in->at, &end);
    if (end == in->at || (*end && *end != ' ') || !isfinite(v)) in->bad = true;
    in->at = end;
    return v;
}

static int32_t whole(reader *in, double least, double most)
{
    double v = number(in);
    if (v != floor(v) || v < least || v > most) in->bad = true;
    return in->bad ? 0 : (int32_t)v;
}

static int32_t text(reader *in, const gm_journal *r) { return whole(in, -1, r->n_texts - 1); }

static double amount(reader *in)
{
    double v = number(in);
    if (v < 0) in->bad = true;
    return v;
}

static void read_op(reader *in, const gm_journal *r, gm_event *e)
{
    e->name = text(in, r);
    e->about = text(in, r);
    e->dtype = text(in, r);
    e->path = text(in, r);
    e->size = (int64_t)amount(in);
    e->flops = amount(in);
    e->products = amount(in);
    e->bytes = amount(in);
}

static void read_begin(reader *in, gm_journal *r, gm_event *e)
{
    e->id = whole(in, r->ids + 1, r->ids + 1);
    r->ids++;
    e->name = text(in, r);
    e->about = text(in, r);
    e->dtype = text(in, r);
    e->path = text(in, r);
    e->phase = text(in, r);
    e->group = text(in, r);
    e->peer = whole(in, -1, 1 << 30);
    e->bytes = amount(in);
    e->sent = amount(in);
}

static gm_status read_event(reader *in, gm_journal *r, gm_event_kind kind)
{
    gm_event *e = gm_journal_add(r, kind);
    if (!e) return GM_FAIL(GM_ENOMEM, "%s: no memory for its events", in->path);
    if (kind == GM_EVENT_OP) read_op(in, r, e);
    else if (kind == GM_EVENT_BEGIN) read_begin(in, r, e);
    else if (kind == GM_EVENT_WAIT) e->id = whole(in, 1, r->ids);
    else e->bytes = amount(in);
    e->seconds = amount(in);
    in->bad |= *in->at != 0;
    return GM_OK;
}

static bool begins(const char *line, const char *word, char **rest)
{
    size_t n = strlen(word);
    if (strncmp(line, word, n) != 0) return false;
    *rest = (char *)line + n;
    return true;
}

static gm_status read_axis(reader *in, gm_mesh *mesh)
{
    char *blank = strchr(in->at, ' ');
    if (!blank) return GM_FAIL(GM_EINVAL, "an axis has a name and a size");
    *blank = 0;
    const char *name = in->at;
    in->at = blank + 1;
    int size = whole(in, 1, 1 << 30);
    return in->bad ? GM_OK : gm_mesh_add_axis(mesh, name, size);
}

static gm_status read_line(reader *in, char *line, gm_step *s)
{
    bool        again = line[0] == AGAIN && line[1] == ' ';
    const char *kind = again ? KINDS : line[0] ? strchr(KINDS, line[0]) : NULL;
    gm_journal *r = s->journal;
    if (in->line == 1) {
        in->bad = strcmp(line, VERSION) != 0;
        return GM_OK;
    }
    if (in->ended >= 0) in->bad = true;
    else if (kind && line[1] == ' ') {
        in->at = line + 2;
        GM_TRY(read_event(in, r, (gm_event_kind)(kind - KINDS)));
        r->events[r->n - 1].again = again;
        return GM_OK;
    } else if (begins(line, "t ", &in->at)) {
        if (gm_journal_text(r, in->at) != r->n_texts - 1) in->bad = true;
    } else if (begins(line, "axis ", &in->at)) return read_axis(in, &s->mesh);
    else if (begins(line, "rank ", &in->at)) s->rank = whole(in, 0, 1 << 30);
    else if (begins(line, "live ", &in->at)) r->live = amount(in);
    else if (begins(line, "end ", &in->at)) in->ended = (long long)amount(in);
    else in->bad = true;
    return GM_OK;
}

static gm_status read_lines(reader *in, FILE *f, gm_step *s)
{
    char     *line = NULL;
    size_t    room = 0;
    ssize_t   n;
    gm_status st = GM_OK;
    while (st == GM_OK && !in->bad && (n = getline(&line, &room, f)) >= 0) {
        in->line++;
        if (n && line[n - 1] == '\n') line[n - 1] = 0;
        st = read_line(in, line, s);
    }
    free(line);
    if (st == GM_OK && in->bad)
        st = GM_FAIL(GM_EINVAL, "%s, line %lld: this is not a line of a step's file (%s)", in->path, in->line, VERSION);
    if (st == GM_OK && (ferror(f) || in->ended != s->journal->n || s->rank >= gm_mesh_size(&s->mesh)))
        st = GM_FAIL(GM_EINVAL, "%s: the file of a step is not complete", in->path);
    return st;
}

gm_status gm_step_read(const char *path, gm_step *out)
{
    reader in = {.path = path, .ended = -1};
    FILE  *f = fopen(path, "r");
    *out = (gm_step){.mesh = gm_mesh_of_one()};
    if (!f) return GM_FAIL(GM_EIO, "cannot read %s: %s", path, strerror(errno));
    gm_status st = gm_journal_new(GM_JOURNAL_NONE, &out->journal);
    if (st == GM_OK) st = read_lines(&in, f, out);
    fclose(f);
    if (st != GM_OK) gm_step_free(out);
    return st;
}

void gm_step_free(gm_step *s)
{
    gm_journal_free(s->journal);
    s->journal = NULL;
}

double gm_step_peak(const gm_step *s)
{
    double live = s->journal->live, peak = live;
    for (int64_t i = 0; i < s->journal->n; i++) {
        const gm_event *e = &s->journal->events[i];
        if (e->kind == GM_EVENT_ALLOC) live += e->bytes;
        if (e->kind == GM_EVENT_FREE) live -= e->bytes;
        if (live > peak) peak = live;
    }
    return peak;
}

static bool makes_gradient(const char *op)
{
    size_t n = strlen(op);
    return n > 5 && !strcmp(op + n - 5, "_grad");
}

void gm_step_last_ops(const gm_step *step, int64_t *product, int64_t *of_passes)
{
    const gm_journal *r = step->journal;
    *product = *of_passes = -1;
    for (int64_t i = 0; i < r->n; i++) {
        const gm_event *e = &r->events[i];
        if (e->kind != GM_EVENT_OP) continue;
        if (e->products > 0) *product = i;
        if (e->products > 0 || makes_gradient(gm_journal_text_of(r, e->name))) *of_passes = i;
    }
}

double gm_step_products(const gm_step *s, double *again)
{
    double sum = 0;
    *again = 0;
    for (int64_t i = 0; i < s->journal->n; i++) {
        const gm_event *e = &s->journal->events[i];
        if (e->kind != GM_EVENT_OP) continue;
        sum += e->products;
        if (e->again) *again += e->products;
    }
    return sum;
}
