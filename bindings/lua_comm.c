/* lua_comm.c - the Lua face of host/comm but for the collectives (lua_collective.c) and the accounts (lua_traffic.c):
 * joining, the mesh, groups, settings, failures. A group argument is a group, or the axes of one: "data.row", a list of
 * names, nil for all ranks. Places in a group count from 0. */
#include <stdlib.h>
#include <string.h>

#include "../host/comm/crowd.h"
#include "../host/comm/join.h"
#include "../host/comm/links.h"
#include "lua_comm.h"

#define GROUP "gm.group"

typedef struct group_box {
    gm_comm  *comm; /* that it belongs to: one that was closed has taken its groups along */
    gm_group *group;
} group_box;

gm_comm *gm_lua_comm(lua_State *L)
{
    gm_comm  *c = NULL;
    gm_status st = gm_rank_comm(gm_lua_rank(L), &c);
    if (st != GM_OK) gm_raise(L, st);
    return c;
}

/* ---- joining, mesh ---- */

/* launched() -> { by, world, rank, place, here, tcp, address, port }: host/comm/launched.h */
static int launched(lua_State *L)
{
    gm_launched l;
    L_TRY(L, gm_launched_find(&l));
    lua_createtable(L, 0, 8);
    gm_set_text(L, "by", l.by);
    gm_set_number(L, "world", l.world);
    gm_set_number(L, "rank", l.rank);
    gm_set_number(L, "place", l.place);
    gm_set_number(L, "here", l.here);
    lua_pushboolean(L, l.over_tcp);
    lua_setfield(L, -2, "tcp");
    gm_set_text(L, "address", l.address);
    gm_set_number(L, "port", l.port);
    return 1;
}

/* connect({ interface, seconds, silence }) -> rank, world: joins the job that this process finds itself in, or is a
 * world of one; nil and why, if an argument or the environment is wrong */
static int do_connect(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    gm_join  how = {.seconds = gm_field_number(L, 1, "seconds", 300), .silence = gm_field_number(L, 1, "silence", 30)};
    if (lua_istable(L, 1)) {
        lua_getfield(L, 1, "interface"); /* it stays on the stack */
        how.interface = lua_tostring(L, -1);
    }
    gm_status st = gm_rank_connect(r, &how);
    if (st == GM_EINVAL) return gm_push_failure(L, st);
    L_TRY(L, st);
    lua_pushinteger(L, r->rank);
    lua_pushinteger(L, r->world);
    return 2;
}

/* pretend(rank, world): that rank of that world on meta; nothing is moved, all is counted */
static int pretend(lua_State *L)
{
    L_TRY(L, gm_rank_pretend(gm_lua_rank(L), luaL_checkint(L, 1), luaL_checkint(L, 2)));
    return 0;
}

/* Field `name`, or element `place`, of the table on the top, left there. */
static void field_or_element(lua_State *L, const char *name, int place)
{
    lua_getfield(L, -1, name);
    if (!lua_isnil(L, -1)) return;
    lua_pop(L, 1);
    lua_rawgeti(L, -1, place);
}

/* set_mesh{ {name, size}, ... }: slowest axis first */
static int set_mesh(lua_State *L)
{
    gm_mesh mesh = gm_mesh_of_one();
    luaL_checktype(L, 1, LUA_TTABLE);
    for (int i = 1, n = (int)lua_objlen(L, 1); i <= n; i++) {
        lua_settop(L, 1);
        lua_rawgeti(L, 1, i);
        if (!lua_istable(L, -1)) return luaL_error(L, "set_mesh: axis %d should be { name, size }", i);
        field_or_element(L, "size", 2);
        lua_Integer size = lua_tointeger(L, -1);
        lua_pop(L, 1);
        field_or_element(L, "name", 1);
        if (!lua_isstring(L, -1)) return luaL_error(L, "set_mesh: axis %d has no name", i);
        L_TRY(L, gm_mesh_add_axis(&mesh, lua_tostring(L, -1), (int)size));
    }
    L_TRY(L, gm_rank_set_mesh(gm_lua_rank(L), &mesh));
    return 0;
}

/* mesh() -> list of { name, size, coordinate }, coordinates from 0 */
static int get_mesh(lua_State *L)
{
    const gm_rank *r = gm_lua_rank(L);
    lua_createtable(L, r->mesh.n_axes, 0);
    for (int a = 0; a < r->mesh.n_axes; a++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, r->mesh.axis[a].name);
        lua_setfield(L, -2, "name");
        lua_pushinteger(L, r->mesh.axis[a].size);
        lua_setfield(L, -2, "size");
        lua_pushinteger(L, r->coordinate[a]);
        lua_setfield(L, -2, "coordinate");
        lua_rawseti(L, -2, a + 1);
    }
    return 1;
}

/* ---- groups ---- */

static uint32_t axis_bit(lua_State *L, const gm_mesh *mesh, const char *name)
{
    char     have[160];
    uint32_t bit = gm_mesh_mask(mesh, name);
    if (!bit && !gm_mesh_may_lack(name))
        luaL_error(L, "there is no axis '%s'; this mesh has %s", name,
                   mesh->n_axes ? gm_mesh_describe(mesh, ~0u, have, sizeof have) : "one rank and no axes");
    return bit;
}

static uint32_t axes_in_text(lua_State *L, const gm_mesh *mesh, const char *text)
{
    char     name[64];
    uint32_t axes = 0;
    while (*text) {
        size_t n = strcspn(text, ".");
        if (n >= sizeof name) luaL_error(L, "there is no axis with so long a name: %s", text);
        memcpy(name, text, n);
        name[n] = 0;
        axes |= axis_bit(L, mesh, name);
        text += n + (text[n] == '.');
    }
    return axes;
}

/* nil: all axes; "" and {}: none, this rank alone */
static uint32_t check_axes(lua_State *L, int arg)
{
    const gm_mesh *mesh = &gm_lua_rank(L)->mesh;
    uint32_t       axes = 0;
    if (lua_isnoneornil(L, arg)) return (1u << mesh->n_axes) - 1;
    if (!lua_istable(L, arg)) return axes_in_text(L, mesh, luaL_checkstring(L, arg));
    for (int i = 1, n = (int)lua_objlen(L, arg); i <= n; i++) {
        lua_rawgeti(L, arg, i);
        if (!lua_isstring(L, -1)) gm_bad_argument(L, arg, "a list of names of axes was expected");
        axes |= axis_bit(L, mesh, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return axes;
}

gm_group *gm_check_group(lua_State *L, int arg)
{
    gm_comm  *c = gm_lua_comm(L);
    gm_group *g = NULL;
    if (lua_isuserdata(L, arg)) {
        group_box *b = gm_check_object(L, arg, GROUP);
        if (b->comm != c) gm_bad_argument(L, arg, "this group belongs to a job that has ended");
        return b->group;
    }
    gm_status st = gm_comm_group(c, check_axes(L, arg), &g);
    if (st != GM_OK) gm_raise(L, st);
    return g;
}

static group_box *push_group(lua_State *L)
{
    group_box *b = lua_newuserdata(L, sizeof *b);
    *b = (group_box){0};
    luaL_getmetatable(L, GROUP);
    lua_setmetatable(L, -2);
    return b;
}

/* comm_group(axes) -> group */
static int group(lua_State *L)
{
    lua_settop(L, 1);
    uint32_t   axes = check_axes(L, 1);
    group_box *b = push_group(L);
    b->comm = gm_lua_comm(L);
    L_TRY(L, gm_comm_group(b->comm, axes, &b->group));
    return 1;
}

/* comm_group_of(name, ranks) -> group of these ranks, in this order */
static int group_of(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    int  n = (int)lua_objlen(L, 2);
    int *ranks = lua_newuserdata(L, sizeof *ranks * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        ranks[i] = (int)luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    group_box *b = push_group(L);
    b->comm = gm_lua_comm(L);
    L_TRY(L, gm_comm_group_of(b->comm, name, n, ranks, &b->group));
    return 1;
}

/* comm_group_info(group) -> { name, size, rank (place of this rank), ranks } */
static int group_info(lua_State *L)
{
    const gm_group *g = gm_check_group(L, 1);
    lua_createtable(L, 0, 4);
    lua_pushstring(L, gm_group_name(g));
    lua_setfield(L, -2, "name");
    lua_pushinteger(L, gm_group_size(g));
    lua_setfield(L, -2, "size");
    lua_pushinteger(L, gm_group_rank(g));
    lua_setfield(L, -2, "rank");
    lua_createtable(L, gm_group_size(g), 0);
    for (int i = 0; i < gm_group_size(g); i++) {
        lua_pushinteger(L, gm_group_member(g, i));
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "ranks");
    return 1;
}

/* ---- settings ---- */

/* comm_set_phase(name) -> the one before: traffic is counted by it */
static int set_phase(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    gm_comm    *c = gm_lua_comm(L);
    for (int p = 0; p < GM_PHASE_COUNT; p++)
        if (!strcmp(name, gm_phase_name((gm_phase)p))) {
            lua_pushstring(L, gm_phase_name(gm_comm_get_phase(c)));
            gm_comm_set_phase(c, (gm_phase)p);
            return 1;
        }
    return luaL_error(L, "comm_set_phase: there is no phase '%s'", name);
}

/* comm_timeout() -> seconds; 0 for none */
static int timeout(lua_State *L)
{
    lua_pushnumber(L, gm_comm_timeout(gm_lua_comm(L)));
    return 1;
}

/* comm_set_timeout(seconds): 0 for none */
static int set_timeout(lua_State *L)
{
    lua_Number seconds = luaL_checknumber(L, 1);
    gm_check_argument(L, seconds >= 0, 1, "a time is not negative");
    gm_comm_set_timeout(gm_lua_comm(L), seconds);
    return 0;
}

static int checked(lua_State *L)
{
    gm_comm_set_checked(gm_lua_comm(L), lua_toboolean(L, 1));
    return 0;
}

static int alone(lua_State *L)
{
    gm_comm_set_alone(gm_lua_comm(L), lua_toboolean(L, 1));
    return 0;
}

/* comm_use_device("auto" | "nccl" | "host") -> how tensors of the device travel from now on and why, "" where there is
 * nothing to choose; all ranks call it together */
static int use_device(lua_State *L)
{
    static const char *const ways[] = {"auto", "nccl", "host", NULL}; /* as gm_way has them */
    gm_way                   way = (gm_way)gm_check_option(L, 1, "auto", ways);
    gm_device               *dev = NULL;
    char                     said[400];
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_comm_use_device(gm_lua_comm(L), dev, way, said, sizeof said));
    lua_pushstring(L, said);
    return 1;
}

/* comm_share_memory(on) -> "", or which rank cannot share memory with those of its machine and why; all ranks call it
 * together */
static int share_memory(lua_State *L)
{
    char said[400];
    L_TRY(L, gm_rank_share_memory(gm_lua_rank(L), lua_toboolean(L, 1), said, sizeof said));
    lua_pushstring(L, said);
    return 1;
}

/* comm_try_links() -> "NCCL 2.28.9": a link of the device with itself carries every operation; raises what fails */
static int try_links(lua_State *L)
{
    gm_device    *dev = NULL;
    gm_link_facts facts;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_links_try(dev, &facts));
    lua_pushstring(L, facts.library);
    return 1;
}

/* comm_find_links() -> { library =, path = }, what tensors of GPUs can travel through, or nil and why there is none */
static int find_links(lua_State *L)
{
    gm_link_facts facts;
    if (gm_links_find(&facts) != GM_OK) {
        lua_pushnil(L);
        lua_pushstring(L, gm_last_error());
        return 2;
    }
    lua_createtable(L, 0, 2);
    gm_set_text(L, "library", facts.library);
    gm_set_text(L, "path", facts.path);
    return 1;
}

/* ---- failures and ends ---- */

/* comm_fail(exit code, text): tells the other ranks that this one is about to end */
static int fail(lua_State *L)
{
    gm_comm_fail(gm_lua_comm(L), luaL_checkint(L, 1), luaL_checkstring(L, 2));
    return 0;
}

/* comm_failure() -> nil, or { rank, exit_code, text } of the first other rank that has failed */
static int failure(lua_State *L)
{
    const gm_comm         *c = gm_lua_rank(L)->comm;
    const gm_peer_failure *f = c ? gm_comm_failure(c) : NULL;
    if (!f) return 0;
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, f->rank);
    lua_setfield(L, -2, "rank");
    lua_pushinteger(L, f->exit_code);
    lua_setfield(L, -2, "exit_code");
    lua_pushstring(L, f->text);
    lua_setfield(L, -2, "text");
    return 1;
}

/* comm_section_end(ok, text) -> how many ranks were not ok, the lowest of them or nil. After a failure ranks may stand
 * at different micro-batches and calls of random ops: they begin anew, so that replicated values are equal again. */
static int section_end(lua_State *L)
{
    int  failed, first;
    bool ok = lua_toboolean(L, 1);
    L_TRY(L, gm_comm_section_end(gm_lua_comm(L), ok, luaL_optstring(L, 2, ""), &failed, &first));
    if (failed) {
        gm_rank *r = gm_lua_rank(L);
        gm_rank_begin_step(r);
        r->batch_offset = r->batch_count = 0;
    }
    lua_pushinteger(L, failed);
    if (first < 0) lua_pushnil(L);
    else lua_pushinteger(L, first);
    return 2;
}

/* comm_settle(): all that was begun before this is done */
static int settle(lua_State *L)
{
    L_TRY(L, gm_comm_settle(gm_lua_comm(L)));
    return 0;
}

/* comm_close(orderly): the end of the job on this rank. orderly: waits until all ranks have come to it. */
static int close_comm(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    bool     orderly = lua_toboolean(L, 1);
    if (!r->comm) return 0;
    if (orderly) L_TRY(L, gm_comm_leave(r->comm));
    gm_comm_free(r->comm, orderly);
    r->comm = NULL;
    return 0;
}

/* comm_epoch() -> how many sections have failed, on whatever rank; the same on all ranks */
static int epoch(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_comm_epoch(gm_lua_comm(L)));
    return 1;
}

/* comm_transport() -> "self", "meta", "Open MPI 4.1.4" */
static int transport(lua_State *L)
{
    lua_pushstring(L, gm_comm_transport(gm_lua_comm(L)));
    return 1;
}

/* comm_yields() -> the seconds for which a rank that shares cores yields before it sleeps (host/comm/crowd.h); the
 * seconds that yields which gave the core to nobody have taken so far */
static int yields(lua_State *L)
{
    lua_pushnumber(L, GM_CROWD_SECONDS);
    lua_pushnumber(L, gm_comm_yielded(gm_lua_comm(L)));
    return 2;
}

int gm_open_comm(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("launched", launched, ""),
        GM_FUNCTION("connect", do_connect, "how table?"),
        GM_FUNCTION("pretend", pretend, "rank integer, world integer"),
        GM_FUNCTION("set_mesh", set_mesh, "axes table"),
        GM_FUNCTION("mesh", get_mesh, ""),
        GM_FUNCTION("comm_group", group, "axes any?"),
        GM_FUNCTION("comm_group_of", group_of, "name string, ranks table"),
        GM_FUNCTION("comm_group_info", group_info, "group any?"),
        GM_FUNCTION("comm_set_phase", set_phase, "name string"),
        GM_FUNCTION("comm_timeout", timeout, ""),
        GM_FUNCTION("comm_set_timeout", set_timeout, "seconds number"),
        GM_FUNCTION("comm_use_device", use_device, "how string"),
        GM_FUNCTION("comm_share_memory", share_memory, "on boolean"),
        GM_FUNCTION("comm_try_links", try_links, ""),
        GM_FUNCTION("comm_find_links", find_links, ""),
        GM_FUNCTION("comm_checked", checked, "on boolean"),
        GM_FUNCTION("comm_alone", alone, "on boolean"),
        GM_FUNCTION("comm_fail", fail, "code integer, text string"),
        GM_FUNCTION("comm_failure", failure, ""),
        GM_FUNCTION("comm_settle", settle, ""),
        GM_FUNCTION("comm_section_end", section_end, "ok boolean?, text string?"),
        GM_FUNCTION("comm_epoch", epoch, ""),
        GM_FUNCTION("comm_close", close_comm, "orderly boolean?"),
        GM_FUNCTION("comm_transport", transport, ""),
        GM_FUNCTION("comm_yields", yields, ""),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, GROUP);
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
