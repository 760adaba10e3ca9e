/* declare.c - the entry of every C function that Lua can call; see declare.h. It has to be cheap, as ops go through it:
 * a comparison of types an argument. What is wrong is found again, and said, in Lua. */
#include "declare.h"

#include <lauxlib.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGUMENTS = 10 };

typedef struct {
    const gm_declaration *declaration;
    int                   least, most;            /* arguments */
    int                   options;                /* which argument the options are, or 0 */
    uint16_t              allowed[MAX_ARGUMENTS]; /* of each, a bit for a type of Lua's */
} entry;

#define BIT(type) (1u << (type))
enum { ANY = 0xffff, UNBOUNDED = 1 << 20 };

static unsigned type_bits(lua_State *L, const gm_declaration *d, const char *word, size_t n)
{
    static const struct {
        const char *word;
        unsigned    bits;
    } types[] = {{"tensor", BIT(LUA_TUSERDATA)}, {"object", BIT(LUA_TUSERDATA)},
                 {"number", BIT(LUA_TNUMBER)},   {"integer", BIT(LUA_TNUMBER)},
                 {"string", BIT(LUA_TSTRING)},   {"boolean", BIT(LUA_TBOOLEAN)},
                 {"table", BIT(LUA_TTABLE)},     {"function", BIT(LUA_TFUNCTION)},
                 {"options", BIT(LUA_TTABLE)},   {"any", ANY}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].word) == n && !strncmp(types[i].word, word, n)) return types[i].bits;
    return luaL_error(L, "the declaration of %s has an unknown type in '%s'", d->name, d->arguments), 0;
}

/* "name type|type?" from text on, n characters. */
static void parse_argument(lua_State *L, entry *e, const char *text, size_t n)
{
    const char *space = memchr(text, ' ', n), *end = text + n;
    if (!space || e->most == MAX_ARGUMENTS)
        luaL_error(L, "the declaration of %s cannot be read: '%s'", e->declaration->name, e->declaration->arguments);
    bool     optional = end[-1] == '?';
    unsigned bits = optional ? BIT(LUA_TNIL) : 0;
    if (optional) end--;
    for (const char *word = space + 1; word < end;) {
        size_t length = strcspn(word, "|?,");
        bits |= type_bits(L, e->declaration, word, length);
        if (length == 7 && !strncmp(word, "options", 7)) e->options = e->most + 1;
        word += length + 1;
    }
    e->allowed[e->most++] = (uint16_t)bits;
    if (!optional) e->least = e->most;
}

static void parse(lua_State *L, entry *e)
{
    for (const char *text = e->declaration->arguments; *text;) {
        size_t n = strcspn(text, ",");
        if (!strncmp(text, "...", n)) {
            for (int i = e->most; i < MAX_ARGUMENTS; i++) e->allowed[i] = e->allowed[e->most - 1];
            e->most = UNBOUNDED;
        } else parse_argument(L, e, text, n);
        text += n;
        text += strspn(text, ", ");
    }
    if ((e->options != 0) != (e->declaration->options != NULL))
        luaL_error(L, "the declaration of %s has options without an argument for them, or none", e->declaration->name);
}

static bool in_range(const char *range, double v)
{
    if (!isfinite(v)) return false;
    if (!range) return true;
    char       *comma;
    double      low = strtod(range + 1, &comma), high = strtod(comma + 1, NULL);
    const char *last = range + strlen(range) - 1;
    return (*range == '[' ? v >= low : v > low) && (*last == ']' ? v <= high : v < high);
}

/* Is the value on the top of the stack one that the option may have? */
static bool is_option_value(lua_State *L, const gm_lua_option *o)
{
    int type = lua_type(L, -1);
    if (type == LUA_TTABLE) return strstr(o->type, "|table") != NULL;
    switch (*o->type) {
    case 'n': return type == LUA_TNUMBER && in_range(o->range, lua_tonumber(L, -1));
    case 'i': {
        double v = lua_tonumber(L, -1);
        return type == LUA_TNUMBER && in_range(o->range, v) && v == floor(v);
    }
    case 's': return type == LUA_TSTRING;
    case 'b': return type == LUA_TBOOLEAN;
    default: return type == LUA_TUSERDATA;
    }
}

static bool are_options(lua_State *L, const entry *e)
{
    bool good = true;
    for (lua_pushnil(L); good && lua_next(L, e->options);) {
        const char          *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const gm_lua_option *o = e->declaration->options;
        while (o->name && strcmp(o->name, name)) o++;
        good = o->name && is_option_value(L, o);
        lua_pop(L, good ? 1 : 2);
    }
    return good;
}

/* Surplus arguments that are nil say nothing. */
static bool drop_surplus(lua_State *L, const entry *e, int n)
{
    for (int i = e->most + 1; i <= n; i++)
        if (!lua_isnil(L, i)) return false;
    lua_settop(L, e->most);
    return true;
}

static bool are_arguments(lua_State *L, const entry *e, int n)
{
    if (n > e->most && !drop_surplus(L, e, n)) return false;
    if (n > e->most) n = e->most;
    if (n < e->least) return false;
    for (int i = 0; i < n; i++)
        if (!(e->allowed[i < MAX_ARGUMENTS ? i : MAX_ARGUMENTS - 1] >> lua_type(L, i + 1) & 1)) return false;
    return !e->options || e->options > n || lua_isnil(L, e->options) || are_options(L, e);
}

/* Is the running function called as t:name()? Then the object is not counted among the arguments. */
static int called_as_method(lua_State *L)
{
    lua_Debug ar;
    return lua_getstack(L, 0, &ar) && lua_getinfo(L, "n", &ar) && !strcmp(ar.namewhat, "method");
}

static void set(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void push_options(lua_State *L, const gm_lua_option *o)
{
    lua_newtable(L);
    for (int i = 1; o->name; o++, i++) {
        lua_newtable(L);
        set(L, "name", o->name);
        set(L, "type", o->type);
        set(L, "initial", o->initial);
        set(L, "range", o->range);
        set(L, "doc", o->doc);
        lua_rawseti(L, -2, i);
    }
}

/* Pushes what signature() gives. */
static void push_signature(lua_State *L, const gm_declaration *d)
{
    lua_newtable(L);
    set(L, "name", d->name);
    set(L, "arguments", d->arguments);
    set(L, "instead", d->instead);
    set(L, "doc", d->doc);
    if (!d->options) return;
    push_options(L, d->options);
    lua_setfield(L, -2, "options");
}

/* Raises what ganymede.base.signature says of the call. */
static int refuse(lua_State *L, const entry *e)
{
    int n = lua_gettop(L);
    luaL_checkstack(L, n + 8, "arguments");
    luaL_where(L, 1);
    lua_getglobal(L, "require");
    lua_pushstring(L, "ganymede.base.signature");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "explain_call");
    lua_remove(L, -2);
    push_signature(L, e->declaration);
    lua_pushboolean(L, called_as_method(L));
    for (int i = 1; i <= n; i++) lua_pushvalue(L, i);
    lua_call(L, n + 2, 1);
    lua_concat(L, 2);
    return lua_error(L);
}

static int enter(lua_State *L)
{
    const entry *e = lua_touserdata(L, lua_upvalueindex(1));
    return are_arguments(L, e, lua_gettop(L)) ? e->declaration->fn(L) : refuse(L, e);
}

const gm_declaration *gm_declared(lua_State *L)
{
    return ((const entry *)lua_touserdata(L, lua_upvalueindex(1)))->declaration;
}

int gm_bad_argument(lua_State *L, int arg, const char *why)
{
    int method = called_as_method(L);
    if (!lua_touserdata(L, lua_upvalueindex(1))) return luaL_error(L, "bad argument #%d (%s)", arg, why);
    if (arg == 1 && method) return luaL_error(L, "%s: the object before the colon: %s", gm_declared(L)->name, why);
    return luaL_error(L, "bad argument #%d to '%s' (%s)", arg - method, gm_declared(L)->name, why);
}

int gm_check_option(lua_State *L, int arg, const char *initial, const char *const *list)
{
    const char *given = initial ? luaL_optstring(L, arg, initial) : luaL_checkstring(L, arg), *said = "";
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], given)) return i;
    for (int i = 0; list[i]; i++) said = lua_pushfstring(L, "%s%s'%s'", said, i ? ", " : "", list[i]);
    return gm_bad_argument(L, arg, lua_pushfstring(L, "'%s' is none of %s", given, said));
}

void *gm_check_object(lua_State *L, int arg, const char *name)
{
    void *object = lua_touserdata(L, arg);
    luaL_getmetatable(L, name);
    bool same = object && lua_getmetatable(L, arg) && lua_rawequal(L, -1, -2);
    if (!same) gm_bad_argument(L, arg, lua_pushfstring(L, "a %s was expected, got %s", name, luaL_typename(L, arg)));
    lua_pop(L, 2);
    return object;
}

/* signature(function) -> { name, arguments (text), instead, doc, options = list of { name, type, initial, range,
 * doc } }, as declared here; nil for what is no function of C. ganymede.base.signature reads it. */
static int signature(lua_State *L)
{
    if (lua_tocfunction(L, 1) != enter || !lua_getupvalue(L, 1, 1)) return 0;
    push_signature(L, ((const entry *)lua_touserdata(L, -1))->declaration);
    return 1;
}

void gm_declare(lua_State *L, const gm_declaration *list)
{
    for (; list->name; list++) {
        entry *e = lua_newuserdata(L, sizeof *e);
        *e = (entry){.declaration = list};
        parse(L, e);
        lua_pushcclosure(L, enter, 1);
        lua_setfield(L, -2, list->name);
    }
}

int gm_open_signatures(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("signature", signature, "fn any"), GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
