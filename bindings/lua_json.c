/* lua_json.c - JSON for Lua over libjansson: core.json_encode, core.json_decode, core.json_null and
 * core.json_array_mt (the metatable that marks a table as a list, so that an empty one stays "[]").
 *
 * Numbers are printed with 17 significant digits, so that every double comes back bit for bit;
 * integers up to 2^53 without exponent or ".0". NaN and the infinities, which JSON cannot hold, are
 * written as the strings "nan", "inf", "-inf" and come back as strings. Refused: cycles, nesting
 * deeper than 100, text that is not UTF-8, tables with both list positions and names, holes in lists,
 * duplicate names, text after the value, and integers beyond 2^53 (a Lua number would round them).
 *
 * The trap: any Lua call may raise and jump, so whatever jansson allocated hangs on a userdata (box)
 * whose __gc frees it; conversion itself never raises, it reports through `where`. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gm_lua.h"

#define MAX_DEPTH 100
#define EXACT     9007199254740992.0 /* 2^53 */
#define BOX       "gm.json.box"
#define ARRAY     "gm.json.array"

typedef struct box {
    json_t *root;
    char   *text;
} box;

typedef struct where {
    const void *open[MAX_DEPTH]; /* the tables being encoded, outermost first: finds cycles */
    int         depth;
    char        path[256]; /* "loss[3].value" */
    char        error[512];
} where;

static void box_clear(box *b)
{
    json_decref(b->root); /* NULL is allowed */
    free(b->text);
    *b = (box){0};
}

static int box_gc(lua_State *L)
{
    box_clear(lua_touserdata(L, 1));
    return 0;
}

static box *push_box(lua_State *L)
{
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, BOX);
    lua_setmetatable(L, -2);
    return b;
}

__attribute__((format(printf, 2, 3))) static json_t *refuse(where *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = snprintf(w->error, sizeof w->error, "%s%s", w->path, *w->path ? ": " : "");
    vsnprintf(w->error + n, sizeof w->error - (size_t)n, fmt, args);
    va_end(args);
    return NULL;
}

/* Extends the path by a name or a position; returns the old length, to cut back to. */
static size_t enter(where *w, const char *name, size_t index)
{
    size_t n = strlen(w->path);
    if (name) snprintf(w->path + n, sizeof w->path - n, "%s%s", n ? "." : "", name);
    else snprintf(w->path + n, sizeof w->path - n, "[%zu]", index);
    return n;
}

/* ---- Lua to JSON ---- */

static json_t *encode(lua_State *L, int at, where *w);

static json_t *encode_number(double v)
{
    if (isnan(v)) return json_string("nan");
    if (isinf(v)) return json_string(v > 0 ? "inf" : "-inf");
    if (v == floor(v) && fabs(v) <= EXACT && !(v == 0 && signbit(v))) return json_integer((json_int_t)v);
    return json_real(v);
}

static json_t *encode_string(lua_State *L, int at, where *w)
{
    size_t      n;
    const char *s = lua_tolstring(L, at, &n);
    json_t     *v = json_stringn(s, n); /* NULL unless UTF-8 */
    return v ? v : refuse(w, "a string of %zu bytes is not UTF-8; JSON holds text only", n);
}

static json_t *encode_list(lua_State *L, int at, size_t n, where *w)
{
    json_t *list = json_array();
    for (size_t i = 1; i <= n; i++) {
        size_t cut = enter(w, NULL, i);
        lua_rawgeti(L, at, (int)i);
        json_t *v = encode(L, lua_gettop(L), w);
        lua_pop(L, 1);
        if (!v || json_array_append_new(list, v)) {
            json_decref(list);
            return NULL;
        }
        w->path[cut] = 0;
    }
    return list;
}

static json_t *encode_object(lua_State *L, int at, where *w)
{
    json_t *object = json_object();
    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
        size_t      n, cut;
        const char *name = lua_tolstring(L, -2, &n); /* a string already: see shape_of */
        json_t     *v = NULL;
        cut = enter(w, name, 0);
        if (strlen(name) != n) refuse(w, "a name holds a NUL byte");
        else v = encode(L, lua_gettop(L), w);
        if (!v || json_object_setn_new(object, name, n, v)) {
            if (!*w->error) refuse(w, "a name is not UTF-8; JSON holds text only");
            lua_pop(L, 2);
            json_decref(object);
            return NULL;
        }
        w->path[cut] = 0;
    }
    return object;
}

/* Counts list positions (largest in *last) and names; false: a key of another type. */
static bool shape_of(lua_State *L, int at, size_t *positions, double *last, size_t *names, const char **bad)
{
    *positions = *names = 0, *last = 0;
    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
        int t = lua_type(L, -2);
        if (t == LUA_TSTRING) {
            ++*names;
            continue;
        }
        double k = t == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
        if (t != LUA_TNUMBER || k < 1 || k != floor(k)) {
            *bad = t == LUA_TNUMBER ? "a number that is no list position" : lua_typename(L, t);
            lua_pop(L, 2);
            return false;
        }
        ++*positions;
        if (k > *last) *last = k;
    }
    return true;
}

static bool marked_as_list(lua_State *L, int at)
{
    if (!lua_getmetatable(L, at)) return false;
    luaL_getmetatable(L, ARRAY);
    bool yes = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return yes;
}

static json_t *encode_table(lua_State *L, int at, where *w)
{
    size_t      positions, names;
    double      last;
    const char *bad = NULL;
    const void *self = lua_topointer(L, at);
    for (int i = 0; i < w->depth; i++)
        if (w->open[i] == self) return refuse(w, "the table contains itself");
    if (w->depth == MAX_DEPTH) return refuse(w, "tables are nested deeper than %d", MAX_DEPTH);
    if (!lua_checkstack(L, 8)) return refuse(w, "no room on the Lua stack");
    if (!shape_of(L, at, &positions, &last, &names, &bad)) return refuse(w, "a key is %s; use strings", bad);
    bool list = positions > 0 || marked_as_list(L, at);
    if (list && names) return refuse(w, "the table has both list positions and names");
    if (last != (double)positions)
        return refuse(w, "the list has holes: %zu values, last position %.0f (use json.null)", positions, last);
    w->open[w->depth++] = self;
    json_t *v = list ? encode_list(L, at, positions, w) : encode_object(L, at, w);
    w->depth--;
    return v;
}

static json_t *encode(lua_State *L, int at, where *w)
{
    switch (lua_type(L, at)) {
    case LUA_TNIL: return json_null();
    case LUA_TBOOLEAN: return json_boolean(lua_toboolean(L, at));
    case LUA_TNUMBER: return encode_number(lua_tonumber(L, at));
    case LUA_TSTRING: return encode_string(L, at, w);
    case LUA_TTABLE: return encode_table(L, at, w);
    case LUA_TLIGHTUSERDATA:
        if (!lua_touserdata(L, at)) return json_null();
        /* fall through */
    default: return refuse(w, "a %s has no form in JSON", lua_typename(L, lua_type(L, at)));
    }
}

/* json_encode(value, indent: spaces a level or 0, sort: boolean) -> text */
static int json_encode_(lua_State *L)
{
    where  w = {0};
    int    indent = luaL_optint(L, 2, 0);
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    gm_check_argument(L, indent >= 0 && indent <= 16, 2, "indent must be 0 to 16 spaces");
    flags |= indent ? JSON_INDENT((size_t)indent) : JSON_COMPACT;
    if (lua_toboolean(L, 3)) flags |= JSON_SORT_KEYS;
    lua_settop(L, 1);
    box *b = push_box(L);
    b->root = encode(L, 1, &w);
    if (!b->root) return luaL_error(L, "json: %s", *w.error ? w.error : "out of memory");
    b->text = json_dumps(b->root, flags);
    if (!b->text) return luaL_error(L, "json: out of memory");
    lua_pushstring(L, b->text);
    box_clear(b);
    return 1;
}

/* ---- JSON to Lua ---- */

/* Pushes v; false and nothing pushed on a refusal. */
static bool push(lua_State *L, const json_t *v, where *w);

static bool push_list(lua_State *L, const json_t *v, where *w)
{
    size_t n = json_array_size(v);
    lua_createtable(L, n < 1u << 20 ? (int)n : 1 << 20, 0);
    luaL_getmetatable(L, ARRAY);
    lua_setmetatable(L, -2);
    for (size_t i = 0; i < n; i++) {
        size_t cut = enter(w, NULL, i + 1);
        if (!push(L, json_array_get(v, i), w)) return false;
        lua_rawseti(L, -2, (int)i + 1);
        w->path[cut] = 0;
    }
    return true;
}

static bool push_object(lua_State *L, json_t *v, where *w)
{
    lua_newtable(L);
    for (void *i = json_object_iter(v); i; i = json_object_iter_next(v, i)) {
        const char *name = json_object_iter_key(i);
        size_t      cut = enter(w, name, 0);
        lua_pushlstring(L, name, json_object_iter_key_len(i));
        if (!push(L, json_object_iter_value(i), w)) return false;
        lua_rawset(L, -3);
        w->path[cut] = 0;
    }
    return true;
}

static bool push(lua_State *L, const json_t *v, where *w)
{
    luaL_checkstack(L, 4, "json: nested too deeply");
    switch (json_typeof(v)) {
    case JSON_NULL: lua_pushlightuserdata(L, NULL); return true;
    case JSON_TRUE: lua_pushboolean(L, 1); return true;
    case JSON_FALSE: lua_pushboolean(L, 0); return true;
    case JSON_REAL: lua_pushnumber(L, json_real_value(v)); return true;
    case JSON_STRING: lua_pushlstring(L, json_string_value(v), json_string_length(v)); return true;
    case JSON_INTEGER: {
        json_int_t n = json_integer_value(v);
        if (n > (json_int_t)EXACT || n < -(json_int_t)EXACT)
            return refuse(w, "%lld is beyond 2^53 and would be rounded", (long long)n) != NULL;
        lua_pushnumber(L, (lua_Number)n);
        return true;
    }
    default: break;
    }
    if (w->depth == MAX_DEPTH) return refuse(w, "nested deeper than %d", MAX_DEPTH) != NULL;
    w->depth++;
    bool ok = json_is_array(v) ? push_list(L, v, w) : push_object(L, (json_t *)(uintptr_t)v, w);
    w->depth--;
    return ok;
}

/* json_decode(text, name: what to call the text in errors, rounded: whether whole numbers beyond 2^53 are rounded, not
 * refused, as files of others have them) -> value */
static int json_decode_(lua_State *L)
{
    size_t       n;
    where        w = {0};
    json_error_t e;
    const char  *text = luaL_checklstring(L, 1, &n), *name = luaL_optstring(L, 2, "json");
    box         *b = push_box(L);
    size_t       flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    b->root = json_loadb(text, n, flags | (lua_toboolean(L, 3) ? JSON_DECODE_INT_AS_REAL : 0), &e);
    if (!b->root) return luaL_error(L, "%s:%d:%d: %s", name, e.line, e.column, e.text);
    if (!push(L, b->root, &w)) return luaL_error(L, "%s: %s", name, w.error);
    box_clear(b);
    return 1;
}

int gm_open_json(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("json_encode", json_encode_, "value any, indent integer?, sort boolean?"),
        GM_FUNCTION("json_decode", json_decode_, "text string, name string?, rounded boolean?"), GM_LAST_FUNCTION};
    luaL_newmetatable(L, BOX);
    lua_pushcfunction(L, box_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, fns);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "json_null");
    luaL_newmetatable(L, ARRAY);
    lua_setfield(L, -2, "json_array_mt");
    return 0;
}
