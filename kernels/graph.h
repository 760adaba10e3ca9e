/* graph.h - graphs: work of a device that is recorded once and then run again as one piece (CUDA graphs; on a CPU a
 * list of kernels, graph_host.h).
 *
 *     GM_TRY(gm_device_capture_begin(dev));
 *     ... ops, as ever: they are recorded and do not run ...
 *     GM_TRY(gm_device_capture_end(dev, &graph));        // or gm_device_capture_drop, after an error between
 *     GM_TRY(gm_device_replay(dev, graph));              // as often as wanted
 *
 * A recording consists of kernels with their arguments, addresses included. This has four consequences:
 *   - Memory that is allocated during the recording comes from a part of the pool that belongs to the graph (memory.h).
 *     It holds the results of the last replay.
 *   - The graph keeps the tensors that existed before alive, and reads and writes them where they are.
 *   - Bytes of the host that were written (gm_device_write) are those of the recording. On a CPU this is refused.
 *   - The step block is the device's at the time of the replay. It must not change during the recording.
 * Work that needs an answer of the host cannot be recorded: reading, synchronizing, marks, and copies that nobody waits
 * for. Such a call returns GM_EINVAL and says what was asked for and where. The caller must then drop the recording; to
 * end it fails with the same message. Operations between devices (NCCL) can be recorded: host/comm/recorded.h.
 *
 * The trap: a recording contains no work of the host. Who replays a graph must do the bookkeeping for it. The counters
 * of ops are the exception: replay adds to them. */
#ifndef GM_GRAPH_H
#define GM_GRAPH_H

#include "device.h"

typedef struct gm_graph gm_graph;

/* GM_OK: this device can record graphs. GM_EINVAL: it cannot; the message gives the reason. */
gm_status gm_device_can_capture(const gm_device *dev);
/* Begins a recording. First gives the pool's idle blocks back to the system, because the graph takes blocks of its own.
 * GM_EINVAL: this device has no graphs, or a recording is under way already. */
gm_status gm_device_capture_begin(gm_device *dev);
/* Ends the recording and gives the graph, which the caller owns. On failure the recording is dropped. */
gm_status gm_device_capture_end(gm_device *dev, gm_graph **out);
void      gm_device_capture_drop(gm_device *dev); /* does nothing if nothing is being recorded */

/* Queues the work of the graph, with the step block as it is now. Does not wait. Errors of its kernels are reported as
 * those of other kernels are: by the next wait for the device. */
gm_status gm_device_replay(gm_device *dev, gm_graph *g);
void      gm_graph_free(gm_graph *g); /* call it before the device is freed; NULL is allowed */

/* Operations between devices in a graph (queues.h; host/comm/recorded.c). Whoever records one says so. Their links
 * cannot be freed while the recording exists, so who closes them ends the graph first; nobody waits. A graph that has
 * ended is not replayed any more (GM_EINVAL) and keeps its memory. */
void gm_graph_link(gm_graph *g);
bool gm_graph_is_linked(const gm_graph *g);
void gm_graph_end(gm_graph *g);
bool gm_graph_has_ended(const gm_graph *g);
/* Something that belongs to the graph: release(data) is called when the graph is freed. At most once for a graph. */
void  gm_graph_attach(gm_graph *g, void *data, void (*release)(void *data));
void *gm_graph_attached(const gm_graph *g); /* NULL: nothing */

int    gm_graph_nodes(const gm_graph *g); /* the number of kernels, copies and fills in it */
size_t gm_graph_bytes(const gm_graph *g); /* bytes of device memory that it holds for itself */

/* For gm_run: the graph keeps the tensors of the call alive as long as it lives. */
gm_status gm_graph_keep(gm_graph *g, const gm_call *call);

#endif
