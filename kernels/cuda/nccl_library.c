/* nccl_library.c - see nccl_library.h. */
#include "nccl_library.h"

#include <dlfcn.h>
#include <string.h>

gm_status gm_nccl_load(const char *path, gm_nccl_library *out)
{
    void *symbol;
    if (!strcmp(path, "none")) return GM_FAIL(GM_EINVAL, "NCCL was not to be used (GANYMEDE_CUDA_NCCL=none)");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return GM_FAIL(GM_EINVAL, "there is no NCCL here (%s); install libnccl2, or put it on LD_LIBRARY_PATH",
                       dlerror());
#define GM_NCCL(name)                                                                                         \
    if (!(symbol = dlsym(library, #name)))                                                                    \
        return GM_FAIL(GM_EINVAL, "%s has no function " #name "; NCCL 2.28 is the oldest that serves", path); \
    memcpy(&out->name, &symbol, sizeof symbol);
#define GM_NCCL_MAYBE(name)         \
    symbol = dlsym(library, #name); \
    memcpy(&out->name, &symbol, sizeof symbol);
#include "nccl_functions.def"
#undef GM_NCCL
#undef GM_NCCL_MAYBE
    ncclResult_t r = out->ncclGetVersion(&out->version);
    if (r != ncclSuccess) return gm_nccl_failed(out, NULL, r, __FILE__, __LINE__, "ncclGetVersion");
    if (out->version < GM_NCCL_OLDEST)
        return GM_FAIL(GM_EINVAL, "%s is NCCL %d.%d.%d; 2.28 is the oldest that serves", path, out->version / 10000,
                       out->version / 100 % 100, out->version % 100);
    return GM_OK;
}

gm_status gm_nccl_failed(const gm_nccl_library *lib, ncclComm_t comm, ncclResult_t r, const char *file, int line,
                         const char *what)
{
    const char *words = lib->ncclGetLastError(comm);
    return gm_fail(GM_ECOMM, file, line, "NCCL failed: %s%s%s in %s", lib->ncclGetErrorString(r),
                   words && *words ? ": " : "", words ? words : "", what);
}
