/* lua_graph.c - work of the device recorded once and run again, operations between ranks included: the Lua face of
 * kernels/graph.h and host/comm/recorded.h.
 * ganymede.train.graph makes training steps of it. */
#include "../host/comm/recorded.h"
#include "gm_lua.h"

#define GRAPH "gm.graph"

typedef struct graph_box {
    gm_graph *graph; /* NULL: closed */
} graph_box;

static gm_graph *check_graph(lua_State *L)
{
    graph_box *box = gm_check_object(L, 1, GRAPH);
    if (!box->graph) gm_bad_argument(L, 1, "this graph was closed");
    return box->graph;
}

/* graph_possible() -> true, or nil and why steps of this rank cannot be recorded */
static int graph_possible(lua_State *L)
{
    gm_device *dev;
    gm_comm   *c = gm_lua_rank(L)->comm;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_status st = gm_device_can_capture(dev);
    if (st == GM_OK && c && gm_comm_world(c) > 1 && gm_comm_has_data(c) && !gm_comm_is_linked(c))
        st = GM_FAIL(GM_EINVAL,
                     "tensors travel between ranks through host memory, and the host has no part in a replay");
    if (st != GM_OK) {
        lua_pushnil(L);
        lua_pushstring(L, gm_last_error());
        return 2;
    }
    lua_pushboolean(L, true);
    return 1;
}

/* graph_begin(): ops are recorded from here on, and do not run */
static int graph_begin(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_comm_record_begin(gm_lua_rank(L)->comm, dev));
    return 0;
}

/* graph_end() -> the graph; raises what could not be recorded */
static int graph_end(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    graph_box *box = lua_newuserdata(L, sizeof *box);
    box->graph = NULL;
    luaL_getmetatable(L, GRAPH);
    lua_setmetatable(L, -2);
    gm_status st = gm_comm_record_end(gm_lua_rank(L)->comm, dev, &box->graph);
    if (st != GM_OK) return gm_raise(L, st);
    return 1;
}

/* graph_drop(): forgets what was recorded; nothing where nothing is */
static int graph_drop(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_comm_record_drop(gm_lua_rank(L)->comm, dev);
    return 0;
}

/* graph_renew_links(): after a recording that failed on some rank; called on all */
static int renew_links(lua_State *L)
{
    gm_comm_renew_links(gm_lua_rank(L)->comm);
    return 0;
}

/* g:replay(): queues all of it; collective where it holds operations between ranks */
static int replay(lua_State *L)
{
    gm_graph  *g = check_graph(L);
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_comm_replay(gm_lua_rank(L)->comm, dev, g));
    return 0;
}

/* g:has_ended() -> were the links between devices that it uses closed? Then it cannot run any more. */
static int has_ended(lua_State *L)
{
    lua_pushboolean(L, gm_graph_has_ended(check_graph(L)));
    return 1;
}

/* g:about() -> { nodes, bytes of device memory that it holds, operations between devices (gm_comm_recorded) } */
static int about(lua_State *L)
{
    gm_graph *g = check_graph(L);
    lua_createtable(L, 0, 3);
    lua_pushstring(L, gm_comm_recorded(g));
    lua_setfield(L, -2, "operations");
    lua_pushinteger(L, gm_graph_nodes(g));
    lua_setfield(L, -2, "nodes");
    lua_pushnumber(L, (lua_Number)gm_graph_bytes(g));
    lua_setfield(L, -2, "bytes");
    return 1;
}

static int close(lua_State *L)
{
    graph_box *box = gm_check_object(L, 1, GRAPH);
    gm_graph_free(box->graph);
    box->graph = NULL;
    return 0;
}

int gm_open_graph(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("replay", replay, "graph object"),
                                             GM_FUNCTION("about", about, "graph object"),
                                             GM_FUNCTION("has_ended", has_ended, "graph object"),
                                             GM_FUNCTION("close", close, "graph object"), GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("graph_possible", graph_possible, ""), GM_FUNCTION("graph_begin", graph_begin, ""),
        GM_FUNCTION("graph_end", graph_end, ""),           GM_FUNCTION("graph_drop", graph_drop, ""),
        GM_FUNCTION("graph_renew_links", renew_links, ""), GM_LAST_FUNCTION};
    gm_new_class(L, GRAPH, methods, close);
    gm_declare(L, functions);
    return 0;
}
