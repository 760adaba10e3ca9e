/* lua_muon.c - the Lua face of host/optim/muon.h: userdata "gm.muon". */
#include "gm_lua.h"

#include <string.h>
#include "../kernels/philox.h"
#include "../host/optim/muon.h"

#define MUON "gm.muon"

typedef struct box {
    gm_muon *muon;
} box;

static gm_muon *check_muon(lua_State *L)
{
    box *b = gm_check_object(L, 1, MUON);
    if (!b->muon) gm_bad_argument(L, 1, "this optimizer was closed");
    return b->muon;
}

/* The list of numbers of rows in field `parts` of the table on the top of the stack, where there is one. */
static void read_parts(lua_State *L, gm_muon_item *item)
{
    lua_getfield(L, -1, "parts");
    int n = lua_isnil(L, -1) ? 0 : (int)gm_check_list(L, lua_gettop(L), 3);
    gm_check_argument(L, n <= GM_MUON_PARTS, 3, "the rows of a parameter are shared out in too many parts");
    item->n_parts = n;
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        item->part[i] = gm_check_integer(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* List of { lr_scale, weight_decay, site, parts } at argument 3, one a parameter; pushes it. */
static gm_muon_item *push_items(lua_State *L, int n)
{
    luaL_checktype(L, 3, LUA_TTABLE);
    gm_muon_item *items = lua_newuserdata(L, ((size_t)n + 1) * sizeof *items);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1);
        memset(&items[i], 0, sizeof items[i]);
        items[i].set.lr_scale = gm_field_number(L, lua_gettop(L), "lr_scale", 1);
        items[i].set.weight_decay = gm_field_number(L, lua_gettop(L), "weight_decay", 0);
        lua_getfield(L, -1, "site");
        items[i].set.site = lua_isnil(L, -1) ? (uint64_t)i : gm_hash_text(GM_HASH_START, luaL_checkstring(L, -1));
        lua_pop(L, 1);
        read_parts(L, &items[i]);
        lua_pop(L, 1);
    }
    return items;
}

static gm_muon_rule read_rule(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    return (gm_muon_rule){
        .momentum = gm_field_number(L, arg, "momentum", 0),
        .nesterov = gm_field_flag(L, arg, "nesterov"),
        .stochastic = gm_field_flag(L, arg, "stochastic"),
        .scale = gm_field_flag(L, arg, "match_rms_adamw") ? GM_MUON_MATCH_RMS_ADAMW : GM_MUON_ORIGINAL,
        .iteration = {.steps = (int)gm_field_number(L, arg, "steps", 5),
                      .a = gm_field_number(L, arg, "a", 0),
                      .b = gm_field_number(L, arg, "b", 0),
                      .c = gm_field_number(L, arg, "c", 0),
                      .eps = gm_field_number(L, arg, "eps", 0)},
    };
}

/* muon(parameters, rule, items): rule { momentum, nesterov, stochastic, match_rms_adamw, steps, a, b, c, eps } */
static int muon(lua_State *L)
{
    int n;
    lua_settop(L, 3);
    gm_muon_rule  rule = read_rule(L, 2);
    gm_value    **parameters = gm_push_values(L, 1, &n);
    gm_muon_item *items = push_items(L, n);
    box          *b = lua_newuserdata(L, sizeof *b);
    b->muon = NULL;
    luaL_getmetatable(L, MUON);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_muon_new(gm_lua_rank(L), n, parameters, &rule, items, &b->muon));
    return 1;
}

/* m:step{ lr, clip = 1, loss_scale = 1, control = nil }; collective over the ranks of the stage */
static int step(lua_State *L)
{
    gm_muon  *m = check_muon(L);
    gm_update u = gm_check_update(L, 2);
    L_TRY(L, gm_muon_step(m, u.lr, u.clip, u.loss_scale, u.control));
    return 0;
}

/* m:state() -> list of { parameter = index, name, tensor } sharing the states' memory, laid out as the gradient */
static int state(lua_State *L)
{
    gm_muon      *m = check_muon(L);
    gm_optimizer *o = gm_muon_update(m);
    int           n = 0;
    lua_newtable(L);
    for (int i = 0; i < gm_optimizer_parameters(o); i++)
        for (int k = 0;; k++) {
            const char *name;
            gm_tensor  *t;
            L_TRY(L, gm_muon_state(m, i, k, &name, &t));
            if (!t) break;
            gm_push_state(L, i, name, t, gm_optimizer_parameter(o, i), gm_optimizer_layout(o, i));
            lua_rawseti(L, -2, ++n);
        }
    return 1;
}

static int steps(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_optimizer_steps(gm_muon_update(check_muon(L))));
    return 1;
}

static int set_steps(lua_State *L)
{
    int64_t n = gm_check_integer(L, 2);
    gm_check_argument(L, n >= 0, 2, "a number of steps is not negative");
    gm_optimizer_set_steps(gm_muon_update(check_muon(L)), n);
    return 0;
}

/* m:set_skipped(n): of the steps made, n were left out in all */
static int set_skipped(lua_State *L)
{
    gm_optimizer_set_skipped(gm_muon_update(check_muon(L)), gm_check_integer(L, 2));
    return 0;
}

static int bytes(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_muon_bytes(check_muon(L)));
    return 1;
}

/* m:owned() -> elements of the matrices on which this rank iterates */
static int owned(lua_State *L)
{
    int64_t n;
    L_TRY(L, gm_muon_owned(check_muon(L), &n));
    lua_pushnumber(L, (lua_Number)n);
    return 1;
}

static int close(lua_State *L)
{
    box *b = gm_check_object(L, 1, MUON);
    gm_muon_free(b->muon);
    b->muon = NULL;
    return 0;
}

int gm_open_muon(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("step", step, "muon object, values table"),
                                             GM_FUNCTION("state", state, "muon object"),
                                             GM_FUNCTION("steps", steps, "muon object"),
                                             GM_FUNCTION("set_steps", set_steps, "muon object, n integer"),
                                             GM_FUNCTION("set_skipped", set_skipped, "muon object, n integer"),
                                             GM_FUNCTION("bytes", bytes, "muon object"),
                                             GM_FUNCTION("owned", owned, "muon object"),
                                             GM_FUNCTION("close", close, "muon object"),
                                             GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {GM_FUNCTION("muon", muon, "parameters table, rule table, items table"),
                                               GM_LAST_FUNCTION};
    gm_new_class(L, MUON, methods, close);
    gm_declare(L, functions);
    return 0;
}
