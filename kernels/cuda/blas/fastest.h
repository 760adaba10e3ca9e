/* fastest.h - finds which of several ways to do the same work takes the least time on this device. */
#ifndef GM_CUDA_FASTEST_H
#define GM_CUDA_FASTEST_H

#include "../runtime/cuda.h"

/* Times n ways to do the same work. queue(context, i) queues way i on the device's stream. Each way runs once to warm
 * up, and then a few times between two events. *best: the way that took the least time. The host waits for the device;
 * do not call this while a graph is being captured. */
gm_status gm_cuda_fastest(gm_device *dev, int n, gm_status (*queue)(void *context, int i), void *context, int *best);

#endif
