/* lua_simulate.c - simulations of steps and of long runs (host/plan). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../host/plan/month.h"
#include "../host/plan/simulate.h"
#include "lua_comm.h"

/* ---- machines: lua/ganymede/plan/machine.lua has checked them ---- */

static double number_of(lua_State *L, const char *name)
{
    lua_getfield(L, -1, name);
    double v = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return v;
}

static void text_of(lua_State *L, const char *name, char *to, size_t size)
{
    lua_getfield(L, -1, name);
    const char *text = lua_tostring(L, -1);
    if (text && strlen(text) >= size) luaL_error(L, "%s '%s' is too long: at most %d bytes", name, text, (int)size - 1);
    strcpy(to, text ? text : "");
    lua_pop(L, 1);
}

/* Pushes the list of this name, of the table at the top; returns its length. */
static int open_list(lua_State *L, const char *name, int most)
{
    lua_getfield(L, -1, name);
    int n = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    if (n > most) luaL_error(L, "a machine has at most %d %s", most, name);
    return n;
}

static void read_rates(lua_State *L, const char *name, gm_rate *list, int *n)
{
    *n = open_list(L, name, GM_MACHINE_RATES);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, -1, i + 1);
        text_of(L, "op", list[i].op, sizeof list[i].op);
        text_of(L, "dtype", list[i].dtype, sizeof list[i].dtype);
        list[i].start = number_of(L, "start");
        list[i].bandwidth = number_of(L, "bandwidth");
        list[i].n = open_list(L, "points", GM_MACHINE_POINTS);
        for (int k = 0; k < list[i].n; k++) {
            lua_rawgeti(L, -1, k + 1);
            lua_rawgeti(L, -1, 1);
            lua_rawgeti(L, -2, 2);
            list[i].point[k].size = lua_tonumber(L, -2);
            list[i].point[k].rate = lua_tonumber(L, -1);
            lua_pop(L, 3);
        }
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

static void read_level(lua_State *L, gm_level *l)
{
    static const char *const names[] = {"switch", "shared", "torus"};
    char                     kind[16];
    text_of(L, "name", l->name, sizeof l->name);
    text_of(L, "kind", kind, sizeof kind);
    for (int i = 0; i < 3; i++)
        if (!strcmp(kind, names[i])) l->kind = (gm_level_kind)i;
    l->ranks = (int)number_of(L, "ranks");
    l->bandwidth = number_of(L, "bandwidth");
    l->latency = number_of(L, "latency");
    l->ranks_per_port = (int)number_of(L, "ranks_per_port");
    l->leaf = (int)number_of(L, "leaf");
    l->oversubscription = number_of(L, "oversubscription");
    l->n_dims = open_list(L, "dims", 3);
    for (int d = 0; d < l->n_dims; d++) {
        lua_rawgeti(L, -1, d + 1);
        l->dims[d] = (int)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void read_links(lua_State *L, gm_machine *m)
{
    m->n_levels = open_list(L, "links", GM_MACHINE_LEVELS);
    for (int i = 0; i < m->n_levels; i++) {
        lua_rawgeti(L, -1, i + 1);
        read_level(L, &m->level[i]);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    m->n_efficiencies = open_list(L, "efficiency", (int)(sizeof m->efficiency / sizeof *m->efficiency));
    for (int i = 0; i < m->n_efficiencies; i++) {
        lua_rawgeti(L, -1, i + 1);
        text_of(L, "op", m->efficiency[i].op, sizeof m->efficiency[i].op);
        m->efficiency[i].factor = number_of(L, "factor");
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static double number_in(lua_State *L, const char *table, const char *name)
{
    lua_getfield(L, -1, table);
    double v = lua_istable(L, -1) ? number_of(L, name) : 0;
    lua_pop(L, 1);
    return v;
}

static void read_wakes(lua_State *L, gm_wakes *w)
{
    lua_getfield(L, -1, "wake");
    if (lua_istable(L, -1)) {
        w->work = number_of(L, "work");
        w->after = number_of(L, "after");
        w->n = open_list(L, "late", GM_MACHINE_WAKES);
        for (int i = 0; i < w->n; i++) {
            lua_rawgeti(L, -1, i + 1);
            w->late[i] = lua_tonumber(L, -1);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void read_machine(lua_State *L, int arg, gm_machine *m)
{
    static const char *const algorithms[] = {"ring", "tree", "direct", "auto"};
    char                     algorithm[16];
    *m = (gm_machine){0};
    lua_pushvalue(L, arg);
    m->launch = number_of(L, "launch");
    m->begin = number_of(L, "begin");
    m->peak = number_of(L, "peak");
    m->memory = number_of(L, "memory");
    m->host_moves = gm_field_flag(L, arg, "host_moves");
    m->in_order = gm_field_flag(L, arg, "in_order");
    text_of(L, "algorithm", algorithm, sizeof algorithm);
    for (int i = 0; i < 4; i++)
        if (!strcmp(algorithm, algorithms[i])) m->algorithm = (gm_algorithm)i;
    read_rates(L, "products", m->products, &m->n_products);
    read_rates(L, "moves", m->moves, &m->n_moves);
    read_links(L, m);
    m->ranks_per_node = (int)number_of(L, "ranks_per_node");
    m->cores_per_rank = (int)number_of(L, "cores_per_rank");
    m->cores = (int)number_of(L, "cores");
    read_wakes(L, &m->wake);
    m->below = (gm_below){number_in(L, "disk", "read"), number_in(L, "disk", "write"), number_in(L, "disk", "latency"),
                          number_in(L, "host", "bandwidth"), number_in(L, "host", "latency")};
    m->host = (gm_launches){number_in(L, "host_launch", "op"), number_in(L, "host_launch", "between"),
                            number_in(L, "host_launch", "recorded")};
    lua_pop(L, 1);
}

/* ---- simulations: a userdata owns what C allocates ---- */

#define REPLAY "gm.replay"
#define STEP   "gm.step"

typedef struct box {
    gm_machine      machine;
    gm_step        *steps;
    const gm_step **roles;
    int            *role;
    double         *slower;
    int             n;
    gm_simulated    out;
} box;

static int close_box(lua_State *L)
{
    box *b = lua_touserdata(L, 1);
    for (int i = 0; i < b->n; i++) gm_step_free(&b->steps[i]);
    free(b->steps);
    free(b->roles);
    free(b->role);
    free(b->slower);
    gm_simulated_free(&b->out);
    *b = (box){0};
    return 0;
}

static int read_roles(lua_State *L, box *b)
{
    int n = (int)lua_objlen(L, 2);
    gm_check_argument(L, n > 0, 2, "no step is given");
    b->steps = calloc((size_t)n, sizeof *b->steps);
    b->roles = calloc((size_t)n, sizeof *b->roles);
    if (!b->steps || !b->roles) luaL_error(L, "no memory for a simulation");
    for (; b->n < n; b->n++) {
        lua_rawgeti(L, 2, b->n + 1);
        L_TRY(L, gm_step_read(luaL_checkstring(L, -1), &b->steps[b->n]));
        b->roles[b->n] = &b->steps[b->n];
        lua_pop(L, 1);
    }
    int world = gm_mesh_size(&b->steps[0].mesh);
    gm_check_argument(L, (int)lua_objlen(L, 3) == world, 3, "it needs a role for each rank of the mesh");
    b->role = calloc((size_t)world, sizeof *b->role);
    if (!b->role) luaL_error(L, "no memory for a simulation");
    for (int r = 0; r < world; r++) {
        lua_rawgeti(L, 3, r + 1);
        b->role[r] = (int)lua_tointeger(L, -1) - 1;
        gm_check_argument(L, b->role[r] >= 0 && b->role[r] < n, 3, "a role is the place of a step in the list");
        lua_pop(L, 1);
    }
    return 0;
}

static void push_class(lua_State *L, const gm_simulated *s, const gm_simulated_rank *k)
{
    lua_createtable(L, 0, 6);
    gm_set_number(L, "count", k->count);
    gm_set_number(L, "first", k->first);
    gm_set_number(L, "seconds", k->end);
    gm_set_number(L, "busy", k->busy);
    gm_set_number(L, "launching", k->launching);
    lua_createtable(L, 0, s->n_groups);
    for (int g = 0; g < s->n_groups; g++) gm_set_number(L, s->group[g], k->exposed[g]);
    lua_setfield(L, -2, "exposed");
}

/* The table of a class is that of all its ranks. */
static void push_classes(lua_State *L, const gm_simulated *s)
{
    lua_createtable(L, s->n_classes, 0);
    for (int k = 0; k < s->n_classes; k++) {
        push_class(L, s, &s->classes[k]);
        lua_rawseti(L, -2, k + 1);
    }
    lua_createtable(L, s->world, 0);
    for (int r = 0; r < s->world; r++) {
        lua_rawgeti(L, -2, s->class_of[r] + 1);
        lua_rawseti(L, -2, r + 1);
    }
    lua_setfield(L, -3, "ranks");
    lua_setfield(L, -2, "classes");
}

static void push_span(lua_State *L, const gm_span *span, int rank)
{
    static const char *const lanes[] = {"compute", "wait", "transfer"};
    lua_createtable(L, 0, 7);
    gm_set_number(L, "rank", rank);
    gm_set_text(L, "lane", lanes[span->lane]);
    gm_set_text(L, "name", span->name);
    gm_set_text(L, "about", span->about);
    gm_set_text(L, "path", span->path);
    gm_set_number(L, "begin", span->begin);
    gm_set_number(L, "finish", span->end);
}

/* A rank has the spans of its class. */
static void push_spans(lua_State *L, const gm_simulated *s, int ranks)
{
    int n = 0;
    lua_newtable(L);
    for (int r = 0; r < ranks && r < s->world; r++)
        for (int64_t i = 0; i < s->n_spans; i++)
            if (s->spans[i].rank == s->classes[s->class_of[r]].first) {
                push_span(L, &s->spans[i], r);
                lua_rawseti(L, -2, ++n);
            }
    lua_setfield(L, -2, "spans");
}

/* The field `slower`: { [rank] = factor }. */
static void read_slower(lua_State *L, box *b, int world)
{
    lua_getfield(L, 4, "slower");
    if (lua_istable(L, -1)) {
        b->slower = malloc((size_t)world * sizeof *b->slower);
        if (!b->slower) luaL_error(L, "no memory for a simulation");
        for (int r = 0; r < world; r++) {
            lua_rawgeti(L, -1, r);
            b->slower[r] = lua_isnil(L, -1) ? 1 : lua_tonumber(L, -1);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

static double option(lua_State *L, const char *name)
{
    lua_getfield(L, 4, name);
    double v = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return v;
}

/* Of each step: FLOPs of products, and of those that run again. */
static void push_products(lua_State *L, const box *b)
{
    lua_createtable(L, b->n, 0);
    for (int i = 0; i < b->n; i++) {
        double again, all = gm_step_products(&b->steps[i], &again);
        lua_createtable(L, 0, 2);
        gm_set_number(L, "all", all);
        gm_set_number(L, "again", again);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "products");
}

/* simulate(machine, steps, role, { spans, slower, jitter, seed, unfolded, recorded }) -> { seconds, transfers, classes,
 * ranks, spans, products = a list of { all, again } by step }. steps: paths of files; role: of each rank, its step;
 * classes: a list of { count, first, seconds, busy, launching, exposed = { group = seconds } }; ranks: of each rank,
 * its class. The options are those of gm_simulation. */
static int simulate(lua_State *L)
{
    lua_settop(L, 4);
    if (lua_isnil(L, 4)) {
        lua_newtable(L);
        lua_replace(L, 4);
    }
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, REPLAY);
    lua_setmetatable(L, -2);
    read_machine(L, 1, &b->machine);
    (void)read_roles(L, b);
    read_slower(L, b, gm_mesh_size(&b->steps[0].mesh));
    gm_simulation given = {.machine = &b->machine,
                           .n_roles = b->n,
                           .roles = b->roles,
                           .role = b->role,
                           .spans = (int)option(L, "spans"),
                           .slower = b->slower,
                           .jitter = option(L, "jitter"),
                           .seed = (uint64_t)option(L, "seed"),
                           .unfolded = gm_field_flag(L, 4, "unfolded"),
                           .recorded = gm_field_flag(L, 4, "recorded")};
    L_TRY(L, gm_simulate(&given, &b->out));
    lua_createtable(L, 0, 5);
    gm_set_number(L, "seconds", b->out.seconds);
    gm_set_number(L, "transfers", (double)b->out.n_transfers);
    push_classes(L, &b->out);
    push_spans(L, &b->out, given.spans);
    push_products(L, b);
    return 1;
}

/* ---- a record in few, for bounds ---- */

static int free_step(lua_State *L)
{
    gm_step_free(lua_touserdata(L, 1));
    return 0;
}

/* Adds an op to the run at the top of the stack, or begins one at place n + 1. Returns the places that are taken.
 * launch: the seconds of the host for an op. */
static int push_run(lua_State *L, bool begins, int n, double seconds, double products, double launch)
{
    if (begins) {
        lua_createtable(L, 0, 5);
        gm_set_text(L, "kind", "op");
        gm_set_number(L, "takes", 0);
        gm_set_number(L, "products", 0);
        gm_set_number(L, "n", 0);
        gm_set_number(L, "queued", 0);
        lua_rawseti(L, -2, ++n);
    }
    lua_rawgeti(L, -1, n);
    double ops = number_of(L, "n") + 1, before = number_of(L, "queued"), launched = ops * launch;
    gm_set_number(L, "takes", number_of(L, "takes") + seconds);
    gm_set_number(L, "products", number_of(L, "products") + products);
    gm_set_number(L, "n", ops);
    gm_set_number(L, "queued", (before > launched ? before : launched) + seconds); /* as host/plan/program.c has it */
    lua_pop(L, 1);
    return n;
}

/* Says that the passes end with the run at this place. */
static void mark_end(lua_State *L, int n)
{
    lua_rawgeti(L, -1, n);
    lua_pushboolean(L, true);
    lua_setfield(L, -2, "ends");
    lua_pop(L, 1);
}

static void push_between(lua_State *L, const gm_journal *r, const gm_event *e)
{
    lua_createtable(L, 0, 6);
    gm_set_text(L, "kind", e->kind == GM_EVENT_BEGIN ? "begin" : "wait");
    gm_set_number(L, "id", e->id);
    if (e->kind == GM_EVENT_WAIT) return;
    gm_set_text(L, "name", gm_journal_text_of(r, e->name));
    if (e->phase >= 0) gm_set_text(L, "phase", gm_journal_text_of(r, e->phase));
    if (e->group >= 0) gm_set_text(L, "group", gm_journal_text_of(r, e->group));
    gm_set_number(L, "bytes", e->bytes);
}

/* step_condensed(machine, path) -> the events of a record in few: { kind = "op", takes = seconds, products, n = ops,
 * queued = seconds from the launch before them to their end, if nothing else is waited for } of runs of ops, of which
 * one ends at the last product, and one at the last op of a pass (that, or one that makes a gradient behind it), which
 * says ends = true; { kind = "begin" or "wait", id, name, phase, group, bytes }. Memory is left out. */
static int step_condensed(lua_State *L)
{
    gm_machine m;
    gm_step   *s = lua_newuserdata(L, sizeof *s);
    *s = (gm_step){0};
    luaL_getmetatable(L, STEP);
    lua_setmetatable(L, -2);
    read_machine(L, 1, &m);
    L_TRY(L, gm_step_read(lua_tostring(L, 2), s));
    const gm_journal *r = s->journal;
    int64_t           product, of_passes;
    int               n = 0;
    bool              begins = true;
    gm_step_last_ops(s, &product, &of_passes);
    lua_newtable(L);
    for (int64_t i = 0; i < r->n; i++) {
        const gm_event *e = &r->events[i];
        if (e->kind == GM_EVENT_OP) {
            double seconds;
            L_TRY(L, gm_machine_op(&m, r, e, &seconds));
            n = push_run(L, begins, n, seconds, e->products, m.host.op);
            begins = i == product || i == of_passes;
            if (i == of_passes) mark_end(L, n);
        } else if (e->kind == GM_EVENT_BEGIN || e->kind == GM_EVENT_WAIT) {
            push_between(L, r, e);
            lua_rawseti(L, -2, ++n);
            begins = true;
        }
    }
    return 1;
}

/* ---- long runs ---- */

static gm_month check_month(lua_State *L)
{
    lua_settop(L, 1);
    gm_month m = {.mtbf = number_of(L, "mtbf"),
                  .work = number_of(L, "work"),
                  .block = number_of(L, "block"),
                  .write = number_of(L, "write"),
                  .restart = number_of(L, "restart"),
                  .seconds = number_of(L, "seconds"),
                  .seed = (uint64_t)number_of(L, "seed")};
    gm_check_argument(L, m.mtbf > 0 && m.work > 0, 1, "mtbf and work must be above 0");
    return m;
}

/* run_expected({ mtbf, work, block, write, restart }) -> the part of a long run that is useful (month.h) */
static int run_expected(lua_State *L)
{
    gm_month m = check_month(L);
    lua_pushnumber(L, gm_month_expected(&m));
    return 1;
}

/* run_month({ mtbf, work, block, write, restart, seconds, seed }) -> { useful, lost, failures } of one run */
static int run_month(lua_State *L)
{
    gm_month       m = check_month(L);
    gm_month_found found = gm_month_play(&m);
    lua_createtable(L, 0, 3);
    gm_set_number(L, "useful", found.useful);
    gm_set_number(L, "lost", found.lost);
    gm_set_number(L, "failures", found.failures);
    return 1;
}

/* processors() -> the number that this process may use */
static int processors(lua_State *L)
{
    cpu_set_t set;
    lua_pushnumber(L, sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set));
    return 1;
}

int gm_open_simulate(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("run_expected", run_expected, "run table"),
        GM_FUNCTION("run_month", run_month, "run table"),
        GM_FUNCTION("processors", processors, ""),
        GM_FUNCTION("step_condensed", step_condensed, "machine table, path string"),
        GM_FUNCTION("simulate", simulate, "machine table, steps table, role table, options table?"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, REPLAY);
    lua_pushcfunction(L, close_box);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newmetatable(L, STEP);
    lua_pushcfunction(L, free_step);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
