/* lua_clicks.c - the Lua face of datasets of clicks. As in lua_data.c, a call that fails for what it read returns nil,
 * message, kind. */
#include "lua_data.h"

/* { dense, rows = list, skip_damaged } at arg; the rows stay alive as a userdata on the stack. */
static gm_click_options options_at(lua_State *L, int arg)
{
    gm_click_options o = {.dense = (int)gm_field_whole(L, arg, "dense", 0),
                          .skip_damaged = gm_field_flag(L, arg, "skip_damaged")};
    lua_getfield(L, arg, "rows");
    luaL_checktype(L, -1, LUA_TTABLE);
    int list = lua_gettop(L);
    o.tables = (int)lua_objlen(L, list);
    int64_t *rows = lua_newuserdata(L, ((size_t)o.tables + 1) * sizeof *rows);
    for (int t = 0; t < o.tables; t++) {
        lua_rawgeti(L, list, t + 1);
        rows[t] = (int64_t)luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    o.rows = rows;
    return o;
}

/* dataset_click_log(paths, { dense, rows, skip_damaged }) -> dataset, how many lines were left out, why the first */
static int dataset_click_log(lua_State *L)
{
    int              n;
    gm_click_report  report;
    gm_click_options o = options_at(L, 2);
    const char     **paths = gm_push_texts(L, 1, &n);
    gm_check_argument(L, n >= 1, 1, "at least one file is needed");
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_click_log_new(paths, n, &o, &report, &b->dataset));
    lua_pushnumber(L, (lua_Number)report.refused);
    lua_pushstring(L, report.first);
    return 3;
}

/* dataset_made_clicks{ length, dense, rows, signal, seed, split } */
static int dataset_made_clicks(lua_State *L)
{
    gm_click_options o = options_at(L, 1);
    gm_dataset_box  *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_made_click_new(gm_field_whole(L, 1, "length", 0), &o, gm_field_number(L, 1, "signal", 0),
                                  (uint64_t)gm_field_whole(L, 1, "seed", 0), (uint64_t)gm_field_whole(L, 1, "split", 0),
                                  &b->dataset));
    return 1;
}

int gm_open_clicks(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("dataset_click_log", dataset_click_log, "paths table, about table"),
        GM_FUNCTION("dataset_made_clicks", dataset_made_clicks, "about table"), GM_LAST_FUNCTION};
    gm_declare(L, fns);
    return 0;
}
