/* fake_driver.c - see fake_driver.h. */
#include "fake_driver.h"

#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulate.h"
#include "emulator.h"
#include "fake_memory.h"
#include "fake_task.h"

#define SHARED_MOST (227 << 10)

static struct {
    pthread_mutex_t lock;
    gm_fake_counts  counts;
    FILE           *record;
    bool            asked_for_record;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

void gm_fake_enter(void) { pthread_mutex_lock(&fake.lock); }

CUresult gm_fake_leave(CUresult r)
{
    pthread_mutex_unlock(&fake.lock);
    return r;
}

static void     enter(void) { gm_fake_enter(); }
static CUresult leave(CUresult r) { return gm_fake_leave(r); }

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

void gm_fake_run(const gm_fake_task *t, char *error, size_t size)
{
    char wrong[480] = "";
    switch (t->kind) {
    case GM_FAKE_COPY: memmove(t->to, t->from, t->bytes); return;
    case GM_FAKE_SET: memset(t->to, t->byte, t->bytes); return;
    case GM_FAKE_RECORD:
    case GM_FAKE_AWAIT:
    case GM_FAKE_GRAPH: return; /* fake_stream.c */
    case GM_FAKE_CALL:
        if (!error[0]) t->call.run(t->call.context, error, size);
        gm_fake_check_guards("a library", error, size);
        return;
    case GM_FAKE_LAUNCH:
        if (!error[0] && gm_emulated_launch(t->kernel, &t->grid, t->args, wrong, sizeof wrong))
            snprintf(error, size, "%s", wrong);
        gm_fake_check_guards(t->kernel->name, error, size);
    }
}

void gm_fake_drop(const gm_fake_task *t)
{
    if (t->kind == GM_FAKE_LAUNCH) free(t->args);
    if (t->kind == GM_FAKE_CALL) t->call.drop(t->call.context);
    if (t->kind == GM_FAKE_GRAPH) gm_fake_end_launch(t->launch);
}

void gm_fake_line(const char *text) { note("%s", text); }

void gm_fake_count_wait(void)
{
    fake.counts.waits++;
    note("wait");
}

void gm_fake_count_graph(int nodes)
{
    fake.counts.graphs++;
    fake.counts.nodes += (uint64_t)nodes;
}

int gm_fake_queue(void *stream, const char *line, gm_fake_call call)
{
    gm_fake_task t = {.kind = GM_FAKE_CALL, .call = call};
    if (!stream) {
        call.drop(call.context);
        return CUDA_ERROR_INVALID_VALUE;
    }
    enter();
    fake.counts.products++;
    note("%s", line);
    return (int)leave(gm_fake_put(stream, t));
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
    *out = r == CUDA_ERROR_LAUNCH_FAILED ? gm_fake_words() : "said by the emulation";
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

/* "GPU-00000000-0000-0000-0000-000000000001" for the second. */
CUresult cuDeviceGetUuid(CUuuid *id, CUdevice device)
{
    memset(id, 0, sizeof *id);
    id->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

/* GANYMEDE_FAKE_CUDA_CAPABILITY: 10 times the compute capability; else 90. */
static int capability(void)
{
    const char *other = getenv("GANYMEDE_FAKE_CUDA_CAPABILITY");
    return other ? atoi(other) : 90;
}

/* Few multiprocessors: loops over the grid have to go round. */
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = capability() / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = capability() % 10; break;
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

static _Thread_local CUcontext current;

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = (CUdevice)(uintptr_t)current - 1;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- kernels ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    if (getenv("GANYMEDE_CUDA_NO_IMAGES")) return CUDA_ERROR_INVALID_IMAGE; /* as the real one, of an empty image */
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
    if (!stream || !x || !y || !z || x > 0x7fffffffu || y > 65535 || z > 65535 || by != 1 || bz != 1 || !bx ||
        bx > 1024 || extra || shared > SHARED_MOST || kernel->args > 4096)
        return CUDA_ERROR_INVALID_VALUE;
    void *args = malloc(kernel->args);
    if (!args) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(args, params[0], kernel->args);
    enter();
    fake.counts.launches++;
    fake.counts.blocks += (uint64_t)x * y * z;
    note("launch %s %u %u %u %u %u", kernel->name, x, y, z, bx, shared);
    return leave(gm_fake_put(
        stream,
        (gm_fake_task){.kind = GM_FAKE_LAUNCH, .kernel = kernel, .grid = {x, y, z, (int)bx, shared}, .args = args}));
}

/* What a GPU refuses is refused: strides and addresses that are no multiples of 16, boxes that do not fit the
 * swizzle. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *data,
                                const cuuint64_t *size, const cuuint64_t *step, const cuuint32_t *box,
                                const cuuint32_t *each, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)promotion;
    bool       of_16 = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    cuuint32_t row = swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 0;
    if (!of_16 || rank != 2 || !row || box[0] * 2 != row || !box[1] || box[1] > 256 || each[0] != 1 || each[1] != 1 ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || !size[0] ||
        !size[1] || size[0] > UINT32_MAX || size[1] > UINT32_MAX || step[0] % 16 || step[0] >= (cuuint64_t)1 << 40 ||
        (uintptr_t)data % 16 || (uintptr_t)map % 64)
        return CUDA_ERROR_INVALID_VALUE;
    const gm_emulated_map made = {data, {(int64_t)size[0], (int64_t)size[1]}, (int64_t)step[0], {box[0], box[1]}};
    memset(map, 0, sizeof *map);
    memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}

/* ---- memory, as the driver has it ---- */

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    void *p = NULL;
    enter();
    CUresult r = gm_fake_refuse_unsafe();
    if (r == CUDA_SUCCESS) r = gm_fake_take(bytes, &p);
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
    if (gm_fake_refuse_unsafe() != CUDA_SUCCESS) return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    gm_fake_run_all();
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
    CUresult r = gm_fake_refuse_unsafe();
    return leave(r == CUDA_SUCCESS ? gm_fake_take_pinned(bytes, out) : r);
}

CUresult cuMemFreeHost(void *p)
{
    enter();
    gm_fake_run_all();
    int i = gm_fake_find(&gm_fake_pinned, p);
    if (i < 0) return leave(CUDA_ERROR_INVALID_VALUE);
    gm_fake_forget(&gm_fake_pinned, i);
    free((char *)p - 256);
    return leave(CUDA_SUCCESS);
}

static CUresult copy(CUstream stream, const char *what, uint64_t *count, void *to, bool to_device, const void *from,
                     bool from_device, size_t bytes)
{
    if (!stream || !gm_fake_inside(to_device ? &gm_fake_device : &gm_fake_pinned, to, bytes) ||
        !gm_fake_inside(from_device ? &gm_fake_device : &gm_fake_pinned, from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    ++*count;
    note("%s %zu", what, bytes);
    return gm_fake_put(stream, (gm_fake_task){.kind = GM_FAKE_COPY, .to = to, .from = from, .bytes = bytes});
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    enter();
    fake.counts.to_device_bytes += bytes;
    return leave(copy(stream, "to_device", &fake.counts.to_device, (void *)(uintptr_t)to, true, from, false, bytes));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    enter();
    fake.counts.to_host_bytes += bytes;
    return leave(copy(stream, "to_host", &fake.counts.to_host, to, false, (void *)(uintptr_t)from, true, bytes));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    enter();
    return leave(copy(stream, "copy", &fake.counts.on_device, (void *)(uintptr_t)to, true, (void *)(uintptr_t)from,
                      true, bytes));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)
{
    enter();
    if (!stream || !gm_fake_inside(&gm_fake_device, (void *)(uintptr_t)to, bytes))
        return leave(CUDA_ERROR_INVALID_VALUE);
    fake.counts.sets++;
    note("set %zu", bytes);
    return leave(gm_fake_put(
        stream, (gm_fake_task){.kind = GM_FAKE_SET, .to = (void *)(uintptr_t)to, .byte = byte, .bytes = bytes}));
}
