/* lua_tokenize.c - the Lua face of host/data/tokenize.h: userdata "gm.tokenize".
 *
 * Bad files are returned, not raised: nil, message, kind, as lua_data.c does. A place is a table with the names of
 * gm_tokenize_place. */
#include <stdlib.h>
#include <string.h>

#include "../host/data/tokenize.h"
#include "lua_text.h"

#define TOKENIZE "gm.tokenize"

typedef struct box {
    gm_tokenize *z; /* NULL once closed */
    char       **files;
    char        *path, *field;
    int          n, tokenizer; /* tokenizer: a reference in the registry, which keeps it alive */
} box;

static void drop(lua_State *L, box *b)
{
    for (int i = 0; i < b->n; i++) free(b->files[i]);
    free(b->files);
    free(b->path);
    free(b->field);
    luaL_unref(L, LUA_REGISTRYINDEX, b->tokenizer);
    *b = (box){.tokenizer = LUA_NOREF};
}

static int tokenize_free(lua_State *L)
{
    box *b = gm_check_object(L, 1, TOKENIZE);
    if (b->z) (void)gm_tokenize_close(b->z, false);
    b->z = NULL;
    drop(L, b);
    return 0;
}

static char *copied(lua_State *L, int at)
{
    char *p = strdup(luaL_checkstring(L, at));
    if (!p) luaL_error(L, "no memory for a name");
    return p;
}

static uint64_t count_of(lua_State *L, int arg, const char *name) { return (uint64_t)gm_field_number(L, arg, name, 0); }

/* tokenize_open(tokenizer, files, path, { field, lines, special, finish = a token or -1, threads }, place or nil)
 * -> object */
static int tokenize_open(lua_State *L)
{
    gm_tokenizer *t = gm_check_tokenizer(L, 1);
    int           n = (int)gm_check_list(L, 2, 2);
    box          *b = lua_newuserdata(L, sizeof *b);
    int           at = lua_gettop(L);
    *b = (box){.tokenizer = LUA_NOREF};
    luaL_getmetatable(L, TOKENIZE);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, 1);
    b->tokenizer = luaL_ref(L, LUA_REGISTRYINDEX);
    b->files = calloc((size_t)n + 1, sizeof *b->files);
    if (!b->files) return luaL_error(L, "no memory for the names of files");
    for (int i = 0; i < n; i++, b->n++) {
        lua_rawgeti(L, 2, i + 1);
        b->files[i] = copied(L, -1);
        lua_pop(L, 1);
    }
    b->path = copied(L, 3);
    lua_getfield(L, 4, "field");
    if (lua_isstring(L, -1)) b->field = copied(L, -1);
    lua_settop(L, at);
    gm_tokenize_options o = {.tokenizer = t,
                             .files = (const char *const *)b->files,
                             .n_files = n,
                             .path = b->path,
                             .documents = {.field = b->field, .lines = gm_field_flag(L, 4, "lines")},
                             .special = gm_field_flag(L, 4, "special"),
                             .end = (int64_t)gm_field_number(L, 4, "finish", -1),
                             .threads = (int)gm_field_number(L, 4, "threads", 1)};
    gm_tokenize_place   start = {.file = (int)gm_field_number(L, 5, "file", 0),
                                 .bytes = count_of(L, 5, "bytes"),
                                 .line = count_of(L, 5, "line"),
                                 .documents = count_of(L, 5, "documents"),
                                 .tokens = count_of(L, 5, "tokens"),
                                 .text = count_of(L, 5, "text")};
    gm_check_argument(L, o.threads >= 1 && o.threads <= 1024, 4, "threads from 1 to 1024");
    L_OR_NIL(L, gm_tokenize_open(&o, &start, &b->z));
    return 1;
}

static box *check(lua_State *L)
{
    box *b = gm_check_object(L, 1, TOKENIZE);
    if (!b->z) gm_bad_argument(L, 1, "this work has ended");
    return b;
}

/* tokenize_step(o) -> place */
static int tokenize_step(lua_State *L)
{
    gm_tokenize_place now;
    L_OR_NIL(L, gm_tokenize_step(check(L)->z, &now));
    lua_createtable(L, 0, 7);
    gm_set_number(L, "file", now.file);
    gm_set_number(L, "bytes", (double)now.bytes);
    gm_set_number(L, "line", (double)now.line);
    gm_set_number(L, "documents", (double)now.documents);
    gm_set_number(L, "tokens", (double)now.tokens);
    gm_set_number(L, "text", (double)now.text);
    lua_pushboolean(L, now.done);
    lua_setfield(L, -2, "done");
    return 1;
}

/* tokenize_sync(o) -> true: what was written is on the disk */
static int tokenize_sync(lua_State *L)
{
    L_OR_NIL(L, gm_tokenize_sync(check(L)->z));
    lua_pushboolean(L, 1);
    return 1;
}

/* tokenize_close(o, whole) -> true; whole: the file gets its header and its name */
static int tokenize_close(lua_State *L)
{
    box         *b = check(L);
    gm_tokenize *z = b->z;
    b->z = NULL;
    gm_status st = gm_tokenize_close(z, lua_toboolean(L, 2));
    drop(L, b);
    L_OR_NIL(L, st);
    lua_pushboolean(L, 1);
    return 1;
}

int gm_open_tokenize(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("tokenize_open", tokenize_open,
                    "tokenizer object, files table, path string, options table, place table?"),
        GM_FUNCTION("tokenize_step", tokenize_step, "work object"),
        GM_FUNCTION("tokenize_sync", tokenize_sync, "work object"),
        GM_FUNCTION("tokenize_close", tokenize_close, "work object, whole boolean"), GM_LAST_FUNCTION};
    luaL_newmetatable(L, TOKENIZE);
    lua_pushcfunction(L, tokenize_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, fns);
    return 0;
}
