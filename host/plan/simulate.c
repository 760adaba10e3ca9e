/* simulate.c - see simulate.h, replay.h. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#include "replay.h"

typedef struct state {
    int    line;  /* the next one */
    double clock; /* of its own */
    double asked; /* since when it waits */
    int    waits; /* for this transfer; -1: it does not */
    int   *begun; /* by id: its transfer */
} state;

typedef struct replay {
    const gm_simulation *given;
    gm_simulated        *out;
    gm_program          *programs; /* by role */
    gm_groups            groups;
    gm_moments           moments;
    gm_transfers        *transfers;
    state               *ranks;
    int64_t              spans_room;
} replay;

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for a simulation"); }

static const gm_program *program_of(const replay *x, int rank) { return &x->programs[x->given->role[rank]]; }

/* ---- spans ---- */

static gm_status add_span(replay *x, int rank, gm_span_lane lane, const gm_event *e, double begin, double end)
{
    const gm_journal *r = program_of(x, rank)->step->journal;
    gm_simulated     *out = x->out;
    if (rank >= x->given->spans || end <= begin || !e) return GM_OK;
    if (out->n_spans == x->spans_room) {
        int64_t  room = x->spans_room ? 2 * x->spans_room : 1024;
        gm_span *more = realloc(out->spans, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        out->spans = more;
        x->spans_room = room;
    }
    out->spans[out->n_spans++] = (gm_span){rank,  lane, gm_journal_text_of(r, e->name), gm_journal_text_of(r, e->about),
                                           begin, end};
    return GM_OK;
}

/* ---- a rank ---- */

static gm_status begin(replay *x, int rank, const gm_step_line *line)
{
    state *s = &x->ranks[rank];
    GM_TRY(gm_transfers_begin(x->transfers, rank, program_of(x, rank), line, s->clock, &s->begun[line->event->id]));
    s->clock += x->given->machine->begin;
    x->out->ranks[rank].busy += x->given->machine->begin;
    return GM_OK;
}

/* It goes on behind its wait at this time. */
static gm_status go_on(replay *x, int rank, double time)
{
    state              *s = &x->ranks[rank];
    const gm_step_line *line = &program_of(x, rank)->lines[s->line];
    x->out->ranks[rank].exposed[line->group] += time - s->asked;
    GM_TRY(add_span(x, rank, GM_SPAN_WAIT, line->event, s->asked, time));
    s->clock = time;
    s->waits = -1;
    s->line++;
    gm_moments_add(&x->moments, (gm_moment){time, GM_HAPPENS_RANK, rank, 0});
    return GM_OK;
}

/* What a wait for a transfer that is over costs where the host moves bytes: once, the time it takes. */
static double moving(const replay *x, int rank, const gm_step_line *line)
{
    state *s = &x->ranks[rank];
    int    at = s->begun[line->event->id];
    return x->given->machine->host_moves ? gm_transfer_alone(x->transfers, at) : 0;
}

static gm_status come_to_wait(replay *x, int rank, const gm_step_line *line, bool *stopped)
{
    state *s = &x->ranks[rank];
    int    at = s->begun[line->event->id];
    *stopped = false;
    if (at < 0) { /* waited for before */
        s->line++;
        return GM_OK;
    }
    s->asked = s->clock;
    *stopped = true;
    if (!gm_transfer_is_over(x->transfers, at)) {
        s->waits = at;
        gm_transfer_wait(x->transfers, at, rank);
        return GM_OK;
    }
    double cost = moving(x, rank, line);
    s->begun[line->event->id] = -1;
    return go_on(x, rank, s->clock + cost);
}

/* Runs a rank from a moment at which it may begin or wait, up to the end of the ops that follow. */
static gm_status run_rank(replay *x, int rank)
{
    const gm_program *p = program_of(x, rank);
    state            *s = &x->ranks[rank];
    bool              stopped = false;
    while (s->line < p->n && !stopped) {
        const gm_step_line *line = &p->lines[s->line];
        if (line->kind == GM_EVENT_WAIT) {
            GM_TRY(come_to_wait(x, rank, line, &stopped));
            continue;
        }
        double from = s->clock;
        s->line++;
        if (line->kind == GM_EVENT_BEGIN) GM_TRY(begin(x, rank, line));
        s->clock += line->seconds;
        x->out->ranks[rank].busy += line->seconds;
        if (line->kind == GM_EVENT_OP) GM_TRY(add_span(x, rank, GM_SPAN_COMPUTE, line->event, from, s->clock));
        if (s->clock > from) { /* others may come before it goes on */
            gm_moments_add(&x->moments, (gm_moment){s->clock, GM_HAPPENS_RANK, rank, 0});
            stopped = true;
        }
    }
    if (s->clock > x->out->ranks[rank].end) x->out->ranks[rank].end = s->clock;
    return GM_OK;
}

/* ---- transfers ---- */

static gm_status end_transfer(replay *x, int at, double now)
{
    for (int rank; (rank = gm_transfer_next_waiter(x->transfers, at)) >= 0;) {
        const gm_step_line *line = &program_of(x, rank)->lines[x->ranks[rank].line];
        double              cost = moving(x, rank, line);
        x->ranks[rank].begun[line->event->id] = -1;
        if (!x->given->machine->host_moves)
            GM_TRY(add_span(x, rank, GM_SPAN_TRANSFER, line->event, gm_transfer_ready(x->transfers, at), now));
        GM_TRY(go_on(x, rank, now + cost));
    }
    return GM_OK;
}

static gm_status happen(replay *x, const gm_moment *m)
{
    bool over = false;
    if (m->kind == GM_HAPPENS_RANK) return run_rank(x, m->at);
    GM_TRY(gm_transfers_happen(x->transfers, m, &over));
    return over ? end_transfer(x, m->at, m->time) : GM_OK;
}

/* ---- the whole ---- */

static gm_status stuck(const replay *x)
{
    for (int r = 0; r < x->out->world; r++) {
        const gm_program *p = program_of(x, r);
        if (x->ranks[r].line >= p->n) continue;
        const gm_step_line *line = &p->lines[x->ranks[r].line];
        return GM_FAIL(GM_EINVAL,
                       "the simulation of this step never ends: rank %d waits for %s %s of group %s, which another "
                       "member does not begin",
                       r, gm_journal_text_of(p->step->journal, line->event->name),
                       gm_journal_text_of(p->step->journal, line->event->about), x->groups.name[line->group]);
    }
    return GM_OK;
}

static gm_status play(replay *x)
{
    gm_moment m;
    for (int r = 0; r < x->out->world; r++) gm_moments_add(&x->moments, (gm_moment){0, GM_HAPPENS_RANK, r, 0});
    while (gm_moments_take(&x->moments, &m)) GM_TRY(happen(x, &m));
    if (x->moments.failed) return no_memory();
    return stuck(x);
}

static bool same_mesh(const gm_mesh *a, const gm_mesh *b)
{
    if (a->n_axes != b->n_axes) return false;
    for (int i = 0; i < a->n_axes; i++)
        if (strcmp(a->axis[i].name, b->axis[i].name) != 0 || a->axis[i].size != b->axis[i].size) return false;
    return true;
}

static gm_status prepare(replay *x)
{
    const gm_simulation *g = x->given;
    int                  world = x->out->world = gm_mesh_size(&g->roles[0]->mesh);
    x->programs = calloc((size_t)g->n_roles, sizeof *x->programs);
    x->ranks = calloc((size_t)world, sizeof *x->ranks);
    x->out->ranks = calloc((size_t)world, sizeof *x->out->ranks);
    if (!x->programs || !x->ranks || !x->out->ranks) return no_memory();
    for (int i = 0; i < g->n_roles; i++) {
        if (!same_mesh(&g->roles[0]->mesh, &g->roles[i]->mesh))
            return GM_FAIL(GM_EINVAL, "the steps of a simulation belong to different meshes");
        GM_TRY(gm_program_new(g->machine, g->roles[i], !g->spans, &x->groups, &x->programs[i]));
    }
    for (int r = 0; r < world; r++) {
        x->ranks[r].waits = -1;
        x->ranks[r].begun = calloc((size_t)program_of(x, r)->ids + 1, sizeof(int));
        if (!x->ranks[r].begun) return no_memory();
    }
    return gm_transfers_new(g->machine, &g->roles[0]->mesh, &x->groups, &x->moments, &x->transfers);
}

static void sum_up(replay *x)
{
    x->out->n_groups = x->groups.n;
    memcpy(x->out->group, x->groups.name, sizeof x->groups.name);
    x->out->n_transfers = gm_transfers_count(x->transfers);
    for (int r = 0; r < x->out->world; r++)
        if (x->out->ranks[r].end > x->out->seconds) x->out->seconds = x->out->ranks[r].end;
}

static void clear(replay *x)
{
    for (int i = 0; x->programs && i < x->given->n_roles; i++) gm_program_free(&x->programs[i]);
    for (int r = 0; x->ranks && r < x->out->world; r++) free(x->ranks[r].begun);
    gm_transfers_free(x->transfers);
    free(x->moments.heap);
    free(x->programs);
    free(x->ranks);
}

gm_status gm_simulate(const gm_simulation *s, gm_simulated *out)
{
    replay x = {.given = s, .out = out};
    *out = (gm_simulated){0};
    gm_status st = prepare(&x);
    if (st == GM_OK) st = play(&x);
    if (st == GM_OK) sum_up(&x);
    clear(&x);
    if (st != GM_OK) gm_simulated_free(out);
    return st;
}

void gm_simulated_free(gm_simulated *s)
{
    free(s->ranks);
    free(s->spans);
    *s = (gm_simulated){0};
}
