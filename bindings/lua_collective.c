/* lua_collective.c - collectives and messages on the blocks of this rank, and operations under way.
 *
 * Everything works on the bytes of this rank (t:local_tensor()'s), whatever the layout says: gm.redistribute and
 * gm.gather are what follows layouts. Dimensions count from 1, places in a group (roots, to, from) from 0. With async
 * (the last argument) a pending object comes first: p:wait() before anything touches the tensors, p:test() before. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../host/mesh/at_once.h"
#include "lua_comm.h"

#define PENDING "gm.pending"

typedef struct pending_box {
    gm_comm    *comm;
    gm_pending *pending; /* NULL: waited for */
} pending_box;

/* ---- collectives ---- */

static gm_reduction check_reduction(lua_State *L, int arg)
{
    static const char *const names[] = {"sum", "mean", "max", "min", NULL};
    return (gm_reduction)gm_check_option(L, arg, "sum", names);
}

/* Room for a pending object, pushed when the call is asynchronous; NULL: the call waits. */
static pending_box *push_pending(lua_State *L, int async)
{
    if (!lua_toboolean(L, async)) return NULL;
    pending_box *b = lua_newuserdata(L, sizeof *b);
    *b = (pending_box){gm_lua_comm(L), NULL};
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

/* comm_sums_at_once(members, bytes) -> does an all_reduce of so many bytes take one round? */
static int sums_at_once(lua_State *L)
{
    lua_Integer p = luaL_checkinteger(L, 1);
    lua_Number  n = luaL_checknumber(L, 2);
    luaL_argcheck(L, p >= 1 && p <= INT_MAX, 1, "a number of members is at least 1");
    luaL_argcheck(L, n >= 0, 2, "a number of bytes is at least 0");
    lua_pushboolean(L, n < 1e9 && gm_sums_at_once((int)p, (size_t)n));
    return 1;
}

/* comm_all_reduce(t, group, "sum"|"mean"|"max"|"min" [, async]) -> [pending,] t */
static int all_reduce(lua_State *L)
{
    gm_value    *v = gm_check_value(L, 1);
    gm_group    *g = gm_check_group(L, 2);
    gm_reduction op = check_reduction(L, 3);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_value_write(v, "all_reduce"));
    L_TRY(L, gm_comm_all_reduce(gm_lua_comm(L), g, v->local, op, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_reduce(t, group, root, op [, async]) -> [pending,] t, which holds the sum on the root alone */
static int reduce(lua_State *L)
{
    gm_value    *v = gm_check_value(L, 1);
    gm_group    *g = gm_check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    gm_reduction op = check_reduction(L, 4);
    pending_box *b = push_pending(L, 5);
    L_TRY(L, gm_value_write(v, "reduce"));
    L_TRY(L, gm_comm_reduce(gm_lua_comm(L), g, v->local, root, op, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_broadcast(t, group, root [, async]) -> [pending,] t */
static int broadcast(lua_State *L)
{
    gm_value    *v = gm_check_value(L, 1);
    gm_group    *g = gm_check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_value_write(v, "broadcast"));
    L_TRY(L, gm_comm_broadcast(gm_lua_comm(L), g, v->local, root, ROOM(b)));
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
    gm_group    *g = gm_check_group(L, 2);
    int          dim = lua_isnoneornil(L, 3) && t->ndim ? 0 : gm_check_dim_arg(L, 3, t->ndim);
    pending_box *b = push_pending(L, 4);
    scaled(t, dim, gm_group_size(g), 1, shape);
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "all_gather");
    L_TRY(L, gm_comm_all_gather(gm_lua_comm(L), g, t, dim, to, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_reduce_scatter(t, group, dim = 1, op [, async]) -> [pending,] this rank's block of the sum */
static int reduce_scatter(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = gm_check_group(L, 2);
    int          dim = lua_isnoneornil(L, 3) && t->ndim ? 0 : gm_check_dim_arg(L, 3, t->ndim);
    gm_reduction op = check_reduction(L, 4);
    pending_box *b = push_pending(L, 5);
    scaled(t, dim, 1, gm_group_size(g), shape);
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "reduce_scatter");
    L_TRY(L, gm_comm_reduce_scatter(gm_lua_comm(L), g, t, dim, op, to, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_gather(t, group, root, dim = 1 [, async]) -> [pending,] the blocks joined on the root, nil elsewhere */
static int gather(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local, *to = NULL;
    gm_group    *g = gm_check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    int          dim = lua_isnoneornil(L, 4) && t->ndim ? 0 : gm_check_dim_arg(L, 4, t->ndim);
    pending_box *b = push_pending(L, 5);
    scaled(t, dim, gm_group_size(g), 1, shape);
    if (root == gm_group_rank(g)) to = push_result(L, t->dtype, t->ndim, shape, "gather");
    else lua_pushnil(L);
    L_TRY(L, gm_comm_gather(gm_lua_comm(L), g, t, dim, root, to, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_scatter(to, group, root, dim, t [, async]) -> [pending,] to, which gets this rank's block of the root's t */
static int scatter(lua_State *L)
{
    gm_tensor   *to = gm_check_value(L, 1)->local;
    gm_group    *g = gm_check_group(L, 2);
    int          root = luaL_optint(L, 3, 0);
    int          dim = lua_isnoneornil(L, 4) && to->ndim ? 0 : gm_check_dim_arg(L, 4, to->ndim);
    gm_value    *v = gm_opt_value(L, 5);
    pending_box *b = push_pending(L, 6);
    L_TRY(L, gm_comm_scatter(gm_lua_comm(L), g, v ? v->local : NULL, dim, root, to, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_all_to_all(t, group, split, join [, async]) -> [pending,] member i's block j along split became member j's
 * block i along join */
static int all_to_all(lua_State *L)
{
    int64_t      shape[GM_MAX_DIMS];
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = gm_check_group(L, 2);
    int          split = gm_check_dim_arg(L, 3, t->ndim), join = gm_check_dim_arg(L, 4, t->ndim);
    pending_box *b = push_pending(L, 5);
    scaled(t, split, 1, gm_group_size(g), shape);
    shape[join] *= gm_group_size(g);
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "all_to_all");
    L_TRY(L, gm_comm_all_to_all(gm_lua_comm(L), g, t, split, to, join, ROOM(b)));
    return b ? 2 : 1;
}

/* A list of p numbers of rows as runs, in a userdata that is pushed; *total: their sum. */
static gm_row_runs push_rows(lua_State *L, int arg, int p, int64_t *total)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    gm_row_run *run = lua_newuserdata(L, sizeof *run * (size_t)p);
    if ((int)lua_objlen(L, arg) != p)
        gm_bad_argument(L, arg, lua_pushfstring(L, "%d numbers, one a member, were expected", p));
    *total = 0;
    for (int i = 0; i < p; i++) {
        lua_rawgeti(L, arg, i + 1);
        run[i] = (gm_row_run){i, *total, gm_check_integer(L, lua_gettop(L))};
        *total += run[i].n;
        lua_pop(L, 1);
    }
    return (gm_row_runs){run, p};
}

/* comm_all_to_all_rows(t, group, send, receive [, async]) -> [pending,] rows of dimension 1: send[j] of them go to
 * member j, receive[i] come from member i, in order */
static int all_to_all_rows(lua_State *L)
{
    int64_t    shape[GM_MAX_DIMS], out, in;
    gm_tensor *t = gm_check_value(L, 1)->local;
    gm_group  *g = gm_check_group(L, 2);
    lua_settop(L, 5);
    gm_row_runs  send = push_rows(L, 3, gm_group_size(g), &out), receive = push_rows(L, 4, gm_group_size(g), &in);
    pending_box *b = push_pending(L, 5);
    memcpy(shape, t->shape, sizeof shape);
    shape[0] = in;
    gm_tensor *to = push_result(L, t->dtype, t->ndim, shape, "all_to_all");
    L_TRY(L, gm_comm_all_to_all_rows(gm_lua_comm(L), g, t, send, to, receive, ROOM(b)));
    return b ? 2 : 1;
}

/* comm_send(t, group, to [, async]) -> [pending,] t */
static int send(lua_State *L)
{
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = gm_check_group(L, 2);
    int          to = luaL_checkint(L, 3);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_comm_send(gm_lua_comm(L), g, t, to, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

/* comm_receive(t, group, from [, async]) -> [pending,] t, overwritten */
static int receive(lua_State *L)
{
    gm_tensor   *t = gm_check_value(L, 1)->local;
    gm_group    *g = gm_check_group(L, 2);
    int          from = luaL_checkint(L, 3);
    pending_box *b = push_pending(L, 4);
    L_TRY(L, gm_comm_receive(gm_lua_comm(L), g, t, from, ROOM(b)));
    lua_pushvalue(L, 1);
    return b ? 2 : 1;
}

static int barrier(lua_State *L)
{
    gm_group *g = gm_check_group(L, 1);
    L_TRY(L, gm_comm_barrier(gm_lua_comm(L), g));
    return 0;
}

/* comm_exchange(group, text) -> list of the texts of all members, by place */
static int exchange(lua_State *L)
{
    size_t      n, at = 0;
    gm_group   *g = gm_check_group(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    char       *all = NULL;
    size_t     *sizes = lua_newuserdata(L, sizeof *sizes * (size_t)gm_group_size(g));
    L_TRY(L, gm_comm_exchange(gm_lua_comm(L), g, text, n, &all, sizes));
    lua_createtable(L, gm_group_size(g), 0);
    for (int i = 0; i < gm_group_size(g); i++) {
        lua_pushlstring(L, all + at, sizes[i]);
        lua_rawseti(L, -2, i + 1);
        at += sizes[i];
    }
    free(all);
    return 1;
}

/* comm_tell(group, text) -> the texts of all members joined, by place; all are of one length */
static int tell(lua_State *L)
{
    size_t      n;
    gm_group   *g = gm_check_group(L, 1);
    const char *text = luaL_checklstring(L, 2, &n);
    char       *all = lua_newuserdata(L, n * (size_t)gm_group_size(g) + 1);
    L_TRY(L, gm_comm_tell(gm_lua_comm(L), g, text, n, all));
    lua_pushlstring(L, all, n * (size_t)gm_group_size(g));
    return 1;
}

/* ---- pending operations ---- */

static pending_box *check_pending(lua_State *L)
{
    pending_box *b = gm_check_object(L, 1, PENDING);
    if (b->pending && b->comm != gm_lua_rank(L)->comm) gm_bad_argument(L, 1, "its job has ended");
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
    L_TRY(L, gm_comm_poll(gm_lua_comm(L)));
    return 0;
}

int gm_open_collective(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("wait", pending_wait, "pending object"),
                                             GM_FUNCTION("test", pending_test, "pending object"), GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("comm_sums_at_once", sums_at_once, "members integer, bytes number"),
        GM_FUNCTION("comm_all_reduce", all_reduce, "t tensor, group any?, op string?, async boolean?"),
        GM_FUNCTION("comm_reduce", reduce, "t tensor, group any?, root integer?, op string?, async boolean?"),
        GM_FUNCTION("comm_broadcast", broadcast, "t tensor, group any?, root integer?, async boolean?"),
        GM_FUNCTION("comm_all_gather", all_gather, "t tensor, group any?, dim integer?, async boolean?"),
        GM_FUNCTION("comm_reduce_scatter", reduce_scatter,
                    "t tensor, group any?, dim integer?, op string?, async boolean?"),
        GM_FUNCTION("comm_gather", gather, "t tensor, group any?, root integer?, dim integer?, async boolean?"),
        GM_FUNCTION("comm_scatter", scatter,
                    "to tensor, group any?, root integer?, dim integer?, t tensor|boolean?, async boolean?"),
        GM_FUNCTION("comm_all_to_all", all_to_all, "t tensor, group any?, split integer, join integer, async boolean?"),
        GM_FUNCTION("comm_all_to_all_rows", all_to_all_rows,
                    "t tensor, group any?, send table, receive table, async boolean?"),
        GM_FUNCTION("comm_send", send, "t tensor, group any?, to integer, async boolean?"),
        GM_FUNCTION("comm_receive", receive, "t tensor, group any?, from integer, async boolean?"),
        GM_FUNCTION("comm_barrier", barrier, "group any?"),
        GM_FUNCTION("comm_exchange", exchange, "group any?, text string"),
        GM_FUNCTION("comm_tell", tell, "group any?, text string"),
        GM_FUNCTION("comm_poll", poll, ""),
        GM_LAST_FUNCTION};
    gm_new_class(L, PENDING, methods, pending_gc);
    gm_declare(L, functions);
    return 0;
}
