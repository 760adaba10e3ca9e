/* handle.c - tensors as userdata, scopes, arguments and errors; see gm_lua.h. */
#include "gm_lua.h"

#include <math.h>
#include <string.h>
#include "../host/comm/comm.h"
#include "../host/autograd/padding.h"
#include "docs/docs.h"
#include "docs/handle.def"

void gm_new_class(lua_State *L, const char *name, const gm_declaration *methods, lua_CFunction gc)
{
    luaL_newmetatable(L, name);
    lua_newtable(L);
    gm_declare(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

void gm_set_number(lua_State *L, const char *name, double v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}

void gm_set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static const char tensor_key; /* registry: the metatable of tensors, found without hashing its name */

static void push_metatable(lua_State *L)
{
    lua_pushlightuserdata(L, (void *)&tensor_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

gm_handle *gm_push_handle(lua_State *L)
{
    gm_handle *h = lua_newuserdata(L, sizeof *h);
    *h = (gm_handle){0};
    push_metatable(L);
    lua_setmetatable(L, -2);
    return h;
}

gm_handle *gm_test_handle(lua_State *L, int arg)
{
    void *p = lua_touserdata(L, arg);
    if (!p || !lua_getmetatable(L, arg)) return NULL;
    push_metatable(L);
    bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return same ? p : NULL;
}

gm_handle *gm_check_handle(lua_State *L, int arg)
{
    gm_handle *h = gm_test_handle(L, arg);
    if (h) return h;
    const char *got = luaL_getmetafield(L, arg, "__name") ? lua_tostring(L, -1) : luaL_typename(L, arg);
    gm_bad_argument(L, arg, lua_pushfstring(L, "a tensor was expected, got %s", got));
    return NULL;
}

gm_value *gm_check_value(lua_State *L, int arg)
{
    gm_handle *h = gm_check_handle(L, arg);
    if (!h->value)
        gm_bad_argument(L, arg,
                        lua_pushfstring(L,
                                        "this tensor (made by '%s') was released when its scope closed; "
                                        "return it from the scope or :keep() it",
                                        h->born ? h->born : "?"));
    gm_status st = gm_padding_renew(h->value); /* its bytes may have been written past its layout */
    if (st != GM_OK) gm_raise(L, st);
    return h->value;
}

gm_value *gm_opt_value(lua_State *L, int arg)
{
    return lua_isnoneornil(L, arg) || (lua_isboolean(L, arg) && !lua_toboolean(L, arg)) ? NULL : gm_check_value(L, arg);
}

gm_value **gm_push_values(lua_State *L, int arg, int *n)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    *n = (int)gm_check_list(L, arg, arg);
    gm_value **list = lua_newuserdata(L, ((size_t)*n + 1) * sizeof *list);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, i + 1);
        list[i] = gm_check_value(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return list;
}

int64_t gm_check_integer(lua_State *L, int arg)
{
    lua_Number n = luaL_checknumber(L, arg);
    if (n != floor(n) || fabs(n) > 9007199254740992.0)
        gm_bad_argument(L, arg, lua_pushfstring(L, "a whole number was expected, got %f", n));
    return (int64_t)n;
}

size_t gm_check_list(lua_State *L, int table, int arg)
{
    size_t n = lua_objlen(L, table);
    if (n > 8) lua_pushinteger(L, (lua_Integer)n); /* what has a name comes behind the entries */
    else lua_pushnil(L);
    for (; lua_next(L, table); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) >= 1 && lua_tonumber(L, -2) <= (lua_Number)n)
            continue;
        lua_pushvalue(L, -2);
        const char *key = lua_isstring(L, -1) ? lua_tostring(L, -1) : luaL_typename(L, -1);
        gm_bad_argument(L, arg,
                        lua_pushfstring(L,
                                        "a list was expected, and this table has the field '%s'; write its value as an "
                                        "argument of its own, without the name",
                                        key));
    }
    return n;
}

int gm_check_shape(lua_State *L, int arg, int64_t *shape)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    size_t n = gm_check_list(L, arg, arg);
    if (n > GM_MAX_DIMS)
        gm_bad_argument(L, arg, lua_pushfstring(L, "%d dimensions; at most %d are allowed", (int)n, GM_MAX_DIMS));
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, arg, (int)i + 1);
        lua_Number v = lua_tonumber(L, -1);
        if (!lua_isnumber(L, -1) || v != floor(v) || fabs(v) > 9007199254740992.0)
            gm_bad_argument(L, arg, "a shape is a list of whole numbers");
        shape[i] = (int64_t)v;
        lua_pop(L, 1);
    }
    return (int)n;
}

int gm_check_sizes(lua_State *L, int arg, int64_t *shape)
{
    int n = lua_gettop(L) - arg + 1;
    if (n > 1 && lua_istable(L, arg)) gm_bad_argument(L, arg + 1, "nothing follows a list of sizes");
    if (n > 0 && lua_istable(L, arg)) return gm_check_shape(L, arg, shape);
    if (n > GM_MAX_DIMS)
        gm_bad_argument(L, arg, lua_pushfstring(L, "%d dimensions; at most %d are allowed", n, GM_MAX_DIMS));
    for (int i = 0; i < n; i++) shape[i] = gm_check_integer(L, arg + i);
    return n;
}

static int to_dim(lua_State *L, int arg, int64_t d, int ndim)
{
    int64_t k = d < 0 ? d + ndim : d - 1;
    if (d == 0 || k < 0 || k >= ndim)
        gm_bad_argument(L, arg,
                        lua_pushfstring(L,
                                        "dimension %d of a tensor with %d (they count from 1, or from -1 at the end)",
                                        (int)d, ndim));
    return (int)k;
}

int gm_check_dim_arg(lua_State *L, int arg, int ndim) { return to_dim(L, arg, gm_check_integer(L, arg), ndim); }

uint32_t gm_opt_dims(lua_State *L, int arg, int ndim)
{
    uint32_t mask = 0;
    int64_t  list[GM_MAX_DIMS];
    if (lua_isnoneornil(L, arg)) return 0;
    if (lua_isnumber(L, arg)) return 1u << gm_check_dim_arg(L, arg, ndim);
    int n = gm_check_shape(L, arg, list);
    for (int i = 0; i < n; i++) mask |= 1u << to_dim(L, arg, list[i], ndim);
    return mask;
}

gm_dtype gm_check_dtype(lua_State *L, int arg)
{
    gm_dtype    t;
    const char *name = luaL_checkstring(L, arg);
    if (!gm_dtype_parse(name, &t))
        gm_bad_argument(L, arg, lua_pushfstring(L, "there is no dtype '%s'; f32 f64 bf16 f16 i32 i64 u8 exist", name));
    return t;
}

gm_dtype gm_opt_dtype(lua_State *L, int arg, gm_dtype otherwise)
{
    return lua_isnoneornil(L, arg) ? otherwise : gm_check_dtype(L, arg);
}

double gm_field_number(lua_State *L, int arg, const char *name, double otherwise)
{
    double v = otherwise;
    if (!lua_istable(L, arg)) return v;
    lua_getfield(L, arg, name);
    if (lua_isnumber(L, -1)) v = lua_tonumber(L, -1);
    else if (!lua_isnil(L, -1)) luaL_error(L, "option '%s' should be a number, got %s", name, luaL_typename(L, -1));
    lua_pop(L, 1);
    return v;
}

bool gm_field_flag(lua_State *L, int arg, const char *name)
{
    if (!lua_istable(L, arg)) return false;
    lua_getfield(L, arg, name);
    bool v = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return v;
}

void gm_push_failure_object(lua_State *L, const char *maker, int exit_code, const char *text)
{
    lua_getglobal(L, "require");
    lua_pushstring(L, "ganymede.base.failure");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, maker);
    lua_pushinteger(L, exit_code);
    lua_pushstring(L, text);
    lua_call(L, 2, 1);
    lua_remove(L, -2);
}

static const char raised_key; /* registry: what gm_call_from_c caught last; nil: it was raised again */

static gm_status keep_raised(lua_State *L)
{
    const char *text = "an error that is not a string"; /* lua_tostring would make strings of numbers */
    if (lua_type(L, -1) == LUA_TSTRING) text = lua_tostring(L, -1);
    gm_fail_again(GM_ELUA, text);
    lua_pushlightuserdata(L, (void *)&raised_key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    return GM_ELUA;
}

gm_status gm_call_from_c(lua_State *L, int n_args, int handler)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_scope *outer = r->scope;
    gm_status st = gm_scope_open(r, L);
    if (st != GM_OK) lua_pop(L, n_args + 1);
    else if (lua_pcall(L, n_args, 0, handler)) st = keep_raised(L);
    while (r->scope != outer) gm_scope_close(r);
    return st;
}

/* Returns where C has added words to what was caught: then those are the error. */
static void raise_again(lua_State *L)
{
    const char *words = gm_last_error(); /* cut off, where a string is longer */
    lua_pushlightuserdata(L, (void *)&raised_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_pushlightuserdata(L, (void *)&raised_key);
    lua_pushnil(L);
    lua_rawset(L, LUA_REGISTRYINDEX);
    if (lua_isnil(L, -1)) return;
    if (lua_type(L, -1) != LUA_TSTRING || !strncmp(lua_tostring(L, -1), words, strlen(words))) lua_error(L);
}

/* Most failures are Lua strings. Those that mean a status are objects of ganymede.base.failure: one of a peer carries
 * its status, a hang 7, an anomaly 8; a stop that was asked for is raised as the stop that it is. */
int gm_raise(lua_State *L, gm_status st)
{
    const gm_comm         *c = gm_lua_rank(L)->comm;
    const gm_peer_failure *peer = st == GM_EPEER && c ? gm_comm_failure(c) : NULL;
    if (st == GM_EINTERRUPT) gm_raise_stop(L);
    if (st == GM_ELUA) raise_again(L);
    if (peer) gm_push_failure_object(L, "new_peer", peer->exit_code, peer->text);
    else if (st == GM_EHANG || st == GM_ENOTFINITE)
        gm_push_failure_object(L, "new", st == GM_EHANG ? 7 : 8, gm_last_error());
    if (peer || st == GM_EHANG || st == GM_ENOTFINITE) return lua_error(L);
    luaL_checkstack(L, 4, "an error");
    const char *line = gm_push_users_line(L);
    if (!*line) return luaL_error(L, "%s", gm_last_error()); /* never a message as the format */
    lua_pushfstring(L, "%s%s", line, gm_last_error());
    return lua_error(L);
}

int gm_push_failure(lua_State *L, gm_status st)
{
    lua_pushnil(L);
    lua_pushstring(L, gm_last_error());
    lua_pushstring(L, st == GM_ECORRUPT ? "corrupt" : st == GM_EIO ? "io" : st == GM_ENOMEM ? "memory" : "invalid");
    return 3;
}

/* Readers of attributes, one a C type: the value is on the top of the stack. */
static void read_gm_function(lua_State *L, const char *name, gm_function *out)
{
    (void)name;
    const char *text = luaL_checkstring(L, -1);
    if (!gm_function_parse(text, out)) luaL_error(L, "there is no function '%s'", text);
}
static void read_gm_dtype(lua_State *L, const char *name, gm_dtype *out)
{
    (void)name;
    *out = gm_check_dtype(L, lua_gettop(L));
}
static double read_number(lua_State *L, const char *name)
{
    if (!lua_isnumber(L, -1)) luaL_error(L, "attribute '%s' should be a number, got %s", name, luaL_typename(L, -1));
    return lua_tonumber(L, -1);
}
static void read_int64_t(lua_State *L, const char *name, int64_t *out) { *out = (int64_t)read_number(L, name); }
static void read_uint32_t(lua_State *L, const char *name, uint32_t *out) { *out = (uint32_t)read_number(L, name); }
static void read_double(lua_State *L, const char *name, double *out) { *out = read_number(L, name); }
static void read_flag(lua_State *L, const char *name, bool *out)
{
    (void)name;
    *out = lua_toboolean(L, -1);
}
static void read_gm_stream(lua_State *L, const char *name, gm_stream *out)
{
    int at = lua_gettop(L);
    if (!lua_istable(L, at)) luaL_error(L, "attribute '%s' should be a table { key, step }", name);
    out->key = (uint64_t)gm_field_number(L, at, "key", 0);
    out->step = (int64_t)gm_field_number(L, at, "step", -1);
}
static void read_gm_box(lua_State *L, const char *name, gm_box *out)
{
    int at = lua_gettop(L);
    if (!lua_istable(L, at)) luaL_error(L, "attribute '%s' should be a table { shape, offset }", name);
    lua_getfield(L, at, "shape");
    out->ndim = gm_check_shape(L, at + 1, out->shape);
    lua_getfield(L, at, "offset");
    if (gm_check_shape(L, at + 2, out->offset) != out->ndim)
        luaL_error(L, "attribute '%s': shape and offset differ in length", name);
    lua_settop(L, at);
}
/* A list of numbers; what it leaves out stays. */
static void read_gm_sizes(lua_State *L, const char *name, gm_sizes *out)
{
    int64_t list[GM_MAX_DIMS];
    int     at = lua_gettop(L), n = lua_istable(L, at) ? gm_check_shape(L, at, list) : GM_MAX_DIMS;
    if (n > GM_SPACE) luaL_error(L, "attribute '%s' should be a list of at most %d numbers", name, GM_SPACE);
    for (int d = 0; d < n; d++) out->at[d] = list[d];
}
#define read_bool  read_flag
#define read__Bool read_flag

void gm_read_attrs(lua_State *L, int arg, gm_attrs *attrs)
{
    static const char *const names[] = {
#define GM_ATTR(type, name, initial, text) #name,
#include "../kernels/attrs.def"
#undef GM_ATTR
    };
    *attrs = gm_attrs_default();
    if (lua_isnoneornil(L, arg)) return;
    luaL_checktype(L, arg, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        bool        known = false;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) known |= !strcmp(names[i], key);
        if (!known) luaL_error(L, "there is no attribute '%s'", key);
    }
#define GM_ATTR(type, name, initial, text)                      \
    lua_getfield(L, arg, #name);                                \
    if (!lua_isnil(L, -1)) read_##type(L, #name, &attrs->name); \
    lua_pop(L, 1);
#include "../kernels/attrs.def"
#undef GM_ATTR
}

static int scope_open(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    L_TRY(L, gm_scope_open(r, L));
    return 0;
}

/* Moves the tensors in the value at index, also inside tables, to the outer scope. The table at `seen`
 * holds the tables visited so far. */
static void move_out(lua_State *L, int index, gm_scope *to, int seen)
{
    gm_handle *h = gm_test_handle(L, index);
    if (h) gm_handle_move(h, to);
    if (h || !lua_istable(L, index)) return;
    luaL_checkstack(L, 5, "tensors nested too deeply in a scope's result");
    lua_pushvalue(L, index);
    lua_rawget(L, seen);
    bool visited = lua_toboolean(L, -1);
    lua_pop(L, 1);
    if (visited) return;
    lua_pushvalue(L, index);
    lua_pushboolean(L, 1);
    lua_rawset(L, seen);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) move_out(L, lua_gettop(L), to, seen);
}

/* scope_close(...): releases what the scope made, but for the tensors passed in, also inside tables. */
static int scope_close(lua_State *L)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_scope *s = r->scope;
    if (!s->outer) return luaL_error(L, "scope_close without scope_open");
    if (s->owner != L)
        return luaL_error(L, "this scope was opened by another coroutine; a coroutine must close what it opened");
    int n = lua_gettop(L);
    lua_newtable(L);
    for (int i = 1; i <= n; i++) move_out(L, i, s->outer, n + 1);
    gm_scope_close(r);
    return 0;
}

/* scope_drop(t): releases t now, if the innermost scope would release it at its end. */
static int scope_drop(lua_State *L)
{
    gm_handle *h = gm_check_handle(L, 1);
    if (h->next && h->scope == gm_lua_rank(L)->scope) gm_handle_release(h);
    return 0;
}

static int scope_depth(lua_State *L)
{
    int n = 0;
    for (gm_scope *s = gm_lua_rank(L)->scope; s->outer; s = s->outer) n++;
    lua_pushinteger(L, n);
    return 1;
}

/* scope_unwind(depth): closes what is open beyond depth, whoever opened it: the way out after an error
 * left scopes behind (a coroutine that died inside one). */
static int scope_unwind(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    scope_depth(L);
    for (lua_Integer n = lua_tointeger(L, -1), to = luaL_checkinteger(L, 1); n > to && n > 0; n--) gm_scope_close(r);
    return 0;
}

static int tensor_release(lua_State *L)
{
    gm_handle_release(gm_check_handle(L, 1));
    return 0;
}

static int tensor_keep(lua_State *L)
{
    gm_check_value(L, 1);
    gm_handle_keep(lua_touserdata(L, 1));
    lua_settop(L, 1);
    return 1;
}

static int is_tensor(lua_State *L)
{
    lua_pushboolean(L, gm_test_handle(L, 1) != NULL);
    return 1;
}

int gm_open_handles(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("scope_open", scope_open, "module boolean?"),
                                               GM_FUNCTION("scope_close", scope_close, "results any?, ..."),
                                               GM_FUNCTION("scope_drop", scope_drop, "t tensor"),
                                               GM_PUBLIC(is_tensor, is_tensor, "value any?"),
                                               GM_FUNCTION("scope_depth", scope_depth, ""),
                                               GM_FUNCTION("scope_unwind", scope_unwind, "depth integer"),
                                               GM_PUBLIC(keep, tensor_keep, "t tensor"),
                                               GM_PUBLIC(release, tensor_release, "t tensor"),
                                               GM_LAST_FUNCTION};
    lua_newtable(L); /* methods are added by lua/ganymede/tensor/init.lua */
    lua_pushlightuserdata(L, (void *)&tensor_key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_pushcfunction(L, tensor_release);
    lua_setfield(L, -2, "__gc");
    lua_setfield(L, -2, "tensor_metatable"); /* core.tensor_metatable */
    gm_declare(L, functions);
    return 0;
}

const char *gm_push_users_line(lua_State *L)
{
    lua_Debug   at;
    const char *root;
    size_t      n;
    lua_getglobal(L, "GANYMEDE_ROOT");
    root = lua_pushfstring(L, "@%s/lua/", lua_isstring(L, -1) ? lua_tostring(L, -1) : "");
    n = strlen(root);
    for (int level = 1; lua_getstack(L, level, &at); level++)
        if (lua_getinfo(L, "Sl", &at) && at.currentline > 0 && strncmp(at.source, root, n))
            return lua_pushfstring(L, "%s:%d: ", at.short_src, at.currentline);
    return "";
}
