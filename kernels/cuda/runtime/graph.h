/* graph.h - CUDA graphs: the backend's side of kernels/graph.h, and what other files of kernels/cuda call while a graph
 * is being captured (gm_cuda.graph is then not NULL).
 *
 * The capture is in relaxed mode, so that the pool can allocate memory from the driver meanwhile, and threads of NCCL,
 * which launch its kernels, can make what they need. Streams of queues join the capture by events (queues.c). */
#ifndef GM_CUDA_GRAPH_H
#define GM_CUDA_GRAPH_H

#include "driver.h"

gm_status gm_cuda_capture_begin(gm_device *dev);
gm_status gm_cuda_capture_end(gm_device *dev, void **graph, int *nodes);
void      gm_cuda_capture_drop(gm_device *dev);
gm_status gm_cuda_replay(gm_device *dev, void *graph);
void      gm_cuda_graph_end(gm_device *dev, void *graph); /* kernels/queues.h: end_graph */
void      gm_cuda_graph_free(gm_device *dev, void *graph);

/* For calls that cannot be part of a graph. what: "reading 8 bytes". GM_EINVAL while a graph is being captured: the
 * message says where in the model, and the end of the capture fails with the same message. Otherwise GM_OK. */
gm_status gm_cuda_outside_graph(gm_device *dev, const char *what);

/* During a capture: gives page-locked memory with a copy of bytes of the host; the graph owns it. */
gm_status gm_cuda_graph_bytes(gm_device *dev, const void *host, size_t bytes, void **pinned);
/* During a capture: gives device memory with bytes that no replay changes; the graph owns it. The bytes are copied
 * once, when the capture ends. */
gm_status gm_cuda_graph_constant(gm_device *dev, const void *host, size_t bytes, const void **on_device);
/* During a capture: says that a kernel reads the step block. GM_EINVAL: it is not the same as for earlier kernels of
 * this capture. */
gm_status gm_cuda_graph_step(gm_device *dev);

#endif
