/* driver.c - see driver.h. The table of the driver's functions is filled once a process and then only read. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "counts.h"

#define OLDEST 13000 /* CUDA 13.0: the toolkit that kernels are compiled with */

#define DRIVER "libcuda.so.1"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x) /* the versioned name */

static gm_driver       driver;
static bool            loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static gm_status find_functions(void *library, gm_driver *d)
{
    void *symbol;
#define GM_DRIVER(name)                                                                                             \
    if (!(symbol = dlsym(library, TEXT(name))))                                                                     \
        return GM_FAIL(                                                                                             \
            GM_EINVAL,                                                                                              \
            "%s has no function " TEXT(name) "; install a newer NVIDIA driver, or train on the CPU (--device cpu)", \
            d->path);                                                                                               \
    memcpy(&d->name, &symbol, sizeof symbol);
#include "driver_functions.def"
#undef GM_DRIVER
    return GM_OK;
}

static gm_status start_driver(const gm_driver *d)
{
    int      version = 0;
    CUresult r = d->cuInit(0);
    if (r == CUDA_ERROR_NO_DEVICE)
        return GM_FAIL(GM_EINVAL, "the NVIDIA driver (%s) finds no GPU here; train on the CPU (--device cpu)", d->path);
    if (r != CUDA_SUCCESS) {
        const char *name = "an unknown error";
        d->cuGetErrorName(r, &name);
        return GM_FAIL(GM_EINVAL, "the NVIDIA driver (%s) does not start: %s; nvidia-smi may say why", d->path, name);
    }
    if (d->cuDriverGetVersion(&version) != CUDA_SUCCESS || version < OLDEST)
        return GM_FAIL(GM_EINVAL, "the NVIDIA driver (%s) is for CUDA %d.%d, 13.0 is the oldest that serves", d->path,
                       version / 1000, version % 1000 / 10);
    return GM_OK;
}

/* Did the variable name it? */
static bool choose(char *path, size_t size, const char *variable, const char *usual)
{
    const char *named = getenv(variable);
    bool        is_named = named && *named;
    snprintf(path, size, "%s", is_named ? named : usual);
    return is_named;
}

static gm_status load(gm_driver *d)
{
    choose(d->path, sizeof d->path, "GANYMEDE_CUDA_DRIVER", DRIVER);
    choose(d->blas, sizeof d->blas, "GANYMEDE_CUDA_BLAS", "libcublasLt.so.13");
    d->dnn_named = choose(d->dnn, sizeof d->dnn, "GANYMEDE_CUDA_DNN", "libcudnn_graph.so.9");
    void *library = dlopen(d->path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return GM_FAIL(GM_EINVAL,
                       "there is no NVIDIA driver here (%s); install it on a machine with a GPU, or train on the CPU "
                       "(--device cpu)",
                       dlerror());
    GM_TRY(find_functions(library, d));
    GM_TRY(start_driver(d));
    gm_cuda_count_calls(d);
    return GM_OK;
}

gm_status gm_cuda_driver(const gm_driver **out)
{
    gm_status st = GM_OK;
    pthread_mutex_lock(&lock);
    if (!loaded) loaded = (st = load(&driver)) == GM_OK;
    pthread_mutex_unlock(&lock);
    *out = &driver;
    return st;
}

gm_status gm_cuda_failed(CUresult r, const char *file, int line, const char *what)
{
    const char *name = NULL, *words = NULL;
    driver.cuGetErrorName(r, &name);
    driver.cuGetErrorString(r, &words);
    return gm_fail(r == CUDA_ERROR_OUT_OF_MEMORY ? GM_ENOMEM : GM_EIO, file, line, "the GPU failed: %s (%s) in %s",
                   name ? name : "an unknown error", words ? words : "no words for it", what);
}

/* ---- what there is ---- */

static gm_status count_devices(const gm_driver **d, int *n)
{
    GM_TRY(gm_cuda_driver(d));
    GM_CU(*d, cuDeviceGetCount(n));
    return *n ? GM_OK : GM_FAIL(GM_EINVAL, "the NVIDIA driver finds no GPU here; train on the CPU (--device cpu)");
}

gm_status gm_cuda_probe(void)
{
    int              n;
    const gm_driver *d;
    return count_devices(&d, &n);
}

static gm_status describe(const gm_driver *d, CUdevice device, char *buf, size_t size)
{
    char   name[96];
    int    major, minor;
    size_t bytes;
    GM_CU(d, cuDeviceGetName(name, sizeof name, device));
    GM_CU(d, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    GM_CU(d, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    GM_CU(d, cuDeviceTotalMem(&bytes, device));
    snprintf(buf, size, "%s, sm_%d%d, %.0f GiB", name, major, minor, (double)bytes / (1 << 30));
    return GM_OK;
}

char *gm_cuda_describe(const gm_device *dev, char *buf, size_t size)
{
    const gm_cuda *cu = gm_cuda_of(dev);
    if (describe(cu->driver, cu->device, buf, size) != GM_OK) snprintf(buf, size, "a GPU that does not say its name");
    size_t n = strlen(buf);
    if (strcmp(cu->driver->path, DRIVER)) snprintf(buf + n, size - n, ", by the driver %s", cu->driver->path);
    return buf;
}

char *gm_cuda_identify(const gm_device *dev, char *buf, size_t size)
{
    const gm_cuda *cu = gm_cuda_of(dev);
    CUuuid         id;
    size_t         n = (size_t)snprintf(buf, size, "GPU-");
    if (cu->driver->cuDeviceGetUuid(&id, cu->device) != CUDA_SUCCESS) n = 0;
    buf[n] = 0;
    for (size_t i = 0; n && i < sizeof id.bytes && n + 4 < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              (unsigned char)id.bytes[i]);
    return buf;
}

static void add_fact(gm_device_fact *out, int n, int *found, const char *name, bool there, const char *text)
{
    if (*found == n) return;
    gm_device_fact *f = &out[(*found)++];
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->text, sizeof f->text, "%.*s", (int)sizeof f->text - 1, text);
    f->found = there;
}

/* Says which cuDNN it is. One that is too old is there, but of no use. */
static void add_version(gm_device_fact *f, void *library)
{
    size_t (*version)(void);
    void *symbol = dlsym(library, "cudnnGetVersion");
    if (!symbol) return;
    memcpy(&version, &symbol, sizeof version);
    const size_t v = version(), n = strlen(f->text);
    f->found = v >= GM_DNN_OLDEST;
    snprintf(f->text + n, sizeof f->text - n, " is cuDNN %zu.%zu.%zu%s", v / 10000, v / 100 % 100, v % 100,
             f->found ? "" : ", which is too old: attention runs on our own kernel, slower");
}

/* A library that ops load when they need it: can it be loaded? It stays: what it took at its start it never gives
 * back, so that closing it would lose memory. */
static void add_library(gm_device_fact *out, int n, int *found, const char *name, const char *file)
{
    if (!strcmp(file, "none")) {
        add_fact(out, n, found, name, false, "turned off: the environment names none");
        return;
    }
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    add_fact(out, n, found, name, library != NULL, library ? file : dlerror());
    if (library && !strcmp(name, "cudnn")) add_version(&out[*found - 1], library);
    if (library) dlclose(library);
}

int gm_cuda_facts(gm_device_fact *out, int n)
{
    int              found = 0, devices = 0, version = 0;
    char             text[200];
    const gm_driver *d;
    bool             there = gm_cuda_driver(&d) == GM_OK;
    if (there) {
        d->cuDriverGetVersion(&version);
        snprintf(text, sizeof text, "%.120s, for CUDA %d.%d", d->path, version / 1000, version % 1000 / 10);
    }
    add_fact(out, n, &found, "driver", there, there ? text : gm_last_error());
    if (there && d->cuDeviceGetCount(&devices) == CUDA_SUCCESS)
        for (int i = 0; i < devices; i++) {
            CUdevice device;
            bool known = d->cuDeviceGet(&device, i) == CUDA_SUCCESS && describe(d, device, text, sizeof text) == GM_OK;
            add_fact(out, n, &found, "device", known, known ? text : gm_last_error());
        }
    add_library(out, n, &found, "cublaslt", driver.blas);
    add_library(out, n, &found, "cudnn", driver.dnn);
    return found;
}
