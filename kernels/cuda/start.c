/* start.c - opens and closes a device: the primary context, one stream, the modules of kernels, and the memory through
 * which copies go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "blas/blas.h"
#include "dnn/dnn.h"
#include "runtime/driver.h"
#include "ops/optimizer/optimizer_table.h"
#include "products/choose.h"

static _Thread_local CUcontext current; /* of this thread, as far as this module has set it */

gm_status gm_cuda_enter(const gm_device *dev, gm_cuda **out)
{
    gm_cuda *cu = *out = gm_cuda_of(dev);
    if (current == cu->context) return GM_OK;
    GM_CU(cu->driver, cuCtxSetCurrent(cu->context));
    current = cu->context;
    return GM_OK;
}

gm_status gm_cuda_new_pinned(gm_cuda *cu, gm_pinned *p, size_t bytes)
{
    GM_CU(cu->driver, cuMemAllocHost(&p->data, bytes));
    GM_CU(cu->driver, cuEventCreate(&p->done, CU_EVENT_DISABLE_TIMING));
    return GM_OK;
}

static void free_pinned(gm_cuda *cu, gm_pinned *p)
{
    if (p->done) cu->driver->cuEventDestroy(p->done);
    if (p->data) cu->driver->cuMemFreeHost(p->data);
}

static gm_status load_kernels(gm_cuda *cu)
{
    cu->modules = calloc((size_t)gm_cuda_image_count + 1, sizeof *cu->modules);
    if (!cu->modules) return GM_FAIL(GM_ENOMEM, "no memory for the kernels' modules");
    for (int i = 0; i < gm_cuda_image_count; i++) {
        CUresult r = cu->driver->cuModuleLoadData(&cu->modules[i], gm_cuda_images[i].data);
        if (r != CUDA_SUCCESS && gm_cuda_images[i].end == NULL)
            return GM_FAIL(GM_EINVAL, "this build has no kernels for GPUs: ./ganymede run ... --device cuda compiles "
                                      "them where it finds nvcc and a GPU, cmake --preset cuda anywhere; or train on "
                                      "the CPU (--device cpu)");
        if (r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
            return GM_FAIL(GM_EINVAL,
                           "this build has no kernels for this GPU or this driver (%s): build with "
                           "-DGANYMEDE_CUDA_ARCHITECTURES=native, or install a newer driver",
                           gm_cuda_images[i].name);
        if (r != CUDA_SUCCESS) return gm_cuda_failed(r, __FILE__, __LINE__, gm_cuda_images[i].name);
        cu->n_modules++;
    }
    return GM_OK;
}

static gm_status fill(gm_cuda *cu, int ordinal)
{
    int devices = 0;
    GM_TRY(gm_cuda_driver(&cu->driver));
    const gm_driver *d = cu->driver;
    GM_CU(d, cuDeviceGetCount(&devices));
    if (ordinal >= devices)
        return GM_FAIL(GM_EINVAL, "there is no cuda:%d: the driver finds %d GPU%s (CUDA_VISIBLE_DEVICES?)", ordinal,
                       devices, devices == 1 ? "" : "s");
    GM_CU(d, cuDeviceGet(&cu->device, ordinal));
    GM_CU(d, cuDeviceGetAttribute(&cu->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cu->device));
    GM_CU(d, cuDeviceGetAttribute(&cu->shared_most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, cu->device));
    GM_CU(d, cuDevicePrimaryCtxRetain(&cu->context, cu->device));
    GM_CU(d, cuCtxSetCurrent(cu->context));
    current = cu->context;
    GM_CU(d, cuStreamCreate(&cu->stream, CU_STREAM_NON_BLOCKING));
    cu->launches = cu->stream;
    GM_TRY(gm_cuda_new_pinned(cu, &cu->staging[0], GM_CUDA_PIECE));
    cu->n_staging = 1;
    for (int i = 0; i < GM_CUDA_STEPS; i++) GM_TRY(gm_cuda_new_pinned(cu, &cu->steps[i], sizeof(gm_step_block)));
    GM_CU(d, cuMemAlloc(&cu->step, sizeof(gm_step_block)));
    GM_TRY(load_kernels(cu));
    GM_TRY(gm_blas_open(cu));
    return gm_dnn_open(cu);
}

gm_status gm_cuda_start(gm_device *dev, int ordinal)
{
    gm_cuda *cu = calloc(1, sizeof *cu);
    if (!cu) return GM_FAIL(GM_ENOMEM, "no memory for a CUDA device");
    dev->state = cu;
    return fill(cu, ordinal);
}

void gm_cuda_stop(gm_device *dev)
{
    gm_cuda *cu = gm_cuda_of(dev);
    if (!cu) return;
    const gm_driver *d = cu->driver;
    if (cu->context) {
        d->cuCtxSetCurrent(cu->context);
        if (cu->stream) d->cuStreamSynchronize(cu->stream);
        gm_dnn_stop(cu);
        gm_products_free(cu->products);
        gm_blas_free(cu->blas);
        gm_tables_free(dev);
        gm_cuda_free_tickets(cu);
        for (int i = 0; i < cu->n_modules; i++) d->cuModuleUnload(cu->modules[i]);
        for (int i = 0; i < GM_CUDA_STAGING; i++) free_pinned(cu, &cu->staging[i]);
        for (int i = 0; i < GM_CUDA_STEPS; i++) free_pinned(cu, &cu->steps[i]);
        if (cu->step) d->cuMemFree(cu->step);
        gm_cuda_forget_refusal(cu);
        if (cu->stream) d->cuStreamDestroy(cu->stream);
        d->cuCtxSetCurrent(NULL);
        d->cuDevicePrimaryCtxRelease(cu->device);
        current = NULL;
    }
    for (int i = 0; i < GM_CUDA_FUNCTIONS; i++) free(cu->functions[i].name);
    free(cu->modules);
    free(cu);
    dev->state = NULL;
}
