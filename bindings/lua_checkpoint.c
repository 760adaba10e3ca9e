/* lua_checkpoint.c - the Lua face of host/checkpoint: userdata "gm.checkpoint".
 *
 * What is wrong with files is returned, not raised: nil, message, kind ("corrupt", "io", "invalid",
 * "memory"); lua/ganymede/checkpoint.lua decides on the exit status. */
#include <stdlib.h>
#include <string.h>

#include "gm_lua.h"

#include "../host/checkpoint/checkpoint.h"

#define CHECKPOINT "gm.checkpoint"

typedef struct box {
    gm_checkpoint *checkpoint;
} box; /* NULL once closed */
typedef struct text_box {
    char    *path;
    int64_t *steps;
} text_box; /* what C allocated, for the collector */

static int text_gc(lua_State *L)
{
    text_box *b = lua_touserdata(L, 1);
    free(b->path);
    free(b->steps);
    *b = (text_box){0};
    return 0;
}

static text_box *push_text(lua_State *L)
{
    text_box *b = lua_newuserdata(L, sizeof *b);
    *b = (text_box){0};
    luaL_getmetatable(L, CHECKPOINT ".text");
    lua_setmetatable(L, -2);
    return b;
}

static gm_checkpoint *check(lua_State *L)
{
    box *b = luaL_checkudata(L, 1, CHECKPOINT);
    if (!b->checkpoint) luaL_argerror(L, 1, "this checkpoint was closed");
    return b->checkpoint;
}

/* Piece i of the lists of names (argument 3) and tensors (4); both stay alive in their tables. */
static void read_piece(lua_State *L, int i, gm_piece *p)
{
    lua_rawgeti(L, 3, i + 1);
    lua_rawgeti(L, 4, i + 1);
    if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "checkpoint: entry %d has no name", i + 1);
    if (!gm_test_handle(L, lua_gettop(L))) luaL_error(L, "checkpoint: '%s' is not a tensor", lua_tostring(L, -2));
    const gm_value *v = gm_check_value(L, lua_gettop(L));
    *p = (gm_piece){.name = lua_tostring(L, -2), .tensor = v->local};
    memcpy(p->shape, v->shape, sizeof p->shape);
    lua_pop(L, 2);
}

/* checkpoint_save(folder, step, names, tensors, meta: JSON, keep_last: 0 keeps all) -> path */
static int checkpoint_save(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1), *meta = luaL_checkstring(L, 5);
    int64_t     step = gm_check_integer(L, 2), keep = gm_check_integer(L, 6);
    luaL_checktype(L, 3, LUA_TTABLE);
    luaL_checktype(L, 4, LUA_TTABLE);
    int       n = (int)lua_objlen(L, 3);
    gm_piece *pieces = lua_newuserdata(L, (size_t)n * sizeof *pieces + 1);
    for (int i = 0; i < n; i++) read_piece(L, i, &pieces[i]);
    text_box *t = push_text(L);
    L_OR_NIL(L, gm_checkpoint_save(folder, step, pieces, n, meta, (int)keep, &t->path));
    lua_pushstring(L, t->path);
    return 1;
}

/* checkpoint_list(folder) -> list of steps, list of paths; ascending */
static int checkpoint_list(lua_State *L)
{
    int         n;
    const char *folder = luaL_checkstring(L, 1);
    text_box   *t = push_text(L);
    L_OR_NIL(L, gm_checkpoint_list(folder, &t->steps, &n));
    lua_createtable(L, n, 0);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushnumber(L, (lua_Number)t->steps[i]);
        lua_rawseti(L, -3, i + 1);
        free(t->path);
        t->path = gm_checkpoint_path(folder, t->steps[i]);
        if (!t->path) return luaL_error(L, "checkpoint: no memory for a path");
        lua_pushstring(L, t->path);
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

/* checkpoint_open(path) -> checkpoint, verified */
static int checkpoint_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    box        *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, CHECKPOINT);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_checkpoint_open(path, &b->checkpoint));
    return 1;
}

static int checkpoint_close(lua_State *L)
{
    box *b = luaL_checkudata(L, 1, CHECKPOINT);
    gm_checkpoint_close(b->checkpoint);
    b->checkpoint = NULL;
    return 0;
}

/* checkpoint_meta(c) -> JSON, number of ranks that saved it */
static int checkpoint_meta(lua_State *L)
{
    lua_pushstring(L, gm_checkpoint_meta(check(L)));
    lua_pushinteger(L, gm_checkpoint_world(check(L)));
    return 2;
}

/* checkpoint_names(c) -> list, sorted */
static int checkpoint_names(lua_State *L)
{
    const gm_checkpoint *c = check(L);
    int                  n = gm_checkpoint_count(c);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushstring(L, gm_checkpoint_at(c, i).name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* checkpoint_info(c, name) -> { name, dtype, shape, bytes, boxes }, or nil */
static int checkpoint_info(lua_State *L)
{
    const gm_checkpoint *c = check(L);
    int                  i = gm_checkpoint_find(c, luaL_checkstring(L, 2));
    if (i < 0) return 0;
    gm_stored s = gm_checkpoint_at(c, i);
    lua_createtable(L, 0, 5);
    lua_pushstring(L, s.name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, gm_dtype_name(s.dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushnumber(L, (lua_Number)s.bytes);
    lua_setfield(L, -2, "bytes");
    lua_pushinteger(L, s.boxes);
    lua_setfield(L, -2, "boxes");
    lua_createtable(L, s.ndim, 0);
    for (int d = 0; d < s.ndim; d++) {
        lua_pushnumber(L, (lua_Number)s.shape[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "shape");
    return 1;
}

/* checkpoint_read(c, name, tensor, cast, offset: list of positions from 0, or nil for the whole) -> true */
static int checkpoint_read(lua_State *L)
{
    int64_t              offset[GM_MAX_DIMS];
    const gm_checkpoint *c = check(L);
    const char          *name = luaL_checkstring(L, 2);
    gm_value            *v = gm_check_value(L, 3);
    bool                 part = !lua_isnoneornil(L, 5);
    if (part && gm_check_shape(L, 5, offset) != v->local->ndim) return luaL_argerror(L, 5, "one offset a dimension");
    L_OR_NIL(L, gm_checkpoint_read(c, name, part ? offset : NULL, lua_toboolean(L, 4), v->local));
    gm_value_touched(v);
    lua_pushboolean(L, 1);
    return 1;
}

int gm_open_checkpoint(lua_State *L)
{
    static const luaL_Reg fns[] = {{"checkpoint_save", checkpoint_save},
                                   {"checkpoint_list", checkpoint_list},
                                   {"checkpoint_open", checkpoint_open},
                                   {"checkpoint_close", checkpoint_close},
                                   {"checkpoint_meta", checkpoint_meta},
                                   {"checkpoint_names", checkpoint_names},
                                   {"checkpoint_info", checkpoint_info},
                                   {"checkpoint_read", checkpoint_read},
                                   {NULL, NULL}};
    luaL_newmetatable(L, CHECKPOINT);
    lua_pushcfunction(L, checkpoint_close);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, CHECKPOINT ".text");
    lua_pushcfunction(L, text_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 2);
    luaL_register(L, NULL, fns);
    return 0;
}
