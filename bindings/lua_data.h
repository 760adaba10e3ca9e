/* lua_data.h - what the bindings of host/data share. */
#ifndef GM_LUA_DATA_H
#define GM_LUA_DATA_H

#include "gm_lua.h"

#include "../host/data/dataset.h"
#include "../host/data/loader.h"

gm_loader *gm_check_loader(lua_State *L, int arg); /* raises for a loader that was closed */
int        gm_open_batches(lua_State *L);          /* lua_batches.c; gm_open_data opens it */

#endif
