/* graph.h - work of a device that is recorded once and run again as one piece: CUDA's graphs.
 *
 *     GM_TRY(gm_device_capture_begin(dev));
 *     ... ops, as ever: they are recorded and do not run ...
 *     GM_TRY(gm_device_capture_end(dev, &graph));        // or gm_device_capture_drop, after an error between
 *     GM_TRY(gm_device_replay(dev, graph));              // as often as wanted
 *
 * What is recorded are kernels with their arguments, addresses included. So memory asked for while recording comes from
 * a part of the pool that is the graph's (memory.h) and holds the results of the last replay; tensors made before are
 * kept alive by the graph and are read and written where they are; host bytes that were written (gm_device_write) are
 * those of the recording; the step block is the device's at the time of the replay, and must not change in between.
 * What needs the host's answer in the middle cannot be recorded: reading, synchronizing, marks and copies that
 * nobody waits for. These are GM_EINVAL, saying what was asked for and where; the recording is then to be dropped,
 * and ending it fails with the same words.
 *
 * The trap: nothing of the host's own is recorded. Whoever replays does the bookkeeping of what the graph stands for;
 * the counters of ops are the exception. */
#ifndef GM_GRAPH_H
#define GM_GRAPH_H

#include "device.h"

typedef struct gm_graph gm_graph;

/* GM_EINVAL: this device has no graphs, with the reason. */
gm_status gm_device_can_capture(const gm_device *dev);
/* Gives the pool's idle blocks back first, so that memory of the same kind is not held twice. GM_EINVAL: not on this
 * device, or one is being recorded already. */
gm_status gm_device_capture_begin(gm_device *dev);
/* The recording, which the caller owns. On failure it is dropped. */
gm_status gm_device_capture_end(gm_device *dev, gm_graph **out);
void      gm_device_capture_drop(gm_device *dev); /* nothing where nothing is being recorded */

/* Queues all of it, behind the step block as it is now. Does not wait; errors of its kernels come out as others do. */
gm_status gm_device_replay(gm_device *dev, gm_graph *g);
void      gm_graph_free(gm_graph *g); /* before its device; NULL is allowed */

int    gm_graph_nodes(const gm_graph *g); /* kernels, copies and sets in it */
size_t gm_graph_bytes(const gm_graph *g); /* of device memory that it holds for itself */

/* For gm_run: the call's tensors stay where they are as long as the graph. */
gm_status gm_graph_keep(gm_graph *g, const gm_call *call);

#endif
