/* lua_pipeline.c - the Lua face of host/pipeline: an executor, the step it runs, what happened in it.
 *
 * Micro-batches, chunks and parts count from 1 in Lua, stages (peers) from 0. The forward callback runs protected,
 * in a scope of its own; what it gives is held by C from then on. What it raises leaves executor_run as it was raised,
 * a failure object included, and its traceback is that of the place where it was raised. */
#include <stdlib.h>
#include <string.h>

#include "../host/pipeline/executor.h"
#include "../kernels/clock.h"
#include "gm_lua.h"

#define EXECUTOR "gm.executor"

typedef struct executor_box {
    gm_executor *executor; /* NULL: freed */
} executor_box;

static gm_executor *check_executor(lua_State *L, int arg)
{
    executor_box *box = gm_check_object(L, arg, EXECUTOR);
    if (!box->executor) gm_bad_argument(L, arg, "this executor was freed");
    return box->executor;
}

/* executor_new{ scatter = list of axes, variable_shapes = boolean }; both may be left out */
static int executor_new(lua_State *L)
{
    gm_executor_options o = {0};
    luaL_checktype(L, 1, LUA_TTABLE);
    o.variable_shapes = gm_field_flag(L, 1, "variable_shapes");
    lua_getfield(L, 1, "scatter");
    for (int i = 1, n = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        o.scatter |= gm_mesh_mask(&gm_lua_rank(L)->mesh, luaL_checkstring(L, -1));
        lua_pop(L, 1);
    }
    executor_box *box = lua_newuserdata(L, sizeof *box);
    box->executor = NULL;
    luaL_getmetatable(L, EXECUTOR);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_executor_new(gm_lua_rank(L), &o, &box->executor));
    return 1;
}

static int executor_free(lua_State *L)
{
    executor_box *box = gm_check_object(L, 1, EXECUTOR);
    gm_executor_free(box->executor);
    box->executor = NULL;
    return 0;
}

/* ---- callbacks ---- */

/* What the callbacks of a step need; the functions and the error handler are on the stack of executor_run. */
typedef struct lua_stage {
    lua_State *L;
    int        forward, describe, handler; /* stack indices */
} lua_stage;

/* Runs in a protected call: arguments and results travel behind the light userdata. */
typedef struct call_frame {
    const gm_stage_call *call; /* NULL: describe */
    int                  micro_batch, part;
    gm_stage_result     *result;
} call_frame;

static void push_inputs(lua_State *L, const gm_stage_call *call)
{
    gm_rank *r = gm_lua_rank(L);
    lua_createtable(L, call->n, 0);
    for (int i = 0; i < call->n; i++) {
        gm_handle *h = gm_push_handle(L);
        gm_value_retain(call->in[i]);
        gm_handle_fill(r, h, call->in[i], "pipeline");
        lua_rawseti(L, -2, i + 1);
    }
}

/* list of tensors or nil, text or nil, loss or nil: the three on the top of the stack. */
static void read_result(lua_State *L, gm_stage_result *result)
{
    int         list = lua_gettop(L) - 2;
    const char *text = luaL_optstring(L, list + 1, "");
    int         n = lua_istable(L, list) ? (int)lua_objlen(L, list) : 0;
    if (!lua_istable(L, list) && !lua_isnil(L, list))
        luaL_error(L, "a part gives a list of tensors, not a %s", luaL_typename(L, list));
    if (n > GM_BORDER_MAX)
        luaL_error(L, "a part gives %d tensors to the next one; at most %d can cross", n, GM_BORDER_MAX);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, list, i + 1);
        gm_value *v = gm_check_value(L, lua_gettop(L));
        gm_value_retain(result->out[result->n++] = v);
        lua_pop(L, 1);
    }
    gm_value *loss = gm_opt_value(L, list + 2);
    if (loss) gm_value_retain(result->loss = loss);
    result->text = strdup(text);
    if (!result->text) luaL_error(L, "no memory for a text of %d bytes", (int)strlen(text));
}

/* (frame, function) */
static int call_protected(lua_State *L)
{
    call_frame *f = lua_touserdata(L, 1);
    lua_pushvalue(L, 2);
    if (f->call) {
        lua_pushinteger(L, f->call->micro_batch + 1);
        lua_pushinteger(L, f->call->chunk + 1);
        push_inputs(L, f->call);
        lua_pushstring(L, f->call->text);
        lua_call(L, 4, 3);
    } else {
        lua_pushinteger(L, f->micro_batch + 1);
        lua_pushinteger(L, f->part + 1);
        lua_call(L, 2, 3);
    }
    read_result(L, f->result);
    return 0;
}

static gm_status call_lua(lua_stage *s, int function, call_frame *f)
{
    lua_pushcfunction(s->L, call_protected);
    lua_pushlightuserdata(s->L, f);
    lua_pushvalue(s->L, function);
    return gm_call_from_c(s->L, 2, s->handler);
}

static gm_status forward(void *context, const gm_stage_call *call, gm_stage_result *result)
{
    lua_stage *s = context;
    call_frame f = {.call = call, .result = result};
    return call_lua(s, s->forward, &f);
}

static gm_status describe(void *context, int micro_batch, int part, gm_stage_result *result)
{
    lua_stage *s = context;
    call_frame f = {.micro_batch = micro_batch, .part = part, .result = result};
    return call_lua(s, s->describe, &f);
}

/* ---- a step ---- */

/* Memory that the collector frees; it stays on the stack. */
static void *room(lua_State *L, size_t n, size_t size)
{
    luaL_checkstack(L, 8, "a step of a pipeline");
    return lua_newuserdata(L, n * size + 1);
}

static int field_count(lua_State *L, const char *name, int otherwise)
{
    lua_getfield(L, 2, name);
    int n = lua_isnil(L, -1) ? otherwise : (int)gm_check_integer(L, lua_gettop(L));
    lua_pop(L, 1);
    return n;
}

static gm_action_kind read_kind(lua_State *L, const char *name)
{
    for (gm_action_kind k = 0; k < GM_ACTION_KINDS; k++)
        if (!strcmp(name, gm_action_name(k))) return k;
    return (gm_action_kind)luaL_error(L, "there is no action '%s'", name);
}

/* Entry i of the list on the top of the stack, counted from `base`. */
static int entry(lua_State *L, int i, int base)
{
    lua_rawgeti(L, -1, i);
    int n = (int)lua_tointeger(L, -1) - base;
    lua_pop(L, 1);
    return n;
}

/* The action on the top of the stack. */
static gm_action read_action(lua_State *L)
{
    if (!lua_istable(L, -1)) luaL_error(L, "an action is a table, not a %s", luaL_typename(L, -1));
    lua_rawgeti(L, -1, 1);
    gm_action a = {.kind = read_kind(L, lua_isstring(L, -1) ? lua_tostring(L, -1) : "?"), .peer = -1};
    lua_pop(L, 1);
    bool is_transfer = a.kind >= GM_ACTION_SEND;
    if (is_transfer) {
        lua_rawgeti(L, -1, 2);
        a.gradient = lua_isstring(L, -1) && !strcmp(lua_tostring(L, -1), "gradient");
        lua_pop(L, 1);
        a.peer = entry(L, 5, 0);
    }
    a.micro_batch = entry(L, 2 + is_transfer, 1);
    a.chunk = entry(L, 3 + is_transfer, 1);
    return a;
}

static void read_actions(lua_State *L, gm_executor_step *step)
{
    lua_getfield(L, 2, "actions");
    luaL_checktype(L, -1, LUA_TTABLE);
    int        n = (int)lua_objlen(L, -1);
    gm_action *actions = room(L, (size_t)n, sizeof *actions);
    lua_insert(L, -2);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        actions[i] = read_action(L);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    step->actions = actions;
    step->n_actions = n;
}

static void read_parts(lua_State *L, gm_executor_step *step)
{
    lua_getfield(L, 2, "parts");
    luaL_checktype(L, -1, LUA_TTABLE);
    int  n = (int)lua_objlen(L, -1);
    int *parts = room(L, (size_t)n, sizeof *parts);
    lua_insert(L, -2);
    for (int i = 0; i < n; i++) parts[i] = entry(L, i + 1, 1);
    lua_pop(L, 1);
    step->parts = parts;
    step->chunks = n;
    step->n_parts = field_count(L, "n_parts", n);
}

/* The strings belong to the table; its owner is on the stack as long as the step. */
static void read_signatures(lua_State *L, gm_executor_step *step)
{
    lua_getfield(L, 2, "signatures");
    if (lua_istable(L, -1)) {
        const char **list = room(L, (size_t)step->micro_batches, sizeof *list);
        lua_insert(L, -2);
        for (int i = 0; i < step->micro_batches; i++) {
            lua_rawgeti(L, -1, i + 1);
            list[i] = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
            lua_pop(L, 1);
        }
        step->signatures = list;
    }
    lua_pop(L, 1);
}

static int push_function(lua_State *L, const char *name, bool needed)
{
    lua_getfield(L, 2, name);
    if (!lua_isfunction(L, -1) && (needed || !lua_isnil(L, -1)))
        luaL_error(L, "executor_run: %s is a function, not a %s", name, luaL_typename(L, -1));
    return lua_gettop(L);
}

static void push_handler(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "ganymede.base.failure");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "handler");
    lua_remove(L, -2);
}

/* executor_run(executor, { actions =, parts =, n_parts =, micro_batches =, signatures = nil, forward_only = false,
 *   final = false, forward = function(micro_batch, chunk, list of tensors, text) -> list of tensors, text, loss or nil,
 *   describe = function(micro_batch, part) -> list of tensors, text, or nil }): one step of this rank's actions.
 * actions as in ganymede.schedules.pipeline; parts: of each chunk. Collective along the pipeline. */
static int executor_run(lua_State *L)
{
    gm_executor     *e = check_executor(L, 1);
    gm_rank         *r = gm_lua_rank(L);
    gm_executor_step step = {0};
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    push_handler(L);
    lua_stage s = {.L = L, .handler = 3};
    s.forward = push_function(L, "forward", true);
    s.describe = push_function(L, "describe", false);
    read_actions(L, &step);
    read_parts(L, &step);
    step.micro_batches = field_count(L, "micro_batches", 1);
    if (step.micro_batches < 1) return luaL_error(L, "executor_run: at least one micro-batch");
    read_signatures(L, &step);
    step.forward_only = gm_field_flag(L, 2, "forward_only");
    step.final = gm_field_flag(L, 2, "final");
    gm_stage stage = {forward, lua_isnil(L, s.describe) ? NULL : describe, &s};
    step.stage = &stage;
    void *outer = r->caller;
    r->caller = L;
    gm_status st = gm_executor_run(e, &step); /* others have their part in it: it cannot be tried twice */
    r->caller = outer;
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* ---- what happened ---- */

static void push_number(lua_State *L, const char *name, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, name);
}

static void push_event(lua_State *L, const gm_executor_event *v)
{
    lua_createtable(L, 0, 8);
    lua_pushstring(L, gm_action_name(v->action.kind));
    lua_setfield(L, -2, "action");
    if (v->action.kind >= GM_ACTION_SEND) {
        lua_pushstring(L, v->action.gradient ? "gradient" : "activation");
        lua_setfield(L, -2, "thing");
        push_number(L, "peer", v->action.peer);
    }
    push_number(L, "micro_batch", v->action.micro_batch + 1);
    push_number(L, "chunk", v->action.chunk + 1);
    push_number(L, "begin", v->begin);
    push_number(L, "finish", v->end);
    push_number(L, "waited", v->waited);
}

/* executor_events(executor) -> list of { action =, thing = (of transfers), micro_batch =, chunk =, peer = (of
 * transfers), begin =, finish =, waited = }: seconds of executor_clock, in order of the list */
static int executor_events(lua_State *L)
{
    const gm_executor_event *events;
    int                      n = gm_executor_events(check_executor(L, 1), &events);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        push_event(L, &events[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* executor_peak(executor) -> most (micro-batch, chunk) pairs held at once in the last step */
static int executor_peak(lua_State *L)
{
    lua_pushinteger(L, gm_executor_peak(check_executor(L, 1)));
    return 1;
}

/* executor_clock() -> seconds, on a clock that all ranks of this machine share */
static int executor_clock(lua_State *L)
{
    lua_pushnumber(L, gm_now());
    return 1;
}

int gm_open_pipeline(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("executor_new", executor_new, "about table?"),
        GM_FUNCTION("executor_run", executor_run, "executor object, about table"),
        GM_FUNCTION("executor_events", executor_events, "executor object"),
        GM_FUNCTION("executor_peak", executor_peak, "executor object"),
        GM_FUNCTION("executor_clock", executor_clock, ""),
        GM_FUNCTION("executor_free", executor_free, "executor object"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, EXECUTOR);
    lua_pushcfunction(L, executor_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
