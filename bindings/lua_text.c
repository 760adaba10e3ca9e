/* lua_text.c - the Lua face of host/text: userdata "gm.tokenizer".
 *
 * What is wrong with files and texts is returned, not raised: nil, message, kind, as lua_arrays.c does. Numbers of
 * tokens count from 0, as in the files. */
#include <stdlib.h>
#include <string.h>

#include "../host/text/tokenizer.h"
#include "lua_text.h"

#define TOKENIZER "gm.tokenizer"

typedef struct box {
    gm_tokenizer *t; /* NULL once closed */
    gm_encoder   *e;
    gm_text_ids   ids;
    gm_text_bytes bytes;
} box;

static box *check(lua_State *L)
{
    box *b = gm_check_object(L, 1, TOKENIZER);
    if (!b->t) gm_bad_argument(L, 1, "this tokenizer was closed");
    return b;
}

gm_tokenizer *gm_check_tokenizer(lua_State *L, int arg)
{
    box *b = gm_check_object(L, arg, TOKENIZER);
    if (!b->t) gm_bad_argument(L, arg, "this tokenizer was closed");
    return b->t;
}

/* tokenizer_open(path) -> object */
static int tokenizer_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    box        *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, TOKENIZER);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_tokenizer_open(path, &b->t));
    L_OR_NIL(L, gm_encoder_new(b->t, &b->e));
    return 1;
}

static int tokenizer_close(lua_State *L)
{
    box *b = gm_check_object(L, 1, TOKENIZER);
    gm_encoder_free(b->e);
    gm_tokenizer_free(b->t);
    gm_ids_free(&b->ids);
    gm_text_free(&b->bytes);
    *b = (box){0};
    return 0;
}

/* tokenizer_encode(o, text, pair or nil, special) -> list */
static int tokenizer_encode(lua_State *L)
{
    size_t      n, n_pair = 0;
    box        *b = check(L);
    const char *text = luaL_checklstring(L, 2, &n), *pair = luaL_optlstring(L, 3, NULL, &n_pair);
    b->ids.n = 0;
    L_OR_NIL(L, gm_encode_pair(b->e, text, n, pair, n_pair, lua_toboolean(L, 4), &b->ids));
    lua_createtable(L, b->ids.n < INT32_MAX ? (int)b->ids.n : 0, 0);
    for (size_t i = 0; i < b->ids.n; i++) {
        lua_pushnumber(L, b->ids.data[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* tokenizer_decode(o, list, special) -> text */
static int tokenizer_decode(lua_State *L)
{
    box   *b = check(L);
    size_t n = gm_check_list(L, 2, 2);
    b->ids.n = b->bytes.n = 0;
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, 2, (int)i + 1);
        lua_Number v = lua_tonumber(L, -1);
        if (!lua_isnumber(L, -1) || !(v >= 0 && v < 2147483647.0) || v != (uint32_t)v)
            return gm_bad_argument(L, 2, "a list of numbers of tokens, which count from 0");
        lua_pop(L, 1);
        L_TRY(L, gm_ids_add(&b->ids, (uint32_t)v));
    }
    L_OR_NIL(L, gm_decode_ids(b->t, b->ids.data, b->ids.n, lua_toboolean(L, 3), &b->bytes));
    lua_pushlstring(L, b->bytes.n ? b->bytes.data : "", b->bytes.n);
    return 1;
}

/* tokenizer_token(o, id) -> text, is it special?; or nil */
static int tokenizer_token(lua_State *L)
{
    size_t      n;
    box        *b = check(L);
    int64_t     id = gm_check_integer(L, 2);
    const char *text = id >= 0 && id < INT32_MAX ? gm_tokenizer_text(b->t, (uint32_t)id, &n) : NULL;
    if (!text) return 0;
    lua_pushlstring(L, text, n);
    lua_pushboolean(L, gm_tokenizer_special(b->t, (uint32_t)id));
    return 2;
}

/* tokenizer_id(o, text) -> number or nil */
static int tokenizer_id(lua_State *L)
{
    size_t      n;
    box        *b = check(L);
    const char *text = luaL_checklstring(L, 2, &n);
    uint32_t    id = gm_tokenizer_id(b->t, text, n);
    if (id == GM_NO_ID) return 0;
    lua_pushnumber(L, id);
    return 1;
}

/* tokenizer_about(o) -> { size, model, path, special = list of numbers } */
static int tokenizer_about(lua_State *L)
{
    const gm_tokenizer *t = check(L)->t;
    lua_createtable(L, 0, 4);
    gm_set_number(L, "size", (double)t->size);
    gm_set_text(L, "model", t->model->name);
    gm_set_text(L, "path", t->path);
    lua_newtable(L);
    for (size_t i = 0, k = 0; i < t->added.n; i++) {
        if (!t->added.tokens[i].special) continue;
        lua_pushnumber(L, t->added.tokens[i].id);
        lua_rawseti(L, -2, (int)++k);
    }
    lua_setfield(L, -2, "special");
    return 1;
}

int gm_open_text(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("tokenizer_open", tokenizer_open, "path string"),
        GM_FUNCTION("tokenizer_close", tokenizer_close, "tokenizer object"),
        GM_FUNCTION("tokenizer_encode", tokenizer_encode,
                    "tokenizer object, text string, pair string?, special boolean?"),
        GM_FUNCTION("tokenizer_decode", tokenizer_decode, "tokenizer object, ids table, special boolean?"),
        GM_FUNCTION("tokenizer_token", tokenizer_token, "tokenizer object, id integer"),
        GM_FUNCTION("tokenizer_id", tokenizer_id, "tokenizer object, text string"),
        GM_FUNCTION("tokenizer_about", tokenizer_about, "tokenizer object"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, TOKENIZER);
    lua_pushcfunction(L, tokenizer_close);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, fns);
    return 0;
}
