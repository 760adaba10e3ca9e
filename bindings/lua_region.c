/* lua_region.c - the Lua face of host/autograd/region.h: userdata "gm.region". */
#include "gm_lua.h"

#include "../host/autograd/region.h"

#define REGION "gm.region"

typedef struct box {
    gm_region *region; /* NULL: it has ended */
} box;

static box *check_region(lua_State *L)
{
    box *b = gm_check_object(L, 1, REGION);
    if (!b->region) gm_bad_argument(L, 1, "this region has ended");
    return b;
}

/* region_begin(name, inputs) -> region: what is recorded from here on is its own, until region_end or region_cancel */
static int region_begin(lua_State *L)
{
    int         n;
    const char *name = luaL_checkstring(L, 1);
    gm_value  **in = gm_push_values(L, 2, &n);
    box        *b = lua_newuserdata(L, sizeof *b);
    b->region = NULL;
    luaL_getmetatable(L, REGION);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_region_begin(gm_lua_rank(L), name, n, in, &b->region));
    return 1;
}

static int region_cancel(lua_State *L)
{
    box *b = gm_check_object(L, 1, REGION);
    gm_region_cancel(b->region);
    b->region = NULL;
    return 0;
}

/* region_end(region, inputs, what stood for them, results, again) -> the results, which depend on the inputs */
static int region_end(lua_State *L)
{
    box       *b = check_region(L);
    int        n_in, n_inner, n_out;
    gm_value **in = gm_push_values(L, 2, &n_in), **inner = gm_push_values(L, 3, &n_inner);
    gm_value **out = gm_push_values(L, 4, &n_out), *results[GM_REGION_OUTPUTS] = {NULL};
    gm_handle *handles[GM_REGION_OUTPUTS];
    gm_check_argument(L, n_in == n_inner, 3, "one for each input");
    gm_check_argument(L, n_out <= GM_REGION_OUTPUTS, 4, "at most 32 results");
    int first = lua_gettop(L) + 1;
    luaL_checkstack(L, n_out + 8, "recompute");
    for (int i = 0; i < n_out; i++) handles[i] = gm_push_handle(L);
    gm_callback again = gm_check_callback(L, 5);
    gm_region  *region = b->region;
    b->region = NULL;
    gm_status st = gm_region_end(region, in, inner, n_out, out, again, results);
    if (st != GM_OK) return gm_raise(L, st);
    for (int i = 0; i < n_out; i++) gm_handle_fill(gm_lua_rank(L), handles[i], results[i], "recompute");
    lua_settop(L, first + n_out - 1);
    return n_out;
}

int gm_open_region(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("region_begin", region_begin, "name string, inputs table"),
        GM_FUNCTION("region_cancel", region_cancel, "region object"),
        GM_FUNCTION("region_end", region_end,
                    "region object, inputs table, inner table, results table, again function"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, REGION);
    lua_pushcfunction(L, region_cancel);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
