/* lua_average.c - the Lua face of host/optim/average.h: userdata "gm.average". */
#include "gm_lua.h"

#include "../host/optim/average.h"

#define AVERAGE "gm.average"

typedef struct box {
    gm_average *average;
} box;

static gm_average *check_average(lua_State *L)
{
    box *b = gm_check_object(L, 1, AVERAGE);
    if (!b->average) gm_bad_argument(L, 1, "these averages were closed");
    return b->average;
}

/* average(parameters): running averages, which begin as copies */
static int average(lua_State *L)
{
    int n;
    lua_settop(L, 1);
    gm_value **parameters = gm_push_values(L, 1, &n);
    box       *b = lua_newuserdata(L, sizeof *b);
    b->average = NULL;
    luaL_getmetatable(L, AVERAGE);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_average_new(gm_lua_rank(L), n, parameters, &b->average));
    return 1;
}

/* a:update(weight): the averages move so far towards the parameters; 1: they become copies */
static int update(lua_State *L)
{
    double weight = luaL_checknumber(L, 2);
    gm_check_argument(L, weight >= 0 && weight <= 1, 2, "a weight is from 0 to 1");
    L_TRY(L, gm_average_update(check_average(L), weight));
    return 0;
}

/* a:swap(): the parameters take the averages' numbers, or take their own back */
static int swap(lua_State *L)
{
    L_TRY(L, gm_average_swap(check_average(L)));
    return 0;
}

static int is_swapped(lua_State *L)
{
    lua_pushboolean(L, gm_average_is_swapped(check_average(L)));
    return 1;
}

/* a:state() -> list of { parameter = index, name, tensor } sharing the averages' memory */
static int state(lua_State *L)
{
    gm_average *a = check_average(L);
    lua_newtable(L);
    for (int i = 0; i < gm_average_parameters(a); i++) {
        gm_push_state(L, i, "average", gm_average_tensor(a, i), gm_average_parameter(a, i), gm_average_layout(a, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int bytes(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_average_bytes(check_average(L)));
    return 1;
}

static int close(lua_State *L)
{
    box *b = gm_check_object(L, 1, AVERAGE);
    gm_average_free(b->average);
    b->average = NULL;
    return 0;
}

int gm_open_average(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("update", update, "average object, weight number"),
                                             GM_FUNCTION("swap", swap, "average object"),
                                             GM_FUNCTION("is_swapped", is_swapped, "average object"),
                                             GM_FUNCTION("state", state, "average object"),
                                             GM_FUNCTION("bytes", bytes, "average object"),
                                             GM_FUNCTION("close", close, "average object"),
                                             GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {GM_FUNCTION("average", average, "parameters table"), GM_LAST_FUNCTION};
    gm_new_class(L, AVERAGE, methods, close);
    gm_declare(L, functions);
    return 0;
}
