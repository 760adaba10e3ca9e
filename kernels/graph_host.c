/* graph_host.c - see graph_host.h. */
#include "graph_host.h"

#include <stdlib.h>

/* One kernel. Everything that its call points to is its own. */
typedef struct recorded {
    gm_kernel   kernel;
    gm_call     call;
    gm_attrs    attrs;
    const char *place; /* of the pool: where the model asked for it */
    gm_tensor **list;  /* what call.in and call.out are parts of */
    struct part {
        gm_tensor  view;
        gm_storage storage; /* tensors that share bytes share the first of theirs */
    } part[];
} recorded;

typedef struct host_graph {
    recorded **calls;
    int        n, room;
    bool       refused; /* something that cannot be recorded was asked for */
} host_graph;

static void free_graph(host_graph *g)
{
    if (!g) return;
    for (int i = 0; i < g->n; i++) free(g->calls[i]);
    free(g->calls);
    free(g);
}

gm_status gm_host_capture_begin(gm_device *dev)
{
    dev->state = calloc(1, sizeof(host_graph));
    return dev->state ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a graph");
}

void gm_host_capture_drop(gm_device *dev)
{
    free_graph(dev->state);
    dev->state = NULL;
}

gm_status gm_host_capture_end(gm_device *dev, void **graph, int *nodes)
{
    host_graph *g = dev->state;
    if (g->refused) {
        gm_host_capture_drop(dev);
        return GM_FAIL(GM_EINVAL, "this recording asked for work of the host, which cannot be part of a graph");
    }
    dev->state = NULL;
    *graph = g;
    *nodes = g->n;
    return GM_OK;
}

void gm_host_graph_free(gm_device *dev, void *graph)
{
    (void)dev;
    free_graph(graph);
}

gm_status gm_host_replay(gm_device *dev, void *graph)
{
    const host_graph *g = graph;
    for (int i = 0; i < g->n; i++) {
        gm_status st = g->calls[i]->kernel(dev, &g->calls[i]->call);
        if (st != GM_OK) return GM_FAIL(st, "%s\n  in %s", gm_last_error(), g->calls[i]->place);
    }
    return GM_OK;
}

gm_status gm_host_is_free(const gm_device *dev, const char *what)
{
    host_graph *g = dev->state;
    if (!dev->capture || !dev->backend->on_host) return GM_OK;
    g->refused = true;
    return GM_FAIL(GM_EINVAL, "%s is work of the host, which cannot be part of a graph", what);
}

/* ---- recording ---- */

static gm_status grow(host_graph *g)
{
    int        room = g->room ? 2 * g->room : 256;
    recorded **calls = realloc(g->calls, (size_t)room * sizeof(recorded *));
    if (!calls) return GM_FAIL(GM_ENOMEM, "no memory for a graph of %d calls", room);
    g->calls = calls;
    g->room = room;
    return GM_OK;
}

static gm_tensor *argument(const gm_call *call, int i)
{
    return i < call->n_in ? call->in[i] : call->out[i - call->n_in];
}

/* Where the bytes of tensor i of a call are, without what belongs to their life. */
static gm_storage *storage_of(recorded *c, const gm_call *call, int i)
{
    const gm_storage *from = argument(call, i)->storage;
    for (int k = 0; k < i; k++)
        if (argument(call, k) && argument(call, k)->storage == from) return c->part[k].view.storage;
    c->part[i].storage = (gm_storage){.refs = 1, .bytes = from->bytes, .data = from->data, .device = from->device};
    return &c->part[i].storage;
}

gm_status gm_host_record(gm_device *dev, gm_kernel kernel, const gm_call *call)
{
    host_graph *g = dev->state;
    int         n = call->n_in + call->n_out;
    if (g->n == g->room) GM_TRY(grow(g));
    recorded *c = calloc(1, sizeof *c + (size_t)n * (sizeof *c->part + sizeof *c->list));
    if (!c) return GM_FAIL(GM_ENOMEM, "no memory for a call of a graph");
    *c = (recorded){.kernel = kernel,
                    .call = *call,
                    .attrs = *call->attrs,
                    .place = gm_pool_place(dev->pool),
                    .list = (gm_tensor **)(c->part + n)};
    for (int i = 0; i < n; i++) {
        if (!argument(call, i)) continue;
        c->part[i].view = *argument(call, i);
        c->part[i].view.refs = 1;
        c->part[i].view.storage = storage_of(c, call, i);
        c->list[i] = &c->part[i].view;
    }
    c->call.in = c->list;
    c->call.out = c->list + call->n_in;
    c->call.attrs = &c->attrs;
    g->calls[g->n++] = c;
    return GM_OK;
}
