/* lua_plan.c - records of steps (kernels/journal.h) and their files (host/plan). */
#include "../host/plan/step_file.h"
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
    if (e->kind == GM_EVENT_OP || e->kind == GM_EVENT_WAIT) gm_set_number(L, "took", e->took);
    if (e->kind != GM_EVENT_WAIT) gm_set_number(L, "bytes", e->bytes);
    gm_set_number(L, "seconds", e->seconds);
}

static void push_step(lua_State *L, const gm_step *s)
{
    int64_t product, of_passes;
    gm_step_last_ops(s, &product, &of_passes);
    lua_createtable(L, 0, 6);
    gm_set_number(L, "rank", s->rank);
    gm_set_number(L, "last_of_passes", (double)(of_passes + 1));
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

/* record_take() -> what was recorded since record_start, as step_read gives it, and `begin`, when that was, in seconds
 * of executor_clock; it ends the record. nil: nothing is recorded, because another record ended it. */
static int record_take(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_device *dev;
    L_TRY(L, gm_rank_device(r, &dev));
    if (!dev->journal) return 0;
    if (dev->journal->failed) {
        forget_journal(r, dev);
        return luaL_error(L, "no memory for the record of a step: it is not complete");
    }
    gm_step step = {r->comm ? gm_comm_rank(r->comm) : 0, r->mesh, dev->journal};
    push_step(L, &step);
    gm_set_number(L, "begin", dev->journal->start);
    forget_journal(r, dev);
    return 1;
}

/* step_read(path, copy) -> { rank, mesh, live, peak, events, last_of_passes }; copy: a file to which the step is
 * written again; last_of_passes: the place of the last op of a pass (gm_step_last_ops), 0: there is none */
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

int gm_open_plan(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("record_start", record_start, "clock string?"),
        GM_FUNCTION("record_stop", record_stop, "path string?"),
        GM_FUNCTION("record_take", record_take, ""),
        GM_FUNCTION("step_read", step_read, "path string, copy string?"),
        GM_FUNCTION("steps_alike", steps_alike, "path string, other string"),
        GM_FUNCTION("step_has_places", step_has_places, "path string, axis string"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
