/* lua_table.c - the Lua face of files of separated values and of JSON: datasets of them, and what is in them. As in
 * lua_data.c, a call that fails for what it read returns nil, message, kind. */
#include "lua_data.h"

#include <string.h>

#include "../host/data/table_look.h"

static void set_number(lua_State *L, const char *name, double v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}

static char delimiter_of(lua_State *L, int arg)
{
    size_t      n;
    const char *text = luaL_checklstring(L, arg, &n);
    gm_check_argument(L, n == 1 && *text && *text != '"' && *text != '\n' && *text != '\r', arg,
                      "a delimiter is one byte, no quote and no line end");
    return *text;
}

/* The column described by the table on the top of the stack; its texts stay alive in the table. */
static gm_column read_column(lua_State *L)
{
    static const char *const rules[] = {"refuse", "value", "mean", "drop", NULL};
    int                      top = lua_gettop(L);
    luaL_checktype(L, top, LUA_TTABLE);
    gm_column c = {.value = gm_field_number(L, top, "value", 0)};
    lua_getfield(L, top, "missing");
    c.missing = (gm_missing)gm_check_option(L, top + 1, "refuse", rules);
    lua_getfield(L, top, "name");
    c.name = luaL_checkstring(L, -1);
    lua_getfield(L, top, "values");
    if (lua_istable(L, -1)) c.values = gm_push_texts(L, lua_gettop(L), &c.n_values);
    return c; /* what was pushed stays on the stack until the call ends */
}

/* A delimiter; nil for files with a JSON object a line. */
static gm_table_rows_options rows_of(lua_State *L, int arg, bool header)
{
    if (lua_isnoneornil(L, arg)) return (gm_table_rows_options){.form = GM_TABLE_JSON};
    return (gm_table_rows_options){GM_TABLE_SEPARATED, delimiter_of(L, arg), header};
}

/* dataset_table(paths, delimiter or nil, columns of x, column of y or nil, { classes, header, skip_damaged }) ->
 * dataset, { dropped, refused, first, columns = { { present, missing, least, most, mean } } } */
static int dataset_table(lua_State *L)
{
    int              n, n_x = (int)(luaL_checktype(L, 3, LUA_TTABLE), lua_objlen(L, 3));
    gm_table_options o = {.n_x = n_x,
                          .rows = rows_of(L, 2, gm_field_flag(L, 5, "header")),
                          .classes = gm_field_whole(L, 5, "classes", 0),
                          .skip_damaged = gm_field_flag(L, 5, "skip_damaged")};
    gm_column        y, *x = lua_newuserdata(L, ((size_t)n_x + 1) * sizeof *x);
    const char     **paths = gm_push_texts(L, 1, &n);
    gm_check_argument(L, n >= 1, 1, "at least one file is needed");
    luaL_checkstack(L, 5 * n_x + 20, "too many columns");
    for (int k = 0; k < n_x; k++) {
        lua_rawgeti(L, 3, k + 1);
        x[k] = read_column(L);
    }
    o.x = x;
    if (!lua_isnoneornil(L, 4)) {
        lua_pushvalue(L, 4);
        y = read_column(L);
        o.y = &y;
    }
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_table_dataset_new(paths, n, &o, &b->dataset));
    gm_table_report r;
    gm_table_report_of(b->dataset, &r);
    lua_createtable(L, 0, 4);
    set_number(L, "dropped", (double)r.dropped);
    set_number(L, "refused", (double)r.refused);
    lua_pushstring(L, r.first);
    lua_setfield(L, -2, "first");
    lua_createtable(L, n_x + 1, 0);
    for (int k = 0; k < n_x + (o.y ? 1 : 0); k++) {
        gm_column_report c = gm_table_column(b->dataset, k);
        lua_createtable(L, 0, 5);
        set_number(L, "present", (double)c.present);
        set_number(L, "missing", (double)c.missing);
        set_number(L, "least", c.least);
        set_number(L, "most", c.most);
        set_number(L, "mean", c.mean);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "columns");
    return 2;
}

static void push_column(lua_State *L, const char *name, const gm_column_look *c)
{
    lua_createtable(L, 0, 9);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "name");
    set_number(L, "missing", (double)c->missing);
    set_number(L, "numbers", (double)c->numbers);
    set_number(L, "texts", (double)c->texts);
    set_number(L, "least", c->least);
    set_number(L, "most", c->most);
    set_number(L, "mean", c->numbers ? c->sum / (double)c->numbers : 0);
    lua_pushboolean(L, c->more);
    lua_setfield(L, -2, "more");
    lua_createtable(L, (int)c->different.n, 0);
    for (int64_t i = 0; i < c->different.n; i++) {
        lua_createtable(L, 2, 0);
        lua_pushstring(L, gm_names_get(&c->different, i));
        lua_rawseti(L, -2, 1);
        lua_pushnumber(L, (lua_Number)c->counts[i]);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, "different");
}

/* table_look(path, delimiter or nil) -> { rows, uneven, uneven_line, columns = { { name, missing, numbers, texts,
 * least, most, mean, more, different = { { text, count } } } } } */
static int table_look(lua_State *L)
{
    const char           *path = luaL_checkstring(L, 1);
    gm_table_rows_options o = rows_of(L, 2, true);
    gm_table_look         t;
    L_OR_NIL(L, gm_table_look_at(path, o.form, o.delimiter, &t));
    lua_createtable(L, 0, 4);
    set_number(L, "rows", (double)t.rows);
    set_number(L, "uneven", (double)t.uneven);
    set_number(L, "uneven_line", (double)t.uneven_line);
    lua_createtable(L, (int)t.columns, 0);
    for (int64_t k = 0; k < t.columns; k++) {
        push_column(L, gm_names_get(&t.names, k), &t.each[k]);
        lua_rawseti(L, -2, (int)k + 1);
    }
    lua_setfield(L, -2, "columns");
    gm_table_look_free(&t);
    return 1;
}

int gm_open_table(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("dataset_table", dataset_table, "paths table, delimiter string?, x table, y table?, about table"),
        GM_FUNCTION("table_look", table_look, "path string, delimiter string?"), GM_LAST_FUNCTION};
    gm_declare(L, fns);
    return 0;
}
