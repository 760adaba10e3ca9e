/* simulate.c - see simulate.h, replay.h. */
#include "simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"
#include "replay.h"

typedef struct state {
    const gm_program *program;
    int               line;     /* the next one */
    double            clock;    /* of its own; where a host launches: of its device */
    double            host;     /* when the host has launched the newest thing */
    double            asked;    /* since when it waits, or computes on shared cores */
    int               waits;    /* for this transfer; -1: it does not */
    bool              moves;    /* it moves bytes on shared cores, at its wait */
    bool              slept;    /* it has waited for the transfer, and was woken */
    bool              shown;    /* its spans are wanted */
    bool              launched; /* the operation of the next line */
    int              *begun;    /* by id: its transfer */
} state;

typedef struct replay {
    const gm_simulation *given;
    gm_simulated        *out;
    gm_program          *programs;   /* by role */
    const gm_program   **of;         /* of each rank: the first role with this program */
    int                 *program_of; /* the same, as a number */
    gm_groups            groups;
    gm_channels          channels;
    gm_classes           classes;
    gm_moments           moments;
    gm_transfers        *transfers;
    gm_cores            *cores; /* NULL: each rank has its own */
    state               *ranks; /* by class */
    int64_t              spans_room;
} replay;

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for a simulation"); }

/* ---- spans ---- */

static gm_status add_span(replay *x, int class, gm_span_lane lane, const gm_event *e, double begin, double end)
{
    const gm_journal *r = x->ranks[class].program->step->journal;
    gm_simulated     *out = x->out;
    if (!x->ranks[class].shown || end <= begin || !e) return GM_OK;
    if (out->n_spans == x->spans_room) {
        int64_t  room = x->spans_room ? 2 * x->spans_room : 1024;
        gm_span *more = realloc(out->spans, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        out->spans = more;
        x->spans_room = room;
    }
    out->spans[out->n_spans++] = (gm_span){x->classes.first_rank[class],
                                           lane,
                                           gm_journal_text_of(r, e->name),
                                           gm_journal_text_of(r, e->about),
                                           gm_journal_text_of(r, e->path),
                                           begin,
                                           end};
    return GM_OK;
}

/* ---- a rank, that of a class ---- */

/* The seconds of the host for a launch; 0 where it launches the whole step at once. */
static double launch_of(const replay *x, double seconds) { return x->given->recorded ? 0 : seconds; }

/* The rank stands still until the host has launched what is next. */
static void wait_for_host(replay *x, int class, double until)
{
    state *s = &x->ranks[class];
    if (until <= s->clock) return;
    x->out->classes[class].launching += until - s->clock;
    s->clock = until;
}

/* Comes to an operation between ranks. Returns whether it may begin now. */
static bool is_launched(replay *x, int class)
{
    state *s = &x->ranks[class];
    double before = s->clock;
    if (!s->launched) {
        s->launched = true;
        s->host += launch_of(x, x->given->machine->host.between);
        wait_for_host(x, class, s->host);
    }
    return s->clock <= before;
}

static gm_status begin(replay *x, int class, const gm_step_line *line)
{
    state *s = &x->ranks[class];
    s->launched = false;
    GM_TRY(gm_transfers_begin(x->transfers, class, s->program, line, s->clock, &s->begun[line->event->id]));
    s->clock += x->given->machine->begin;
    x->out->classes[class].busy += x->given->machine->begin;
    return GM_OK;
}

/* It goes on behind its wait at this time. */
static gm_status go_on(replay *x, int class, double time)
{
    state              *s = &x->ranks[class];
    const gm_step_line *line = &s->program->lines[s->line];
    x->out->classes[class].exposed[s->program->ways[line->way].group] += time - s->asked;
    GM_TRY(add_span(x, class, GM_SPAN_WAIT, line->event, s->asked, time));
    s->clock = time;
    s->waits = -1;
    s->line++;
    gm_moments_add(&x->moments, (gm_moment){time, GM_HAPPENS_RANK, class, 0});
    return GM_OK;
}

/* It moves the bytes of an operation that is over (where the host does: once, the time that they take), and goes on. */
static gm_status move(replay *x, int class, const gm_step_line *line, double now)
{
    state *s = &x->ranks[class];
    double cost = gm_transfer_cost(x->transfers, s->begun[line->event->id]);
    if (s->slept) cost += x->given->machine->wake.work;
    s->begun[line->event->id] = -1;
    s->slept = false;
    if (!x->cores || cost <= 0) return go_on(x, class, now + cost);
    s->moves = true;
    gm_cores_begin(x->cores, class, cost, now);
    return GM_OK;
}

static gm_status come_to_wait(replay *x, int class, const gm_step_line *line, bool *stopped)
{
    state *s = &x->ranks[class];
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
        gm_transfer_wait(x->transfers, at, class);
        return GM_OK;
    }
    return move(x, class, line, s->clock);
}

/* A number of the normal distribution (Box and Muller 1958) for an op of a rank. */
static double normal(uint64_t seed, int rank, int op)
{
    gm_philox w = gm_philox_at(seed, (uint64_t)op, (uint64_t)rank);
    double    u = (w.v[0] + 1.0) / 4294967296.0, v = w.v[1] / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* The seconds of an op of the program of a class. */
static double seconds_of(const replay *x, int class, int op, double slower)
{
    const gm_simulation *g = x->given;
    double               seconds = x->ranks[class].program->seconds[op] * slower;
    if (g->jitter <= 0) return seconds;
    return seconds * exp(g->jitter * normal(g->seed, x->classes.first_rank[class], op) - g->jitter * g->jitter / 2);
}

/* How many times longer the ops of a class take. */
static double slowness(const replay *x, int class)
{
    return x->given->slower ? x->given->slower[x->classes.first_rank[class]] : 1;
}

/* The seconds of the ops of a line on cores of their own. */
static double work_of(const replay *x, int class, const gm_step_line *line)
{
    double sum = 0, slower = slowness(x, class);
    if (x->given->jitter <= 0) return line->seconds * slower;
    for (int i = line->first; i < line->first + line->n; i++) sum += seconds_of(x, class, i, slower);
    return sum;
}

/* Runs the ops of a line one by one: each begins when it is launched and the one before has ended. */
static void run_each(replay *x, int class, const gm_step_line *line, double slower, double launch)
{
    state *s = &x->ranks[class];
    for (int i = line->first; i < line->first + line->n; i++) {
        double seconds = seconds_of(x, class, i, slower);
        s->host += launch;
        wait_for_host(x, class, s->host);
        s->clock += seconds;
        x->out->classes[class].busy += seconds;
    }
}

/* Where nothing varies, a line is run as one: it ends when its work does, or when what was launched last does. */
static void run_ops(replay *x, int class, const gm_step_line *line)
{
    const gm_simulation *g = x->given;
    state               *s = &x->ranks[class];
    double               slower = slowness(x, class);
    double               launch = launch_of(x, g->machine->host.op);
    if (g->jitter > 0 || (launch > 0 && slower != 1)) {
        run_each(x, class, line, slower, launch);
        return;
    }
    double seconds = line->seconds * slower;
    if (launch > 0) wait_for_host(x, class, s->host + line->queued - seconds);
    s->host += line->n * launch;
    s->clock += seconds;
    x->out->classes[class].busy += seconds;
}

static const gm_step_line *line_of(const replay *x, int class)
{
    return &x->ranks[class].program->lines[x->ranks[class].line];
}

/* This rank leaves its core: ranks that were woken while all were busy take it. */
static gm_status run_woken(replay *x, int class, double now)
{
    for (int next; x->cores && (next = gm_cores_take_woken(x->cores, class)) >= 0;)
        GM_TRY(move(x, next, line_of(x, next), now));
    return GM_OK;
}

/* Runs a rank from a moment at which it may begin or wait, up to the end of the ops that follow. */
static gm_status run_rank(replay *x, int class)
{
    state             *s = &x->ranks[class];
    gm_simulated_rank *out = &x->out->classes[class];
    bool               stopped = false;
    while (s->line < s->program->n && !stopped) {
        const gm_step_line *line = &s->program->lines[s->line];
        if (line->kind == GM_EVENT_WAIT) {
            GM_TRY(come_to_wait(x, class, line, &stopped));
            continue;
        }
        double from = s->clock, busy = out->busy;
        if (line->kind == GM_EVENT_OP && x->cores) {
            s->line++;
            s->asked = s->clock;
            gm_cores_begin(x->cores, class, work_of(x, class, line), s->clock);
            return GM_OK;
        }
        if (line->kind == GM_EVENT_OP) {
            s->line++;
            run_ops(x, class, line);
            GM_TRY(add_span(x, class, GM_SPAN_COMPUTE, line->event, s->clock - (out->busy - busy), s->clock));
        } else if (is_launched(x, class)) {
            s->line++;
            GM_TRY(begin(x, class, line));
        }
        if (s->clock > from) { /* others may come before it goes on */
            gm_moments_add(&x->moments, (gm_moment){s->clock, GM_HAPPENS_RANK, class, 0});
            stopped = true;
        }
    }
    if (s->clock > out->end) out->end = s->clock;
    bool ended = s->line >= s->program->n && !stopped; /* elsewhere it waits, computes, or goes on at its clock */
    return ended || s->waits >= 0 ? run_woken(x, class, s->clock) : GM_OK;
}

/* An op on shared cores is over, or the moving of bytes. */
static gm_status end_work(replay *x, int class, double now)
{
    state *s = &x->ranks[class];
    if (s->moves) {
        s->moves = false;
        return go_on(x, class, now);
    }
    x->out->classes[class].busy += now - s->asked;
    GM_TRY(add_span(x, class, GM_SPAN_COMPUTE, s->program->lines[s->line - 1].event, s->asked, now));
    s->clock = now;
    return run_rank(x, class);
}

/* ---- transfers ---- */

static gm_status end_transfer(replay *x, int at, double now)
{
    for (int class; (class = gm_transfer_next_waiter(x->transfers, at)) >= 0;) {
        const gm_step_line *line = line_of(x, class);
        if (!x->given->machine->host_moves)
            GM_TRY(add_span(x, class, GM_SPAN_TRANSFER, line->event, gm_transfer_ready(x->transfers, at), now));
        const gm_wakes *wake = &x->given->machine->wake;
        state          *s = &x->ranks[class];
        s->slept = x->cores && wake->n && now - s->asked >= wake->after;
        if (s->slept) gm_cores_wake(x->cores, class, now);
        else GM_TRY(move(x, class, line, now));
    }
    return GM_OK;
}

static gm_status happen(replay *x, const gm_moment *m)
{
    bool over = false;
    if (m->kind == GM_HAPPENS_RANK) return run_rank(x, m->at);
    if (m->kind == GM_HAPPENS_COMPUTED || m->kind == GM_HAPPENS_WOKEN) {
        int rank = gm_cores_happen(x->cores, m);
        if (rank >= 0 && m->kind == GM_HAPPENS_WOKEN) return move(x, rank, line_of(x, rank), m->time);
        return rank < 0 ? GM_OK : end_work(x, rank, m->time);
    }
    GM_TRY(gm_transfers_happen(x->transfers, m, &over));
    return over ? end_transfer(x, m->at, m->time) : GM_OK;
}

static gm_status stuck(const replay *x)
{
    for (int k = 0; k < x->classes.n_ranks; k++) {
        const state *s = &x->ranks[k];
        if (s->line >= s->program->n) continue;
        const gm_step_line *line = &s->program->lines[s->line];
        const gm_journal   *r = s->program->step->journal;
        return GM_FAIL(GM_EINVAL,
                       "the simulation of this step never ends: rank %d waits for %s %s of group %s, which another "
                       "member does not begin",
                       x->classes.first_rank[k], gm_journal_text_of(r, line->event->name),
                       gm_journal_text_of(r, line->event->about), x->groups.name[s->program->ways[line->way].group]);
    }
    return GM_OK;
}

/* ---- one replay ---- */

static gm_status new_ranks(replay *x)
{
    gm_simulated *out = x->out;
    out->n_classes = x->classes.n_ranks;
    x->ranks = calloc((size_t)out->n_classes, sizeof *x->ranks);
    out->classes = calloc((size_t)out->n_classes, sizeof *out->classes);
    if (!x->ranks || !out->classes) return no_memory();
    for (int k = 0; k < out->n_classes; k++) {
        int rank = x->classes.first_rank[k];
        out->classes[k].count = x->classes.count[k];
        out->classes[k].first = rank;
        x->ranks[k] = (state){.program = x->of[rank], .waits = -1, .shown = rank < x->given->spans};
        x->ranks[k].begun = calloc((size_t)x->of[rank]->ids + 1, sizeof(int));
        if (!x->ranks[k].begun) return no_memory();
    }
    return GM_OK;
}

static void forget_replay(replay *x)
{
    for (int k = 0; x->ranks && k < x->out->n_classes; k++) free(x->ranks[k].begun);
    free(x->ranks);
    x->ranks = NULL;
    gm_transfers_free(x->transfers);
    gm_cores_free(x->cores);
    x->transfers = NULL;
    x->cores = NULL;
    gm_classes_free(&x->classes);
    free(x->moments.heap);
    x->moments = (gm_moments){0};
    x->spans_room = 0;
}

/* Ranks that differ in pace are apart; with jitter, all. */
static uint64_t apart_of(const gm_simulation *g, int rank)
{
    uint64_t bits = 0;
    if (g->slower) memcpy(&bits, &g->slower[rank], sizeof bits);
    return g->jitter > 0 ? (uint64_t)rank + 1 : bits;
}

static gm_status find_classes(replay *x)
{
    uint64_t *apart = malloc((size_t)x->out->world * sizeof *apart);
    if (!apart) return no_memory();
    for (int r = 0; r < x->out->world; r++) apart[r] = apart_of(x->given, r);
    bool      fold = !x->given->unfolded && x->given->jitter <= 0 && !gm_cores_are_shared(x->given->machine);
    gm_status st = gm_classes_new(&x->channels, x->program_of, apart, fold, &x->classes);
    free(apart);
    return st;
}

/* Plays until the end, or until a transfer that counts as alone meets another. */
static gm_status play(replay *x, bool *again)
{
    gm_moment m;
    GM_TRY(find_classes(x));
    GM_TRY(new_ranks(x));
    GM_TRY(gm_transfers_new(&x->channels, &x->classes, &x->moments, &x->transfers));
    if (gm_cores_are_shared(x->given->machine))
        GM_TRY(gm_cores_new(x->given->machine, x->out->world, &x->moments, &x->cores));
    for (int k = 0; k < x->classes.n_ranks; k++) gm_moments_add(&x->moments, (gm_moment){0, GM_HAPPENS_RANK, k, 0});
    *again = false;
    while (!*again && gm_moments_take(&x->moments, &m)) {
        GM_TRY(happen(x, &m));
        *again = gm_transfers_met(x->transfers);
    }
    if (x->moments.failed) return no_memory();
    return *again ? GM_OK : stuck(x);
}

static gm_status play_all(replay *x)
{
    for (bool again = true; again;) {
        GM_TRY(play(x, &again));
        if (!again) break;
        forget_replay(x);
        gm_simulated_free(x->out);
        x->out->world = gm_mesh_size(&x->given->roles[0]->mesh);
    }
    return GM_OK;
}

/* ---- the whole ---- */

static bool same_mesh(const gm_mesh *a, const gm_mesh *b)
{
    if (a->n_axes != b->n_axes) return false;
    for (int i = 0; i < a->n_axes; i++)
        if (strcmp(a->axis[i].name, b->axis[i].name) != 0 || a->axis[i].size != b->axis[i].size) return false;
    return true;
}

/* The first role with the same program. */
static int first_like(const replay *x, int role)
{
    int i = 0;
    while (i < role && !gm_program_same(&x->programs[i], &x->programs[role])) i++;
    return i;
}

static gm_status prepare(replay *x)
{
    const gm_simulation *g = x->given;
    int                  world = x->out->world = gm_mesh_size(&g->roles[0]->mesh), *like;
    x->programs = calloc((size_t)g->n_roles, sizeof *x->programs);
    x->of = malloc((size_t)world * sizeof *x->of);
    x->program_of = malloc((size_t)world * sizeof *x->program_of);
    like = malloc((size_t)g->n_roles * sizeof *like);
    gm_status st = x->programs && x->of && x->program_of && like ? GM_OK : no_memory();
    for (int i = 0; i < g->n_roles && st == GM_OK; i++) {
        if (!same_mesh(&g->roles[0]->mesh, &g->roles[i]->mesh))
            st = GM_FAIL(GM_EINVAL, "the steps of a simulation belong to different meshes");
        else st = gm_program_new(g->machine, g->roles[i], !g->spans, &x->groups, &x->programs[i]);
        if (st == GM_OK) like[i] = first_like(x, i);
    }
    for (int r = 0; r < world && st == GM_OK; r++) {
        x->program_of[r] = like[g->role[r]];
        x->of[r] = &x->programs[like[g->role[r]]];
    }
    free(like);
    return st != GM_OK ? st : gm_channels_new(g->machine, &g->roles[0]->mesh, &x->groups, x->of, &x->channels);
}

static gm_status sum_up(replay *x)
{
    gm_simulated *out = x->out;
    out->n_groups = x->groups.n;
    memcpy(out->group, x->groups.name, sizeof x->groups.name);
    out->n_transfers = gm_transfers_count(x->transfers);
    out->class_of = malloc((size_t)out->world * sizeof *out->class_of);
    if (!out->class_of) return no_memory();
    memcpy(out->class_of, x->classes.rank, (size_t)out->world * sizeof *out->class_of);
    for (int k = 0; k < out->n_classes; k++)
        if (out->classes[k].end > out->seconds) out->seconds = out->classes[k].end;
    /* the host launches the next step while the device does this one */
    double recorded = x->given->recorded ? x->given->machine->host.recorded : 0;
    if (recorded > out->seconds) out->seconds = recorded;
    return GM_OK;
}

static void clear(replay *x)
{
    forget_replay(x);
    gm_channels_free(&x->channels);
    for (int i = 0; x->programs && i < x->given->n_roles; i++) gm_program_free(&x->programs[i]);
    free(x->programs);
    free(x->of);
    free(x->program_of);
}

gm_status gm_simulate(const gm_simulation *s, gm_simulated *out)
{
    replay x = {.given = s, .out = out};
    *out = (gm_simulated){0};
    gm_status st = prepare(&x);
    if (st == GM_OK) st = play_all(&x);
    if (st == GM_OK) st = sum_up(&x);
    clear(&x);
    if (st != GM_OK) gm_simulated_free(out);
    return st;
}

void gm_simulated_free(gm_simulated *s)
{
    free(s->class_of);
    free(s->classes);
    free(s->spans);
    *s = (gm_simulated){0};
}
