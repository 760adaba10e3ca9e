/* lua_text.h - the tokenizer of a userdata, for the files of bindings/ that take one. */
#ifndef GM_LUA_TEXT_H
#define GM_LUA_TEXT_H

#include "gm_lua.h"

/* The tokenizer at arg; raises for anything else, and for one that was closed. */
struct gm_tokenizer *gm_check_tokenizer(lua_State *L, int arg);

#endif
