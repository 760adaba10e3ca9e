/* profile.c - stamps on the device's stream, and the time between two of them, for profiles (kernels/profile.h). Stamps
 * are events that keep their time; marks (transfer.c) do not. */
#include "profile.h"

#include "driver.h"

gm_status gm_cuda_stamp(gm_device *dev, void **stamp)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (!*stamp) {
        CUevent event;
        GM_CU(cu->driver, cuEventCreate(&event, CU_EVENT_DEFAULT));
        *stamp = event;
    }
    GM_CU(cu->driver, cuEventRecord(*stamp, cu->stream));
    return GM_OK;
}

gm_status gm_cuda_elapsed(gm_device *dev, void *from, void *to, double *seconds)
{
    gm_cuda *cu;
    float    milliseconds;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(gm_cuda_wait_event(dev, cu, to));
    GM_CU(cu->driver, cuEventElapsedTime(&milliseconds, from, to));
    *seconds = 1e-3 * (double)milliseconds;
    return GM_OK;
}
