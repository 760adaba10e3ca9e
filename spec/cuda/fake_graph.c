/* fake_graph.c - CUDA graphs of the fake driver: a capture is a list of tasks, a graph a copy of it.
 *
 * What a node keeps is what CUDA's keeps: arguments of kernels by value, of copies the addresses and not the bytes. So
 * whoever changes memory behind a graph's back, or frees it, gets what he would on a GPU; copies and sets whose memory
 * is gone are found when the graph runs. A capture refuses what CUDA refuses: waiting for the stream, looking at events
 * that were recorded in it, the default stream; and outside of relaxed mode, taking and freeing memory. A refused call
 * makes it invalid, as there: the stream then takes nothing until the capture is ended, which gives no graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_memory.h"
#include "fake_task.h"

#define NODES 65536 /* of one graph */

struct CUgraph_st {
    int          n;
    gm_fake_task nodes[NODES];
};

struct CUgraphExec_st {
    struct CUgraph_st *graph; /* its own */
};

static struct {
    CUstream            stream; /* NULL: nothing is captured */
    CUstreamCaptureMode mode;
    bool                invalid;
    struct CUgraph_st  *graph;
} capture;

static void free_graph(struct CUgraph_st *g)
{
    for (int i = 0; i < g->n; i++) gm_fake_drop(&g->nodes[i]);
    free(g);
}

bool gm_fake_captures(CUstream stream) { return capture.stream && capture.stream == stream; }

static CUresult invalidate(CUresult r)
{
    capture.invalid = true;
    return r;
}

CUresult gm_fake_record(const gm_fake_task *t)
{
    if (!capture.invalid && t->kind != GM_FAKE_GRAPH && !t->call.attempt && capture.graph->n < NODES) {
        capture.graph->nodes[capture.graph->n++] = *t;
        return CUDA_SUCCESS;
    }
    gm_fake_drop(t);
    return capture.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult gm_fake_refuse_wait(CUstream stream)
{
    if (!capture.stream) return CUDA_SUCCESS;
    if (!stream) return invalidate(CUDA_ERROR_CAPTURED_EVENT);
    return stream == capture.stream ? invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult gm_fake_refuse_unsafe(void)
{
    bool safe = !capture.stream || capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    return safe ? CUDA_SUCCESS : invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* ---- the driver's calls ---- */

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    CUresult r = CUDA_SUCCESS;
    gm_fake_enter();
    struct CUgraph_st *g = malloc(sizeof *g);
    if (!g) r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!stream) r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (capture.stream) r = CUDA_ERROR_ILLEGAL_STATE;
    if (r == CUDA_SUCCESS) {
        g->n = 0;
        capture.stream = stream;
        capture.mode = mode;
        capture.invalid = false;
        capture.graph = g;
        gm_fake_line("capture");
    } else {
        free(g);
    }
    return gm_fake_leave(r);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    gm_fake_enter();
    *out = NULL;
    if (!gm_fake_captures(stream)) return gm_fake_leave(CUDA_ERROR_ILLEGAL_STATE);
    CUresult r = capture.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (capture.invalid) free_graph(capture.graph);
    else *out = capture.graph;
    capture.stream = NULL;
    capture.graph = NULL;
    gm_fake_line(capture.invalid ? "capture was invalid" : "captured");
    return gm_fake_leave(r);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    if (nodes) return CUDA_ERROR_INVALID_VALUE;
    *n = (size_t)graph->n;
    return CUDA_SUCCESS;
}

/* Takes the nodes, which the graph then has no more: it can be instantiated once, and no node is owned twice. */
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    *out = NULL;
    if (flags || !graph) return CUDA_ERROR_INVALID_VALUE;
    struct CUgraphExec_st *e = malloc(sizeof *e);
    struct CUgraph_st     *own = malloc(sizeof *own);
    if (!e || !own) {
        free(e);
        free(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *own = *graph;
    graph->n = 0;
    e->graph = own;
    *out = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream)
{
    return graph && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    char line[64];
    if (!graph || !stream) return CUDA_ERROR_INVALID_VALUE;
    gm_fake_enter();
    snprintf(line, sizeof line, "graph %d", graph->graph->n);
    gm_fake_line(line);
    return gm_fake_leave(gm_fake_put(stream, (gm_fake_task){.kind = GM_FAKE_GRAPH, .graph = graph}));
}

/* What is queued runs first. */
CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    gm_fake_enter();
    gm_fake_run_all();
    free_graph(graph->graph);
    free(graph);
    return gm_fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph)
{
    gm_fake_enter();
    free_graph(graph);
    return gm_fake_leave(CUDA_SUCCESS);
}

/* ---- running ---- */

static bool is_there(const void *p, size_t bytes)
{
    return gm_fake_inside(&gm_fake_device, p, bytes) || gm_fake_inside(&gm_fake_pinned, p, bytes);
}

int gm_fake_graph_nodes(const struct CUgraphExec_st *graph) { return graph->graph->n; }

void gm_fake_run_graph(const struct CUgraphExec_st *graph, char *error, size_t size)
{
    const struct CUgraph_st *g = graph->graph;
    for (int i = 0; i < g->n; i++) {
        const gm_fake_task *t = &g->nodes[i];
        bool                moves = t->kind == GM_FAKE_COPY || t->kind == GM_FAKE_SET;
        if (moves && (!is_there(t->to, t->bytes) || (t->from && !is_there(t->from, t->bytes)))) {
            if (!error[0]) snprintf(error, size, "node %d of a graph moves %zu bytes that were freed", i, t->bytes);
            return;
        }
        gm_fake_run(t, error, size);
    }
}
