/* lua_tape.c - tapes as such: what is recorded now, and tapes that were taken off the rank, for specs of backward
 * passes in any order and in halves. Training takes and runs them in C (host/pipeline). */
#include <stdlib.h>
#include <string.h>

#include "gm_lua.h"

#define TAPE "gm.tape"

typedef struct tape_box {
    gm_tape *tape; /* NULL: freed */
} tape_box;

static gm_tape *check_tape(lua_State *L, int arg)
{
    tape_box *box = gm_check_object(L, arg, TAPE);
    if (!box->tape) gm_bad_argument(L, arg, "this tape was freed");
    return box->tape;
}

/* ---- being recorded ---- */

static int tape_nodes(lua_State *L)
{
    lua_pushinteger(L, gm_tape_nodes(gm_lua_rank(L)));
    return 1;
}

/* tape_saved(kept?) -> list of { path, op, bytes }: what each node holds for its backward, without parameters and the
 * tensors of the list kept */
static int tape_saved(lua_State *L)
{
    gm_tape_held *held;
    int           n, n_kept = 0;
    gm_value    **kept = lua_isnoneornil(L, 1) ? NULL : gm_push_values(L, 1, &n_kept);
    L_TRY(L, gm_tape_saved(gm_lua_rank(L), n_kept, kept, &held, &n));
    gm_tape_held *list = lua_newuserdata(L, sizeof *list * (size_t)(n + 1)); /* what raises below leaks nothing */
    if (n) memcpy(list, held, sizeof *list * (size_t)n);
    free(held);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, list[i].path);
        lua_setfield(L, -2, "path");
        lua_pushstring(L, list[i].op);
        lua_setfield(L, -2, "op");
        lua_pushnumber(L, (lua_Number)list[i].bytes);
        lua_setfield(L, -2, "bytes");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int tape_drop(lua_State *L)
{
    gm_tape_drop(gm_lua_rank(L));
    return 0;
}

/* ---- taken ---- */

/* tape_take() -> what was recorded so far, or nil: nothing was */
static int tape_take(lua_State *L)
{
    tape_box *box = lua_newuserdata(L, sizeof *box);
    box->tape = NULL;
    luaL_getmetatable(L, TAPE);
    lua_setmetatable(L, -2);
    box->tape = gm_tape_take(gm_lua_rank(L));
    if (!box->tape) lua_pushnil(L);
    return 1;
}

static int tape_free(lua_State *L)
{
    tape_box *box = gm_check_object(L, 1, TAPE);
    gm_tape_free(box->tape);
    box->tape = NULL;
    return 0;
}

static int tape_await(lua_State *L)
{
    L_TRY(L, gm_tape_await(gm_lua_rank(L), check_tape(L, 1)));
    return 0;
}

/* The list of tensors (false: NULL) in a field of the table at 2; leaves the list on the stack. */
static int read_list(lua_State *L, const char *field, gm_value **list)
{
    lua_getfield(L, 2, field);
    int at = lua_gettop(L), n = lua_istable(L, at) ? (int)lua_objlen(L, at) : 0;
    if (n > GM_MAX_OUT) luaL_error(L, "tape_run: at most %d %s", GM_MAX_OUT, field);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, at, i + 1);
        list[i] = gm_opt_value(L, at + 1);
        lua_pop(L, 1);
    }
    return n;
}

/* tape_run(tape, { pass = "whole", "input" or "weight", outputs = list, seeds = list (false: 1), inputs = list,
 * final = false }) */
static int tape_run(lua_State *L)
{
    static const char *const passes[] = {"whole", "input", "weight", NULL};
    gm_value                *outputs[GM_MAX_OUT], *seeds[GM_MAX_OUT] = {NULL}, *inputs[GM_MAX_OUT];
    gm_tape                 *t = check_tape(L, 1);
    gm_rank                 *r = gm_lua_rank(L);
    void                    *outer = r->caller;
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "pass");
    gm_tape_job job = {.pass = (gm_tape_pass)gm_check_option(L, 3, "whole", passes)};
    job.n = read_list(L, "outputs", outputs);
    (void)read_list(L, "seeds", seeds);
    job.n_inputs = read_list(L, "inputs", inputs);
    job.final = gm_field_flag(L, 2, "final");
    job.outputs = outputs;
    job.seeds = seeds;
    job.inputs = inputs;
    for (int i = 0; i < job.n; i++)
        if (!outputs[i]) return luaL_error(L, "tape_run: output %d is no tensor", i + 1);
    for (int i = 0; i < job.n_inputs; i++)
        if (!inputs[i]) return luaL_error(L, "tape_run: input %d is no tensor", i + 1);
    r->caller = L;
    gm_status st = gm_tape_run(r, t, &job);
    r->caller = outer;
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* tape_seed(tape, output, seed or nil: 1): before tape_run, which then need not name this output */
static int tape_seed(lua_State *L)
{
    gm_value *output = gm_check_value(L, 2), *seed = lua_isnoneornil(L, 3) ? NULL : gm_check_value(L, 3);
    L_TRY(L, gm_tape_seed(gm_lua_rank(L), check_tape(L, 1), output, seed));
    return 0;
}

int gm_open_tape(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("tape_nodes", tape_nodes, ""),
        GM_FUNCTION("tape_saved", tape_saved, "kept table?"),
        GM_FUNCTION("tape_drop", tape_drop, ""),
        GM_FUNCTION("tape_take", tape_take, ""),
        GM_FUNCTION("tape_run", tape_run, "tape object, about table"),
        GM_FUNCTION("tape_seed", tape_seed, "tape object, output tensor, seed tensor?"),
        GM_FUNCTION("tape_await", tape_await, "tape object"),
        GM_FUNCTION("tape_free", tape_free, "tape object"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, TAPE);
    lua_pushcfunction(L, tape_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
