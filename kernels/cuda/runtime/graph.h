/* graph.h - a step of the device's stream as one graph of CUDA: the backend's side of kernels/graph.h, and what the
 * other files of this folder ask it while a graph is being captured (gm_cuda.graph is then not NULL).
 *
 * The capture is in relaxed mode: memory may be taken from the driver meanwhile, which a graph's first step needs. */
#ifndef GM_CUDA_GRAPH_H
#define GM_CUDA_GRAPH_H

#include "driver.h"

gm_status gm_cuda_capture_begin(gm_device *dev);
gm_status gm_cuda_capture_end(gm_device *dev, void **graph, int *nodes);
void      gm_cuda_capture_drop(gm_device *dev);
gm_status gm_cuda_replay(gm_device *dev, void *graph);
void      gm_cuda_graph_free(gm_device *dev, void *graph);

/* While a graph is being captured: GM_EINVAL, for `what` ("reading 8 bytes") cannot be part of one; says where in
 * the model, and lets the capture end with the same words. Else GM_OK. */
gm_status gm_cuda_outside_graph(gm_device *dev, const char *what);

/* For a capture: page-locked memory with a copy of bytes of the host, which the graph keeps. */
gm_status gm_cuda_graph_bytes(gm_device *dev, const void *host, size_t bytes, void **pinned);
/* Bytes that no replay changes, in device memory that the graph keeps: copied there once, when the capture ended. */
gm_status gm_cuda_graph_constant(gm_device *dev, const void *host, size_t bytes, const void **on_device);
/* The step block is read from here on: it must be the same for all of a capture. */
gm_status gm_cuda_graph_step(gm_device *dev);

#endif
