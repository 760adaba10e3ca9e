/* counts.c - see counts.h. The driver is one a process, and so are these counts; devices do not tell them apart. */
#include "counts.h"

#include <stdatomic.h>

static gm_driver real; /* set once, before any call */

static struct {
    _Atomic uint64_t launches, libraries, graphs, copies, waits, allocations;
} counted;

static void add(_Atomic uint64_t *n) { atomic_fetch_add_explicit(n, 1, memory_order_relaxed); }

static CUresult launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, CUstream stream, void **params, void **extra)
{
    add(&counted.launches);
    return real.cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, params, extra);
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    add(&counted.copies);
    return real.cuMemcpyHtoDAsync(to, from, bytes, stream);
}

static CUresult to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    add(&counted.copies);
    return real.cuMemcpyDtoHAsync(to, from, bytes, stream);
}

static CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    add(&counted.copies);
    return real.cuMemcpyDtoDAsync(to, from, bytes, stream);
}

static CUresult set(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)
{
    add(&counted.copies);
    return real.cuMemsetD8Async(to, byte, bytes, stream);
}

static CUresult wait_for_stream(CUstream stream)
{
    add(&counted.waits);
    return real.cuStreamSynchronize(stream);
}

/* An event that has been passed keeps nobody waiting. */
static CUresult wait_for_event(CUevent event)
{
    if (real.cuEventQuery(event) == CUDA_SUCCESS) return CUDA_SUCCESS;
    add(&counted.waits);
    return real.cuEventSynchronize(event);
}

static CUresult take(CUdeviceptr *out, size_t bytes)
{
    add(&counted.allocations);
    return real.cuMemAlloc(out, bytes);
}

static CUresult launch_graph(CUgraphExec graph, CUstream stream)
{
    add(&counted.graphs);
    return real.cuGraphLaunch(graph, stream);
}

void gm_cuda_count_calls(gm_driver *driver)
{
    real = *driver;
    driver->cuLaunchKernel = launch;
    driver->cuMemcpyHtoDAsync = to_device;
    driver->cuMemcpyDtoHAsync = to_host;
    driver->cuMemcpyDtoDAsync = on_device;
    driver->cuMemsetD8Async = set;
    driver->cuStreamSynchronize = wait_for_stream;
    driver->cuEventSynchronize = wait_for_event;
    driver->cuMemAlloc = take;
    driver->cuGraphLaunch = launch_graph;
}

void gm_cuda_count_library(void) { add(&counted.libraries); }

void gm_cuda_counts(const gm_device *dev, gm_device_counts *out)
{
    (void)dev;
    *out = (gm_device_counts){.launches = counted.launches,
                              .libraries = counted.libraries,
                              .graphs = counted.graphs,
                              .copies = counted.copies,
                              .waits = counted.waits,
                              .allocations = counted.allocations};
}
