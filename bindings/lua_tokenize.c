/* lua_tokenize.c - the Lua face of host/data/tokenize.h: userdata "gm.tokenize".
 *
 * Bad files are returned, not raised: nil, message, kind, as lua_data.c does. A place is a table with the names of
 * gm_tokenize_place. */
#include <stdlib.h>
#include <string.h>

#include "../host/data/tokenize.h"
#include "../host/text/bpe_train.h"
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

/* The texts of a list, in a userdata at the top of the stack; the list keeps them alive. */
static const char **push_texts(lua_State *L, int arg, int *n)
{
    *n = (int)gm_check_list(L, arg, arg);
    const char **list = lua_newuserdata(L, ((size_t)*n + 1) * sizeof *list);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, i + 1);
        gm_check_argument(L, lua_type(L, -1) == LUA_TSTRING, arg, "a list of texts");
        list[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    return list;
}

/* tokenizer_train(files, { field, lines, size, frequency }, special) -> tokenizer.json, its tokens */
static int tokenizer_train(lua_State *L)
{
    int           n_files, n_special;
    size_t        size = 0;
    const char  **files = push_texts(L, 1, &n_files), **special = push_texts(L, 3, &n_special);
    gm_text_bytes made = {0};
    gm_bpe_train *t = NULL;
    double        wanted = gm_field_number(L, 2, "size", 0), least = gm_field_number(L, 2, "frequency", 0);
    gm_check_argument(L, wanted >= 1 && wanted < (1 << 30) && least >= 0, 2, "a size of the vocabulary");
    lua_getfield(L, 2, "field");
    gm_document_options  d = {.field = lua_tostring(L, -1), .lines = gm_field_flag(L, 2, "lines")};
    gm_bpe_train_options o = {(size_t)wanted, (uint64_t)least, special, n_special};
    gm_status            st = gm_bpe_train_new(&t);
    if (st == GM_OK) st = gm_bpe_train_files(t, files, n_files, &d);
    if (st == GM_OK) st = gm_bpe_train_run(t, &o, &made, &size);
    gm_bpe_train_free(t);
    if (st == GM_OK) lua_pushlstring(L, made.data, made.n);
    gm_text_free(&made);
    L_OR_NIL(L, st);
    lua_pushnumber(L, (lua_Number)size);
    return 2;
}

int gm_open_tokenize(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("tokenize_open", tokenize_open,
                    "tokenizer object, files table, path string, options table, place table?"),
        GM_FUNCTION("tokenizer_train", tokenizer_train, "files table, options table, special table"),
        GM_FUNCTION("tokenize_step", tokenize_step, "work object"),
        GM_FUNCTION("tokenize_sync", tokenize_sync, "work object"),
        GM_FUNCTION("tokenize_close", tokenize_close, "work object, whole boolean"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, TOKENIZE);
    lua_pushcfunction(L, tokenize_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, fns);
    return 0;
}
