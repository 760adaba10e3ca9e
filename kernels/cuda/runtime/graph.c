/* graph.c - see graph.h. */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "refusal.h"

#define PIECE ((size_t)64 << 10) /* bytes of page-locked memory taken at a time */

/* Page-locked memory of a graph, given out from its start. */
typedef struct piece {
    void         *data;
    size_t        bytes, used;
    struct piece *next;
} piece;

/* A copy to be made once. It goes to memory from the driver: blocks of the graph's part of the pool serve one node
 * after the other, and the first would write over it at each replay. */
typedef struct constant {
    void            *to;
    const void      *from;
    size_t           bytes;
    struct constant *next;
} constant;

typedef struct gm_cuda_graph {
    CUgraphExec   exec;
    CUevent       done; /* behind the last replay */
    piece        *pieces;
    constant     *constants;
    bool          reads_step;
    gm_step_block step;         /* what it was for the capture, if reads_step */
    char          refused[480]; /* why there will be no graph; "" while nothing was refused */
} gm_cuda_graph;

static CUdeviceptr address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

void gm_cuda_graph_end(gm_device *dev, void *graph)
{
    gm_cuda       *cu;
    gm_cuda_graph *g = graph;
    if (g->exec && gm_cuda_enter(dev, &cu) == GM_OK) cu->driver->cuGraphExecDestroy(g->exec); /* does not wait */
    g->exec = NULL;
}

void gm_cuda_graph_free(gm_device *dev, void *graph)
{
    gm_cuda       *cu = gm_cuda_of(dev);
    gm_cuda_graph *g = graph;
    if (g->done) {
        (void)gm_cuda_wait_event(dev, cu, g->done); /* what runs still reads the memory below */
        cu->driver->cuEventDestroy(g->done);
    }
    gm_cuda_graph_end(dev, g);
    for (constant *c = g->constants, *next; c; c = next) {
        next = c->next;
        gm_cuda_give(dev, c->to, c->bytes);
        free(c);
    }
    for (piece *p = g->pieces, *next; p; p = next) {
        next = p->next;
        cu->driver->cuMemFreeHost(p->data);
        free(p);
    }
    free(g);
}

/* ---- capture ---- */

gm_status gm_cuda_capture_begin(gm_device *dev)
{
    gm_cuda    *cu;
    gm_refusal *refusal;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(gm_cuda_refusal(dev, &refusal)); /* made and cleared once, not by each replay */
    gm_cuda_graph *g = calloc(1, sizeof *g);
    if (!g) return GM_FAIL(GM_ENOMEM, "no memory for a graph");
    CUresult r = cu->driver->cuStreamBeginCapture(cu->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (r != CUDA_SUCCESS) {
        free(g);
        return gm_cuda_failed(r, __FILE__, __LINE__, "cuStreamBeginCapture");
    }
    cu->graph = g;
    return GM_OK;
}

/* The graph as captured, which may be NULL; the stream runs what it is given again. */
static CUresult stop(gm_cuda *cu, CUgraph *captured)
{
    *captured = NULL;
    cu->graph = NULL;
    return cu->driver->cuStreamEndCapture(cu->stream, captured);
}

static gm_status instantiate(gm_cuda *cu, gm_cuda_graph *g, CUgraph captured, int *nodes)
{
    size_t n = 0;
    GM_CU(cu->driver, cuGraphGetNodes(captured, NULL, &n));
    *nodes = (int)n;
    GM_CU(cu->driver, cuGraphInstantiate(&g->exec, captured, 0));
    GM_CU(cu->driver, cuGraphUpload(g->exec, cu->stream));
    for (constant *c = g->constants; c; c = c->next)
        GM_CU(cu->driver, cuMemcpyHtoDAsync(address(c->to), c->from, c->bytes, cu->stream));
    GM_CU(cu->driver, cuEventCreate(&g->done, CU_EVENT_DISABLE_TIMING));
    GM_CU(cu->driver, cuEventRecord(g->done, cu->stream));
    return GM_OK;
}

gm_status gm_cuda_capture_end(gm_device *dev, void **graph, int *nodes)
{
    gm_cuda *cu;
    CUgraph  captured;
    GM_TRY(gm_cuda_enter(dev, &cu));
    gm_cuda_graph *g = cu->graph;
    CUresult       r = stop(cu, &captured);
    gm_status      st = g->refused[0]       ? GM_FAIL(GM_EINVAL, "%s", g->refused)
                        : r != CUDA_SUCCESS ? gm_cuda_failed(r, __FILE__, __LINE__, "cuStreamEndCapture")
                                            : instantiate(cu, g, captured, nodes);
    if (captured) cu->driver->cuGraphDestroy(captured);
    if (st == GM_OK) *graph = g;
    else gm_cuda_graph_free(dev, g);
    return st;
}

void gm_cuda_capture_drop(gm_device *dev)
{
    gm_cuda       *cu = gm_cuda_of(dev);
    gm_cuda_graph *g = cu->graph;
    CUgraph        captured;
    if (!g) return;
    stop(cu, &captured);
    if (captured) cu->driver->cuGraphDestroy(captured);
    gm_cuda_graph_free(dev, g);
}

/* ---- while a graph is being captured ---- */

gm_status gm_cuda_outside_graph(gm_device *dev, const char *what)
{
    gm_cuda_graph *g = gm_cuda_of(dev)->graph;
    if (!g) return GM_OK;
    if (!g->refused[0])
        snprintf(g->refused, sizeof g->refused,
                 "%s cannot be part of a graph: the host has no part in a replay (the last memory asked for was for "
                 "'%.200s')",
                 what, gm_pool_place(dev->pool));
    return GM_FAIL(GM_EINVAL, "%s", g->refused);
}

static gm_status new_piece(gm_cuda *cu, gm_cuda_graph *g, size_t bytes)
{
    piece *p = calloc(1, sizeof *p);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a graph's bytes of the host");
    p->bytes = bytes > PIECE ? bytes : PIECE;
    CUresult r = cu->driver->cuMemAllocHost(&p->data, p->bytes);
    if (r != CUDA_SUCCESS) {
        free(p);
        return gm_cuda_failed(r, __FILE__, __LINE__, "cuMemAllocHost");
    }
    p->next = g->pieces;
    g->pieces = p;
    return GM_OK;
}

gm_status gm_cuda_graph_bytes(gm_device *dev, const void *host, size_t bytes, void **pinned)
{
    gm_cuda       *cu = gm_cuda_of(dev);
    gm_cuda_graph *g = cu->graph;
    size_t         room = (bytes + 15) / 16 * 16;
    if (!g->pieces || g->pieces->bytes - g->pieces->used < room) GM_TRY(new_piece(cu, g, room));
    *pinned = (char *)g->pieces->data + g->pieces->used;
    g->pieces->used += room;
    memcpy(*pinned, host, bytes);
    return GM_OK;
}

gm_status gm_cuda_graph_constant(gm_device *dev, const void *host, size_t bytes, const void **on_device)
{
    gm_cuda_graph *g = gm_cuda_of(dev)->graph;
    void          *pinned;
    GM_TRY(gm_cuda_graph_bytes(dev, host, bytes, &pinned));
    constant *c = malloc(sizeof *c);
    if (!c) return GM_FAIL(GM_ENOMEM, "no memory for a graph's constants");
    *c = (constant){.from = pinned, .bytes = bytes, .next = g->constants};
    gm_status st = gm_cuda_take(dev, bytes, &c->to);
    if (st != GM_OK) {
        free(c);
        return st;
    }
    g->constants = c;
    *on_device = c->to;
    return GM_OK;
}

gm_status gm_cuda_graph_step(gm_device *dev)
{
    gm_cuda_graph *g = gm_cuda_of(dev)->graph;
    if (g->reads_step && !gm_cuda_same_step(&g->step, &dev->step))
        return gm_cuda_outside_graph(dev, "a step block (learning rate, step, seed of chance) that changes in between");
    g->reads_step = true;
    g->step = dev->step;
    return GM_OK;
}

/* ---- replay ---- */

gm_status gm_cuda_replay(gm_device *dev, void *graph)
{
    gm_cuda             *cu;
    gm_cuda_graph       *g = graph;
    const gm_step_block *step;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (!g->exec) return GM_FAIL(GM_EINVAL, "this graph has ended: the links between GPUs that it uses were closed");
    if (g->reads_step) GM_TRY(gm_cuda_step(dev, &step));
    GM_CU(cu->driver, cuGraphLaunch(g->exec, cu->stream));
    GM_CU(cu->driver, cuEventRecord(g->done, cu->stream));
    return GM_OK;
}
