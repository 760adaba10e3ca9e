/* graph.c - the part of graph.h that all backends share. The backend makes the recording itself
 * (cuda/runtime/graph.c; graph_host.c where memory is the host's). */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "queues.h"

struct gm_graph {
    gm_device    *device;
    void         *made; /* the backend's; NULL until the recording has ended */
    int           nodes;
    gm_pool_part *part;
    gm_op_counter counters[GM_OP_COUNT]; /* while recording: those of the device before; then what a replay adds */
    gm_storage  **kept;                  /* a table by address; slots: a power of two, at most half of them used */
    size_t        n_kept, slots;
    bool          linked, ended;
    void         *attached;
    void (*release)(void *attached);
};

gm_status gm_device_can_capture(const gm_device *dev)
{
    if (!dev->backend->capture_begin)
        return GM_FAIL(GM_EINVAL, "the %s device has no graphs: it computes nothing", dev->backend->name);
    if (gm_profile_runs(dev)) return GM_FAIL(GM_EINVAL, "a profile is running, which times each op by itself");
    if (dev->journal && dev->backend->on_host)
        return GM_FAIL(GM_EINVAL, "the ops of this device are being written down one by one");
    return GM_OK;
}

/* ---- tensors that were there before ---- */

static gm_storage **slot_of(gm_storage **kept, size_t slots, const gm_storage *s)
{
    size_t i = ((uintptr_t)s >> 4) * 0x9E3779B97F4A7C15u >> 20 & (slots - 1);
    while (kept[i] && kept[i] != s) i = (i + 1) & (slots - 1);
    return &kept[i];
}

static gm_status grow(gm_graph *g)
{
    size_t       slots = g->slots ? 2 * g->slots : 256;
    gm_storage **kept = calloc(slots, sizeof(gm_storage *));
    if (!kept) return GM_FAIL(GM_ENOMEM, "no memory for the list of a graph's tensors");
    for (size_t i = 0; i < g->slots; i++)
        if (g->kept[i]) *slot_of(kept, slots, g->kept[i]) = g->kept[i];
    free(g->kept);
    g->kept = kept;
    g->slots = slots;
    return GM_OK;
}

static gm_status keep(gm_graph *g, const gm_tensor *t)
{
    if (!t || gm_pool_part_has(g->part, t->storage->block)) return GM_OK;
    if (2 * g->n_kept >= g->slots) GM_TRY(grow(g));
    gm_storage **slot = slot_of(g->kept, g->slots, t->storage);
    if (*slot) return GM_OK;
    gm_storage_retain(*slot = t->storage);
    g->n_kept++;
    return GM_OK;
}

gm_status gm_graph_keep(gm_graph *g, const gm_call *call)
{
    for (int i = 0; i < call->n_in; i++) GM_TRY(keep(g, call->in[i]));
    for (int i = 0; i < call->n_out; i++) GM_TRY(keep(g, call->out[i]));
    return GM_OK;
}

/* ---- recording ---- */

void gm_graph_free(gm_graph *g)
{
    if (!g) return;
    if (g->release) g->release(g->attached);
    if (g->made) g->device->backend->graph_free(g->device, g->made);
    for (size_t i = 0; i < g->slots; i++)
        if (g->kept[i]) gm_storage_release(g->kept[i]);
    free(g->kept);
    gm_pool_part_free(g->device->pool, g->part);
    free(g);
}

gm_status gm_device_capture_begin(gm_device *dev)
{
    GM_TRY(gm_device_can_capture(dev));
    if (dev->capture) return GM_FAIL(GM_EINVAL, "a graph is being recorded on this device already");
    gm_graph *g = calloc(1, sizeof *g);
    if (!g) return GM_FAIL(GM_ENOMEM, "no memory for a graph");
    g->device = dev;
    memcpy(g->counters, dev->counters, sizeof g->counters);
    gm_pool_trim(dev->pool);
    gm_status st = gm_pool_part_new(dev->pool, &g->part);
    if (st == GM_OK) st = dev->backend->capture_begin(dev);
    if (st != GM_OK) {
        gm_graph_free(g);
        return st;
    }
    gm_pool_use(dev->pool, g->part);
    dev->capture = g;
    return GM_OK;
}

/* What was recorded has not run: the device's counters are those of before, the difference is a replay's. */
static void take_counters(gm_graph *g, gm_op_counter *now)
{
    for (int i = 0; i < GM_OP_COUNT; i++) {
        gm_op_counter before = g->counters[i];
        g->counters[i] = (gm_op_counter){now[i].calls - before.calls, now[i].flops - before.flops,
                                         now[i].bytes - before.bytes, now[i].products - before.products};
        now[i] = before;
    }
}

static gm_graph *stop_recording(gm_device *dev)
{
    gm_graph *g = dev->capture;
    dev->capture = NULL;
    gm_pool_use(dev->pool, NULL);
    take_counters(g, dev->counters);
    return g;
}

gm_status gm_device_capture_end(gm_device *dev, gm_graph **out)
{
    if (!dev->capture) return GM_FAIL(GM_EINVAL, "no graph is being recorded");
    gm_graph *g = stop_recording(dev);
    gm_status st = dev->backend->capture_end(dev, &g->made, &g->nodes);
    if (st == GM_OK) *out = g;
    else gm_graph_free(g);
    return st;
}

void gm_device_capture_drop(gm_device *dev)
{
    if (!dev->capture) return;
    gm_graph *g = stop_recording(dev);
    dev->backend->capture_drop(dev);
    gm_graph_free(g);
}

/* ---- running ---- */

gm_status gm_device_replay(gm_device *dev, gm_graph *g)
{
    if (dev->capture) return GM_FAIL(GM_EINVAL, "a graph cannot run while another is being recorded");
    GM_TRY(dev->backend->replay(dev, g->made));
    gm_pool_part_ran(dev->pool, g->part);
    for (int i = 0; i < GM_OP_COUNT; i++) {
        gm_op_counter *to = &dev->counters[i], *one = &g->counters[i];
        to->calls += one->calls;
        to->flops += one->flops;
        to->bytes += one->bytes;
        to->products += one->products;
    }
    return GM_OK;
}

/* ---- operations between devices ---- */

void gm_graph_link(gm_graph *g) { g->linked = true; }
bool gm_graph_is_linked(const gm_graph *g) { return g->linked; }
bool gm_graph_has_ended(const gm_graph *g) { return g->ended; }

void gm_graph_end(gm_graph *g)
{
    if (g->made && !g->ended) g->device->backend->queues->end_graph(g->device, g->made);
    g->ended = true;
}

void gm_graph_attach(gm_graph *g, void *data, void (*release)(void *data))
{
    g->attached = data;
    g->release = release;
}

void *gm_graph_attached(const gm_graph *g) { return g->attached; }

int    gm_graph_nodes(const gm_graph *g) { return g->nodes; }
size_t gm_graph_bytes(const gm_graph *g) { return gm_pool_part_reserved(g->part); }
