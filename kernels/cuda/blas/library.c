/* library.c - see library.h. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static gm_blas_library lt;
static bool            loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static gm_status load(const char *path)
{
    void *symbol, *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return GM_FAIL(
            GM_EINVAL,
            "cannot load cuBLASLt (%s), which makes products on a GPU: install the libraries of CUDA 13, put their "
            "folder into LD_LIBRARY_PATH, do without (GANYMEDE_CUDA_BLAS=none, many times slower), or use --device cpu",
            dlerror());
#define GM_BLAS(name)                                                                                      \
    if (!(symbol = dlsym(library, #name)))                                                                 \
        return GM_FAIL(GM_EINVAL, "%s has no function " #name "; install the libraries of CUDA 13", path); \
    memcpy(&lt.name, &symbol, sizeof symbol);
#include "functions.def"
#undef GM_BLAS
    return GM_OK;
}

gm_status gm_blas_load(const char *path, const gm_blas_library **out)
{
    gm_status st = GM_OK;
    pthread_mutex_lock(&lock);
    if (!loaded) loaded = (st = load(path)) == GM_OK;
    pthread_mutex_unlock(&lock);
    *out = &lt;
    return st;
}
