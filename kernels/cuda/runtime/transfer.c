/* transfer.c - see transfer.h. Copies go to the stream of the device. So they run after kernels that were queued before
 * them, and before those that are queued later. A mark is an event of this stream. */
#include "transfer.h"

#include "driver.h"
#include "graph.h"

static CUdeviceptr address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

gm_status gm_cuda_take_pinned(void *device, size_t bytes, void **out)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(device, &cu));
    CUresult r = cu->driver->cuMemAllocHost(out, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return GM_FAIL(
            GM_ENOMEM,
            "the driver cannot page-lock %zu bytes of host memory, through which messages of the GPU go and in "
            "which offload keeps what rests on the host; smaller batches or models need less, and other "
            "programs hold memory too",
            bytes);
    if (r != CUDA_SUCCESS) return gm_cuda_failed(r, __FILE__, __LINE__, "cuMemAllocHost");
    return GM_OK;
}

void gm_cuda_give_pinned(void *device, void *p, size_t bytes)
{
    gm_cuda *cu;
    (void)bytes;
    if (gm_cuda_enter(device, &cu) == GM_OK) cu->driver->cuMemFreeHost(p);
}

gm_status gm_cuda_read_later(gm_device *dev, void *pinned, const void *device, size_t bytes)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(gm_cuda_outside_graph(dev, "a copy to the host (a message of ranks, a number to be looked at later)"));
    GM_CU(cu->driver, cuMemcpyDtoHAsync(pinned, address(device), bytes, cu->stream));
    return GM_OK;
}

gm_status gm_cuda_write_later(gm_device *dev, void *device, const void *pinned, size_t bytes)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(gm_cuda_outside_graph(dev, "a copy from the host's memory (a message of ranks)"));
    GM_CU(cu->driver, cuMemcpyHtoDAsync(address(device), pinned, bytes, cu->stream));
    return GM_OK;
}

gm_status gm_cuda_mark(gm_device *dev, void **mark)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(gm_cuda_outside_graph(dev, "a mark that the host looks at"));
    if (!*mark) {
        CUevent event;
        GM_CU(cu->driver, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        *mark = event;
    }
    GM_CU(cu->driver, cuEventRecord(*mark, cu->stream));
    return GM_OK;
}

gm_status gm_cuda_passed(gm_device *dev, void *mark, bool *passed)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    CUresult r = cu->driver->cuEventQuery(mark);
    *passed = r == CUDA_SUCCESS;
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY) return GM_OK;
    return gm_cuda_failed(r, __FILE__, __LINE__, "cuEventQuery");
}

void gm_cuda_unmark(gm_device *dev, void *mark)
{
    gm_cuda *cu;
    if (gm_cuda_enter(dev, &cu) == GM_OK) cu->driver->cuEventDestroy(mark);
}
