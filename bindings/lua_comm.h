/* lua_comm.h - what lua_comm.c, lua_collective.c and lua_traffic.c share. */
#ifndef GM_LUA_COMM_H
#define GM_LUA_COMM_H

#include "../host/comm/comm.h"
#include "gm_lua.h"

gm_comm *gm_lua_comm(lua_State *L); /* the comm of the rank; if it has none, one of a single rank is made; may raise */
/* The group at arg: a group, or the names of its axes ("data.row", or a list of names); nil: all ranks; "": this rank
 * alone. Raises for anything else. */
gm_group *gm_check_group(lua_State *L, int arg);

#endif
