/* library.c - see library.h. */
#include "library.h"

#include <dlfcn.h>
#include <string.h>

#define REMEDY                                                                                                      \
    "; install cuDNN 9.19 or newer, name its libcudnn_graph in GANYMEDE_CUDA_DNN (none: attention runs on our own " \
    "kernel, slower), or use --device cpu"

gm_status gm_dnn_load(const char *path, gm_dnn_library *out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (!library) return GM_FAIL(GM_EINVAL, "there is no cuDNN here (%s)" REMEDY, dlerror());
#define GM_DNN(name)                                                                                            \
    if (!(symbol = dlsym(library, #name))) return GM_FAIL(GM_EINVAL, "%s has no function " #name REMEDY, path); \
    memcpy(&out->name, &symbol, sizeof symbol);
#include "functions.def"
#undef GM_DNN
    if (out->cudnnGetVersion() < GM_DNN_OLDEST)
        return GM_FAIL(GM_EINVAL, "%s is cuDNN %zu" REMEDY, path, out->cudnnGetVersion());
    return GM_OK;
}

gm_status gm_dnn_failed(const gm_dnn_library *lib, cudnnStatus_t status, const char *file, int line, const char *what)
{
    char words[512] = "";
    lib->cudnnGetLastErrorString(words, sizeof words);
    gm_status st = GM_EIO;
    if (status == CUDNN_STATUS_ALLOC_FAILED) st = GM_ENOMEM;
    if (status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR) st = GM_EINVAL;
    return gm_fail(st, file, line, "cuDNN failed: %s (%s) in %s", lib->cudnnGetErrorString(status), words, what);
}
