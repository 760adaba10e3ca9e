/* fake_graph.c - CUDA graphs of the fake driver: a capture is a list of tasks for each stream that takes part, a graph
 * a copy of it.
 *
 * What a node keeps is what CUDA's keeps: arguments of kernels by value, of copies the addresses and not the bytes. So
 * whoever changes memory behind a graph's back, or frees it, gets what he would on a GPU; copies and sets whose memory
 * is gone are found when the graph runs. A stream takes part from the moment at which it waits for an event that was
 * recorded in the capture; nodes of two streams are in no order but what such events make. A capture refuses what CUDA
 * refuses: waiting for its streams, looking at events that were recorded in it, waiting in it for events that were not,
 * streams that have not been joined to the first at its end, the default stream; outside of relaxed mode, taking and
 * freeing memory; and all calls while a thread of a library records. A refused call makes it invalid, as there: the
 * streams then take nothing until the capture is ended, which gives no graph.
 *
 * A launch goes as far along each stream as it can. Every other launch begins with the last stream in place of the
 * first, so that nodes which lack an order run in two. Calls that need another process (fake_driver.h, attempt) have a
 * state of their own in each launch, and calls that say so (ordered) must be in one order in the graph. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_memory.h"
#include "fake_task.h"

#define NODES 65536 /* of one graph */

typedef struct node {
    gm_fake_task task;
    int          branch, next;           /* the next node of the branch; -1: none */
    int          need[GM_FAKE_BRANCHES]; /* so many nodes of each branch come before it */
    int          attempt;                /* its number among those that need another process; -1: it does not */
} node;

struct CUgraph_st {
    int  n, branches, attempts;
    int  first[GM_FAKE_BRANCHES], last[GM_FAKE_BRANCHES]; /* -1: none */
    int  length[GM_FAKE_BRANCHES];
    node nodes[NODES];
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;    /* its own */
    int                refs;     /* the caller's, and those of launches */
    unsigned           launches; /* so far */
};

struct gm_fake_launch {
    CUgraphExec exec;
    bool        backwards;
    int    at[GM_FAKE_BRANCHES], passed[GM_FAKE_BRANCHES]; /* the next node of each branch, and how many are done */
    void **states;                                         /* of attempts; NULL: not begun */
};

static struct {
    CUstream streams[GM_FAKE_BRANCHES];                /* that take part; the first is NULL: nothing is captured */
    int      seen[GM_FAKE_BRANCHES][GM_FAKE_BRANCHES]; /* by branch: how many nodes of each come before its next */
    int      last_ordered[2]; /* the branch and the number of nodes up to the last ordered call; 0 nodes: none */
    CUstreamCaptureMode mode;
    bool                invalid;
    int                 occupied; /* so many threads of libraries record */
    uint64_t            number;   /* of this capture */
    struct CUgraph_st  *graph;
} capture;

static void free_graph(struct CUgraph_st *g)
{
    for (int i = 0; i < g->n; i++) gm_fake_drop(&g->nodes[i].task);
    free(g);
}

static int branch_of(CUstream stream)
{
    for (int b = 0; capture.graph && b < capture.graph->branches; b++)
        if (capture.streams[b] == stream) return b;
    return -1;
}

bool     gm_fake_captures(CUstream stream) { return stream && branch_of(stream) >= 0; }
uint64_t gm_fake_capture(void) { return capture.graph ? capture.number : 0; }

static CUresult invalidate(CUresult r)
{
    capture.invalid = true;
    return r;
}

static void append(struct CUgraph_st *g, int branch, const gm_fake_task *t)
{
    node *n = &g->nodes[g->n];
    n->task = *t;
    n->branch = branch;
    n->next = -1;
    n->attempt = t->call.attempt ? g->attempts++ : -1;
    memcpy(n->need, capture.seen[branch], sizeof n->need);
    if (g->last[branch] < 0) g->first[branch] = g->n;
    else g->nodes[g->last[branch]].next = g->n;
    g->last[branch] = g->n++;
    capture.seen[branch][branch] = ++g->length[branch];
}

/* Is it behind the ordered call before it? */
static bool is_in_order(int branch, const gm_fake_task *t)
{
    int *last = capture.last_ordered;
    if (t->kind != GM_FAKE_CALL || !t->call.ordered) return true;
    if (capture.seen[branch][last[0]] < last[1]) return false;
    last[0] = branch;
    last[1] = capture.seen[branch][branch] + 1;
    return true;
}

void gm_fake_occupy_capture(int by)
{
    gm_fake_enter();
    if (capture.occupied + by >= 0) capture.occupied += by; /* it may have begun in a capture that was ended */
    gm_fake_leave(CUDA_SUCCESS);
}

/* A second thread uses the graph: on a GPU anything may follow. */
static void refuse_second_thread(void)
{
    if (!capture.graph || !capture.occupied || capture.invalid) return;
    gm_fake_line("a capture is used while a library records");
    capture.invalid = true;
}

CUresult gm_fake_record(CUstream stream, const gm_fake_task *t)
{
    int branch = branch_of(stream);
    refuse_second_thread();
    bool fits = t->kind != GM_FAKE_GRAPH && (!t->call.attempt || t->call.fresh) && capture.graph->n < NODES;
    if (!capture.invalid && fits && is_in_order(branch, t)) {
        append(capture.graph, branch, t);
        return CUDA_SUCCESS;
    }
    gm_fake_drop(t);
    if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return invalidate(fits ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void gm_fake_capture_event(CUstream stream, gm_fake_point *at)
{
    refuse_second_thread();
    at->capture = capture.number;
    memcpy(at->seen, capture.seen[branch_of(stream)], sizeof at->seen);
}

CUresult gm_fake_capture_await(CUstream stream, const gm_fake_point *at)
{
    int branch = branch_of(stream);
    refuse_second_thread();
    if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!at->capture) return invalidate(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (!capture.graph || at->capture != capture.number) return CUDA_ERROR_CAPTURED_EVENT;
    if (branch < 0) {
        if (capture.graph->branches == GM_FAKE_BRANCHES) return invalidate(CUDA_ERROR_OUT_OF_MEMORY);
        branch = capture.graph->branches++;
        capture.streams[branch] = stream;
    }
    for (int b = 0; b < GM_FAKE_BRANCHES; b++)
        if (capture.seen[branch][b] < at->seen[b]) capture.seen[branch][b] = at->seen[b];
    return CUDA_SUCCESS;
}

CUresult gm_fake_refuse_wait(CUstream stream)
{
    if (!capture.graph) return CUDA_SUCCESS;
    if (!stream) return invalidate(CUDA_ERROR_CAPTURED_EVENT);
    return gm_fake_captures(stream) ? invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult gm_fake_refuse_unsafe(void)
{
    bool safe = !capture.graph || capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    return safe ? CUDA_SUCCESS : invalidate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* ---- the driver's calls ---- */

static void start(CUstream stream, CUstreamCaptureMode mode, struct CUgraph_st *g)
{
    uint64_t number = capture.number + 1;
    memset(&capture, 0, sizeof capture);
    capture.number = number;
    capture.streams[0] = stream;
    capture.mode = mode;
    capture.graph = g;
    g->n = g->attempts = 0;
    g->branches = 1;
    memset(g->length, 0, sizeof g->length);
    for (int b = 0; b < GM_FAKE_BRANCHES; b++) g->first[b] = g->last[b] = -1;
    gm_fake_line("capture");
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    CUresult r = CUDA_SUCCESS;
    gm_fake_enter();
    struct CUgraph_st *g = malloc(sizeof *g);
    if (!g) r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!stream) r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (capture.graph) r = CUDA_ERROR_ILLEGAL_STATE;
    if (r == CUDA_SUCCESS) start(stream, mode, g);
    else free(g);
    return gm_fake_leave(r);
}

static bool is_joined(void)
{
    for (int b = 0; b < GM_FAKE_BRANCHES; b++)
        if (capture.seen[0][b] < capture.graph->length[b]) return false;
    return true;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    gm_fake_enter();
    *out = NULL;
    if (branch_of(stream) != 0) return gm_fake_leave(CUDA_ERROR_ILLEGAL_STATE);
    refuse_second_thread();
    CUresult r = capture.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : is_joined()   ? CUDA_SUCCESS
                                 : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (r != CUDA_SUCCESS) free_graph(capture.graph);
    else *out = capture.graph;
    capture.graph = NULL;
    gm_fake_line(r != CUDA_SUCCESS ? "capture was invalid" : "captured");
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
    memcpy(own, graph, offsetof(struct CUgraph_st, nodes) + (size_t)graph->n * sizeof *graph->nodes);
    graph->n = 0;
    *e = (struct CUgraphExec_st){.graph = own, .refs = 1};
    *out = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream)
{
    return graph && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void forget(CUgraphExec graph)
{
    if (--graph->refs) return;
    free_graph(graph->graph);
    free(graph);
}

static gm_fake_launch *new_launch(CUgraphExec graph)
{
    const struct CUgraph_st *g = graph->graph;
    gm_fake_launch          *l = calloc(1, sizeof *l);
    if (!l) abort();
    l->exec = graph;
    l->states = calloc((size_t)g->attempts + 1, sizeof *l->states);
    if (!l->states) abort();
    l->backwards = graph->launches++ % 2;
    memcpy(l->at, g->first, sizeof l->at);
    graph->refs++;
    return l;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    char line[64];
    if (!graph || !stream) return CUDA_ERROR_INVALID_VALUE;
    gm_fake_enter();
    snprintf(line, sizeof line, "graph %d", graph->graph->n);
    gm_fake_line(line);
    return gm_fake_leave(gm_fake_put(stream, (gm_fake_task){.kind = GM_FAKE_GRAPH, .launch = new_launch(graph)}));
}

/* A launch under way goes on, and then it is freed. */
CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    gm_fake_enter();
    forget(graph);
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

int gm_fake_launch_nodes(const gm_fake_launch *l) { return l->exec->graph->n; }

static bool is_due(const gm_fake_launch *l, const node *n)
{
    for (int b = 0; b < l->exec->graph->branches; b++)
        if (l->passed[b] < n->need[b]) return false;
    return true;
}

/* false: not yet */
static bool run_node(gm_fake_launch *l, int i, char *error, size_t size)
{
    const node         *n = &l->exec->graph->nodes[i];
    const gm_fake_task *t = &n->task;
    bool                moves = t->kind == GM_FAKE_COPY || t->kind == GM_FAKE_SET;
    if (n->attempt >= 0) {
        void **state = &l->states[n->attempt];
        if (!*state) *state = t->call.fresh(t->call.context);
        if (t->call.attempt(*state, error, size) == GM_FAKE_NOT_READY) return false;
        t->call.drop(*state);
        *state = NULL;
        return true;
    }
    if (moves && (!is_there(t->to, t->bytes) || (t->from && !is_there(t->from, t->bytes)))) {
        if (!error[0]) snprintf(error, size, "node %d of a graph moves %zu bytes that were freed", i, t->bytes);
        return true;
    }
    gm_fake_run(t, error, size);
    return true;
}

/* One branch as far as it goes; did it? */
static bool advance(gm_fake_launch *l, int b, char *error, size_t size)
{
    const struct CUgraph_st *g = l->exec->graph;
    bool                     any = false;
    while (l->at[b] >= 0 && is_due(l, &g->nodes[l->at[b]]) && run_node(l, l->at[b], error, size)) {
        l->at[b] = g->nodes[l->at[b]].next;
        l->passed[b]++;
        any = true;
    }
    return any;
}

bool gm_fake_run_launch(gm_fake_launch *l, char *error, size_t size)
{
    int  branches = l->exec->graph->branches;
    bool any = true, all = true;
    while (any) {
        any = false;
        for (int i = 0; i < branches; i++) any |= advance(l, l->backwards ? branches - 1 - i : i, error, size);
    }
    for (int b = 0; b < branches; b++) all &= l->at[b] < 0;
    return all;
}

void gm_fake_end_launch(gm_fake_launch *l)
{
    free(l->states);
    forget(l->exec);
    free(l);
}
