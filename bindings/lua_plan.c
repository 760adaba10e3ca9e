/* lua_plan.c - records of steps (kernels/journal.h), their files, and simulations (host/plan). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../host/plan/month.h"
#include "../host/plan/simulate.h"
#include "lua_comm.h"

/* ---- records ---- */

static void forget_journal(gm_rank *r, gm_device *dev)
{
    gm_pool_set_journal(dev->pool, NULL);
    if (r->comm) gm_comm_set_journal(r->comm, NULL);
    gm_journal_free(dev->journal);
    dev->journal = NULL;
}

/* record_start(clock = "wall"): from here on, what this rank does is recorded; an older record is forgotten. clock:
 * "thread" takes the time that this thread works. A rehearsal takes no times. */
static int record_start(lua_State *L)
{
    static const char *const clocks[] = {"wall", "thread", NULL};
    gm_rank                 *r = gm_lua_rank(L);
    gm_journal_clock         clock = gm_check_option(L, 1, "wall", clocks) ? GM_JOURNAL_THREAD : GM_JOURNAL_WALL;
    gm_device               *dev;
    L_TRY(L, gm_rank_device(r, &dev));
    forget_journal(r, dev);
    L_TRY(L, gm_journal_new(dev->backend->has_data ? clock : GM_JOURNAL_NONE, &dev->journal));
    dev->journal->live = (double)gm_pool_stats(dev->pool).live;
    gm_pool_set_journal(dev->pool, dev->journal);
    if (r->comm) gm_comm_set_journal(r->comm, dev->journal);
    return 0;
}

/* record_stop(path): ends the record; writes it into a file if a path is given */
static int record_stop(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_device *dev;
    L_TRY(L, gm_rank_device(r, &dev));
    if (!dev->journal) return luaL_error(L, "nothing is recorded: record_start comes first");
    gm_step   step = {r->comm ? gm_comm_rank(r->comm) : 0, r->mesh, dev->journal};
    gm_status st = lua_isnoneornil(L, 1) ? GM_OK : gm_step_write(&step, lua_tostring(L, 1));
    forget_journal(r, dev);
    L_TRY(L, st);
    return 0;
}

static const char *const kinds[] = {"op", "begin", "wait", "alloc", "free"};

static void set_word(lua_State *L, const gm_journal *r, const char *name, int32_t text)
{
    if (text >= 0) gm_set_text(L, name, gm_journal_text_of(r, text));
}

static void push_event(lua_State *L, const gm_journal *r, const gm_event *e)
{
    lua_createtable(L, 0, 12);
    gm_set_text(L, "kind", kinds[e->kind]);
    set_word(L, r, "name", e->name);
    set_word(L, r, "about", e->about);
    set_word(L, r, "dtype", e->dtype);
    set_word(L, r, "path", e->path);
    set_word(L, r, "phase", e->phase);
    set_word(L, r, "group", e->group);
    if (e->kind == GM_EVENT_BEGIN) gm_set_number(L, "peer", e->peer);
    if (e->id) gm_set_number(L, "id", e->id);
    if (e->kind == GM_EVENT_OP) {
        gm_set_number(L, "size", (double)e->size);
        gm_set_number(L, "flops", e->flops);
        gm_set_number(L, "products", e->products);
        lua_pushboolean(L, e->again);
        lua_setfield(L, -2, "again");
    }
    if (e->kind == GM_EVENT_BEGIN) gm_set_number(L, "sent", e->sent);
    if (e->kind != GM_EVENT_WAIT) gm_set_number(L, "bytes", e->bytes);
    gm_set_number(L, "seconds", e->seconds);
}

static void push_step(lua_State *L, const gm_step *s)
{
    lua_createtable(L, 0, 5);
    gm_set_number(L, "rank", s->rank);
    gm_set_number(L, "live", s->journal->live);
    gm_set_number(L, "peak", gm_step_peak(s));
    lua_createtable(L, s->mesh.n_axes, 0);
    for (int a = 0; a < s->mesh.n_axes; a++) {
        lua_createtable(L, 0, 2);
        gm_set_text(L, "name", s->mesh.axis[a].name);
        gm_set_number(L, "size", s->mesh.axis[a].size);
        lua_rawseti(L, -2, a + 1);
    }
    lua_setfield(L, -2, "mesh");
    lua_createtable(L, (int)s->journal->n, 0);
    for (int64_t i = 0; i < s->journal->n; i++) {
        push_event(L, s->journal, &s->journal->events[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, "events");
}

/* step_read(path, copy) -> { rank, mesh, live, peak, events }; copy: a file to which the step is written again */
static int step_read(lua_State *L)
{
    gm_step step;
    L_TRY(L, gm_step_read(lua_tostring(L, 1), &step));
    gm_status st = lua_isnoneornil(L, 2) ? GM_OK : gm_step_write(&step, lua_tostring(L, 2));
    if (st == GM_OK) push_step(L, &step);
    gm_step_free(&step);
    L_TRY(L, st);
    return 1;
}

/* steps_alike(path, other) -> do ranks of both files do alike (step_file.h) */
static int steps_alike(lua_State *L)
{
    gm_step a, b;
    L_TRY(L, gm_step_read(lua_tostring(L, 1), &a));
    gm_status st = gm_step_read(lua_tostring(L, 2), &b);
    if (st == GM_OK) {
        lua_pushboolean(L, gm_step_alike(&a, &b));
        gm_step_free(&b);
    }
    gm_step_free(&a);
    L_TRY(L, st);
    return 1;
}

/* step_has_places(path, axis) -> has it messages or roots along this axis */
static int step_has_places(lua_State *L)
{
    gm_step step;
    L_TRY(L, gm_step_read(lua_tostring(L, 1), &step));
    lua_pushboolean(L, gm_step_has_places(&step, lua_tostring(L, 2)));
    gm_step_free(&step);
    return 1;
}

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
    text_of(L, "algorithm", algorithm, sizeof algorithm);
    for (int i = 0; i < 4; i++)
        if (!strcmp(algorithm, algorithms[i])) m->algorithm = (gm_algorithm)i;
    read_rates(L, "products", m->products, &m->n_products);
    read_rates(L, "moves", m->moves, &m->n_moves);
    read_links(L, m);
    lua_pop(L, 1);
}

/* ---- simulations: a userdata owns what C allocates ---- */

#define REPLAY "gm.replay"

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
    lua_createtable(L, 0, 5);
    gm_set_number(L, "count", k->count);
    gm_set_number(L, "first", k->first);
    gm_set_number(L, "seconds", k->end);
    gm_set_number(L, "busy", k->busy);
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

/* simulate(machine, steps, role, { spans, slower, jitter, seed, unfolded }) -> { seconds, transfers, classes, ranks,
 * spans, products = a list of { all, again } by step }. steps: paths of files; role: of each rank, its step; classes: a list of { count, first, seconds, busy,
 * exposed = { group = seconds } }; ranks: of each rank, its class. The options are those of gm_simulation. */
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
                           .unfolded = gm_field_flag(L, 4, "unfolded")};
    L_TRY(L, gm_simulate(&given, &b->out));
    lua_createtable(L, 0, 5);
    gm_set_number(L, "seconds", b->out.seconds);
    gm_set_number(L, "transfers", (double)b->out.n_transfers);
    push_classes(L, &b->out);
    push_spans(L, &b->out, given.spans);
    push_products(L, b);
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

int gm_open_plan(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("record_start", record_start, "clock string?"),
        GM_FUNCTION("record_stop", record_stop, "path string?"),
        GM_FUNCTION("step_read", step_read, "path string, copy string?"),
        GM_FUNCTION("steps_alike", steps_alike, "path string, other string"),
        GM_FUNCTION("step_has_places", step_has_places, "path string, axis string"),
        GM_FUNCTION("run_expected", run_expected, "run table"),
        GM_FUNCTION("run_month", run_month, "run table"),
        GM_FUNCTION("processors", processors, ""),
        GM_FUNCTION("simulate", simulate, "machine table, steps table, role table, options table?"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, REPLAY);
    lua_pushcfunction(L, close_box);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
