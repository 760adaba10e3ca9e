/* fastest.h - which of several ways to do the same work takes the least time on this device. */
#ifndef GM_CUDA_FASTEST_H
#define GM_CUDA_FASTEST_H

#include "../runtime/cuda.h"

/* queue(context, i) queues way i of n on the device's stream: each once to warm up, then a few times between two
 * events. *best: the way with the least time. The host waits; not to be called while a graph is captured. */
gm_status gm_cuda_fastest(gm_device *dev, int n, gm_status (*queue)(void *context, int i), void *context, int *best);

#endif
