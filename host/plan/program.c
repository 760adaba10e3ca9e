/* program.c - see replay.h. */
#include <stdlib.h>
#include <string.h>

#include "replay.h"

static gm_status unknown_group(const char *name)
{
    return GM_FAIL(GM_EINVAL, "a simulation cannot read the group '%s': axes of the mesh, or up to %d of their places",
                   name, GM_GROUP_PLACES);
}

/* "pipeline@0+3": behind the @. */
static bool read_places(char *text, int size, int *place, int *n)
{
    char *word, *end;
    while ((word = strsep(&text, "+")) != NULL) {
        long v = strtol(word, &end, 10);
        if (end == word || *end || v < 0 || v >= size || *n == GM_GROUP_PLACES) return false;
        if (*n && v <= place[*n - 1]) return false; /* not in order of ranks */
        place[(*n)++] = (int)v;
    }
    return true;
}

static gm_status read_group(const gm_mesh *mesh, const char *name, gm_groups *g, int at)
{
    char copy[128], *rest = copy, *word, *places;
    int  size = 1;
    g->axes[at] = 0;
    g->n_places[at] = 0;
    if (strlen(name) >= sizeof copy) return unknown_group(name);
    strcpy(copy, name);
    strcpy(g->name[at], name);
    if ((places = strchr(copy, '@')) != NULL) *places++ = 0;
    while ((word = strsep(&rest, ".")) != NULL) {
        int a = gm_mesh_axis(mesh, word);
        if (a < 0) return unknown_group(name);
        g->axes[at] |= 1u << a;
        size *= mesh->axis[a].size;
    }
    return !places || read_places(places, size, g->place[at], &g->n_places[at]) ? GM_OK : unknown_group(name);
}

int gm_groups_members(const gm_groups *g, const gm_mesh *mesh, int group, int rank, int *members, int *base)
{
    int n = gm_mesh_members(mesh, g->axes[group], rank, members), some = g->n_places[group];
    *base = members[0];
    if (!some) return n;
    for (int i = 0, k = 0; i < n && k < some; i++) /* places ascend, as ranks in these groups do */
        if (i == g->place[group][k]) members[k++] = members[i];
    return some;
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
    GM_TRY(read_group(mesh, name, g, g->n));
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
