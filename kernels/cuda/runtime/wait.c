/* wait.c - lets the host wait for the device. If operations between devices may be queued (gm_device.attend is set),
 * one of them might never end, because another rank died or made another call. Then nothing here blocks. The host asks
 * the stream again and again whether it is done, and in between calls gm_device.attend, which tells whether these
 * operations can still end. If they cannot, attend has stopped them, so that the work queued behind them can finish. */
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include "../../clock.h"
#include "driver.h"

#define DRAIN_SECONDS 10 /* that stopped operations get to leave the device */

/* Bounded spin, then short sleeps: ranks often share cores. */
static void pause_a_little(unsigned *turns)
{
    unsigned turn = (*turns)++;
    if (turn < 256) return;
    if (turn < 512) sched_yield();
    else nanosleep(&(struct timespec){0, turn < 4096 ? 20000 : 200000}, NULL);
}

/* How an error of the others ends a wait: what is queued runs out first, so that its memory can be used again. */
static gm_status drain(gm_cuda *cu, gm_status st)
{
    char     error[1100];
    unsigned turns = 0;
    snprintf(error, sizeof error, "%s", gm_last_error());
    const double end = gm_now() + DRAIN_SECONDS;
    do {
        if (cu->driver->cuStreamQuery(cu->stream) != CUDA_ERROR_NOT_READY) break;
        pause_a_little(&turns);
    } while (gm_now() < end);
    return gm_fail_again(st, error);
}

/* Until the event has passed, or the stream is through; where there is neither, until nothing between devices is
 * queued. */
static gm_status attend(gm_device *dev, gm_cuda *cu, CUevent event, CUstream stream)
{
    unsigned turns = 0;
    while (dev->attend) {
        bool     idle = true;
        CUresult r = CUDA_ERROR_NOT_READY;
        if (event) r = cu->driver->cuEventQuery(event);
        else if (stream) r = cu->driver->cuStreamQuery(stream);
        if (r == CUDA_SUCCESS) return GM_OK;
        if (r != CUDA_ERROR_NOT_READY) return gm_cuda_failed(r, __FILE__, __LINE__, "a wait for the device");
        gm_status st = dev->attend(dev->attend_context, &idle);
        if (st != GM_OK) return drain(cu, st);
        if (idle) return GM_OK;
        pause_a_little(&turns);
    }
    return GM_OK;
}

gm_status gm_cuda_wait(gm_device *dev, gm_cuda *cu)
{
    GM_TRY(attend(dev, cu, NULL, cu->stream));
    GM_CU(cu->driver, cuStreamSynchronize(cu->stream));
    return GM_OK;
}

gm_status gm_cuda_wait_event(gm_device *dev, gm_cuda *cu, CUevent event)
{
    GM_TRY(attend(dev, cu, event, NULL));
    GM_CU(cu->driver, cuEventSynchronize(event));
    return GM_OK;
}

void gm_cuda_wait_for_links(gm_device *dev, gm_cuda *cu) { (void)attend(dev, cu, NULL, NULL); }
