/* lua_arrays.c - the Lua face of host/arrays: userdata "gm.arrays".
 *
 * What is wrong with files is returned, not raised: nil, message, kind, as lua_checkpoint.c does. */
#include "gm_lua.h"

#include "../host/arrays/block.h"

#define ARRAYS "gm.arrays"

typedef struct box {
    gm_arrays *set;
} box; /* NULL once closed */

static gm_arrays *check(lua_State *L)
{
    box *b = gm_check_object(L, 1, ARRAYS);
    if (!b->set) gm_bad_argument(L, 1, "these files were closed");
    return b->set;
}

/* arrays_open(path) -> object */
static int arrays_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    box        *b = lua_newuserdata(L, sizeof *b);
    b->set = NULL;
    luaL_getmetatable(L, ARRAYS);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_arrays_open(path, &b->set));
    return 1;
}

static int arrays_close(lua_State *L)
{
    box *b = gm_check_object(L, 1, ARRAYS);
    gm_arrays_close(b->set);
    b->set = NULL;
    return 0;
}

/* arrays_meta(o) -> JSON or nil, path of the file or index */
static int arrays_meta(lua_State *L)
{
    const gm_arrays *s = check(L);
    if (s->meta) lua_pushstring(L, s->meta);
    else lua_pushnil(L);
    lua_pushstring(L, s->path);
    return 2;
}

/* arrays_names(o) -> list, sorted */
static int arrays_names(lua_State *L)
{
    const gm_arrays *s = check(L);
    lua_createtable(L, s->n, 0);
    for (int i = 0; i < s->n; i++) {
        lua_pushstring(L, s->list[i].name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* The dtype that holds the numbers as they are, or the nearest. */
static gm_dtype nearest(gm_element e)
{
    gm_dtype same = gm_element_dtype(e);
    if (same != GM_DTYPE_NONE) return same;
    switch (e) {
    case GM_ELEMENT_U64:
    case GM_ELEMENT_U32: return GM_I64;
    case GM_ELEMENT_U16:
    case GM_ELEMENT_I16:
    case GM_ELEMENT_I8: return GM_I32;
    case GM_ELEMENT_BOOL: return GM_U8;
    default: return GM_F32;
    }
}

/* arrays_info(o, name) -> { name, type, dtype, bytes, shape } or nil */
static int arrays_info(lua_State *L)
{
    const gm_array *a = gm_arrays_find(check(L), luaL_checkstring(L, 2));
    if (!a) return 0;
    lua_createtable(L, 0, 5);
    gm_set_text(L, "name", a->name);
    gm_set_text(L, "type", gm_element_name(a->element));
    gm_set_text(L, "dtype", gm_dtype_name(nearest(a->element)));
    gm_set_number(L, "bytes", (double)a->bytes);
    lua_createtable(L, a->ndim, 0);
    for (int d = 0; d < a->ndim; d++) {
        lua_pushnumber(L, (lua_Number)a->shape[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "shape");
    return 1;
}

/* A list of one integer a dimension at arg, or false: there is none. */
static bool read_list(lua_State *L, int arg, int ndim, int64_t *out)
{
    if (lua_isnoneornil(L, arg)) return false;
    luaL_checktype(L, arg, LUA_TTABLE);
    gm_check_argument(L, (int)lua_objlen(L, arg) == ndim, arg, "one number for each dimension");
    for (int d = 0; d < ndim; d++) {
        lua_rawgeti(L, arg, d + 1);
        out[d] = gm_check_integer(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return true;
}

/* arrays_read(o, name, tensor, offset, order) -> true. offset: where the tensor begins in the array, from 0; order: the
 * array's dimension, from 0, for each dimension of the tensor */
static int arrays_read(lua_State *L)
{
    int64_t          offset[GM_MAX_DIMS], wide[GM_MAX_DIMS];
    int              order[GM_MAX_DIMS];
    gm_layout        layout;
    gm_tensor       *block;
    gm_rank         *r = gm_lua_rank(L);
    const gm_arrays *s = check(L);
    const char      *name = luaL_checkstring(L, 2);
    const gm_array  *a = gm_arrays_find(s, name);
    gm_value        *v = gm_check_value(L, 3);
    gm_mesh          mesh = gm_rank_mesh(r);
    if (!a) L_OR_NIL(L, GM_FAIL(GM_EINVAL, "%s: has no array '%s'", s->path, name));
    L_TRY(L, gm_value_resting_changes(v));
    L_TRY(L, gm_value_resting(v, &layout, &block));
    gm_array_target to = {
        .mesh = &mesh, .rank = r->rank, .layout = &layout, .ndim = v->ndim, .shape = v->shape, .block = block};
    if (read_list(L, 4, a->ndim, offset)) to.offset = offset;
    if (read_list(L, 5, v->ndim, wide)) to.order = order;
    for (int d = 0; to.order && d < v->ndim; d++) order[d] = wide[d] >= 0 && wide[d] < a->ndim ? (int)wide[d] : -1;
    L_OR_NIL(L, gm_arrays_read_block(s, a, &to));
    lua_pushboolean(L, 1);
    return 1;
}

int gm_open_arrays(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("arrays_open", arrays_open, "path string"),
        GM_FUNCTION("arrays_close", arrays_close, "arrays object"),
        GM_FUNCTION("arrays_meta", arrays_meta, "arrays object"),
        GM_FUNCTION("arrays_names", arrays_names, "arrays object"),
        GM_FUNCTION("arrays_info", arrays_info, "arrays object, name string"),
        GM_FUNCTION("arrays_read", arrays_read, "arrays object, name string, t tensor, offset table?, order table?"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, ARRAYS);
    lua_pushcfunction(L, arrays_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, fns);
    return 0;
}
