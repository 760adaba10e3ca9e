/* memory.c - the bytes of a device: allocation for its pool, copies, and the step block (cuda.h). Only reads,
 * synchronize, and writes that find all staging memory in use wait for the device. */
#include "../../memory.h"

#include <stdio.h>
#include <string.h>
#include "driver.h"
#include "graph.h"

static CUdeviceptr address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

/* The pool keeps to the one stream, so a block may be taken again while work that used it is still queued. */
gm_status gm_cuda_take(void *device, size_t bytes, void **out)
{
    gm_cuda    *cu;
    CUdeviceptr p;
    GM_TRY(gm_cuda_enter(device, &cu));
    CUresult r = cu->driver->cuMemAlloc(&p, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) return GM_FAIL(GM_ENOMEM, "the GPU has no %zu bytes left", bytes);
    if (r != CUDA_SUCCESS) return gm_cuda_failed(r, __FILE__, __LINE__, "cuMemAlloc");
    *out = (void *)(uintptr_t)p;
    return GM_OK;
}

/* cuMemFree waits for the device, so nothing queued loses its bytes. */
void gm_cuda_give(void *device, void *p, size_t bytes)
{
    gm_cuda *cu;
    (void)bytes;
    if (gm_cuda_enter(device, &cu) != GM_OK) return;
    gm_cuda_wait_for_links(device, cu);
    cu->driver->cuMemFree(address(p));
}

gm_status gm_cuda_scratch(gm_device *dev, size_t bytes, void **data, gm_block **block)
{
    return gm_pool_alloc_scratch(dev->pool, bytes, data, block);
}

/* A piece that no copy uses any more. */
static gm_status next_pinned(gm_device *dev, gm_cuda *cu, gm_pinned *ring, unsigned n, unsigned *next, gm_pinned **out)
{
    gm_pinned *p = *out = &ring[(*next)++ % n];
    if (p->busy) GM_TRY(gm_cuda_wait_event(dev, cu, p->done));
    p->busy = false;
    return GM_OK;
}

static gm_status in_use(gm_cuda *cu, gm_pinned *p)
{
    GM_CU(cu->driver, cuEventRecord(p->done, cu->stream));
    p->busy = true;
    return GM_OK;
}

/* One more piece where the next one is still in use: a write waits for nobody until there are GM_CUDA_STAGING. A host
 * that is a step ahead of the device has the uploads of two steps under way. */
static gm_status more_staging(gm_cuda *cu)
{
    gm_pinned *next = &cu->staging[cu->next_staging % cu->n_staging], *last = &cu->staging[cu->n_staging];
    if (!next->busy || cu->n_staging == GM_CUDA_STAGING) return GM_OK;
    CUresult r = cu->driver->cuEventQuery(next->done);
    if (r == CUDA_SUCCESS) next->busy = false;
    if (r != CUDA_ERROR_NOT_READY) return r == CUDA_SUCCESS ? GM_OK : gm_cuda_failed(r, __FILE__, __LINE__, "a copy");
    GM_TRY(gm_cuda_new_pinned(cu, last, GM_CUDA_PIECE));
    cu->next_staging = (unsigned)(next - cu->staging); /* the new piece takes the place of the one in use */
    gm_pinned busy = *next;
    *next = *last;
    *last = busy;
    cu->n_staging++;
    return GM_OK;
}

gm_status gm_cuda_read(gm_device *dev, void *host, const void *device, size_t bytes)
{
    gm_cuda *cu;
    char     what[64];
    GM_TRY(gm_cuda_enter(dev, &cu));
    snprintf(what, sizeof what, "reading %zu bytes", bytes);
    GM_TRY(gm_cuda_outside_graph(dev, what));
    for (size_t done = 0; done < bytes;) {
        gm_pinned *p;
        size_t     n = bytes - done < GM_CUDA_PIECE ? bytes - done : GM_CUDA_PIECE;
        GM_TRY(next_pinned(dev, cu, cu->staging, cu->n_staging, &cu->next_staging, &p));
        GM_CU(cu->driver, cuMemcpyDtoHAsync(p->data, address(device) + done, n, cu->stream));
        GM_TRY(gm_cuda_ask_refusal(cu));
        GM_TRY(gm_cuda_wait(dev, cu));
        GM_TRY(gm_cuda_hear_refusal(cu));
        memcpy((char *)host + done, p->data, n);
        done += n;
    }
    return GM_OK;
}

/* Into a graph: from memory that stays. */
static gm_status write_in_graph(gm_device *dev, gm_cuda *cu, void *device, const void *host, size_t bytes)
{
    void *pinned;
    GM_TRY(gm_cuda_graph_bytes(dev, host, bytes, &pinned));
    GM_CU(cu->driver, cuMemcpyHtoDAsync(address(device), pinned, bytes, cu->stream));
    return GM_OK;
}

gm_status gm_cuda_write(gm_device *dev, void *device, const void *host, size_t bytes)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (cu->graph) return write_in_graph(dev, cu, device, host, bytes);
    for (size_t done = 0; done < bytes;) {
        gm_pinned *p;
        size_t     n = bytes - done < GM_CUDA_PIECE ? bytes - done : GM_CUDA_PIECE;
        GM_TRY(more_staging(cu));
        GM_TRY(next_pinned(dev, cu, cu->staging, cu->n_staging, &cu->next_staging, &p));
        memcpy(p->data, (const char *)host + done, n);
        GM_CU(cu->driver, cuMemcpyHtoDAsync(address(device) + done, p->data, n, cu->stream));
        GM_TRY(in_use(cu, p));
        done += n;
    }
    return GM_OK;
}

gm_status gm_cuda_copy(gm_device *dev, void *to, const void *from, size_t bytes)
{
    gm_cuda *cu;
    if (!bytes || to == from) return GM_OK;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_CU(cu->driver, cuMemcpyDtoDAsync(address(to), address(from), bytes, cu->launches));
    return GM_OK;
}

gm_status gm_cuda_fill(gm_device *dev, void *to, int byte, size_t bytes)
{
    gm_cuda *cu;
    if (!bytes) return GM_OK;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_CU(cu->driver, cuMemsetD8Async(address(to), (unsigned char)byte, bytes, cu->launches));
    return GM_OK;
}

gm_status gm_cuda_synchronize(gm_device *dev)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    GM_TRY(gm_cuda_outside_graph(dev, "waiting for the device"));
    GM_TRY(gm_cuda_ask_refusal(cu));
    GM_TRY(gm_cuda_wait(dev, cu));
    return gm_cuda_hear_refusal(cu);
}

/* Field by field: padding need not be equal. */
bool gm_cuda_same_step(const gm_step_block *a, const gm_step_block *b)
{
    return a->rng_step == b->rng_step && a->step == b->step && a->lr == b->lr && a->clip == b->clip &&
           a->loss_scale == b->loss_scale && a->momentum == b->momentum && a->has_momentum == b->has_momentum;
}

gm_status gm_cuda_step(gm_device *dev, const gm_step_block **on_device)
{
    gm_cuda   *cu;
    gm_pinned *p;
    GM_TRY(gm_cuda_enter(dev, &cu));
    *on_device = (const gm_step_block *)(uintptr_t)cu->step;
    if (cu->graph) return gm_cuda_graph_step(dev);
    if (cu->has_step && gm_cuda_same_step(&cu->step_sent, &dev->step)) return GM_OK;
    GM_TRY(next_pinned(dev, cu, cu->steps, GM_CUDA_STEPS, &cu->next_step, &p));
    memcpy(p->data, &dev->step, sizeof dev->step);
    GM_CU(cu->driver, cuMemcpyHtoDAsync(cu->step, p->data, sizeof dev->step, cu->stream));
    GM_TRY(in_use(cu, p));
    cu->step_sent = dev->step;
    cu->has_step = true;
    return GM_OK;
}
