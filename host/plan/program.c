/* program.c - see replay.h. */
#include <stdlib.h>
#include <string.h>

#include "replay.h"

static gm_status mask_of(const gm_mesh *mesh, const char *name, uint32_t *axes)
{
    char copy[128], *rest = copy, *word;
    *axes = 0;
    if (strlen(name) >= sizeof copy) return GM_FAIL(GM_EINVAL, "the name of group %s is too long", name);
    strcpy(copy, name);
    while ((word = strsep(&rest, ".")) != NULL) {
        int a = gm_mesh_axis(mesh, word);
        if (a < 0)
            return GM_FAIL(GM_EINVAL, "a simulation knows groups along axes of the mesh only, and '%s' is not one%s",
                           name, *name == '?' ? " (a group that a recipe has made of some ranks)" : "");
        *axes |= 1u << a;
    }
    return GM_OK;
}

static gm_status group_of(gm_groups *g, const gm_mesh *mesh, const char *name, int *out)
{
    *out = -1;
    if (!*name) return GM_OK;
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->name[i], name)) {
            *out = i;
            return GM_OK;
        }
    if (g->n == GM_SIMULATED_GROUPS)
        return GM_FAIL(GM_EINVAL, "a simulation takes %d groups of axes, and there are more", GM_SIMULATED_GROUPS);
    GM_TRY(mask_of(mesh, name, &g->axes[g->n]));
    strcpy(g->name[g->n], name);
    *out = g->n++;
    return GM_OK;
}

static bool is_message(const gm_journal *r, const gm_event *e)
{
    const char *name = gm_journal_text_of(r, e->name);
    return !strcmp(name, "send") || !strcmp(name, "receive");
}

/* Do both belong to one list of calls: a group's, or a channel's? */
static bool same_list(const gm_journal *r, const gm_event *a, const gm_event *b)
{
    bool message = is_message(r, a);
    if (a->group != b->group || message != is_message(r, b)) return false;
    return !message || (a->name == b->name && a->peer == b->peer);
}

typedef struct counter {
    const gm_event *first;
    int             n;
} counter;

/* Groups and peers are few: a list is enough. */
static gm_status count(counter **list, int *n, const gm_journal *r, const gm_event *e, int *number)
{
    for (int i = 0; i < *n; i++)
        if (same_list(r, (*list)[i].first, e)) {
            *number = (*list)[i].n++;
            return GM_OK;
        }
    counter *more = realloc(*list, (size_t)(*n + 1) * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for the channels of a simulation");
    *list = more;
    more[(*n)++] = (counter){e, 1};
    *number = 0;
    return GM_OK;
}

typedef struct builder {
    const gm_machine *machine;
    gm_program       *program;
    gm_groups        *groups;
    bool              merge;
    counter          *counters;
    int               n_counters;
    int              *begun; /* by id: the line of its BEGIN */
} builder;

static gm_status add_op(builder *b, const gm_event *e)
{
    gm_program   *p = b->program;
    gm_step_line *last = p->n ? &p->lines[p->n - 1] : NULL;
    double        seconds;
    GM_TRY(gm_machine_op(b->machine, p->step->journal, e, &seconds));
    if (b->merge && last && last->kind == GM_EVENT_OP) last->seconds += seconds;
    else p->lines[p->n++] = (gm_step_line){b->merge ? NULL : e, GM_EVENT_OP, seconds, -1, 0};
    return GM_OK;
}

static gm_status add_begin(builder *b, const gm_event *e)
{
    const gm_step *s = b->program->step;
    gm_step_line  *line = &b->program->lines[b->program->n];
    *line = (gm_step_line){e, GM_EVENT_BEGIN, 0, -1, 0};
    GM_TRY(group_of(b->groups, &s->mesh, gm_journal_text_of(s->journal, e->group), &line->group));
    if (line->group < 0) return GM_OK; /* alone: takes no time, and needs no line */
    GM_TRY(count(&b->counters, &b->n_counters, s->journal, e, &line->number));
    b->begun[e->id] = b->program->n++;
    return GM_OK;
}

/* A second wait for one operation takes no time either, and stays. */
static void add_wait(builder *b, const gm_event *e)
{
    gm_program *p = b->program;
    int         at = b->begun[e->id];
    if (at >= 0) p->lines[p->n++] = (gm_step_line){p->lines[at].event, GM_EVENT_WAIT, 0, p->lines[at].group, 0};
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
    b.begun = malloc((size_t)(r->ids + 1) * sizeof *b.begun);
    gm_status st = out->lines && b.begun ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for the steps of a simulation");
    for (int i = 0; st == GM_OK && i <= r->ids; i++) b.begun[i] = -1;
    if (st == GM_OK) st = build(&b);
    free(b.begun);
    free(b.counters);
    if (st != GM_OK) gm_program_free(out);
    return st;
}

void gm_program_free(gm_program *p)
{
    free(p->lines);
    p->lines = NULL;
}
