/* lua_comm.h - what lua_comm.c, lua_collective.c and lua_traffic.c share. */
#ifndef GM_LUA_COMM_H
#define GM_LUA_COMM_H

#include "../host/comm/comm.h"
#include "gm_lua.h"

gm_comm *gm_lua_comm(lua_State *L); /* the rank's, made over `self` where it has none; raises */
/* A group, or the axes of one: "data.row", a list of names, nil for all ranks, "" for this rank alone. */
gm_group *gm_check_group(lua_State *L, int arg);

#endif
