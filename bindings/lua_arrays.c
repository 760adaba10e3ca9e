/* lua_arrays.c - the Lua face of host/arrays: userdata "gm.arrays".
 *
 * Files that are written are userdata "gm.arrays.writer". Tensors and arrays are joined by pieces, lists of
 * { name, at, size, offset, order, shape } that count from 0. The part of the tensor at `at` of this size (left out:
 * all of it) is in the array `name`, seen in this shape (that of the file), from `offset` on (the part is all of the
 * array). order: the array's dimension for each dimension of the tensor (the same).
 *
 * What is wrong with files is returned, not raised: nil, message, kind, as lua_checkpoint.c does. */
#include "gm_lua.h"

#include "../host/arrays/write.h"

#define ARRAYS "gm.arrays"
#define WRITER ARRAYS ".writer"

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

/* arrays_forget(o): the memory of what was read may be used for something else */
static int arrays_forget(lua_State *L)
{
    gm_arrays_forget(check(L));
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

/* ---- pieces ---- */

/* The field `key` of the table at the top, a list of at most GM_MAX_DIMS integers -> their number, or -1: no field. */
static int read_list(lua_State *L, const char *key, int64_t *out)
{
    int n = -1;
    lua_getfield(L, -1, key);
    if (!lua_isnil(L, -1)) {
        luaL_checktype(L, lua_gettop(L), LUA_TTABLE);
        n = (int)lua_objlen(L, -1);
        if (n > GM_MAX_DIMS) luaL_error(L, "%s: %d dimensions are too many", key, n);
        for (int d = 0; d < n; d++) {
            lua_rawgeti(L, -1, d + 1);
            out[d] = gm_check_integer(L, lua_gettop(L));
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    return n;
}

static void read_dims(lua_State *L, const char *key, int ndim, int64_t *out, bool *given)
{
    int n = read_list(L, key, out);
    *given = n >= 0;
    if (n >= 0 && n != ndim) luaL_error(L, "%s needs one number for each dimension, %d; got %d", key, ndim, n);
}

/* The piece that the table at the top describes, for a tensor of this shape. */
static gm_status read_piece(lua_State *L, const gm_array *a, const gm_value *v, gm_array_piece *p)
{
    int64_t order[GM_MAX_DIMS], shape[GM_MAX_DIMS];
    bool    at, size, from, turned;
    int     ndim = read_list(L, "shape", shape);
    *p = (gm_array_piece){.array = *a, .part.ndim = v->ndim};
    if (ndim >= 0) GM_TRY(gm_array_as(a, ndim, shape, &p->array));
    read_dims(L, "at", v->ndim, p->part.offset, &at);
    read_dims(L, "size", v->ndim, p->part.shape, &size);
    read_dims(L, "offset", p->array.ndim, p->offset, &from);
    read_dims(L, "order", v->ndim, order, &turned);
    p->all = !from;
    for (int d = 0; d < v->ndim; d++) {
        if (!size) p->part.shape[d] = v->shape[d] - (at ? p->part.offset[d] : 0);
        p->order[d] = !turned ? d : order[d] >= 0 && order[d] < v->ndim ? (int)order[d] : -1;
    }
    return GM_OK;
}

typedef const gm_array *(*finder)(const void *set, const char *name);

static const gm_array *find_read(const void *set, const char *name) { return gm_arrays_find(set, name); }
static const gm_array *find_written(const void *set, const char *name) { return gm_arrays_writer_find(set, name); }

/* The list of pieces at arg; it is pushed, and freed by the collector. */
static gm_status read_pieces(lua_State *L, int arg, const gm_value *v, finder find, const void *set,
                             gm_array_piece **out, int *n)
{
    *n = (int)lua_objlen(L, arg);
    gm_array_piece *list = lua_newuserdata(L, ((size_t)*n + 1) * sizeof *list);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, i + 1);
        luaL_checktype(L, lua_gettop(L), LUA_TTABLE);
        lua_getfield(L, -1, "name");
        const char     *name = luaL_checkstring(L, -1);
        const gm_array *a = find(set, name);
        if (!a) return GM_FAIL(GM_EINVAL, "there is no array '%s'", name);
        lua_pop(L, 1); /* the table has the text */
        GM_TRY(read_piece(L, a, v, &list[i]));
        lua_pop(L, 1);
    }
    *out = list;
    return GM_OK;
}

/* arrays_read(o, tensor, pieces) -> true */
static int arrays_read(lua_State *L)
{
    gm_layout        layout;
    gm_tensor       *block;
    gm_array_piece  *pieces;
    int              n;
    gm_rank         *r = gm_lua_rank(L);
    const gm_arrays *s = check(L);
    gm_value        *v = gm_check_value(L, 2);
    gm_mesh          mesh = gm_rank_mesh(r);
    luaL_checktype(L, 3, LUA_TTABLE);
    L_OR_NIL(L, read_pieces(L, 3, v, find_read, s, &pieces, &n));
    L_TRY(L, gm_value_resting_changes(v));
    L_TRY(L, gm_value_resting(v, &layout, &block));
    const gm_array_target to = {
        .mesh = &mesh, .rank = r->rank, .layout = &layout, .ndim = v->ndim, .shape = v->shape, .block = block};
    L_OR_NIL(L, gm_arrays_read_block(s, pieces, n, &to));
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- writing ---- */

typedef struct writer_box {
    gm_arrays_writer *writer;
} writer_box; /* NULL once closed */

static gm_arrays_writer *check_writer(lua_State *L)
{
    writer_box *b = gm_check_object(L, 1, WRITER);
    if (!b->writer) gm_bad_argument(L, 1, "these files were closed");
    return b->writer;
}

/* Entry i of the list at arg, { name =, dtype =, shape = }, whose text stays the table's. */
static void read_entry(lua_State *L, int arg, int i, gm_array *a)
{
    lua_rawgeti(L, arg, i + 1);
    luaL_checktype(L, lua_gettop(L), LUA_TTABLE);
    lua_getfield(L, -1, "name");
    lua_getfield(L, -2, "dtype");
    *a = (gm_array){.name = (char *)(uintptr_t)luaL_checkstring(L, -2)};
    gm_dtype t = GM_DTYPE_NONE;
    if (!gm_dtype_parse(luaL_checkstring(L, -1), &t)) luaL_error(L, "there is no dtype '%s'", lua_tostring(L, -1));
    a->element = gm_element_of(t);
    lua_pop(L, 2);
    a->ndim = read_list(L, "shape", a->shape);
    if (a->ndim < 0) luaL_error(L, "array '%s' has no shape", a->name);
    lua_pop(L, 1);
}

/* writer_open(path, list of { name, dtype, shape }, bytes of a file at most, metadata as JSON or nil) -> object */
static int writer_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *meta = luaL_optstring(L, 4, NULL);
    luaL_checktype(L, 2, LUA_TTABLE);
    int         n = (int)lua_objlen(L, 2);
    double      most = luaL_checknumber(L, 3);
    writer_box *b = lua_newuserdata(L, sizeof *b);
    b->writer = NULL;
    luaL_getmetatable(L, WRITER);
    lua_setmetatable(L, -2);
    gm_array *list = lua_newuserdata(L, ((size_t)n + 1) * sizeof *list);
    for (int i = 0; i < n; i++) read_entry(L, 2, i, &list[i]);
    L_OR_NIL(L, gm_arrays_writer_open(path, list, n, meta, (uint64_t)most, &b->writer));
    lua_pop(L, 1);
    return 1;
}

/* writer_put(o, tensor, pieces) -> true. The tensor is whole on this rank. */
static int writer_put(lua_State *L)
{
    gm_array_piece   *pieces;
    int               n;
    gm_arrays_writer *w = check_writer(L);
    gm_value         *v = gm_check_value(L, 2);
    luaL_checktype(L, 3, LUA_TTABLE);
    L_OR_NIL(L, read_pieces(L, 3, v, find_written, w, &pieces, &n));
    for (int d = 0; d < v->ndim; d++)
        gm_check_argument(L, v->local->shape[d] == v->shape[d], 2, "a tensor that is whole");
    L_OR_NIL(L, gm_arrays_writer_put(w, pieces, n, v->local));
    lua_pushboolean(L, 1);
    return 1;
}

/* writer_close(o, keep) -> true; keep false: nothing is left */
static int writer_close(lua_State *L)
{
    gm_arrays_writer *w = check_writer(L);
    writer_box       *b = gm_check_object(L, 1, WRITER);
    b->writer = NULL;
    if (!lua_toboolean(L, 2)) gm_arrays_writer_drop(w);
    else L_OR_NIL(L, gm_arrays_writer_close(w));
    lua_pushboolean(L, 1);
    return 1;
}

static int writer_gc(lua_State *L)
{
    writer_box *b = gm_check_object(L, 1, WRITER);
    gm_arrays_writer_drop(b->writer);
    b->writer = NULL;
    return 0;
}

int gm_open_arrays(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("arrays_open", arrays_open, "path string"),
        GM_FUNCTION("arrays_close", arrays_close, "arrays object"),
        GM_FUNCTION("arrays_forget", arrays_forget, "arrays object"),
        GM_FUNCTION("arrays_meta", arrays_meta, "arrays object"),
        GM_FUNCTION("arrays_names", arrays_names, "arrays object"),
        GM_FUNCTION("arrays_info", arrays_info, "arrays object, name string"),
        GM_FUNCTION("arrays_read", arrays_read, "arrays object, t tensor, pieces table"),
        GM_FUNCTION("arrays_writer_open", writer_open, "path string, list table, bytes number, meta string?"),
        GM_FUNCTION("arrays_writer_put", writer_put, "writer object, t tensor, pieces table"),
        GM_FUNCTION("arrays_writer_close", writer_close, "writer object, keep boolean"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, ARRAYS);
    lua_pushcfunction(L, arrays_close);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, WRITER);
    lua_pushcfunction(L, writer_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 2);
    gm_declare(L, fns);
    return 0;
}
