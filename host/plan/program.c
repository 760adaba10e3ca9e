/* program.c - see replay.h. */
#include <stdlib.h>
#include <string.h>

#include "replay.h"

typedef struct builder {
    const gm_machine *machine;
    gm_program       *program;
    gm_groups        *groups;
    bool              merge;
    int               ways_room;
    int              *begun; /* by id: the line of its BEGIN */
} builder;

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for the steps of a simulation"); }

/* ---- ways ---- */

static bool same_call(const gm_journal *r, const gm_event *a, const gm_journal *s, const gm_event *b)
{
    return a->peer == b->peer && a->bytes == b->bytes &&
           !strcmp(gm_journal_text_of(r, a->name), gm_journal_text_of(s, b->name));
}

static gm_status add_call(gm_way *w, const gm_journal *r, const gm_event *e)
{
    for (int i = 0; i < w->n_calls && !w->message; i++)
        if (same_call(r, w->calls[i], r, e)) return GM_OK;
    if (w->message && w->n_calls) return GM_OK; /* one plan serves messages of all sizes */
    const gm_event **more = realloc(w->calls, (size_t)(w->n_calls + 1) * sizeof *more);
    if (!more) return no_memory();
    w->calls = more;
    more[w->n_calls++] = e;
    return GM_OK;
}

/* Adds what identifies a way, of the event's peer. */
static gm_status describe(const builder *b, const gm_event *e, int group, gm_way *out)
{
    const gm_step *s = b->program->step;
    const char    *op = gm_journal_text_of(s->journal, e->name);
    int            base, size = gm_groups_size(b->groups, &s->mesh, group);
    int            place = gm_groups_place(b->groups, &s->mesh, group, s->rank, &base);
    *out = (gm_way){.group = group, .sends = !strcmp(op, "send")};
    out->message = out->sends || !strcmp(op, "receive");
    if (place < 0)
        return GM_FAIL(GM_EINVAL, "rank %d is no member of the group %s of its own step", s->rank,
                       b->groups->name[group]);
    if (!out->message) return GM_OK;
    if (e->peer < 0 || e->peer >= size)
        return GM_FAIL(GM_EINVAL, "rank %d: there is no place %d in group %s", s->rank, e->peer,
                       b->groups->name[group]);
    out->shift = (e->peer - place + size) % size;
    return GM_OK;
}

static bool same_way(const gm_way *a, const gm_way *b)
{
    return a->group == b->group && a->message == b->message && a->sends == b->sends && a->shift == b->shift;
}

/* Ways are few: a list is enough. */
static gm_status find_way(builder *b, const gm_event *e, int group, int *out)
{
    gm_program *p = b->program;
    gm_way      w;
    GM_TRY(describe(b, e, group, &w));
    for (*out = 0; *out < p->n_ways && !same_way(&p->ways[*out], &w);) ++*out;
    if (*out == p->n_ways) {
        gm_way *more = realloc(p->ways, (size_t)(p->n_ways + 1) * sizeof *more);
        if (!more) return no_memory();
        p->ways = more;
        more[p->n_ways++] = w;
    }
    return add_call(&p->ways[*out], p->step->journal, e);
}

/* ---- lines ---- */

static gm_status add_op(builder *b, const gm_event *e)
{
    gm_program   *p = b->program;
    gm_step_line *last = p->n ? &p->lines[p->n - 1] : NULL;
    double       *seconds = &p->seconds[p->n_seconds];
    GM_TRY(gm_machine_op(b->machine, p->step->journal, e, seconds));
    if (!b->merge || !last || last->kind != GM_EVENT_OP) {
        last = &p->lines[p->n++];
        *last = (gm_step_line){.event = b->merge ? NULL : e, .kind = GM_EVENT_OP, .first = p->n_seconds, .way = -1};
    }
    last->seconds += *seconds;
    last->n++;
    double launched = last->n * b->machine->host.op; /* it begins then, or when the op before ends */
    last->queued = (last->queued > launched ? last->queued : launched) + *seconds;
    p->n_seconds++;
    return GM_OK;
}

static gm_status add_begin(builder *b, const gm_event *e)
{
    gm_program *p = b->program;
    int         group, way;
    GM_TRY(gm_groups_find(b->groups, &p->step->mesh, gm_journal_text_of(p->step->journal, e->group), &group));
    if (group < 0) return GM_OK; /* alone: takes no time, and needs no line */
    GM_TRY(find_way(b, e, group, &way));
    b->begun[e->id] = p->n;
    p->lines[p->n++] = (gm_step_line){.event = e, .kind = GM_EVENT_BEGIN, .way = way, .number = p->ways[way].begun++};
    return GM_OK;
}

/* A second wait for one operation takes no time either, and stays. */
static void add_wait(builder *b, const gm_event *e)
{
    gm_program *p = b->program;
    int         at = b->begun[e->id];
    if (at >= 0)
        p->lines[p->n++] = (gm_step_line){.event = p->lines[at].event, .kind = GM_EVENT_WAIT, .way = p->lines[at].way};
}

static gm_status build(builder *b)
{
    const gm_journal *r = b->program->step->journal;
    for (int64_t i = 0; i < r->n; i++) {
        const gm_event *e = &r->events[i];
        if (e->kind == GM_EVENT_OP) GM_TRY(add_op(b, e));
        if (e->kind == GM_EVENT_BEGIN) GM_TRY(add_begin(b, e));
        if (e->kind == GM_EVENT_WAIT) add_wait(b, e);
    }
    return GM_OK;
}

gm_status gm_program_new(const gm_machine *m, const gm_step *step, bool merge, gm_groups *groups, gm_program *out)
{
    const gm_journal *r = step->journal;
    builder           b = {.machine = m, .program = out, .groups = groups, .merge = merge};
    *out = (gm_program){.step = step, .ids = r->ids};
    out->lines = malloc((size_t)(r->n + 1) * sizeof *out->lines);
    out->seconds = malloc((size_t)(r->n + 1) * sizeof *out->seconds);
    b.begun = malloc((size_t)(r->ids + 1) * sizeof *b.begun);
    gm_status st = out->lines && out->seconds && b.begun ? GM_OK : no_memory();
    for (int i = 0; st == GM_OK && i <= r->ids; i++) b.begun[i] = -1;
    if (st == GM_OK) st = build(&b);
    free(b.begun);
    if (st != GM_OK) gm_program_free(out);
    return st;
}

void gm_program_free(gm_program *p)
{
    for (int i = 0; i < p->n_ways; i++) free(p->ways[i].calls);
    free(p->ways);
    free(p->lines);
    free(p->seconds);
    *p = (gm_program){0};
}

/* ---- equal programs ---- */

static bool same_line(const gm_program *a, const gm_step_line *x, const gm_program *b, const gm_step_line *y)
{
    if (x->kind != y->kind || x->seconds != y->seconds || x->n != y->n || x->way != y->way || x->number != y->number)
        return false;
    if (x->kind == GM_EVENT_OP) return true;
    const gm_journal *r = a->step->journal, *s = b->step->journal;
    if (x->event->id != y->event->id) return false;
    if (!a->ways[x->way].message) return same_call(r, x->event, s, y->event);
    return x->event->bytes == y->event->bytes; /* the other end is the way's */
}

bool gm_program_same(const gm_program *a, const gm_program *b)
{
    if (a->n != b->n || a->n_ways != b->n_ways || a->n_seconds != b->n_seconds) return false;
    for (int i = 0; i < a->n_ways; i++)
        if (!same_way(&a->ways[i], &b->ways[i])) return false;
    if (memcmp(a->seconds, b->seconds, (size_t)a->n_seconds * sizeof *a->seconds) != 0) return false;
    for (int i = 0; i < a->n; i++)
        if (!same_line(a, &a->lines[i], b, &b->lines[i])) return false;
    return true;
}
