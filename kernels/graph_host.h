/* graph_host.h - graphs of devices whose memory is the host's (graph.h): the list of kernels with their arguments.
 *
 * What a recording keeps of a tensor is where its bytes are, not the tensor: bytes that are released in the recording
 * serve again in it, as they would if the ops ran. A replay goes down the list. It infers, allocates and checks nothing
 * again, so a model that is called in the same way many times costs the host a function call for each kernel. A replay
 * ends at the first kernel that fails; the error names the module and the op.
 *
 * The trap: bytes that the host writes or reads itself while it records are no part of the list. gm_host_open and
 * gm_device_read, _write and _copy refuse them, and gm_run refuses tensors whose bytes rest elsewhere. */
#ifndef GM_GRAPH_HOST_H
#define GM_GRAPH_HOST_H

#include "device.h"

/* The functions of a backend that is on the host: graph.h has the contracts. */
gm_status gm_host_capture_begin(gm_device *dev);
gm_status gm_host_capture_end(gm_device *dev, void **graph, int *nodes);
void      gm_host_capture_drop(gm_device *dev);
gm_status gm_host_replay(gm_device *dev, void *graph);
void      gm_host_graph_free(gm_device *dev, void *graph);

#define GM_HOST_GRAPHS                                                                                                \
    .capture_begin = gm_host_capture_begin, .capture_end = gm_host_capture_end, .capture_drop = gm_host_capture_drop, \
    .replay = gm_host_replay, .graph_free = gm_host_graph_free

/* For gm_run: records a checked call of a backend over the memory of the host. */
gm_status gm_host_record(gm_device *dev, gm_kernel kernel, const gm_call *call);
/* GM_EINVAL while the device records: `what` is work of the host. */
gm_status gm_host_is_free(const gm_device *dev, const char *what);

#endif
