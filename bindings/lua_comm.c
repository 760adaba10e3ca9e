/* lua_comm.c - the Lua face of host/comm: joining, the mesh, groups, collectives on local blocks, failures, accounts.
 *
 * Everything works on the bytes of this rank (t:local_tensor()'s), whatever the layout says: gm.redistribute and
 * gm.gather are what follows layouts. Dimensions count from 1, places in a group (roots, to, from) from 0. A group
 * argument is a group, or the axes of one: "data.row", a list of names, nil for all ranks. With async (the last
 * argument) a pending object comes first: p:wait() before anything touches the tensors, p:test() meanwhile. */
#include "gm_lua.h"

#include <stdlib.h>
#include <string.h>
#include "../host/comm/comm.h"

#define GROUP   "gm.group"
#define PENDING "gm.pending"

typedef struct group_box {
    gm_comm  *comm; /* that it belongs to: one that was closed has taken its groups along */
    gm_group *group;
} group_box;

typedef struct pending_box {
    gm_comm    *comm;
    gm_pending *pending; /* NULL: waited for */
} pending_box;

static gm_comm *the_comm(lua_State *L)
{
    gm_comm  *c = NULL;
    gm_status st = gm_rank_comm(gm_lua_rank(L), &c);
    if (st != GM_OK) gm_raise(L, st);
    return c;
}

/* ---- joining, mesh ---- */

/* connect() -> rank, world: joins the job that this process finds itself in, or is a world of one */
static int do_connect(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    L_TRY(L, gm_rank_connect(r));
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
        if (!lua_isstring(L, -1)) luaL_argerror(L, arg, "a list of names of axes was expected");
        axes |= axis_bit(L, mesh, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return axes;
}

static gm_group *check_group(lua_State *L, int arg)
{
    gm_comm  *c = the_comm(L);
    gm_group *g = NULL;
    if (lua_isuserdata(L, arg)) {
        group_box *b = luaL_checkudata(L, arg, GROUP);
        if (b->comm != c) luaL_argerror(L, arg, "this group belongs to a job that has ended");
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
    b->comm = the_comm(L);
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
    b->comm = the_comm(L);
    L_TRY(L, gm_comm_group_of(b->comm, name, n, ranks, &b->group));
    return 1;
}

/* comm_group_info(group) -> { name, size, rank (place of this rank), ranks } */
static int group_info(lua_State *L)
{
    const gm_group *g = check_group(L, 1);
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

/* ---- collectives ---- */

static gm_reduction check_reduction(lua_State *L, int arg)
{
    static const char *const names[] = {"sum", "mean", "max", "min", NULL};
    return (gm_reduction)luaL_checkoption(L, arg, "sum", names);
}

/* Room for a pending object, pushed when the call is asynchronous; NULL: the call waits. */
static pending_box *push_pending(lua_State *L, int async)
{
    if (!lua_toboolean(L, async)) return NULL;
    pending_box *b = lua_newuserdata(L, sizeof *b);
    *b = (pending_box){the_comm(L), NULL};
    luaL_getmetatable(L, PENDING);
    lua_setmetatable(L, -2);
    return b;
}

#define ROOM(b) ((b) ? &(b)->pending : NULL)

/* A new tensor of this rank; its handle is pushed. */
static gm_tensor *push_result(lua_State *L, gm_dtype dtype, int ndim, const int64_t *shape, const char *op)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v = NULL;
    gm_status  st = gm_value_new(r, op, dtype, ndim, shape, &v);
    if (st == GM_ENOMEM) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        st = gm_value_new(r, op, dtype, ndim, shape, &v);
    }
    if (st != GM_OK) gm_raise(L, st);
    gm_handle_fill(r, h, v, op);
    return v->local;
}

/* comm_all_reduce(t, group, "sum"|"mean"|"max"|"min" [, async]) -> [pending,] t */
static int all_reduce(lua_State *L)
{
    gm_value    *v = gm_check_value(L, 1);
    gm_group    *g = check_group(L, 2);
    gm_reduction op = check_reduction(L, 3);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_comm_all_reduce(the_comm(L), g, v->local, op, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_reduce(t, group, root, op [, async]) -> [pending,] t, which holds the sum on the root alone */
static int reduce(lua_State *L)
{
    gm_value    *v = gm_check_value(L, 1);
    gm_group    *g = check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    gm_reduction op = check_reduction(L, 4);
    pending_box *b = push_pending(L, 5);
    L_TRY(L, gm_comm_reduce(the_comm(L), g, v->local, root, op, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_broadcast(t, group, root [, async]) -> [pending,] t */
static int broadcast(lua_State *L)
{
    gm_value    *v = gm_check_value(L, 1);
    gm_group    *g = check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_comm_broadcast(the_comm(L), g, v->local, root, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* The shape of t with dimension d multiplied and divided. */
static void scaled(const gm_tensor *t, int d, int by, int over, int64_t *shape)
{
    memcpy(shape, t->shape, sizeof t->shape);
    shape[d] = shape[d] * by / over;
}

/* comm_all_gather(t, group, dim = 1 [, async]) -> [pending,] the blocks joined along dim */
static int all_gather(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = check_group(L, 2);
    int          dim = lua_isnoneornil(L, 3) && t->ndim ? 0 : gm_check_dim_arg(L, 3, t->ndim);
    pending_box *b = push_pending(L, 4);
    scaled(t, dim, gm_group_size(g), 1, shape);
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "all_gather");
    L_TRY(L, gm_comm_all_gather(the_comm(L), g, t, dim, to, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_reduce_scatter(t, group, dim = 1, op [, async]) -> [pending,] this rank's block of the sum */
static int reduce_scatter(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = check_group(L, 2);
    int          dim = lua_isnoneornil(L, 3) && t->ndim ? 0 : gm_check_dim_arg(L, 3, t->ndim);
    gm_reduction op = check_reduction(L, 4);
    pending_box *b = push_pending(L, 5);
    scaled(t, dim, 1, gm_group_size(g), shape);
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "reduce_scatter");
    L_TRY(L, gm_comm_reduce_scatter(the_comm(L), g, t, dim, op, to, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_gather(t, group, root, dim = 1 [, async]) -> [pending,] the blocks joined on the root, nil elsewhere */
static int gather(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local, *to = NULL;
    gm_group    *g = check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    int          dim = lua_isnoneornil(L, 4) && t->ndim ? 0 : gm_check_dim_arg(L, 4, t->ndim);
    pending_box *b = push_pending(L, 5);
    scaled(t, dim, gm_group_size(g), 1, shape);
    if (root == gm_group_rank(g)) to = push_result(L, t->dtype, t->ndim, shape, "gather");
    else lua_pushnil(L);
    L_TRY(L, gm_comm_gather(the_comm(L), g, t, dim, root, to, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_scatter(to, group, root, dim, t [, async]) -> [pending,] to, which gets this rank's block of the root's t */
static int scatter(lua_State *L)
{
    gm_tensor   *to = gm_check_value(L, 1)->local;
    gm_group    *g = check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    int          dim = lua_isnoneornil(L, 4) && to->ndim ? 0 : gm_check_dim_arg(L, 4, to->ndim);
    gm_value    *v = gm_opt_value(L, 5);
    pending_box *b = push_pending(L, 6);
    L_TRY(L, gm_comm_scatter(the_comm(L), g, v ? v->local : NULL, dim, root, to, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_all_to_all(t, group, split, join [, async]) -> [pending,] member i's block j along split became member j's
 * block i along join */
static int all_to_all(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = check_group(L, 2);
    int          split = gm_check_dim_arg(L, 3, t->ndim), join = gm_check_dim_arg(L, 4, t->ndim);
    pending_box *b = push_pending(L, 5);
    scaled(t, split, 1, gm_group_size(g), shape);
    shape[join] *= gm_group_size(g);
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "all_to_all");
    L_TRY(L, gm_comm_all_to_all(the_comm(L), g, t, split, to, join, ROOM(b)));
    return b ? 2 : 1;
}

/* A list of p numbers of rows, in a userdata that is pushed; *total: their sum. */
static int64_t *push_rows(lua_State *L, int arg, int p, int64_t *total)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    int64_t *rows = lua_newuserdata(L, sizeof *rows * (size_t)p);
    if ((int)lua_objlen(L, arg) != p)
        luaL_argerror(L, arg, lua_pushfstring(L, "%d numbers, one a member, were expected", p));
    *total = 0;
    for (int i = 0; i < p; i++) {
        lua_rawgeti(L, arg, i + 1);
        *total += rows[i] = gm_check_integer(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return rows;
}

/* comm_all_to_all_rows(t, group, send, receive [, async]) -> [pending,] rows of dimension 1: send[j] of them go to member
 * j, receive[i] come from member i, in order */
static int all_to_all_rows(lua_State *L)
{
    int64_t    shape[GM_MAX_DIMS], out, in;
    gm_tensor *t = gm_check_value(L, 1)->local;
    gm_group  *g = check_group(L, 2);
    lua_settop(L, 5);
    int64_t     *send = push_rows(L, 3, gm_group_size(g), &out), *receive = push_rows(L, 4, gm_group_size(g), &in);
    pending_box *b = push_pending(L, 5);
    memcpy(shape, t->shape, sizeof shape);
    shape[0] = in;
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "all_to_all");
    L_TRY(L, gm_comm_all_to_all_rows(the_comm(L), g, t, send, to, receive, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_send(t, group, to [, async]) -> [pending,] t */
static int send(lua_State *L)
{
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = check_group(L, 2);
    int          to = luaL_checkint(L, 3);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_comm_send(the_comm(L), g, t, to, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_receive(t, group, from [, async]) -> [pending,] t, overwritten */
static int receive(lua_State *L)
{
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = check_group(L, 2);
    int          from = luaL_checkint(L, 3);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_comm_receive(the_comm(L), g, t, from, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

static int barrier(lua_State *L)
{
    gm_group *g = check_group(L, 1);
    L_TRY(L, gm_comm_barrier(the_comm(L), g));
    return 0;
}

/* comm_exchange(group, text) -> list of the texts of all members, by place */
static int exchange(lua_State *L)
{
    size_t      n, at = 0;
    gm_group   *g = check_group(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    char       *all = NULL;
    size_t     *sizes = lua_newuserdata(L, sizeof *sizes * (size_t)gm_group_size(g));
    L_TRY(L, gm_comm_exchange(the_comm(L), g, text, n, &all, sizes));
    lua_createtable(L, gm_group_size(g), 0);
    for (int i = 0; i < gm_group_size(g); i++) {
        lua_pushlstring(L, all + at, sizes[i]);
        lua_rawseti(L, -2, i + 1);
        at += sizes[i];
    }
    free(all);
    return 1;
}

/* ---- pending operations ---- */

static pending_box *check_pending(lua_State *L)
{
    pending_box *b = luaL_checkudata(L, 1, PENDING);
    if (b->pending && b->comm != gm_lua_rank(L)->comm) luaL_argerror(L, 1, "its job has ended");
    return b;
}

/* p:wait(): once is enough, more is allowed */
static int pending_wait(lua_State *L)
{
    pending_box *b = check_pending(L);
    gm_pending  *p = b->pending;
    if (!p) return 0;
    b->pending = NULL;
    gm_status st = gm_comm_wait(b->comm, p);
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* p:test() -> is it done? */
static int pending_test(lua_State *L)
{
    pending_box *b = check_pending(L);
    bool         done = true;
    gm_status    st = b->pending ? gm_comm_test(b->comm, b->pending, &done) : GM_OK;
    if (st != GM_OK) return gm_raise(L, st);
    lua_pushboolean(L, done);
    return 1;
}

/* One that nobody waited for goes on by itself: the collector must not wait. */
static int pending_gc(lua_State *L)
{
    pending_box *b = lua_touserdata(L, 1);
    if (b->pending && b->comm == gm_lua_rank(L)->comm) gm_comm_drop(b->comm, b->pending);
    b->pending = NULL;
    return 0;
}

static int poll(lua_State *L)
{
    L_TRY(L, gm_comm_poll(the_comm(L)));
    return 0;
}

/* ---- settings ---- */

/* comm_set_phase(name) -> the one before: traffic is counted by it */
static int set_phase(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    gm_comm    *c = the_comm(L);
    for (int p = 0; p < GM_PHASE_COUNT; p++)
        if (!strcmp(name, gm_phase_name((gm_phase)p))) {
            lua_pushstring(L, gm_phase_name(gm_comm_get_phase(c)));
            gm_comm_set_phase(c, (gm_phase)p);
            return 1;
        }
    return luaL_error(L, "comm_set_phase: there is no phase '%s'", name);
}

/* comm_set_timeout(seconds): 0 for none */
static int set_timeout(lua_State *L)
{
    lua_Number seconds = luaL_checknumber(L, 1);
    luaL_argcheck(L, seconds >= 0, 1, "a time is not negative");
    gm_comm_set_timeout(the_comm(L), seconds);
    return 0;
}

static int checked(lua_State *L)
{
    gm_comm_set_checked(the_comm(L), lua_toboolean(L, 1));
    return 0;
}

static int alone(lua_State *L)
{
    gm_comm_set_alone(the_comm(L), lua_toboolean(L, 1));
    return 0;
}

/* ---- failures and ends ---- */

/* comm_fail(exit code, text): tells the other ranks that this one is about to end */
static int fail(lua_State *L)
{
    gm_comm_fail(the_comm(L), luaL_checkint(L, 1), luaL_checkstring(L, 2));
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

/* comm_section_end(ok, text) -> how many ranks were not ok, the lowest of them or nil */
static int section_end(lua_State *L)
{
    int  failed, first;
    bool ok = lua_toboolean(L, 1);
    L_TRY(L, gm_comm_section_end(the_comm(L), ok, luaL_optstring(L, 2, ""), &failed, &first));
    lua_pushinteger(L, failed);
    if (first < 0) lua_pushnil(L);
    else lua_pushinteger(L, first);
    return 2;
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

/* ---- accounts ---- */

static void set_number(lua_State *L, const char *name, double v)
{
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}

/* comm_traffic() -> list of { group, op, phase, calls, bytes, copied, seconds, exposed } */
static int traffic(lua_State *L)
{
    const gm_comm *c = the_comm(L);
    int            n = gm_comm_traffic(c, NULL, 0);
    gm_traffic    *e = lua_newuserdata(L, sizeof *e * (size_t)(n + 1));
    n = gm_comm_traffic(c, e, n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 8);
        lua_pushstring(L, e[i].group);
        lua_setfield(L, -2, "group");
        lua_pushstring(L, e[i].op);
        lua_setfield(L, -2, "op");
        lua_pushstring(L, gm_phase_name(e[i].phase));
        lua_setfield(L, -2, "phase");
        set_number(L, "calls", (double)e[i].calls);
        set_number(L, "bytes", (double)e[i].bytes);
        set_number(L, "copied", (double)e[i].copied);
        set_number(L, "seconds", e[i].seconds);
        set_number(L, "exposed", e[i].exposed);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int reset_traffic(lua_State *L)
{
    gm_comm_reset_traffic(the_comm(L));
    return 0;
}

/* comm_flight(lines = 20) -> text: the last calls on groups, the newest last */
static int flight(lua_State *L)
{
    char *text = gm_comm_flight(the_comm(L), luaL_optint(L, 1, 20));
    if (!text) return luaL_error(L, "no memory for the flight recorder's text");
    lua_pushstring(L, text);
    free(text);
    return 1;
}

/* comm_transport() -> "self", "meta", "Open MPI 4.1.4" */
static int transport(lua_State *L)
{
    lua_pushstring(L, gm_comm_transport(the_comm(L)));
    return 1;
}

int gm_open_comm(lua_State *L)
{
    static const luaL_Reg methods[] = {{"wait", pending_wait}, {"test", pending_test}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"connect", do_connect},
                                         {"pretend", pretend},
                                         {"set_mesh", set_mesh},
                                         {"mesh", get_mesh},
                                         {"comm_group", group},
                                         {"comm_group_of", group_of},
                                         {"comm_group_info", group_info},
                                         {"comm_all_reduce", all_reduce},
                                         {"comm_reduce", reduce},
                                         {"comm_broadcast", broadcast},
                                         {"comm_all_gather", all_gather},
                                         {"comm_reduce_scatter", reduce_scatter},
                                         {"comm_gather", gather},
                                         {"comm_scatter", scatter},
                                         {"comm_all_to_all", all_to_all},
                                         {"comm_all_to_all_rows", all_to_all_rows},
                                         {"comm_send", send},
                                         {"comm_receive", receive},
                                         {"comm_barrier", barrier},
                                         {"comm_exchange", exchange},
                                         {"comm_poll", poll},
                                         {"comm_set_phase", set_phase},
                                         {"comm_set_timeout", set_timeout},
                                         {"comm_checked", checked},
                                         {"comm_alone", alone},
                                         {"comm_fail", fail},
                                         {"comm_failure", failure},
                                         {"comm_section_end", section_end},
                                         {"comm_close", close_comm},
                                         {"comm_traffic", traffic},
                                         {"comm_reset_traffic", reset_traffic},
                                         {"comm_flight", flight},
                                         {"comm_transport", transport},
                                         {NULL, NULL}};
    luaL_newmetatable(L, GROUP);
    lua_pop(L, 1);
    luaL_newmetatable(L, PENDING);
    lua_pushcfunction(L, pending_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_register(L, NULL, functions);
    return 0;
}
