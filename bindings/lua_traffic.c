/* lua_traffic.c - what was sent: the accounts of host/comm, by group and op and phase, by module, and call by call. */
#include <stdlib.h>

#include "lua_comm.h"

/* What both accounts say of an entry, into the table at the top of the stack. */
static void set_account(lua_State *L, const char *group, const char *op, gm_phase phase, uint64_t calls, uint64_t bytes)
{
    gm_set_text(L, "group", group);
    gm_set_text(L, "op", op);
    gm_set_text(L, "phase", gm_phase_name(phase));
    gm_set_number(L, "calls", (double)calls);
    gm_set_number(L, "bytes", (double)bytes);
}

/* comm_traffic() -> list of { group, op, phase, calls, bytes, copied, seconds, exposed } */
static int traffic(lua_State *L)
{
    const gm_comm *c = gm_lua_comm(L);
    int            n = gm_comm_traffic(c, NULL, 0);
    gm_traffic    *e = lua_newuserdata(L, sizeof *e * (size_t)(n + 1));
    n = gm_comm_traffic(c, e, n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 8);
        set_account(L, e[i].group, e[i].op, e[i].phase, e[i].calls, e[i].bytes);
        gm_set_number(L, "copied", (double)e[i].copied);
        gm_set_number(L, "seconds", e[i].seconds);
        gm_set_number(L, "exposed", e[i].exposed);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* comm_trace(on): by module from now on, or no more */
static int trace(lua_State *L)
{
    L_TRY(L, gm_comm_trace(gm_lua_comm(L), lua_toboolean(L, 1)));
    return 0;
}

/* comm_traced() -> list of { path, group, op, phase, calls, bytes } */
static int traced(lua_State *L)
{
    const gm_comm *c = gm_lua_comm(L);
    int            n = gm_comm_traced(c, NULL, 0);
    gm_traced     *e = lua_newuserdata(L, sizeof *e * (size_t)(n + 1));
    n = gm_comm_traced(c, e, n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 6);
        gm_set_text(L, "path", e[i].path);
        set_account(L, e[i].group, e[i].op, e[i].phase, e[i].calls, e[i].bytes);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* comm_traced_calls() -> list of { group, id (of the group), fingerprint (both strings of 8 bytes), text } */
static int traced_calls(lua_State *L)
{
    const gm_comm *c = gm_lua_comm(L);
    gm_traced_call call;
    int            n = gm_comm_traced_calls(c);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        gm_comm_traced_call(c, i, &call);
        lua_createtable(L, 0, 4);
        gm_set_text(L, "group", call.group);
        lua_pushlstring(L, (const char *)&call.group_id, sizeof call.group_id);
        lua_setfield(L, -2, "id");
        lua_pushlstring(L, (const char *)&call.fingerprint, sizeof call.fingerprint);
        lua_setfield(L, -2, "fingerprint");
        gm_set_text(L, "text", call.text);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int reset_traffic(lua_State *L)
{
    gm_comm_reset_traffic(gm_lua_comm(L));
    return 0;
}

/* comm_flight(lines = 20) -> text: the last calls on groups, the newest last */
static int flight(lua_State *L)
{
    char *text = gm_comm_flight(gm_lua_comm(L), luaL_optint(L, 1, 20));
    if (!text) return luaL_error(L, "no memory for the flight recorder's text");
    lua_pushstring(L, text);
    free(text);
    return 1;
}

int gm_open_traffic(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("comm_traffic", traffic, ""),
                                               GM_FUNCTION("comm_reset_traffic", reset_traffic, ""),
                                               GM_FUNCTION("comm_trace", trace, "on boolean"),
                                               GM_FUNCTION("comm_traced", traced, ""),
                                               GM_FUNCTION("comm_traced_calls", traced_calls, ""),
                                               GM_FUNCTION("comm_flight", flight, "lines integer?"),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
