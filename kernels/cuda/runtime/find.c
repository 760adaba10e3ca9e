/* find.c - see find.h. Part of the program, not of the module: knows neither CUDA's headers nor its libraries. */
#define _GNU_SOURCE
#include "find.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../../beside.h"

static gm_status fail_with_text(gm_status s, const char *file, int line, const char *text)
{
    return gm_fail(s, file, line, "%s", text);
}

static const gm_host_api host = {
    .size = sizeof host,
    .version = GM_CUDA_VERSION,
    .fail = fail_with_text,
#define GM_HOST(result, name, parameters, arguments) .name = name,
#include "host_api.def"
#undef GM_HOST
};

/* The module stays loaded: opening it again finds the same tables. */
gm_status gm_cuda_load(gm_cuda_api *out)
{
    char                  path[PATH_MAX];
    gm_cuda_open_function open;
    GM_TRY(gm_path_beside(GM_CUDA_MODULE, path, sizeof path));
    if (access(path, R_OK))
        return GM_FAIL(GM_EINVAL,
                       "this build has no CUDA (%s is not there): build with a CUDA toolkit (cmake --preset cuda), or "
                       "train on the CPU (--device cpu)",
                       path);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) return GM_FAIL(GM_EINVAL, "cannot load the CUDA module: %s; build again", dlerror());
    void *symbol = dlsym(module, GM_CUDA_OPEN);
    if (!symbol) return GM_FAIL(GM_EINVAL, "%s has no function " GM_CUDA_OPEN "; build again", path);
    memcpy(&open, &symbol, sizeof open);
    *out = (gm_cuda_api){.size = sizeof *out, .version = GM_CUDA_VERSION};
    if (open(&host, out))
        return GM_FAIL(GM_EINVAL, "%s is of another build (version %d, this program has %d); build again", path,
                       out->version, GM_CUDA_VERSION);
    return GM_OK;
}

gm_status gm_cuda_find(const gm_backend **out)
{
    gm_cuda_api api;
    GM_TRY(gm_cuda_load(&api));
    *out = api.backend;
    return GM_OK;
}
