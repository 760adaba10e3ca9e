/* fake_driver.c - see fake_driver.h. */
#include "fake_driver.h"

#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"
#include "fake_memory.h"

#define QUEUE       4096 /* what is queued runs at the latest when there is so much of it */
#define SHARED_MOST (227 << 10)

typedef enum kind { LAUNCH, COPY, SET } kind;

typedef struct task {
    kind                      kind;
    const gm_emulated_kernel *kernel;
    gm_emulated_grid          grid;
    void                     *to, *args;
    const void               *from;
    size_t                    bytes;
    unsigned char             byte;
} task;

static struct {
    pthread_mutex_t lock;
    task            queue[QUEUE];
    int             queued;
    gm_fake_counts  counts;
    char            error[512]; /* of a kernel, not reported yet */
    char            words[512]; /* what cuGetErrorString says of CUDA_ERROR_LAUNCH_FAILED */
    FILE           *record;
    bool            asked_for_record;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void enter(void) { pthread_mutex_lock(&fake.lock); }

static CUresult leave(CUresult r)
{
    pthread_mutex_unlock(&fake.lock);
    return r;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list args;
    if (!fake.asked_for_record) {
        const char *path = getenv("GANYMEDE_CUDA_RECORD");
        fake.asked_for_record = true;
        if (path && *path && !(fake.record = fopen(path, "a"))) {
            perror(path);
            abort();
        }
    }
    if (!fake.record) return;
    va_start(args, format);
    vfprintf(fake.record, format, args);
    va_end(args);
    fputc('\n', fake.record);
    fflush(fake.record);
}

const char *gm_fake_outside(const void *p, size_t bytes)
{
    enter();
    bool in = gm_fake_inside(&gm_fake_device, p, bytes);
    leave(CUDA_SUCCESS);
    return in ? NULL : "memory outside of every live allocation of the device";
}

/* ---- the queue ---- */

static void run_task(task *t)
{
    char error[480];
    if (t->kind == COPY) memmove(t->to, t->from, t->bytes);
    if (t->kind == SET) memset(t->to, t->byte, t->bytes);
    if (t->kind != LAUNCH) return;
    if (!fake.error[0] && gm_emulated_launch(t->kernel, &t->grid, t->args, error, sizeof error))
        snprintf(fake.error, sizeof fake.error, "%s", error);
    gm_fake_check_guards(t->kernel->name, fake.error, sizeof fake.error);
    free(t->args);
}

static void run_all(void)
{
    gm_fake_open(true);
    for (int i = 0; i < fake.queued; i++) run_task(&fake.queue[i]);
    fake.queued = 0;
    gm_fake_open(false);
}

static CUresult put(task t)
{
    if (fake.queued == QUEUE) run_all();
    fake.queue[fake.queued++] = t;
    return CUDA_SUCCESS;
}

static CUresult take_error(void)
{
    if (!fake.error[0]) return CUDA_SUCCESS;
    memcpy(fake.words, fake.error, sizeof fake.words);
    fake.error[0] = 0;
    return CUDA_ERROR_LAUNCH_FAILED;
}

/* What the host gets that waits. */
static CUresult wait_for_all(void)
{
    fake.counts.waits++;
    note("wait");
    run_all();
    return take_error();
}

void gm_fake_flush(void)
{
    enter();
    run_all();
    gm_fake_open(true);
    leave(CUDA_SUCCESS);
}

void gm_fake_note(const char *line)
{
    enter();
    fake.counts.products++;
    note("%s", line);
    leave(CUDA_SUCCESS);
}

void gm_fake_count(gm_fake_counts *out)
{
    enter();
    *out = fake.counts;
    leave(CUDA_SUCCESS);
}

/* ---- what the driver says of itself ---- */

static int devices(void)
{
    const char *text = getenv("GANYMEDE_CUDA_DEVICES");
    return text && *text ? atoi(text) : 1;
}

CUresult cuInit(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult r, const char **out)
{
    *out = r == CUDA_ERROR_LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
           : r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
           : r == CUDA_ERROR_NOT_FOUND     ? "CUDA_ERROR_NOT_FOUND"
           : r == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
           : r == CUDA_ERROR_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                           : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult r, const char **out)
{
    *out = r == CUDA_ERROR_LAUNCH_FAILED ? fake.words : "said by the emulation";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
    *n = devices();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "emulated GPU %d", device);
    return CUDA_SUCCESS;
}

/* Few multiprocessors: loops over the grid have to go round. */
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 2; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = SHARED_MOST; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = (size_t)16 << 30;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

/* ---- kernels ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    *module = (CUmodule)(uintptr_t)image;
    return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    *function = (CUfunction)(uintptr_t)gm_emulated_find(name);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    bool known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= SHARED_MOST;
    return function && known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    if (index) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    *size = ((const gm_emulated_kernel *)(const void *)function)->args;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **params, void **extra)
{
    const gm_emulated_kernel *kernel = (const void *)function;
    (void)stream;
    if (!x || !y || !z || x > 0x7fffffffu || y > 65535 || z > 65535 || by != 1 || bz != 1 || !bx || bx > 1024 ||
        extra || shared > SHARED_MOST || kernel->args > 4096)
        return CUDA_ERROR_INVALID_VALUE;
    void *args = malloc(kernel->args);
    if (!args) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(args, params[0], kernel->args);
    enter();
    fake.counts.launches++;
    fake.counts.blocks += (uint64_t)x * y * z;
    note("launch %s %u %u %u %u %u", kernel->name, x, y, z, bx, shared);
    return leave(put((task){.kind = LAUNCH, .kernel = kernel, .grid = {x, y, z, (int)bx, shared}, .args = args}));
}

/* ---- streams and events: one queue serves all ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = malloc(1);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamDestroy(CUstream stream)
{
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    enter();
    return leave(wait_for_all());
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, 1);
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)stream;
    *(char *)event = 1;
    return CUDA_SUCCESS;
}

/* The first answer is no, where something is queued: who does not ask again finds the work not done. */
CUresult cuEventQuery(CUevent event)
{
    bool fresh = *(char *)event;
    *(char *)event = 0;
    enter();
    if (fresh && fake.queued) return leave(CUDA_ERROR_NOT_READY);
    run_all();
    return leave(take_error());
}

/* The host waits only where something is queued. */
CUresult cuEventSynchronize(CUevent event)
{
    (void)event;
    enter();
    return leave(fake.queued ? wait_for_all() : CUDA_SUCCESS);
}

/* ---- memory, as the driver has it ---- */

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    void *p = NULL;
    enter();
    CUresult r = gm_fake_take(bytes, &p);
    gm_fake_open(false);
    if (r == CUDA_SUCCESS) {
        fake.counts.allocations++;
        fake.counts.live_bytes += bytes;
        note("allocate %zu", bytes);
    }
    *out = (CUdeviceptr)(uintptr_t)p;
    return leave(r);
}

CUresult cuMemFree(CUdeviceptr p)
{
    enter();
    run_all();
    int i = gm_fake_find(&gm_fake_device, (void *)(uintptr_t)p);
    if (i < 0) return leave(CUDA_ERROR_INVALID_VALUE);
    fake.counts.live_bytes -= gm_fake_device.list[i].bytes;
    fake.counts.frees++;
    note("free");
    gm_fake_open(true);
    gm_fake_forget(&gm_fake_device, i);
    gm_fake_open(false);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemAllocHost(void **out, size_t bytes)
{
    enter();
    return leave(gm_fake_take_pinned(bytes, out));
}

CUresult cuMemFreeHost(void *p)
{
    enter();
    run_all();
    int i = gm_fake_find(&gm_fake_pinned, p);
    if (i < 0) return leave(CUDA_ERROR_INVALID_VALUE);
    gm_fake_forget(&gm_fake_pinned, i);
    free((char *)p - 256);
    return leave(CUDA_SUCCESS);
}

static CUresult copy(const char *what, uint64_t *count, void *to, bool to_device, const void *from, bool from_device,
                     size_t bytes)
{
    if (!gm_fake_inside(to_device ? &gm_fake_device : &gm_fake_pinned, to, bytes) ||
        !gm_fake_inside(from_device ? &gm_fake_device : &gm_fake_pinned, from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    ++*count;
    note("%s %zu", what, bytes);
    return put((task){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)stream;
    enter();
    fake.counts.to_device_bytes += bytes;
    return leave(copy("to_device", &fake.counts.to_device, (void *)(uintptr_t)to, true, from, false, bytes));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    enter();
    fake.counts.to_host_bytes += bytes;
    return leave(copy("to_host", &fake.counts.to_host, to, false, (void *)(uintptr_t)from, true, bytes));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    enter();
    return leave(
        copy("copy", &fake.counts.on_device, (void *)(uintptr_t)to, true, (void *)(uintptr_t)from, true, bytes));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)
{
    (void)stream;
    enter();
    if (!gm_fake_inside(&gm_fake_device, (void *)(uintptr_t)to, bytes)) return leave(CUDA_ERROR_INVALID_VALUE);
    fake.counts.sets++;
    note("set %zu", bytes);
    return leave(put((task){.kind = SET, .to = (void *)(uintptr_t)to, .byte = byte, .bytes = bytes}));
}
