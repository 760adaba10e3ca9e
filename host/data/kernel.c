/* kernel.c - see kernel.h. */
#define _GNU_SOURCE
#include "kernel.h"

#include <dlfcn.h>
#include <stdio.h>

_Static_assert(GM_KERNEL_DIMS == GM_MAX_DIMS, "samples have as many dimensions as tensors");

/* The library of what lies at this address stays loaded. NULL: it lies in none. */
static const char *pin(const void *address)
{
    Dl_info about;
    if (!dladdr(address, &about) || !about.dli_fname) return NULL;
    void *handle = dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    if (handle) dlclose(handle); /* else it is the program itself */
    return about.dli_fname;
}

gm_status gm_kernel_at(const void *address, const gm_transform_kernel **out)
{
    const gm_transform_kernel *k = address;
    const char                *library = pin(address);
    if (!library) return GM_FAIL(GM_EINVAL, "this transform kernel lies in no shared library");
    bool aligned = (uintptr_t)address % _Alignof(gm_transform_kernel) == 0; /* a function need not be */
    if (!aligned || k->magic != GM_KERNEL_MAGIC || k->call_size != sizeof(gm_kernel_call))
        return GM_FAIL(GM_EINVAL,
                       "%s: what has this name is no transform kernel (GM_TRANSFORM_KERNEL of transform_kernel.h makes "
                       "one), or was compiled with the header of another version",
                       library);
    if (!k->run || !pin((const void *)(uintptr_t)k->run))
        return GM_FAIL(
            GM_EINVAL,
            "%s: the function of this transform kernel is none of a shared library; a function in Lua cannot "
            "run on the loader's threads",
            library);
    *out = k;
    return GM_OK;
}

gm_status gm_kernel_open(const char *library, const char *symbol, const gm_transform_kernel **out)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) return GM_FAIL(GM_EIO, "the library of a transform cannot be loaded: %s", dlerror());
    void     *address = dlsym(handle, symbol);
    gm_status st = address ? gm_kernel_at(address, out)
                           : GM_FAIL(GM_EINVAL, "%s: has no transform kernel '%s'", library, symbol);
    dlclose(handle);
    return st;
}

gm_status gm_kernel_run(const gm_kernel_use *k, gm_kernel_call *call)
{
    char error[GM_KERNEL_ERROR] = "";
    call->dtype = k->dtype == GM_U8 ? GM_KERNEL_U8 : GM_KERNEL_F64;
    call->n_parameters = k->n_parameters;
    call->parameters = k->parameters;
    call->user = k->user;
    call->error = error;
    int rc = k->kernel->run(call);
    if (!rc) return GM_OK;
    error[sizeof error - 1] = 0;
    return error[0] ? GM_FAIL(GM_EINVAL, "transform '%s': %s", k->name, error)
                    : GM_FAIL(GM_EINVAL, "transform '%s' returned %d", k->name, rc);
}
