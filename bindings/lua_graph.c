/* lua_graph.c - work of the device recorded once and run again: the Lua face of kernels/graph.h.
 * ganymede.train.graph makes training steps of it. */
#include "../kernels/graph.h"
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

/* graph_possible() -> true, or nil and why this device has none */
static int graph_possible(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    if (gm_device_can_capture(dev) != GM_OK) {
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
    L_TRY(L, gm_device_capture_begin(dev));
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
    gm_status st = gm_device_capture_end(dev, &box->graph);
    if (st != GM_OK) return gm_raise(L, st);
    return 1;
}

/* graph_drop(): forgets what was recorded; nothing where nothing is */
static int graph_drop(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_device_capture_drop(dev);
    return 0;
}

/* g:replay(): queues all of it */
static int replay(lua_State *L)
{
    gm_graph  *g = check_graph(L);
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_device_replay(dev, g));
    return 0;
}

/* g:about() -> { nodes, bytes of device memory that it holds } */
static int about(lua_State *L)
{
    gm_graph *g = check_graph(L);
    lua_createtable(L, 0, 2);
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
                                             GM_FUNCTION("close", close, "graph object"), GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("graph_possible", graph_possible, ""), GM_FUNCTION("graph_begin", graph_begin, ""),
        GM_FUNCTION("graph_end", graph_end, ""), GM_FUNCTION("graph_drop", graph_drop, ""), GM_LAST_FUNCTION};
    gm_new_class(L, GRAPH, methods, close);
    gm_declare(L, functions);
    return 0;
}
