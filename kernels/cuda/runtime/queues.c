/* queues.c - further queues of a device (kernels/queues.h). A queue is a stream, and a ticket is a pair of events. The
 * streams have the highest priority, so that work for which other GPUs wait runs first. */
#include "../../queues.h"

#include <stdint.h>
#include <stdlib.h>
#include "driver.h"
#include "graph.h"

struct gm_queue {
    gm_device *dev;
    CUstream   stream;
};

struct gm_ticket {
    CUevent entered, left;
    bool    has_left;
};

/* ---- queues ---- */

static gm_status open_queue(gm_device *dev, gm_queue **out)
{
    gm_cuda *cu;
    CUstream stream;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_CU(cu->driver, cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, INT16_MIN));
    gm_queue *queue = calloc(1, sizeof *queue);
    if (!queue) {
        cu->driver->cuStreamDestroy(stream);
        return GM_FAIL(GM_ENOMEM, "no memory for a queue of the GPU");
    }
    *queue = (gm_queue){dev, stream};
    *out = queue;
    return GM_OK;
}

static void close_queue(gm_queue *queue)
{
    gm_cuda *cu;
    if (!queue) return;
    if (gm_cuda_enter(queue->dev, &cu) == GM_OK) cu->driver->cuStreamDestroy(queue->stream);
    free(queue);
}

static gm_status handle(gm_queue *queue, void **out)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(queue->dev, &cu));
    *out = queue->stream;
    return GM_OK;
}

/* ---- tickets ---- */

static gm_status new_events(gm_cuda *cu, gm_ticket *t)
{
    GM_CU(cu->driver, cuEventCreate(&t->entered, CU_EVENT_DISABLE_TIMING));
    GM_CU(cu->driver, cuEventCreate(&t->left, CU_EVENT_DISABLE_TIMING));
    return GM_OK;
}

static void free_ticket(gm_cuda *cu, gm_ticket *t)
{
    if (t->entered) cu->driver->cuEventDestroy(t->entered);
    if (t->left) cu->driver->cuEventDestroy(t->left);
    free(t);
}

static gm_status take_ticket(gm_cuda *cu, gm_ticket **out)
{
    if (cu->n_spare_tickets) {
        *out = cu->spare_tickets[--cu->n_spare_tickets];
        (*out)->has_left = false;
        return GM_OK;
    }
    gm_ticket *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for work beside the GPU's own");
    gm_status st = new_events(cu, t);
    if (st == GM_OK) *out = t;
    else free_ticket(cu, t);
    return st;
}

static void give(gm_device *dev, gm_ticket *t)
{
    gm_cuda *cu;
    if (!t || gm_cuda_enter(dev, &cu) != GM_OK) return;
    if (cu->n_spare_tickets < GM_CUDA_TICKETS) cu->spare_tickets[cu->n_spare_tickets++] = t;
    else free_ticket(cu, t);
}

void gm_cuda_free_tickets(gm_cuda *cu)
{
    while (cu->n_spare_tickets) free_ticket(cu, cu->spare_tickets[--cu->n_spare_tickets]);
}

static gm_status fork_ticket(gm_device *dev, gm_ticket **out)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(take_ticket(cu, out));
    GM_CU(cu->driver, cuEventRecord((*out)->entered, cu->stream));
    return GM_OK;
}

static gm_status enter(gm_device *dev, gm_ticket **out)
{
    GM_TRY(gm_cuda_outside_graph(dev, "a copy to or from the host beside the GPU's own work"));
    return fork_ticket(dev, out);
}

static gm_status follow(gm_queue *queue, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(queue->dev, &cu));
    GM_CU(cu->driver, cuStreamWaitEvent(queue->stream, t->entered, CU_EVENT_WAIT_DEFAULT));
    return GM_OK;
}

static gm_status leave_on(gm_device *dev, CUstream stream, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_CU(cu->driver, cuEventRecord(t->left, stream));
    t->has_left = true;
    return GM_OK;
}

static gm_status leave(gm_queue *queue, gm_ticket *t) { return leave_on(queue->dev, queue->stream, t); }
static gm_status leave_here(gm_device *dev, gm_ticket *t) { return leave_on(dev, gm_cuda_of(dev)->stream, t); }

static gm_status order(gm_device *dev, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_CU(cu->driver, cuStreamWaitEvent(cu->stream, t->left, CU_EVENT_WAIT_DEFAULT));
    return GM_OK;
}

static gm_status after(gm_queue *queue, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(queue->dev, &cu));
    GM_CU(cu->driver, cuStreamWaitEvent(queue->stream, t->left, CU_EVENT_WAIT_DEFAULT));
    return GM_OK;
}

static gm_status is_over(gm_cuda *cu, CUevent event, bool *over)
{
    CUresult r = cu->driver->cuEventQuery(event);
    *over = r == CUDA_SUCCESS;
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY) return GM_OK;
    return gm_cuda_failed(r, __FILE__, __LINE__, "work beside the GPU's own");
}

static gm_status passed(gm_device *dev, gm_ticket *t, bool *begun, bool *done)
{
    gm_cuda *cu;
    *begun = *done = false;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (t->has_left) GM_TRY(is_over(cu, t->left, done));
    *begun = *done;
    return *done ? GM_OK : is_over(cu, t->entered, begun);
}

static gm_status launch_on(gm_device *dev, gm_queue *queue, gm_ticket *t)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    cu->launches = queue ? queue->stream : cu->stream;
    return queue && t ? follow(queue, t) : GM_OK;
}

/* ---- copies ---- */

static CUdeviceptr address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

static gm_status copy_down(gm_queue *queue, void *pinned, const void *device, size_t bytes)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(queue->dev, &cu));
    if (bytes) GM_CU(cu->driver, cuMemcpyDtoHAsync(pinned, address(device), bytes, queue->stream));
    return GM_OK;
}

static gm_status copy_up(gm_queue *queue, void *device, const void *pinned, size_t bytes)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(queue->dev, &cu));
    if (bytes) GM_CU(cu->driver, cuMemcpyHtoDAsync(address(device), pinned, bytes, queue->stream));
    return GM_OK;
}

const gm_queues gm_cuda_queues = {
    .open = open_queue,
    .close = close_queue,
    .handle = handle,
    .enter = enter,
    .fork = fork_ticket,
    .follow = follow,
    .leave = leave,
    .leave_here = leave_here,
    .order = order,
    .after = after,
    .passed = passed,
    .give = give,
    .launch_on = launch_on,
    .copy_down = copy_down,
    .copy_up = copy_up,
    .end_graph = gm_cuda_graph_end,
};
